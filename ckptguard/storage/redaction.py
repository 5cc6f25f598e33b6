"""Keeping credentials out of what a person or a log sees."""

import re

# abfs://CONTAINER@ACCOUNT is a place, not a user.
_USER_INFO = re.compile(r"(?<!abfs)(?<!abfss)(://)[^/\s@]+@")
_SECRET_PARAMETER = re.compile(
    r"([?&](?:[\w-]*(?:signature|token|credential|secret|key)[\w-]*|sig)=)[^&\s]+", re.IGNORECASE
)


def redacted(text: str) -> str:
    """Return `text` without user and password of URLs, and with signed queries blanked."""
    return _SECRET_PARAMETER.sub(r"\1...", _USER_INFO.sub(r"\1", text))
