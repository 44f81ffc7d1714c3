"""Faults of a pod's network, made in its own network namespace, and what the kernel knows of its connections.

A *side* is ``client`` (connections to the server's port) or ``redis`` (connections from it to Redis). Each side has two
chains of its own in the filter table, so that healing removes exactly what was put there.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

Side = Literal["client", "redis"]
Direction = Literal["both", "up", "down"]
PREFIX = "MOORAGE-CHAOS"
HANDLE = "6d6f:"
"""Of our queueing discipline: one that somebody else set is left alone."""
POLICED_PACKETS_S = 100
"""[packets/s] Where the kernel has no netem, a slow link is one that drops what comes faster than this."""
COMMAND_BOUND_S = 10.0
_ESTABLISHED = "01"
_STATE = re.compile(r"\b(ESTABLISHED|SYN_SENT|SYN_RECV|FIN_WAIT|CLOSE_WAIT|LAST_ACK|TIME_WAIT|CLOSE)\b")


class NetworkError(Exception):
    """A command failed; its own words."""


def match(side: Side, port: int, inward: bool) -> list[str]:
    """The packets of a side: ``inward`` as they reach the pod, else as they leave it."""
    ours = (side == "client") == inward
    return ["-p", "tcp", "--dport" if ours else "--sport", str(port)]


def chains(side: Side) -> tuple[str, str]:
    """Names of the chains for what comes in and what goes out."""
    return f"{PREFIX}-{side}-in", f"{PREFIX}-{side}-out"


def rules(side: Side, port: int, do: str, direction: Direction = "both") -> str:
    """Input of ``iptables-restore --noflush`` that puts a fault in force.

    ``refuse`` resets what begins; ``drop`` swallows (``up`` is towards the server or Redis, ``down`` the way back);
    ``police`` drops what comes faster than :data:`POLICED_PACKETS_S`. Raises ValueError for anything else.
    """
    into, out = chains(side)
    # For the server `up` comes in; for Redis it goes out.
    ways = {"both": (True, False), "up": (side == "client",), "down": (side != "client",)}[direction]
    lines = []
    for inward in ways:
        chain, packets = (into if inward else out), " ".join(match(side, port, inward))
        if do == "drop":
            lines.append(f"-A {chain} {packets} -j DROP")
        elif do == "police":
            burst = max(1, POLICED_PACKETS_S // 20)
            lines += [
                f"-A {chain} {packets} -m limit --limit {POLICED_PACKETS_S}/second --limit-burst {burst} -j RETURN",
                f"-A {chain} {packets} -j DROP",
            ]
        elif do == "refuse":
            if inward == (side == "client"):  # where a connection begins
                lines.append(f"-A {chain} {packets} --syn -j REJECT --reject-with tcp-reset")
        else:
            raise ValueError(f"unknown fault {do!r}")
    jumps = [f"-I INPUT 1 -j {into}", f"-I OUTPUT 1 -j {out}"]
    return "\n".join(["*filter", f":{into} - [0:0]", f":{out} - [0:0]", *jumps, *lines, "COMMIT", ""])


def removal(listing: str, side: Side | None = None) -> str:
    """Input of ``iptables-restore --noflush`` that removes what ``iptables -S`` shows of ours; empty if nothing."""
    wanted = f"{PREFIX}-{side}-" if side else f"{PREFIX}-"
    jumps, flushes, deletions = [], [], []
    for line in listing.splitlines():
        words = line.split()
        if len(words) >= 4 and words[0] == "-A" and words[-1].startswith(wanted) and words[-2] == "-j":
            jumps.append("-D " + " ".join(words[1:]))
        elif len(words) == 2 and words[0] == "-N" and words[1].startswith(wanted):
            flushes.append(f"-F {words[1]}")
            deletions.append(f"-X {words[1]}")
    lines = [*jumps, *flushes, *deletions]
    return "\n".join(["*filter", *lines, "COMMIT", ""]) if lines else ""


def run(pid: int, argv: Sequence[str], text: str | None = None, *, check: bool = True) -> str:
    """Run a command in the network namespace of a process; what it printed. Raises NetworkError."""
    command = ["nsenter", f"--net=/proc/{pid}/ns/net", "--", *argv]
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=COMMAND_BOUND_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NetworkError(f"{argv[0]}: {error}") from error
    if check and done.returncode:
        raise NetworkError(f"{argv[0]}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def heal(pid: int, side: Side | None = None) -> bool:
    """Remove our rules (of one side, or all) and our queueing discipline; whether there was anything."""
    script = removal(run(pid, ["iptables", "-w", "5", "-S"]), side)
    if script:
        run(pid, ["iptables-restore", "--noflush", "-w", "5"], script)
    shaped = False
    if side != "redis":
        for device in _devices(pid):
            if HANDLE in run(pid, ["tc", "qdisc", "show", "dev", device], check=False):
                run(pid, ["tc", "qdisc", "del", "dev", device, "root"])
                shaped = True
    return bool(script) or shaped


def in_force(pid: int) -> list[str]:
    """Our rules in a pod's network namespace, as ``iptables -S`` shows them; empty too where it cannot be asked."""
    listing = run(pid, ["iptables", "-w", "5", "-S"], check=False)
    return [line for line in listing.splitlines() if line.startswith(f"-A {PREFIX}-")]


def _devices(pid: int) -> list[str]:
    try:
        lines = Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]
    except OSError:
        return []
    return [name for line in lines if (name := line.split(":")[0].strip()) != "lo"]


def apply(pid: int, side: Side, port: int, do: str, direction: Direction = "both") -> int:
    """Put one fault of a side in force, in place of any other of that side; monotonic ns just before."""
    heal(pid, side)
    moment = time.monotonic_ns()
    run(pid, ["iptables-restore", "--noflush", "-w", "5"], rules(side, port, do, direction))
    return moment


def slow(pid: int, side: Side, port: int, delay_ms: float, bytes_per_s: int) -> str:
    """``netem`` where the kernel has it (delay on what leaves, twice, so that a round trip is right), else ``police``;
    which of them it was."""
    heal(pid, side)
    devices = _devices(pid)
    if side == "client" and devices:
        shape = ["tc", "qdisc", "add", "dev", devices[0], "root", "handle", HANDLE, "netem"]
        if delay_ms:
            shape += ["delay", f"{2 * delay_ms:g}ms"]
        if bytes_per_s:
            shape += ["rate", f"{bytes_per_s * 8}bit"]
        try:
            run(pid, shape)
            return "netem"
        except NetworkError:  # sch_netem is a module that many node images leave out
            pass
    run(pid, ["iptables-restore", "--noflush", "-w", "5"], rules(side, port, "police"))
    return f"policed at {POLICED_PACKETS_S} packets/s"


def cut(pid: int, side: Side, port: int) -> int:
    """Reset every established connection of a side; how many. Raises NetworkError if the kernel cannot."""
    expression = f"( {'sport' if side == 'client' else 'dport'} = :{port} )"
    argv = ["ss", "-K", "-t", "-n", "-H", "state", "established", expression]
    before = established(pid, side, port)
    killed = len(run(pid, argv).splitlines())  # ss lists what it could destroy, and says nothing of the rest
    if before and not killed and (left := established(pid, side, port)):
        raise NetworkError(f"{left} connections live on: this kernel has no INET_DIAG_DESTROY")
    return killed


def established(pid: int, side: Side, port: int) -> int:
    """Established TCP connections of a side, as the pod's network namespace lists them."""
    count = 0
    for name in ("tcp", "tcp6"):
        try:
            count += len(
                list(_rows(Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:], side, port))
            )
        except OSError:
            continue
    return count


def _rows(lines: Iterable[str], side: Side, port: int) -> Iterable[str]:
    """Lines of /proc/net/tcp (proc(5): local address, remote address, state)."""
    wanted = f":{port:04X}"
    for line in lines:
        fields = line.split()
        address = fields[1] if side == "client" else fields[2]
        if fields[3] == _ESTABLISHED and address.endswith(wanted):
            yield line


def conntrack(address: str, port: int) -> dict[str, int] | None:
    """What the node tracks of TCP connections to ``address:port``: count by state; None where that cannot be seen."""
    try:
        text = Path("/proc/net/nf_conntrack").read_text()
    except OSError:
        try:
            done = subprocess.run(
                ["conntrack", "-L", "-p", "tcp"], capture_output=True, text=True, timeout=COMMAND_BOUND_S
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        if done.returncode:
            return None
        text = done.stdout
    return tracked(text, address, port)


def tracked(text: str, address: str, port: int) -> dict[str, int]:
    """Count by state of the entries whose reply comes from ``address:port`` (so NAT does not hide them)."""
    counts: dict[str, int] = {}
    for line in text.splitlines():
        fields = line.split()
        if "tcp" not in fields[:3] or f"src={address}" not in fields or f"sport={port}" not in fields:
            continue
        found = _STATE.search(line)
        name = found.group(1) if found else "UNKNOWN"
        counts[name] = counts.get(name, 0) + 1
    return counts
