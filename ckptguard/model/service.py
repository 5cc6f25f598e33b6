"""The words of the service: what client, API and workers say to each other (docs/service.md)."""

from enum import StrEnum
from typing import Final

EVERY_STORE: Final = "*"
"""Among the stores of a worker: it takes each one where the service has it. No store has this name."""


class Lifecycle(StrEnum):
    """Where a checkpoint stands, whatever its verdict (design §7)."""

    ANNOUNCED = "announced"  # a save is under way, or parts are still to come
    REGISTERED = "registered"  # complete, and a validation can run
    SUPERSEDED = "superseded"  # its bytes were, or will be, overwritten; or the run went another way
    INCOMPLETE = "incomplete"  # announced, and nothing was heard of it any more
    DELETED = "deleted"


class SupersededBy(StrEnum):
    """Why a checkpoint is superseded."""

    REWRITTEN = "rewritten"  # another save at the same location, above it or below it
    ROLLED_BACK = "rolled_back"  # the run was resumed from an earlier step


class Hold(StrEnum):
    """What an operator, or the restarts of a run, say about a checkpoint."""

    PINNED = "pinned"  # keep it; says nothing against using it
    QUARANTINED = "quarantined"  # an operator forbids it
    SUSPECT = "suspect"  # restarts from it keep failing


class ValidationState(StrEnum):
    """Where a request for a verdict stands."""

    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"  # the checkpoint was superseded or deleted before a worker took it


class ValidationReason(StrEnum):
    """Why a verdict is asked for; retries come after all that somebody asked for, scrubs last."""

    REGISTERED = "registered"
    REQUESTED = "requested"
    RETRY = "retry"  # the service asks again: the last verdict is one that time may change
    SCRUB = "scrub"


class AttemptEnding(StrEnum):
    """How one try at a validation ended."""

    FINISHED = "finished"  # its verdict was recorded
    EXPIRED = "expired"  # no heartbeat came in time
    STALLED = "stalled"  # heartbeats came, and no progress
    DRAINED = "drained"  # the worker was told to stop; costs no attempt
    FAILED = "failed"  # the worker gave it back
    CANCELLED = "cancelled"  # nobody wants the verdict any more


class ResumeState(StrEnum):
    """The answer to "which is the last checkpoint proven good?"."""

    VALID = "valid"
    VALID_BELOW = "valid_below"  # only a lower assurance exists
    PENDING = "pending"  # none VALID yet, one can become so
    NONE_VALID = "none_valid"  # checkpoints exist and none is usable
    NONE_EXIST = "none_exist"
    UNKNOWN_RUN = "unknown_run"


class RestartOutcome(StrEnum):
    """What became of a start of the run from a checkpoint."""

    RESUMED = "resumed"  # `resume` gave it out, and the launcher starts from it
    FAILED_LOADING = "failed_loading"
    FAILED_EARLY = "failed_early"  # before the run's number of steps, see `min_steps`
    PROGRESSED = "progressed"  # it went on for long enough


class Scope(StrEnum):
    """What a token may do; `admin` includes all others."""

    REGISTER = "register"
    READ = "read"
    WORK = "work"
    ADMIN = "admin"


class EventKind(StrEnum):
    """Everything that the audit knows; names of webhooks and of SSE events."""

    RUN_CREATED = "run.created"
    RUN_CHANGED = "run.changed"
    RUN_UNPROTECTED = "run.unprotected"
    RUN_STEP_WENT_BACK = "run.step_went_back"
    RUN_BRANCHED = "run.branched"
    RUN_RESTARTS_FAILING = "run.restarts_failing"
    RUN_RESTARTED = "run.restarted"
    RUN_FRESH_START = "run.fresh_start"
    CHECKPOINT_ANNOUNCED = "checkpoint.announced"
    CHECKPOINT_REGISTERED = "checkpoint.registered"
    CHECKPOINT_SUPERSEDED = "checkpoint.superseded"
    CHECKPOINT_RESTORED = "checkpoint.restored"  # the run went back to where it is no longer rolled back
    CHECKPOINT_INCOMPLETE = "checkpoint.incomplete"
    CHECKPOINT_DELETED = "checkpoint.deleted"
    CHECKPOINT_HELD = "checkpoint.held"
    CHECKPOINT_RELEASED = "checkpoint.released"
    CHECKPOINT_NOTED = "checkpoint.noted"  # a person wrote something about it
    CHECKPOINT_VERDICT_CHANGED = "checkpoint.verdict.changed"
    VALIDATION_REQUESTED = "validation.requested"  # somebody asked, whether one was open already or not
    VALIDATION_QUEUED = "validation.queued"
    VALIDATION_STARTED = "validation.started"
    VALIDATION_ATTEMPT_ENDED = "validation.attempt_ended"
    VALIDATION_FINISHED = "validation.finished"
    VALIDATION_CANCELLED = "validation.cancelled"
    WORKER_JOINED = "worker.joined"
    WORKER_SILENT = "worker.silent"
    WORKER_RETURNED = "worker.returned"
    STORE_CHANGED = "store.changed"
    TOKEN_CREATED = "token.created"  # noqa: S105 - a name
    TOKEN_REVOKED = "token.revoked"  # noqa: S105 - a name
    WEBHOOK_CHANGED = "webhook.changed"
    WEBHOOK_TEST = "webhook.test"
