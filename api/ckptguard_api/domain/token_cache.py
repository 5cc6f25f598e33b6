"""Holders of tokens seen lately, so that a request costs no query of its own."""

import threading
from collections import OrderedDict
from typing import Final, NamedTuple

from ckptguard.clock import Clock, SystemClock
from ckptguard_api.domain.tokens import Holder

_MAX_HOLDERS: Final = 1024
_MAX_AGE_S: Final = 60.0


class _Kept(NamedTuple):
    holder: Holder
    until_s: float


class TokenCache:
    """A bounded memory of good tokens, all of one revision; any thread.

    Every write to `tokens` raises the revision, so a holder found here under the present revision is
    neither revoked nor changed. Time ends tokens too: a holder is kept for as long as the database said
    that it is good, by a clock that only goes forward, and for a minute at most.
    Refused ones are remembered apart, so that they push no good one out and the same one sent over and
    over costs no query either: what is unknown, revoked or over stays so until a token is written.

    Args:
        max_holders: The longest unused one goes; as many refused ones.
        clock: Asked for differences only.
    """

    def __init__(self, *, max_holders: int = _MAX_HOLDERS, clock: Clock | None = None) -> None:
        self._max_holders = max_holders
        self._clock = clock or SystemClock()
        self._revision = -1
        self._holders: OrderedDict[str, _Kept] = OrderedDict()
        self._refused: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def revision(self) -> int:
        """The revision that all holders were put under."""
        return self._revision

    def find(self, token_hash: str, *, revision: int) -> Holder | None:
        """Return the holder, if it was put under this revision and is still good."""
        with self._lock:
            if revision != self._revision:
                return None
            kept = self._holders.get(token_hash)
            if kept is None or kept.until_s <= self._clock.monotonic_s():
                return None
            self._holders.move_to_end(token_hash)
            return kept.holder

    def put(self, token_hash: str, holder: Holder, *, revision: int) -> None:
        """Remember a holder that was read together with this revision."""
        kept_for_s = _MAX_AGE_S if holder.good_for_s is None else min(_MAX_AGE_S, holder.good_for_s)
        with self._lock:
            if not self._is_at(revision):
                return
            self._holders[token_hash] = _Kept(holder, self._clock.monotonic_s() + kept_for_s)
            self._holders.move_to_end(token_hash)
            while len(self._holders) > self._max_holders:
                self._holders.popitem(last=False)

    def is_refused(self, token_hash: str, *, revision: int) -> bool:
        """Say whether a token was refused under this revision."""
        with self._lock:
            return revision == self._revision and token_hash in self._refused

    def refuse(self, token_hash: str, *, revision: int) -> None:
        """Remember a token that was found to be no good one, together with this revision."""
        with self._lock:
            if not self._is_at(revision):
                return
            self._refused[token_hash] = None
            while len(self._refused) > self._max_holders:
                self._refused.popitem(last=False)

    def _is_at(self, revision: int) -> bool:
        """Go on to a newer revision, and say whether this one is not older."""
        if revision > self._revision:
            self._holders.clear()
            self._refused.clear()
            self._revision = revision
        return revision == self._revision  # else: read before a write that this process knows of
