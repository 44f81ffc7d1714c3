"""``moorage``: serve, token, settings."""

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
  moorage token --account alice                      a token for development, signed with SECRET_KEY
  moorage settings                                   every environment variable, its default and meaning

exit codes: 0 done (also after a drain), 1 failed while running, 2 wrong usage or configuration
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
        description="Run a replica until SIGTERM or SIGINT, which drain it. Configured by the environment alone.",
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
        return _serve()
    except ConfigurationError as error:
        print(f"moorage: {error}", file=sys.stderr)
        return 2


def _settings(markdown: bool) -> int:
    if markdown:
        print(settings_module.markdown(), end="")
        return 0
    rows = settings_module.table()
    width = max(len(name) for name, _, _ in rows)
    for name, default, meaning in rows:
        print(f"{name:<{width}}  {default or '-':<10}  {meaning}")
    return 0


def _token(account: str, ttl_ms: int | None) -> int:
    from moorage.accounts.tokens import Tokens

    overrides = {} if ttl_ms is None else {"token_ttl_ms": ttl_ms}
    settings = settings_module.load(**overrides)
    if not os.environ.get("SECRET_KEY"):
        raise ConfigurationError(
            "SECRET_KEY must be set to the key of the replicas, or they will not accept the token"
        )
    try:
        print(Tokens(settings).issue(account))
    except ValueError as error:
        raise ConfigurationError(f"--account: {error}") from None
    return 0


def _serve() -> int:
    from moorage.serve import serve

    return serve(settings_module.load())


if __name__ == "__main__":
    sys.exit(main())
