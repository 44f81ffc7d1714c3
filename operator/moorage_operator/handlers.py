"""kopf glue: a watch per kind, every event handed on, nothing else. kopf writes nothing to any object this way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import kopf

from moorage_operator.api import PLURALS
from moorage_operator.resource import GROUP, KIND
from moorage_operator.store import REFERENCED
from moorage_operator.watching import CHILD_KINDS, OPTIONAL_KINDS, Watching, selector_of


def registry_for(watching: Watching, optional: bool) -> kopf.OperatorRegistry:
    """Handlers for every kind; ``optional``: also for kinds that the cluster may not serve."""
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry, id="login")(_login)
    for kind in (KIND, *CHILD_KINDS, *REFERENCED, *(OPTIONAL_KINDS if optional else ())):
        group, version, plural = _resource(kind)
        kopf.on.event(group, version, plural, registry=registry, id=f"told-{plural}")(
            _handler(watching, kind)
        )
    return registry


def settings_for(*, namespaced: bool) -> kopf.OperatorSettings:
    """Watches that notice a dead connection, no finalizers, no Events of kopf's own."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = namespaced
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 310
    settings.watching.connect_timeout = 10
    settings.networking.request_timeout = 15
    settings.persistence.finalizer = f"{GROUP}/unused"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP, v1=False)
    for kind in (*CHILD_KINDS, *OPTIONAL_KINDS):
        if selector := selector_of(kind):
            settings.watching.label_selectors[_resource(kind)] = selector
    return settings


def _resource(kind: str) -> tuple[str, str, str]:
    version, plural = PLURALS[kind]
    group, _, version = version.rpartition("/")
    return group, version, plural


def _login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)


def _handler(watching: Watching, kind: str) -> Callable[..., Awaitable[None]]:
    async def told(event: dict[str, Any], **_: Any) -> None:
        watching.told(kind, event["type"], dict(event["object"]))

    return told
