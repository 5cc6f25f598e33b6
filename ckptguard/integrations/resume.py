"""Where a job resumes from, asked once and the same on all its ranks."""

import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from ckptguard.client.address import find_service
from ckptguard.client.attempt import attempt_key
from ckptguard.client.client import Client
from ckptguard.clock import SystemClock
from ckptguard.errors import CkptGuardError, ConfigError, ServiceError
from ckptguard.integrations.known_start import note_start
from ckptguard.integrations.launch_ranks import Shared, ask_once
from ckptguard.model.resume import Ending, OnUnavailable
from ckptguard.model.verdict import Assurance, Provenance
from ckptguard.operations.last_known import LastKnown, cache_folder
from ckptguard.operations.resume import Question, Resume
from ckptguard.operations.resume_decision import Flags
from ckptguard.operations.resume_environment import PATH_VARIABLE, handed_down, root_and_tag
from ckptguard.operations.resume_start import Started, start
from ckptguard.operations.store_view import StoreView, parse_stores

DEFAULT_WAIT_S: Final = 120.0
ANSWER_DEADLINE_S: Final = 30.0
"""Of one answer of the service with all its tries."""
_RANKS_DEADLINE_S: Final = 300.0
"""On top of the wait: looking at a checkpoint, asking for the next one, slow ranks."""
STORES_VARIABLE: Final = "CKPTGUARD_STORES"
_LOG: Final = logging.getLogger("ckptguard")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeTarget:
    """What a job resumes from; the same on all its ranks.

    Args:
        run: Its name.
        path: Of the checkpoint, on this machine.
        step: Of that checkpoint.
        ending: `proven`, or what the caller accepted instead.
        attempt: The name of this start.
        checkpoint_id: The service's; None: not from the service.
        branch: That this start opened; None: it was not reported.
        hosts: Of all ranks; on rank 0 only.
    """

    run: str
    path: str
    step: int
    ending: Ending
    attempt: str
    checkpoint_id: int | None = None
    branch: int | None = None
    hosts: tuple[str, ...] = ()

    @property
    def root(self) -> str:
        """Return the folder that holds the checkpoint: DeepSpeed's `load_dir`, Megatron's `--load`."""
        return root_and_tag(self.path)[0]

    @property
    def tag(self) -> str:
        """Return the name of the checkpoint's folder: DeepSpeed's `tag`."""
        return root_and_tag(self.path)[1]


class ResumeRefusedError(ServiceError):
    """There is nothing to resume from, and nothing to start from: the job must end.

    Raised on all ranks alike.

    Attributes:
        ending: Why; `ckptguard.cli.exit_codes.EXIT_CODE_OF_ENDING` knows the exit code.
    """

    code = "resume_refused"

    def __init__(self, message: str, *, ending: Ending) -> None:
        """Keep the ending beside the message."""
        super().__init__(message)
        self.ending = ending


def resume_target(  # noqa: PLR0913 - the options of `ckptguard resume` that a job needs
    run: str,
    *,
    wait_s: float = DEFAULT_WAIT_S,
    min_assurance: Assurance | None = None,
    min_provenance: Provenance | None = None,
    step: int | None = None,
    allow_fresh: bool = False,
    accept_below: bool = False,
    on_unavailable: OnUnavailable = OnUnavailable.FAIL,
    stores: Mapping[str, str] | None = None,
    is_reported: bool = True,
    ranks_deadline_s: float | None = None,
) -> ResumeTarget | None:
    """Return the last checkpoint proven good; None: the run is empty, and may start from nothing.

    Every rank of a job calls this. Rank 0 asks the service, looks at the checkpoint in its own view
    of the store, and reports the start; the others get its answer (`launch_ranks`). A rank that
    runs alone just asks.

    Args:
        run: Its name.
        wait_s: Wait so long while a newer one is being validated.
        min_assurance: How far the proof must go; None: the run's policy.
        min_provenance: What must be known of its origin.
        step: Only this one.
        allow_fresh: A run without any checkpoint starts from nothing.
        accept_below: Take a VALID below what was asked.
        on_unavailable: What to take if the service is away.
        stores: Where stores are on this machine; None: `CKPTGUARD_STORES`, or as the service says.
        is_reported: Tell the service that the run starts; opens a branch.
        ranks_deadline_s: Longest time for all ranks to agree; None: `wait_s` and five minutes.

    Raises:
        ResumeRefusedError: Nothing may be resumed from; on all ranks, with the same ending.
        RanksApartError: The ranks did not come to one answer in time.
        ConfigError: There are other ranks, and nothing says how to reach them.
    """
    question = Question(
        run=run, wait_s=wait_s, min_assurance=min_assurance, min_provenance=min_provenance, step=step
    )
    flags = Flags(
        run=run,
        is_fresh_allowed=allow_fresh,
        is_below_accepted=accept_below,
        on_unavailable=on_unavailable,
    )
    deadline_s = ranks_deadline_s if ranks_deadline_s is not None else wait_s + _RANKS_DEADLINE_S
    shared = ask_once(
        lambda: _message(lambda: _started(question, flags, stores, is_reported=is_reported)),
        deadline_s=deadline_s,
    )
    return _noted(run, _read(shared))


def handed_target(
    *, allow_fresh: bool = False, ranks_deadline_s: float = _RANKS_DEADLINE_S
) -> ResumeTarget | None:
    """Return what the launcher handed down (`resume --format env`): that of rank 0, on all ranks.

    For jobs without a token, and for launchers that ask once on each node: nodes that asked at
    different times may have got different answers, and this makes them one.

    Args:
        allow_fresh: None handed down means a start from nothing; else it is refused.
        ranks_deadline_s: Longest time for all ranks to agree.

    Raises:
        ResumeRefusedError: Nothing was handed down; on all ranks.
        RanksApartError: The ranks did not come to one answer in time.
    """
    shared = ask_once(lambda: _message(lambda: _handed(allow_fresh=allow_fresh)), deadline_s=ranks_deadline_s)
    target = _read(shared)
    return None if target is None else _noted(target.run, target)


def _started(
    question: Question, flags: Flags, stores: Mapping[str, str] | None, *, is_reported: bool
) -> ResumeTarget | None:
    roots = parse_stores(os.environ.get(STORES_VARIABLE, "")) if stores is None else dict(stores)
    address = find_service(os.environ, folder=Path.cwd())
    sentences: list[str] = []
    with Client(address, deadline_s=ANSWER_DEADLINE_S) as client:
        asking = Resume(
            client=client,
            question=question,
            flags=flags,
            view=StoreView(roots=roots),
            last_known=LastKnown(cache_folder(os.environ)),
            clock=SystemClock(),
            tell=_telling(sentences),
        )
        started = start(asking, attempt=attempt_key(os.environ), is_reported=is_reported)
    return _target(question.run, started, sentences)


def _telling(sentences: list[str]) -> Callable[[str], None]:
    def tell(sentence: str) -> None:
        sentences.append(sentence)
        _LOG.warning("%s", sentence)

    return tell


def _target(run: str, started: Started, sentences: list[str]) -> ResumeTarget | None:
    found = started.found
    if found.path is None or found.step is None:
        if found.ending is Ending.FRESH:
            return None
        why = f": {sentences[-1]}" if sentences else ""
        msg = f"run {run} has nothing to resume from ({found.ending.value}){why}"
        raise ResumeRefusedError(msg, ending=found.ending)
    return ResumeTarget(
        run=run,
        path=found.path,
        step=found.step,
        ending=found.ending,
        attempt=started.attempt,
        checkpoint_id=None if found.target is None else found.target.id,
        branch=started.branch,
    )


def _handed(*, allow_fresh: bool) -> ResumeTarget | None:
    handed = handed_down(os.environ)
    if handed.path is None:
        if allow_fresh:
            return None
        msg = "the launcher handed down nothing to resume from: `ckptguard resume --format env` in its script"
        raise ResumeRefusedError(msg, ending=Ending.NONE_USABLE)
    if handed.run is None or handed.step is None or handed.ending is None:
        msg = f"{PATH_VARIABLE} came without its run, step and ending: hand down all of `--format env`"
        raise ConfigError(msg)
    return ResumeTarget(
        run=handed.run,
        path=handed.path,
        step=handed.step,
        ending=handed.ending,
        attempt=attempt_key(os.environ),
        checkpoint_id=handed.checkpoint_id,
        branch=handed.branch,
    )


def _message(ask: Callable[[], ResumeTarget | None]) -> bytes:
    """Make what rank 0 tells the others: also an error is an answer, or they would wait for one."""
    try:
        target = ask()
        told: dict[str, Any] = {"target": None if target is None else asdict(target)}
    except ResumeRefusedError as error:
        told = {"refused": str(error), "ending": error.ending.value}
    except CkptGuardError as error:
        ending = Ending.TRY_AGAIN if error.is_retryable else Ending.NONE_USABLE
        told = {"refused": f"{error.code}: {error}", "ending": ending.value}
    except Exception as error:  # noqa: BLE001 - the edge between ranks: nobody may wait for a rank that fell
        told = {"refused": f"{type(error).__name__}: {error}", "ending": Ending.NONE_USABLE.value}
    return json.dumps(told).encode()


def _noted(run: str, target: ResumeTarget | None) -> ResumeTarget | None:
    """Remember the branch for the saves of this process."""
    note_start(run, None if target is None else target.branch)
    return target


def _read(shared: Shared) -> ResumeTarget | None:
    told = json.loads(shared.message)
    if "refused" in told:
        raise ResumeRefusedError(told["refused"], ending=Ending(told["ending"]))
    if told["target"] is None:
        return None
    values = told["target"] | {"ending": Ending(told["target"]["ending"]), "hosts": shared.hosts}
    return ResumeTarget(**values)
