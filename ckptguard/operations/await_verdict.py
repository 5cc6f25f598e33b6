"""Wait for the verdict of one validation, and say how far it is."""

from collections.abc import Callable
from typing import Final

from ckptguard.client.answers import Validation
from ckptguard.client.client import Client
from ckptguard.clock import Clock
from ckptguard.errors import ServiceUnavailableError
from ckptguard.model.service import ValidationState

_FIRST_S: Final = 0.1
_LONGEST_S: Final = 2.0
OPEN: Final = frozenset({ValidationState.QUEUED.value, ValidationState.RUNNING.value})

Watch = Callable[[Validation], None]


def await_verdict(
    client: Client, validation_id: int, *, wait_s: float, clock: Clock, watch: Watch | None = None
) -> Validation:
    """Return a validation when it has ended, or as it is when the time is up.

    Args:
        client: Of the service.
        validation_id: Which.
        wait_s: At most, in seconds.
        clock: Tells time.
        watch: Gets each look at it.

    Raises:
        ServiceUnavailableError: The service gave no answer at the end.
        CkptGuardError: What the service answered.
    """
    ends_s = clock.monotonic_s() + wait_s
    pause_s = _FIRST_S
    while True:
        try:
            seen = client.validation(validation_id)
        except ServiceUnavailableError:
            if clock.monotonic_s() >= ends_s:
                raise
        else:
            if watch is not None:
                watch(seen)
            if seen.state not in OPEN or clock.monotonic_s() >= ends_s:
                return seen
        clock.sleep(min(pause_s, max(0.0, ends_s - clock.monotonic_s())))
        pause_s = min(_LONGEST_S, 1.5 * pause_s)
