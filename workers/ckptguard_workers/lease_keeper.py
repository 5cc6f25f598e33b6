"""Keeps one lease while it is worked on: heartbeats, progress and results of files, from a thread."""

import json
import random
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import structlog

from ckptguard.errors import LeaseLostError, ServiceError, ServiceUnavailableError
from ckptguard.scan.progress import Progress
from ckptguard.scan.result import FileResult, file_result_to_json
from ckptguard_workers.backoff import Backoff
from ckptguard_workers.drain import Drain
from ckptguard_workers.lease import Lease
from ckptguard_workers.service_calls import ServiceCalls

BATCH_BYTES: Final = 8 << 20
BATCH_FILES: Final = 5000
MAX_RESULT_BYTES: Final = 200 << 20
"""A request holds 256 MiB; the result of a larger file is not kept, and the file read again."""
MAX_WAITING_BYTES: Final = 512 << 20
"""Results that wait for a service that does not answer; beyond it they are not kept."""
_FILES_AFTER_S: Final = 1.0
_LOG: Final = structlog.get_logger()


class LeaseKeeper:
    """What the service is told of one attempt, and what it answers.

    Args:
        calls: To the service.
        lease: Held.
        drain: Told with each heartbeat.
        chance: Draws the jitter of waits.
    """

    def __init__(self, calls: ServiceCalls, lease: Lease, *, drain: Drain, chance: random.Random) -> None:
        self._calls = calls
        self._lease = lease
        self._drain = drain
        self._backoff = Backoff(chance, longest_s=max(lease.heartbeat_every_s, 1.0))
        self._progress = Progress(phase="starting")
        self._results: deque[tuple[int, dict[str, Any]]] = deque()
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        self._has_news = threading.Event()
        self._is_done = threading.Event()
        self.is_lost = False
        self.is_unwanted = False
        self._is_handed_in = False

    @property
    def is_wanted(self) -> bool:
        """Whether anybody waits for the verdict, and time is left for it."""
        return not (self.is_lost or self.is_unwanted or self._drain.is_over)

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Keep the lease for the time of a block."""
        thread = threading.Thread(target=self._keep, name="ckptguard-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._is_done.set()
            self._has_news.set()
            thread.join()

    @contextmanager
    def expecting_end(self) -> Iterator[None]:
        """Know that the verdict is on its way: it ends the lease, and no result of a file is of use to it.

        Where it did not arrive, the lease goes on as before.
        """
        self._is_handed_in = True
        try:
            yield
        except BaseException:
            self._is_handed_in = False
            self._has_news.set()
            raise

    def report(self, progress: Progress) -> None:
        """Take the newest progress; the next heartbeat tells it."""
        self._progress = progress

    def report_file(self, result: FileResult) -> None:
        """Take the result of a file, to be told soon."""
        value = file_result_to_json(result)
        size = len(json.dumps(value))
        with self._lock:
            if size > MAX_RESULT_BYTES or self._waiting_bytes + size > MAX_WAITING_BYTES:
                return
            self._results.append((size, value))
            self._waiting_bytes += size
        self._has_news.set()

    def _keep(self) -> None:
        wait_s = 0.0
        while not self._is_done.wait(wait_s) and not self.is_lost:
            try:
                self._tell_files()
                self.is_unwanted |= not self._calls.heartbeat(
                    self._lease, self._progress, is_draining=self._drain.is_asked
                )
                self._backoff.reset()
                wait_s = self._pause()
            except ServiceUnavailableError:
                wait_s = self._backoff.next_s()
            except LeaseLostError as error:
                if not self._is_handed_in:
                    _LOG.warning("lease lost", lease=self._lease.id, why=str(error))
                self.is_lost = True
            except ServiceError as error:
                _LOG.error("the service refuses a heartbeat", lease=self._lease.id, why=str(error))
                wait_s = self._backoff.next_s()
        self._tell_last_files()

    def _pause(self) -> float:
        """Wait for the time of the next heartbeat, or a result; return how long to gather more results."""
        gathering_s = min(_FILES_AFTER_S, self._lease.heartbeat_every_s / 2)
        self._has_news.wait(self._lease.heartbeat_every_s - gathering_s)
        self._has_news.clear()
        return gathering_s

    def _tell_files(self) -> None:
        while not self._is_handed_in and (batch := self._batch()):
            try:
                self._calls.store_files(self._lease, [value for _, value in batch])
            except (ServiceUnavailableError, LeaseLostError):
                raise
            except ServiceError as error:  # refused for good: heartbeats go on, and the files are read again
                _LOG.warning("results of files are refused", lease=self._lease.id, why=str(error))
            with self._lock:
                for size, _ in batch:
                    self._results.popleft()
                    self._waiting_bytes -= size

    def _batch(self) -> list[tuple[int, dict[str, Any]]]:
        batch: list[tuple[int, dict[str, Any]]] = []
        total = 0
        with self._lock:
            for size, value in self._results:
                if batch and (total + size > BATCH_BYTES or len(batch) == BATCH_FILES):
                    break
                batch.append((size, value))
                total += size
        return batch

    def _tell_last_files(self) -> None:
        """Once: what is lost here is read again, and no verdict rests on it."""
        if self.is_lost:
            return
        try:
            self._tell_files()
        except LeaseLostError:
            self.is_lost = True
        except ServiceError as error:
            _LOG.info("results of files were not kept", lease=self._lease.id, why=str(error))
