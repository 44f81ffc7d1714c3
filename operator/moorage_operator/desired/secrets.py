"""Secrets that the operator generates, once each; made by create, never by apply, so that nothing overwrites them."""

from __future__ import annotations

import secrets as random
from typing import Any

from moorage_operator.desired.inputs import encoded
from moorage_operator.desired.labels import child, password_name, secret_key_name
from moorage_operator.resource import Resource

SECRET_KEY_BYTES = 48
"""[bytes of entropy] 64 characters; the server wants at least 32 bytes."""
PASSWORD_BYTES = 24
"""[bytes of entropy] 32 characters."""


def secret_key(resource: Resource) -> dict[str, Any]:
    data = encoded({"secret-key": random.token_urlsafe(SECRET_KEY_BYTES)})
    return child(resource, "v1", "Secret", secret_key_name(resource), "server", type="Opaque", data=data)


def password(resource: Resource) -> dict[str, Any]:
    data = encoded({"password": random.token_urlsafe(PASSWORD_BYTES)})
    return child(resource, "v1", "Secret", password_name(resource), "redis", type="Opaque", data=data)
