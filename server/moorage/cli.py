"""``moorage``: serve, worker, token, settings."""

from __future__ import annotations

import argparse
import os
import sys
from importlib.metadata import version

from moorage import settings as settings_module
from moorage.errors import ConfigurationError

EPILOG = """\
examples:
  moorage serve                                      one process, everything in memory, on port 3005
  REDIS_URL=redis://127.0.0.1 SECRET_KEY=… moorage serve
                                                     one replica of many
  REDIS_URL=redis://127.0.0.1 SECRET_KEY=… MOORAGE_TASKS=myapp.tasks moorage worker
                                                     a process that runs the handlers of myapp/tasks.py
  moorage token --account alice                      a token for development, signed with SECRET_KEY
  moorage settings                                   every environment variable, its default and meaning

exit codes: 0 done (also after a drain), 1 failed while running, 2 wrong usage or configuration
"""

WORKER = """\
Run tasks until SIGTERM or SIGINT. Configured by the environment alone, as the replicas are: the same REDIS_URL and
SECRET_KEY, STATE_URL too if they have one.

MOORAGE_TASKS names the Python modules that register handlers, comma separated (default: moorage.tasks.demo, which
plays an agent). They are looked for where Python looks, then in the working directory:

  # myapp/tasks.py
  import moorage

  @moorage.task("summarise")
  async def summarise(task, input):
      await task.report("step", {"text": "reading"}, key="1/read")
      size = await task.ask("How long may it be?", timeout=60)
      return {"summary": "…", "size": size}
"""

WORKER_EPILOG = """\
A task is started by POST /v1/sessions/{id}/tasks {"input": …, "handler": "summarise"}. MOORAGE_TASK_HANDLER, set on
the replicas, is the handler of a task that names none.

examples:
  MOORAGE_TASKS=myapp.tasks moorage worker --list    import the modules, print the handlers, exit
  MOORAGE_WORKER_CONCURRENCY=4 … moorage worker      at most four tasks at once

signals: after SIGTERM or SIGINT no task is taken; what runs has MOORAGE_DRAIN_MS (20 s) to end, is then cancelled and
handed back, and another worker begins it anew. A second SIGINT does that at once. A handler that ignores its
cancellation is left behind: the process ends all the same. A killed worker's tasks are taken over
MOORAGE_TASK_TAKEOVER_MS (4 s) later.
METRICS_PORT serves /metrics and /health; nothing else listens.

exit codes: 0 done, 1 failed while running, 2 wrong usage or configuration
"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    root = argparse.ArgumentParser(
        prog="moorage",
        description="Socket.IO on many replicas: RPC, broadcast and sessions that survive the loss of any of them.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("--version", action="version", version=f"moorage {version('moorage')}")
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser(
        "serve",
        help="run a replica",
        description="Run a replica until SIGTERM or SIGINT, which drain it; another SIGINT ends the drain. Configured"
        " by the environment alone.",
    )
    worker = commands.add_parser(
        "worker",
        help="run tasks",
        description=WORKER,
        epilog=WORKER_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    worker.add_argument(
        "--list", action="store_true", help="print the handlers that MOORAGE_TASKS registers, and exit"
    )
    token = commands.add_parser("token", help="print a token for development, signed with SECRET_KEY")
    token.add_argument("--account", required=True, help="the account: subject of the token")
    token.add_argument("--ttl-ms", type=int, help="life in milliseconds (default: MOORAGE_TOKEN_TTL_MS)")
    settings = commands.add_parser(
        "settings", help="print every environment variable, its default and meaning"
    )
    settings.add_argument("--markdown", action="store_true", help="as the page docs/settings.md")
    return root


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = parser().parse_args(argv)
    try:
        if arguments.command == "settings":
            return _settings(arguments.markdown)
        if arguments.command == "token":
            return _token(arguments.account, arguments.ttl_ms)
        if arguments.command == "worker":
            return _worker(arguments.list)
        return _serve()
    except ConfigurationError as error:
        print(f"moorage: {error}", file=sys.stderr)
        return 2


def _settings(markdown: bool) -> int:
    if markdown:
        _print(settings_module.markdown().removesuffix("\n"))
        return 0
    rows = settings_module.table()
    width = max(len(name) for name, _, _ in rows)
    _print(*(f"{name:<{width}}  {default or '-':<10}  {meaning}" for name, default, meaning in rows))
    return 0


def _print(*lines: str) -> None:
    """Whoever reads it may stop at any line, as ``head`` does."""
    try:
        print(*lines, sep="\n", flush=True)
    except BrokenPipeError:
        # Python writes what is left once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _token(account: str, ttl_ms: int | None) -> int:
    from moorage.accounts.tokens import Tokens

    overrides = {} if ttl_ms is None else {"token_ttl_ms": ttl_ms}
    settings = settings_module.load(**overrides)
    if not os.environ.get("SECRET_KEY"):
        raise ConfigurationError(
            "SECRET_KEY must be set to the key of the replicas, or they will not accept the token"
        )
    try:
        _print(Tokens(settings).issue(account))
    except ValueError as error:
        raise ConfigurationError(f"--account: {error}") from None
    return 0


def _worker(only_list: bool) -> int:
    settings = settings_module.load()
    if only_list:
        from moorage.tasks.handlers import load

        _print(*sorted(load(settings.tasks)))
        return 0
    from moorage.worker import main as work

    return work(settings)


def _serve() -> int:
    from moorage.serve import serve

    return serve(settings_module.load())


if __name__ == "__main__":
    sys.exit(main())
