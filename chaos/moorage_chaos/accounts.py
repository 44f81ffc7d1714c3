"""Accounts of the load: a key pair each, and the token that ``POST /v1/auth`` gives for it."""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


@dataclass
class Account:
    """``name`` is the harness's mark for it (the ``owner`` of histories); the server knows it by its public
    key.
    """

    name: str
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate, repr=False)
    token: str = field(default="", repr=False)

    @property
    def public_key(self) -> str:
        raw = self.key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return base64.b64encode(raw).decode()

    def proof(self) -> dict[str, Any]:
        """Body of ``POST /v1/auth``: a random challenge, signed."""
        challenge = secrets.token_bytes(32)
        return {
            "publicKey": self.public_key,
            "challenge": base64.b64encode(challenge).decode(),
            "signature": base64.b64encode(self.key.sign(challenge)).decode(),
        }
