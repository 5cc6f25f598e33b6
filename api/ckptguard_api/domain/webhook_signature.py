"""Signatures of the Standard Webhooks specification, version 1 (standardwebhooks.com)."""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Final

_PREFIX: Final = "whsec_"
_SECRET_BYTES: Final = 32  # the specification asks for 24 to 64
SECRETS_KEPT: Final = 2
"""The current secret and the one before it: a receiver changes over while both sign."""


def new_secret() -> str:
    """Return a secret of 256 bits, `whsec_` + base64."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def signature_headers(
    *, signing: Sequence[str], message_id: str, sent_at: datetime, body: bytes
) -> dict[str, str]:
    """Return the three headers that prove who sent a message.

    Args:
        signing: Secrets, newest first; each signs, so that a receiver with any of them is served.
        message_id: The same in every try: the receiver's key against duplicates.
        sent_at: Time of this try: a receiver refuses old ones, which an attacker might repeat.
        body: Exactly the bytes that are sent.

    Raises:
        ValueError: A secret is not one of `new_secret`.
    """
    timestamp = str(int(sent_at.timestamp()))
    signed = f"{message_id}.{timestamp}.".encode() + body
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(f"v1,{_signature(secret, signed)}" for secret in signing),
    }


def _signature(secret: str, signed: bytes) -> str:
    digest = hmac.new(_key_of(secret), signed, hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


def _key_of(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error as error:
        msg = "a webhook secret that is not base64"
        raise ValueError(msg) from error
