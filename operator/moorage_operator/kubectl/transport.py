"""The way to the API server: the official client, a kubeconfig, and a bound on every request."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlencode

from moorage_operator.errors import OperatorError, Unreachable

CONNECT_SECONDS = 5.0
"""[s] Until a connection stands."""


class NoKubeconfig(OperatorError):
    """There is no kubeconfig, or it does not have what was asked for."""


@dataclass(frozen=True, slots=True)
class Answer:
    """``status`` and body of an HTTP answer; ``retry_after`` as the header says it."""

    status: int
    text: str
    retry_after: str = ""


class Transport(Protocol):
    """Raises :class:`~moorage_operator.errors.Unreachable` when no answer comes within the bound."""

    def send(
        self, method: str, path: str, query: dict[str, str], body: Any = None, *, seconds: float
    ) -> Answer:
        """One request, answered within ``seconds``."""
        ...

    def lines(self, path: str, query: dict[str, str], *, seconds: float) -> Iterator[str]:
        """Lines of a body as they come, until it ends or ``seconds`` pass in silence (then it ends, too)."""
        ...


class KubernetesTransport:
    """Over the official client. Build with :func:`connect`."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def close(self) -> None:
        self._client.close()

    def send(
        self, method: str, path: str, query: dict[str, str], body: Any = None, *, seconds: float
    ) -> Answer:
        answer = self._open(method, path, query, body, seconds)
        try:
            text = answer.data.decode(errors="replace")
        except Exception as error:  # the client's own and urllib3's, which share no base
            raise Unreachable(f"{method} {path}: {_first_line(error)}") from error
        return Answer(answer.status, text, answer.headers.get("Retry-After", ""))

    def lines(self, path: str, query: dict[str, str], *, seconds: float) -> Iterator[str]:
        answer = self._open("GET", path, query, None, seconds)
        if answer.status >= 300:
            answer.drain_conn()
            raise Unreachable(f"GET {path}: HTTP {answer.status}", status=answer.status)
        rest = b""
        try:
            for part in answer.stream(decode_content=True):
                *whole, rest = (rest + part).split(b"\n")
                for line in whole:
                    yield line.decode(errors="replace")
        except Exception:  # silence for `seconds`, or a cut: the caller asks anew from where it was
            return
        finally:
            answer.close()
        if rest:
            yield rest.decode(errors="replace")

    def _open(self, method: str, path: str, query: dict[str, str], body: Any, seconds: float) -> Any:
        url = f"{path}?{urlencode(query)}" if query else path
        headers = {"Accept": "application/json, */*", "Content-Type": "application/json"}
        try:
            prepared = self._client.param_serialize(
                method, url, header_params=headers, body=body, auth_settings=["BearerToken"]
            )
            bound = (min(CONNECT_SECONDS, seconds), seconds)
            return self._client.call_api(*prepared, _request_timeout=bound).response
        except Exception as error:  # the client's own, urllib3's, and those of credential plugins
            raise Unreachable(f"{method} {path}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__} {error}".strip().splitlines()[0][:300]


def connect(kubeconfig: str | None, context: str | None) -> tuple[KubernetesTransport, str]:
    """By ``kubeconfig`` (default: ``KUBECONFIG``, ``~/.kube/config``) and one of its contexts.

    Returns the transport and the context's namespace. Raises :class:`NoKubeconfig`.
    """
    from kubernetes import client, config  # most of a second: --help and wrong usage do without

    if kubeconfig is not None and not os.path.isfile(os.path.expanduser(kubeconfig)):
        raise NoKubeconfig(f"no file {kubeconfig} (--kubeconfig)")
    settings = client.Configuration()
    try:
        contexts, active = config.list_kube_config_contexts(kubeconfig)
        names = [known["name"] for known in contexts]
        if context is not None and context not in names:
            raise NoKubeconfig(f"no context {context} in the kubeconfig; there are: {', '.join(names)}")
        chosen = next((known for known in contexts if known["name"] == context), active)
        config.load_kube_config(kubeconfig, context=context, client_configuration=settings)
    except (config.ConfigException, OSError) as error:
        raise NoKubeconfig(
            f"no way to a cluster: {_first_line(error)}; set KUBECONFIG or give --kubeconfig"
        ) from error
    # Ours: a retry of the client's would outlast the bound, and repeat an eviction.
    settings.retries = False
    namespace = (chosen.get("context") or {}).get("namespace") or "default"
    return KubernetesTransport(client.ApiClient(configuration=settings)), namespace
