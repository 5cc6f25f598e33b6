"""What a store that did not deliver says: a doubt that time may settle, or a refusal that it does not."""

import pytest

from ckptguard.errors import (
    AccessDeniedError,
    ObjectNotFoundError,
    PathEscapeError,
    StoreError,
    StoreUnavailableError,
)
from ckptguard.model.finding import FindingCode, Severity
from ckptguard.scan.faults import store_finding


@pytest.mark.parametrize(
    ("error", "code", "is_retryable"),
    [
        (StoreUnavailableError("no answer"), FindingCode.STORE_UNAVAILABLE, True),
        (StoreError("the store's root is not there: /mnt/ckpts"), FindingCode.STORE_UNAVAILABLE, True),
        (ObjectNotFoundError("no such object"), FindingCode.CHANGED_DURING_CHECK, True),
        (AccessDeniedError("access denied"), FindingCode.ACCESS_DENIED, False),
        (PathEscapeError("a link out of the root"), FindingCode.PATH_ESCAPE, False),
    ],
    ids=lambda value: getattr(value, "code", None),
)
def test_time_brings_back_what_is_away_and_lifts_no_refusal(
    error: StoreError, *, code: FindingCode, is_retryable: bool
) -> None:
    finding = store_finding(error, file="step-1")
    assert (finding.severity, finding.code, finding.is_retryable) == (Severity.UNKNOWN, code, is_retryable)
