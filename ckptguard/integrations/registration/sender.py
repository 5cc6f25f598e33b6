"""The thread that sends: starts when there is something to send, ends when nothing is left.

Nothing that a training job calls here waits for the service, and none of it waits longer than the
deadlines below for anything else.
"""

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ckptguard.client.address import find_service
from ckptguard.client.call import Call
from ckptguard.client.client import Client
from ckptguard.clock import Clock, SystemClock
from ckptguard.errors import CkptGuardError, ConfigError, FormatError
from ckptguard.integrations import incidents
from ckptguard.integrations.registration.delivery import Delivery, Outcome, deliver
from ckptguard.integrations.registration.entry import Entry
from ckptguard.integrations.registration.spool import Spool, spool_folder

SPOOL_DEADLINE_S: Final = 2.0
"""A save waits no longer for its entry to be on disk; a hanging home folder must not hang training."""
EXIT_DEADLINE_S: Final = 3.0
"""A process that ends waits no longer for the first try of its last entry."""
CALL_DEADLINE_S: Final = 10.0
_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 60.0
_MAX_UNSPOOLED: Final = 64
_MAX_ANNOUNCEMENTS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unspooled:
    entry: Entry
    is_own: bool


class Sender:
    """Sends what a spool holds, and what could not be spooled.

    Args:
        spool: Where entries wait.
        connect: Makes a client; raises ConfigError where no service is known.
        clock: Tells time.
    """

    def __init__(self, spool: Spool, *, connect: Callable[[], Client], clock: Clock | None = None) -> None:
        self._spool = spool
        self._connect = connect
        self._clock = clock or SystemClock()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._asked = 0
        self._answered = 0
        self._is_empty = True
        self._announcements: deque[Call[Any]] = deque(maxlen=_MAX_ANNOUNCEMENTS)
        self._unspooled: deque[_Unspooled] = deque(maxlen=_MAX_UNSPOOLED)
        self._own: set[str] = set()

    def register(self, entry: Entry, *, is_in_place: bool) -> None:
        """Keep an entry on disk, and have it sent.

        Args:
            entry: What to send.
            is_in_place: The checkpoint's folder has its final name.
        """
        kept = threading.Event()
        writing = threading.Thread(
            target=self._keep, args=(entry, is_in_place, kept), name="ckptguard-spool", daemon=True
        )
        try:
            writing.start()
            writing.join(SPOOL_DEADLINE_S)
        except RuntimeError:  # the interpreter is ending, and an asynchronous save is done only now
            self._keep(entry, is_in_place, kept)
        if not kept.is_set():
            incidents.tell(
                "spool_failed",
                f"the registration of {entry.run} step {entry.step} is not kept on disk "
                f"({self._spool.folder}); it is sent from memory",
            )
            self._unspooled.append(_Unspooled(entry=entry, is_own=is_in_place))
        self.wake()

    def announce(self, call: Call[Any]) -> None:
        """Have an announcement sent, if the service is there; else it is dropped."""
        self._announcements.append(call)
        self.wake()

    def wake(self) -> None:
        """Have everything tried soon."""
        with self._changed:
            self._asked += 1
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="ckptguard-sender", daemon=True)
                with suppress(RuntimeError):  # the interpreter is ending; the spool keeps it
                    self._thread.start()
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything was tried once; say whether nothing is left."""
        self.wake()
        return self.settle(timeout_s) and self._is_empty

    def settle(self, timeout_s: float) -> bool:
        """Wait until everything that was asked so far was tried once."""
        with self._changed:
            asked = self._asked
            if self._thread is not None and self._thread.is_alive():
                self._changed.wait_for(lambda: self._answered >= asked, timeout_s)
            return self._answered >= asked

    def _keep(self, entry: Entry, is_in_place: bool, kept: threading.Event) -> None:  # noqa: FBT001 - the target of a thread
        with incidents.swallowed("spool_errors", f"the spool {self._spool.folder} cannot be written"):
            name, dropped = self._spool.put(entry)
            if is_in_place:
                self._own.add(name)
            incidents.count("registrations_spooled")
            kept.set()
            if dropped:
                incidents.tell("registrations_dropped", f"the spool {self._spool.folder} is full")
                incidents.count("registrations_dropped", dropped - 1)

    def _run(self) -> None:
        wait_s = _FIRST_WAIT_S
        while True:
            with self._changed:
                asked = self._asked
            is_empty = False
            with incidents.swallowed("sender_errors", "registrations cannot be sent"):
                is_empty = self.send_all()
            with self._changed:
                self._answered, self._is_empty = asked, is_empty
                self._changed.notify_all()
                if is_empty and self._asked == asked:
                    self._thread = None
                    return
                if self._asked == asked:
                    self._changed.wait(wait_s)
                wait_s = _FIRST_WAIT_S if self._asked != asked else min(_LONGEST_WAIT_S, wait_s * 2)

    def send_all(self) -> bool:
        """Try everything once, oldest first; stop where the service is away. Say whether nothing is left."""
        names = self._spool.names()
        if not (names or self._announcements or self._unspooled):
            return True
        try:
            client = self._connect()
        except ConfigError as error:
            self._announcements.clear()
            incidents.tell("service_unknown", f"registrations wait in {self._spool.folder}: {error}")
            return False
        with client:
            self._announce_all(client)
            is_spool_empty = self._send_spooled(client, names)
            return self._send_unspooled(client) and is_spool_empty

    def _announce_all(self, client: Client) -> None:
        while self._announcements:
            call = self._announcements.popleft()
            try:
                client.send_once(call)
                incidents.count("announcements_sent")
            except CkptGuardError:
                incidents.count("announcements_failed")

    def _send_spooled(self, client: Client, names: list[str]) -> bool:
        is_empty = True
        for name in names:
            delivery = self._send_one(client, name)
            if delivery.outcome in {Outcome.AWAY, Outcome.WAITING}:
                is_empty = False
                incidents.count(f"registrations_{delivery.outcome.value}")
            if delivery.outcome is Outcome.AWAY:
                incidents.tell(
                    "service_away", f"registrations wait in {self._spool.folder}: {delivery.reason}"
                )
                break
        return is_empty

    def _send_one(self, client: Client, name: str) -> Delivery:
        try:
            entry = self._spool.read(name)
        except (FormatError, OSError) as error:
            return self._put_aside(name, f"cannot be read: {error}")
        if entry is None:
            return Delivery(outcome=Outcome.SENT)
        delivery = deliver(entry, client, now=self._clock.now(), is_own=name in self._own)
        if delivery.outcome is Outcome.SENT:
            self._spool.remove(name)
            incidents.count("registrations_sent")
        elif delivery.outcome is Outcome.REFUSED:
            return self._put_aside(name, delivery.reason)
        self._own.discard(name)  # once it had to wait, others may have written there
        return delivery

    def _put_aside(self, name: str, reason: str) -> Delivery:
        incidents.tell("registrations_refused", f"{self._spool.folder}/{name} is put aside: {reason}")
        with suppress(OSError):  # another user's, in a folder of many: it must not be in the others' way
            self._spool.refuse(name, reason)
        self._own.discard(name)
        return Delivery(outcome=Outcome.REFUSED, reason=reason)

    def _send_unspooled(self, client: Client) -> bool:
        for _ in range(len(self._unspooled)):
            waiting = self._unspooled[0]
            delivery = deliver(waiting.entry, client, now=self._clock.now(), is_own=waiting.is_own)
            self._unspooled.popleft()
            if delivery.outcome is Outcome.SENT:
                incidents.count("registrations_sent")
            elif delivery.outcome is Outcome.REFUSED:
                incidents.tell("registrations_refused", f"a registration was refused: {delivery.reason}")
            else:
                self._unspooled.append(waiting)
        return not self._unspooled


def connect() -> Client:
    """Return a client of the service that this process is told of.

    Raises:
        ConfigError: None is known.
    """
    return Client(find_service(os.environ, folder=Path.cwd()), deadline_s=CALL_DEADLINE_S)


class _OfProcess:
    """The one sender of this process, made when it is first needed; a forked child gets its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sender: Sender | None = None

    def get(self) -> Sender:
        """Return it."""
        with self._lock:
            if self._sender is None:
                self._sender = Sender(Spool(spool_folder(os.environ)), connect=connect)
            return self._sender

    def peek(self) -> Sender | None:
        """Return it if there is one."""
        return self._sender

    def reset(self) -> None:
        """Forget it: threads do not survive a fork, and neither must its locks."""
        self.__init__()  # type: ignore[misc]


_OF_PROCESS: Final = _OfProcess()
os.register_at_fork(after_in_child=_OF_PROCESS.reset)


def register(entry: Entry, *, is_in_place: bool = True) -> None:
    """Keep an entry on disk (`SPOOL_DEADLINE_S` at most), and have it sent in the background."""
    _OF_PROCESS.get().register(entry, is_in_place=is_in_place)


def announce(call: Call[Any]) -> None:
    """Have an announcement sent in the background, if the service is there."""
    _OF_PROCESS.get().announce(call)


def wake() -> None:
    """Have what an earlier process left in the spool sent in the background."""
    _OF_PROCESS.get().wake()


def flush(timeout_s: float = CALL_DEADLINE_S) -> bool:
    """Wait until everything was tried once; say whether nothing is left to send."""
    return _OF_PROCESS.get().flush(timeout_s)


@atexit.register
def _settle_at_exit() -> None:
    sender = _OF_PROCESS.peek()
    if sender is not None:
        sender.settle(EXIT_DEADLINE_S)
