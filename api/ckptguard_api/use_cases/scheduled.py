"""All scheduled work of the service, and the threads that do it in each API process."""

import random
from collections.abc import Sequence
from functools import partial
from typing import Final

from ckptguard.errors import ConflictError
from ckptguard_api.database import Transaction
from ckptguard_api.leasing.expiry import EXPIRED_AT_ONCE, end_expired
from ckptguard_api.leasing.repeating import Repeating, survives
from ckptguard_api.leasing.schedule import Round, Task, claim_round, do_round, due_tasks, prepare
from ckptguard_api.sending import Sender
from ckptguard_api.services import Services
from ckptguard_api.settings import Settings
from ckptguard_api.tracing import Tracing
from ckptguard_api.use_cases.announce import mark_incomplete
from ckptguard_api.use_cases.deliver import Deliverer
from ckptguard_api.use_cases.fan_out import fan_out
from ckptguard_api.use_cases.retries import queue_retries
from ckptguard_api.use_cases.scrub import queue_scrubs
from ckptguard_api.use_cases.trace import tracing_work
from ckptguard_api.use_cases.watch import watch_runs, watch_workers

TICK_S: Final = 1.0
STOP_WITHIN_S: Final = 2.0
RETRIES_EVERY_S: Final = 5.0
"""What is due to be asked again waits no longer than this to be queued."""

_INCOMPLETE_AT_ONCE: Final = 100


def tasks_of(settings: Settings, *, tracing: Tracing | None = None) -> Sequence[Task]:
    """Return everything that is done again and again, most urgent first; each has a row in `schedule`.

    Args:
        settings: What the operator set.
        tracing: Where spans of validations go; None: there is no such task.
    """

    def leases(tx: Transaction, _cursor: int) -> Round:
        return Round(is_more=end_expired(tx, settings) >= EXPIRED_AT_ONCE)

    def announcements(tx: Transaction, _cursor: int) -> Round:
        return Round(is_more=mark_incomplete(tx, limit=_INCOMPLETE_AT_ONCE) >= _INCOMPLETE_AT_ONCE)

    def workers(tx: Transaction, _cursor: int) -> Round:
        return watch_workers(tx, heard_within_s=settings.worker_heard_within_s)

    traces = () if tracing is None else (Task(name="traces", every_s=5.0, work=tracing_work(tracing)),)
    return (
        Task(name="leases", every_s=2.0, work=leases),
        Task(name="webhooks", every_s=1.0, work=fan_out),
        Task(name="announcements", every_s=15.0, work=announcements),
        Task(name="retries", every_s=RETRIES_EVERY_S, work=queue_retries),
        Task(name="workers", every_s=5.0, work=workers),
        Task(name="runs", every_s=15.0, work=watch_runs),
        Task(name="scrubs", every_s=60.0, work=queue_scrubs),
        *traces,
    )


class ScheduleRunner:
    """Does the scheduled work of one API process, beside those of others, until it is stopped.

    Two daemon threads: one for tasks of the database, one that sends webhooks, so that a receiver that
    hangs keeps no lease from expiring. Both survive a database that gives no answer.

    Args:
        services: Of this process.
        tick_s: Seconds between looks at what is due.
    """

    def __init__(self, services: Services, *, tick_s: float = TICK_S) -> None:
        self._database = services.database
        self._tasks = tasks_of(services.settings, tracing=services.tracing)
        self._is_prepared = False
        sender = Sender(
            allowed_networks=services.settings.webhook_allowed_networks,
            timeout_s=services.settings.webhook_timeout_s,
        )
        deliverer = Deliverer(database=services.database, sender=sender, chance=random.SystemRandom())
        self._threads = (
            Repeating("ckptguard-schedule", self.do_due, pause_s=tick_s),
            Repeating("ckptguard-deliveries", lambda: deliverer.deliver_due() > 0, pause_s=tick_s),
        )

    def start(self) -> None:
        """Begin, in threads of its own."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> bool:
        """End within two seconds; False: something was still under way, and its claim expires by itself."""
        for thread in self._threads:
            thread.tell_to_stop()
        each_s = STOP_WITHIN_S / len(self._threads)
        ended = [thread.wait(within_s=each_s) for thread in self._threads]
        return all(ended)

    def do_due(self) -> bool:
        """Do one round of every task that is due; one that fails keeps no other from its turn.

        Returns:
            Whether any has more to do now.

        Raises:
            ServiceUnavailableError: The database gave no answer.
        """
        self._prepare()
        is_more = False
        for task in due_tasks(self._database, self._tasks):
            is_more |= bool(survives(task.name, partial(self._round, task)))
        return is_more

    def _round(self, task: Task) -> bool:
        held = claim_round(self._database, task)
        done = None if held is None else do_round(self._database, task, held)
        return done is not None and done.is_more

    def _prepare(self) -> None:
        if self._is_prepared:
            return
        try:
            prepare(self._database, self._tasks)
        except ConflictError:
            return  # another process makes the same rows; see what is there at the next tick
        self._is_prepared = True
