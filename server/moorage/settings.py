"""Every environment variable, its unit, default and reason, in one place.

Names: ``PORT METRICS_PORT METRICS_ENABLED REDIS_URL STATE_URL REDIS_CA_FILE SECRET_KEY`` as written; every
other one carries the prefix ``MOORAGE_``. An empty value is unset. Times are milliseconds.
``moorage settings`` prints this table; docs/settings.md is generated from it.
"""

from __future__ import annotations

import os
import secrets
import socket
from typing import Annotated, Any

from pydantic import AliasChoices, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from moorage.errors import ConfigurationError

SECRET_KEY_MIN_BYTES = 32
"""HS256 wants a key at least as long as its digest (RFC 7518, section 3.2)."""


def _plain(name: str, default: Any, why: str, **bounds: Any) -> Any:
    """A variable without prefix."""
    return Field(default, validation_alias=AliasChoices(name, name.lower()), description=why, **bounds)


def _ms(default: int, why: str, *, ge: int = 0) -> Any:
    return Field(default, description=f"[ms] {why}", ge=ge)


class Settings(BaseSettings):
    """What one replica needs to know. Build with :func:`load`, which turns bad values into one clear error."""

    model_config = SettingsConfigDict(
        env_prefix="MOORAGE_",
        env_ignore_empty=True,
        case_sensitive=False,
        extra="ignore",
        populate_by_name=True,
    )

    # -- process ---------------------------------------------------------------------------------------
    host: str = Field("0.0.0.0", description="address to listen on")
    port: int = _plain("PORT", 3005, "HTTP API and Socket.IO", ge=0, le=65535)
    metrics_port: int = _plain("METRICS_PORT", 9090, "GET /metrics, on a listener of its own", ge=0, le=65535)
    metrics_enabled: bool = _plain("METRICS_ENABLED", True, "serve /metrics")
    log_level: str = Field("info", description="debug, info, warning or error")
    log_format: str = Field(
        "text", pattern="^(text|json)$", description="text for people, json for collectors"
    )
    replica_id: str = Field(
        "",
        description="name of this replica, unique in the cluster; default: host name (the pod's) and a suffix",
    )
    peers_host: str = Field(
        "", description="headless Service of all replicas; /ready asks them before it blames Redis on itself"
    )

    # -- Redis -----------------------------------------------------------------------------------------
    redis_url: str | None = _plain(
        "REDIS_URL", None, "cluster stream, requests, event log; unset: one process"
    )
    state_url: str | None = _plain("STATE_URL", None, "sessions, messages, tasks, results; default REDIS_URL")
    redis_ca_file: str | None = _plain("REDIS_CA_FILE", None, "CA bundle for rediss://")
    redis_timeout_ms: int = _ms(
        2000, "bound of one Redis reply; later it is unknown and the link is renewed", ge=50
    )
    redis_stall_ms: int = _ms(
        500, "an unanswered command older than this makes the backplane unavailable to new calls", ge=50
    )

    # -- accounts --------------------------------------------------------------------------------------
    secret_key: str | None = _plain(
        "SECRET_KEY", None, "signs tokens and recovery ids; equal on all replicas"
    )
    token_ttl_ms: int = _ms(30 * 86_400_000, "life of a token from /v1/auth", ge=1000)
    token_issuer: str = Field("moorage", description="`iss` of our own tokens")
    auth_challenge_max_age_ms: int = _ms(
        0, "0: any challenge; else the challenge must start with its epoch milliseconds, at most this old"
    )
    jwks_url: str = Field("", description="JWKS of an outside issuer whose tokens are accepted too")
    jwks_issuer: str = Field("", description="`iss` that outside tokens must carry")
    jwks_audience: str = Field("", description="`aud` that outside tokens must carry")
    jwks_cache_ms: int = _ms(600_000, "how long the issuer's keys are kept", ge=1000)

    # -- Socket.IO -------------------------------------------------------------------------------------
    socketio_path: str = Field("/v1/updates", description="path of the Socket.IO endpoint")
    cors_allowed_origins: Annotated[list[str], NoDecode] = Field(
        default=["*"], description="comma separated; * is everybody"
    )
    ping_interval: int = _ms(15_000, "Engine.IO pingInterval", ge=100)
    ping_timeout: int = _ms(45_000, "Engine.IO pingTimeout", ge=100)
    max_payload_bytes: int = Field(1_000_000, ge=1024, description="[bytes] largest message of a client")
    socket_max_buffer_bytes: int = Field(
        16_777_216, ge=65536, description="[bytes] queued to one slow Socket.IO client before it is closed"
    )
    recovery_window_ms: int = _ms(120_000, "connection state recovery; 0: off")

    # -- cluster ---------------------------------------------------------------------------------------
    stream_name: str = Field("socket.io", description="Redis stream of the adapter (wire format 0.3.x)")
    stream_maxlen: int = Field(200_000, ge=100, description="[entries] MAXLEN ~ of that stream")
    stream_read_count: int = Field(2000, ge=1, description="[entries] COUNT of one XREAD")
    channel_prefix: str = Field("socket.io", description="prefix of the adapter's pub/sub channels")
    beat_interval_ms: int = _ms(200, "a replica says it lives this often", ge=20)
    beat_misses: int = Field(6, ge=2, description="missed beats that are evidence of a hang or a partition")

    # -- RPC -------------------------------------------------------------------------------------------
    rpc_reconnect_grace_ms: int = _ms(15_000, "how long a call waits for its target to (re)appear")
    rpc_call_timeout_ms: int = _ms(30_000, "deadline of a call without timeoutMs, from rpc-request", ge=1)
    rpc_call_timeout_max_ms: int = _ms(600_000, "larger timeoutMs are clamped to this", ge=1)
    rpc_max_in_flight_per_socket: int = Field(
        256, ge=1, description="calls of one socket before `overloaded`"
    )
    rpc_max_methods_per_socket: int = Field(1000, ge=1, description="registrations of one socket")
    presence_timeout_ms: int = _ms(2000, "bound of has_active_ui_client", ge=50)

    # -- tasks -----------------------------------------------------------------------------------------
    tasks: Annotated[list[str], NoDecode] = Field(
        default=["moorage.tasks.demo"],
        description="Python modules with task handlers, comma separated; workers import them",
    )
    task_handler: str = Field("demo", description="handler of a task that names none")
    worker_concurrency: int = Field(16, ge=1, le=10_000, description="tasks that one worker runs at once")
    task_heartbeat_ms: int = _ms(1000, "a worker says this often that its tasks live", ge=50)
    task_takeover_ms: int = _ms(
        4000, "a task whose worker was not heard of for so long is given to another", ge=200
    )
    task_attempts: int = Field(
        5, ge=1, description="workers that may die of a task before it counts as failed"
    )
    task_timeout_ms: int = _ms(3_600_000, "longest run of a handler; 0: no limit")
    task_result_max_bytes: int = Field(
        1_000_000, ge=1024, description="[bytes] largest result of a task, as JSON"
    )
    task_keep_ms: int = _ms(7 * 86_400_000, "an ended task's status and result are kept so long; 0: for ever")

    # -- event log -------------------------------------------------------------------------------------
    event_log_maxlen: int = Field(200, ge=1, description="[entries] MAXLEN ~ of a session's event log")
    event_log_ttl_ms: int = _ms(21_600_000, "a log expires this long after its last event", ge=1000)
    event_max_bytes: int = Field(65_536, ge=256, description="[bytes] of JSON, largest `data` of an event")
    event_channel: str = Field("moorage:live", description="pub/sub channel of live events")
    event_ping_ms: int = _ms(15_000, "between two pings to a reader; three of them in silence end it", ge=100)
    reader_max_buffer_bytes: int = Field(
        4_194_304,
        ge=65_536,
        description="[bytes] unsent to one reader of an event log before it is closed (4408)",
    )

    # -- drain -----------------------------------------------------------------------------------------
    drain_ms: int = _ms(20_000, "window over which sockets are closed after SIGTERM")

    # -- page ------------------------------------------------------------------------------------------
    console_enabled: bool = Field(False, description="serve /console")

    @field_validator("cors_allowed_origins", "tasks", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return (
            [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
        )

    @field_validator("log_level")
    @classmethod
    def _level(cls, value: str) -> str:
        if value.lower() not in ("debug", "info", "warning", "error"):
            raise ValueError("one of debug, info, warning, error")
        return value.lower()

    @model_validator(mode="after")
    def _together(self) -> Settings:
        if self.secret_key is not None and len(self.secret_key.encode()) < SECRET_KEY_MIN_BYTES:
            raise ValueError(f"SECRET_KEY must have at least {SECRET_KEY_MIN_BYTES} bytes")
        if self.redis_url and not self.secret_key:
            raise ValueError(
                "SECRET_KEY is required while REDIS_URL is set: all replicas must sign with the same key"
            )
        for name in ("redis_url", "state_url"):
            url = getattr(self, name)
            if url and not url.startswith(("redis://", "rediss://", "unix://")):
                raise ValueError(f"{name.upper()} must start with redis://, rediss:// or unix://")
        if self.rpc_call_timeout_ms > self.rpc_call_timeout_max_ms:
            raise ValueError("MOORAGE_RPC_CALL_TIMEOUT_MS must not exceed MOORAGE_RPC_CALL_TIMEOUT_MAX_MS")
        if self.task_takeover_ms < 2 * self.task_heartbeat_ms:
            raise ValueError("MOORAGE_TASK_TAKEOVER_MS must be at least twice MOORAGE_TASK_HEARTBEAT_MS")
        if self.secret_key is None:
            # One process without Redis: tokens live as long as the process, which is all that can use them.
            self.secret_key = secrets.token_urlsafe(48)
        if not self.replica_id:
            self.replica_id = f"{socket.gethostname()}-{secrets.token_hex(3)}"
        return self

    @property
    def effective_state_url(self) -> str | None:
        """``STATE_URL``, else ``REDIS_URL``; None keeps the state in memory."""
        return self.state_url or self.redis_url


def variable_of(field: str) -> str:
    """Name of the environment variable that sets ``field``."""
    alias = Settings.model_fields[field].validation_alias
    return str(alias.choices[0]) if isinstance(alias, AliasChoices) else f"MOORAGE_{field.upper()}"


def load(**overrides: Any) -> Settings:
    """Settings from the environment; ``overrides`` win.

    Raises :class:`~moorage.errors.ConfigurationError` whose text names each variable and what is wrong.
    A secret's value never appears in it.
    """
    try:
        return Settings(**overrides)
    except ValidationError as error:
        lines = []
        for item in error.errors(include_input=False, include_url=False):
            field = next((str(part) for part in item["loc"]), "")
            known = next(
                (f for f in Settings.model_fields if field.lower() in (f, variable_of(f).lower())), None
            )
            message = item["msg"].removeprefix("Value error, ")
            lines.append(f"{variable_of(known)}: {message}" if known else message)
        raise ConfigurationError("; ".join(lines)) from None


def table() -> list[tuple[str, str, str]]:
    """``(variable, default, meaning)`` of every setting, in the order of the source."""
    rows = []
    for name, field in Settings.model_fields.items():
        default = field.get_default(call_default_factory=True)
        shown = (
            "" if default in (None, "") else ",".join(default) if isinstance(default, list) else str(default)
        )
        rows.append(
            (
                variable_of(name),
                shown.lower() if isinstance(default, bool) else shown,
                field.description or "",
            )
        )
    return rows


def markdown() -> str:
    """The page docs/settings.md: :func:`table` as Markdown. ``make docs`` writes it."""
    lines = [
        "# Settings",
        "",
        "Generated by `make docs` from `moorage/settings.py`; `moorage settings` prints the same.",
        "",
    ]
    lines += ["Times are milliseconds, sizes bytes. An empty value is unset.", ""]
    lines += ["| variable | default | meaning |", "|---|---|---|"]
    lines += [
        f"| `{name}` | {f'`{default}`' if default else ''} | {meaning} |"
        for name, default, meaning in table()
    ]
    return "\n".join(lines) + "\n"


def unknown_variables() -> list[str]:
    """``MOORAGE_*`` variables of the environment that no setting reads: most likely a slip of the pen."""
    known = {variable_of(name) for name in Settings.model_fields}
    return sorted(name for name in os.environ if name.startswith("MOORAGE_") and name.upper() not in known)
