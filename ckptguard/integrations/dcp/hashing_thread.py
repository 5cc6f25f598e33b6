"""A thread that hashes memory which is lent to it, while the lender writes the same memory."""

import threading
from queue import SimpleQueue
from typing import Any


class HashingThread:
    """Feeds one hash; the lender waits for it before the memory is anybody else's.

    Two queues, both in C, and no more: the hand-over must cost less than hashing a megabyte in place.

    Args:
        state: Of xxhash; used by one side at a time.

    Raises:
        RuntimeError: No thread can be started any more: the interpreter is ending.
    """

    def __init__(self, state: Any) -> None:
        self._state = state
        self._lent: SimpleQueue[memoryview | None] = SimpleQueue()
        self._is_hashed: SimpleQueue[bool] = SimpleQueue()
        threading.Thread(target=self._work, name="ckptguard-hash", daemon=True).start()

    def lend(self, view: memoryview) -> None:
        """Let it hash; `wait` must follow."""
        self._lent.put(view)

    def wait(self) -> bool:
        """Return once the memory is no longer used; False: it was not hashed."""
        return self._is_hashed.get()

    def end(self) -> None:
        """End the thread."""
        self._lent.put(None)

    def _work(self) -> None:
        while (view := self._lent.get()) is not None:
            is_hashed = False
            try:
                self._state.update(view)
                is_hashed = True
            finally:
                del view
                self._is_hashed.put(is_hashed)
