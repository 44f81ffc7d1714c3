"""The undo journal: what must be taken back, on disk before it is done.

One file per harness process, JSON lines: a header ``{"format": 1, "pid", "start"}``, records ``{"n", "do", …}``,
and ``{"done": n}``. What ``recover`` knows to do:

==============  ========================================================================
``end``         ``tag``: SIGKILL every process whose environment carries it
``cont``        ``pid, start``: SIGCONT that very process
``rmtree``      ``path``: a folder of ours in the folder for temporary files
``netns``       ``name``: a network namespace of ours, with its devices
``kubernetes``  ``what``, see :mod:`moorage_chaos.drivers.kubernetes_recover`
==============  ========================================================================

What could not be undone stays in the file, for the next ``recover``.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any

from moorage_chaos.drivers import namespaces, procfs
from moorage_chaos.drivers.base import DriverError

FORMAT = 1
TEMP_PREFIX = "moorage-chaos-"
"""Of every folder we make; nothing else is ever removed."""


def journal_folder() -> Path:
    """Where journals of this user lie. Raises OSError if somebody else owns that folder."""
    folder = Path(tempfile.gettempdir()) / f"{TEMP_PREFIX}journals-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    info = folder.lstat()
    # A journal makes us signal processes: it must be our own.
    if info.st_uid != os.getuid() or info.st_mode & 0o022 or not folder.is_dir() or folder.is_symlink():
        raise PermissionError(f"{folder} is not ours alone")
    return folder


class FileJournal:
    """Meets :class:`moorage_chaos.faults.base.Journal`."""

    def __init__(self, folder: Path | None = None) -> None:
        pid = os.getpid()
        self.path = (folder or journal_folder()) / f"{pid}-{os.urandom(3).hex()}.jsonl"
        self._file = self.path.open("xb")
        self._next = 0
        self._open: set[int] = set()
        self._append({"format": FORMAT, "pid": pid, "start": procfs.start_time(pid)})

    def _append(self, row: dict[str, Any]) -> None:
        self._file.write(json.dumps(row).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def write(self, record: dict[str, Any]) -> int:
        self._next += 1
        self._append({"n": self._next, **record})
        self._open.add(self._next)
        return self._next

    def done(self, number: int) -> None:
        if number in self._open:
            self._open.discard(number)
            self._append({"done": number})

    def close(self) -> None:
        """Remove the file if nothing is left to undo; else leave it to ``recover``."""
        self._file.close()
        if not self._open:
            self.path.unlink(missing_ok=True)


def read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """``(header, open records, newest first)``. A torn last line (death while writing) is left out.

    Raises ValueError if the file is no journal.
    """
    rows: list[dict[str, Any]] = []
    for line in path.read_bytes().split(b"\n"):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    if not rows or rows[0].get("format") != FORMAT:
        raise ValueError(f"{path} is no journal of format {FORMAT}")
    finished = {row["done"] for row in rows if "done" in row}
    return rows[0], [row for row in reversed(rows[1:]) if "n" in row and row["n"] not in finished]


def undo(record: dict[str, Any]) -> str:
    """Do what a record says; one line about what was done."""
    match record.get("do"):
        case "end":
            ended = [
                pid
                for pid, start in procfs.tagged(str(record["tag"]))
                if procfs.send(pid, start, signal.SIGKILL)
            ]
            return f"ended {len(ended)} processes {ended}" if ended else "no process was left"
        case "cont":
            pid = int(record["pid"])
            woken = procfs.send(pid, int(record["start"]), signal.SIGCONT)
            return f"woke process {pid}" if woken else f"process {pid} is gone"
        case "rmtree":
            path = Path(str(record["path"]))
            if not path.name.startswith(TEMP_PREFIX):
                return f"left {path}: not a folder of ours"
            shutil.rmtree(path, ignore_errors=True)
            return f"removed {path}"
        case "netns":
            return namespaces.delete(str(record["name"]))
        case "kubernetes":
            from moorage_chaos.drivers import kubernetes_recover  # half a second that local runs do without

            return kubernetes_recover.undo(record)
    return f"left as it is: {record}"


def recover(folder: Path | None = None) -> list[str]:
    """Undo what harnesses that are dead left behind; a line for each thing done. Living harnesses are left
    alone."""
    told: list[str] = []
    for path in sorted((folder or journal_folder()).glob("*.jsonl")):
        try:
            header, records = read(path)
        except (OSError, ValueError) as error:
            told.append(f"{path.name}: {error}")
            continue
        if procfs.is_same(int(header.get("pid", 0)), int(header.get("start", 0))):
            told.append(f"harness {header['pid']} lives, left alone")
            continue
        left = False
        for record in records:
            try:
                told.append(undo(record))
            except (KeyError, ValueError, OSError, DriverError) as error:
                # A cluster may be away for now; a record that makes no sense will not make more of it later.
                left = left or isinstance(error, DriverError)
                told.append(f"could not undo {record}: {error}")
        if not left:
            path.unlink(missing_ok=True)
    return told
