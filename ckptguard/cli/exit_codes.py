"""Exit codes: the one place that turns verdicts and errors into numbers (design §9).

A launcher may resume on 0 and on nothing else unless it says so.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from ckptguard.errors import (
    AccessDeniedError,
    CanaryError,
    CkptGuardError,
    ConfigError,
    ConflictError,
    ForbiddenError,
    FormatError,
    InvalidRequestError,
    LeaseLostError,
    LimitExceededError,
    LocationRefusedError,
    ManifestFormatError,
    NotFoundError,
    ObjectNotFoundError,
    PathEscapeError,
    ServiceError,
    ServiceUnavailableError,
    StoreError,
    StoreUnavailableError,
    TooLargeError,
    TooManyRequestsError,
    UnauthorizedError,
    UnsupportedFormatError,
)
from ckptguard.model.policy import Depth
from ckptguard.model.resume import Ending
from ckptguard.model.verdict import Assurance, Judgement, Verdict


class ExitCode(IntEnum):
    """Every exit code of the command line."""

    OK = 0  # VALID at the assurance that the depth asks for
    USAGE = 2
    LOWER = 10  # VALID, but lower
    TRY_AGAIN = 20  # UNKNOWN that time may change
    UNUSABLE = 30  # INVALID, or UNKNOWN for good
    NOTHING_THERE = 40
    INTERRUPTED = 130


ASSURANCE_ASKED: Final[Mapping[Depth, Assurance]] = {
    Depth.STRUCTURE: Assurance.STRUCTURE,
    Depth.CONTENT: Assurance.CONTENT,
    Depth.LOAD: Assurance.LOADED,
}
"""What a caller may expect of a VALID at each depth."""


def exit_code_of_check(judgement: Judgement, *, depth: Depth, is_nothing_there: bool = False) -> ExitCode:
    """Return the exit code of `check`.

    Args:
        judgement: The verdict and what qualifies it.
        depth: How far the caller asked to go.
        is_nothing_there: No checkpoint was found to judge.
    """
    if is_nothing_there:
        return ExitCode.NOTHING_THERE
    if judgement.verdict is Verdict.VALID and judgement.assurance is not None:
        is_reached = judgement.assurance.rank >= ASSURANCE_ASKED[depth].rank
        return ExitCode.OK if is_reached else ExitCode.LOWER
    if judgement.verdict is Verdict.UNKNOWN and judgement.is_retryable:
        return ExitCode.TRY_AGAIN
    return ExitCode.UNUSABLE


EXIT_CODE_OF_ENDING: Final[Mapping[Ending, ExitCode]] = {
    Ending.PROVEN: ExitCode.OK,
    Ending.FRESH: ExitCode.OK,
    Ending.BELOW: ExitCode.LOWER,
    Ending.LAST_KNOWN: ExitCode.LOWER,
    Ending.NEWEST_COMMITTED: ExitCode.LOWER,
    Ending.TRY_AGAIN: ExitCode.TRY_AGAIN,
    Ending.NONE_USABLE: ExitCode.UNUSABLE,
    Ending.UNKNOWN_RUN: ExitCode.UNUSABLE,
    Ending.EMPTY: ExitCode.NOTHING_THERE,
}
"""Exit codes of `resume`."""


class ErrorAnswer(NamedTuple):
    """What the command line says and returns for one kind of error.

    Args:
        exit_code: The process's exit code.
        next_step: What a person does next, one sentence.
    """

    exit_code: ExitCode
    next_step: str


ERROR_ANSWERS: Final[Mapping[type[CkptGuardError], ErrorAnswer]] = {
    ConfigError: ErrorAnswer(ExitCode.USAGE, "Correct the option; `ckptguard COMMAND --help` lists them."),
    FormatError: ErrorAnswer(ExitCode.UNUSABLE, "Look at what is there; this version cannot read it."),
    ManifestFormatError: ErrorAnswer(
        ExitCode.UNUSABLE, "Take the manifest that the save wrote, or check without --manifest."
    ),
    UnsupportedFormatError: ErrorAnswer(
        ExitCode.UNUSABLE, "Update ckptguard, or install the package that reads this format."
    ),
    LimitExceededError: ErrorAnswer(
        ExitCode.UNUSABLE, "If a checkpoint of this size is expected, check a smaller part of it."
    ),
    StoreError: ErrorAnswer(ExitCode.UNUSABLE, "See that the store can be read: `ckptguard doctor`."),
    ObjectNotFoundError: ErrorAnswer(ExitCode.NOTHING_THERE, "See that the path is right; nothing is there."),
    AccessDeniedError: ErrorAnswer(
        ExitCode.UNUSABLE, "Give this user, or these credentials, the right to list and read."
    ),
    PathEscapeError: ErrorAnswer(
        ExitCode.UNUSABLE, "If the link's target is trusted, name a folder that holds both: --root FOLDER."
    ),
    StoreUnavailableError: ErrorAnswer(ExitCode.TRY_AGAIN, "Run the same command again later."),
    CanaryError: ErrorAnswer(
        ExitCode.TRY_AGAIN, "See `ckptguard doctor`, or judge the bytes without loading: --depth content."
    ),
    ServiceError: ErrorAnswer(ExitCode.UNUSABLE, "See `ckptguard doctor`; client and service may differ."),
    NotFoundError: ErrorAnswer(
        ExitCode.NOTHING_THERE, "See that the name is right: `ckptguard runs`, `ckptguard history --run RUN`."
    ),
    ConflictError: ErrorAnswer(
        ExitCode.UNUSABLE,
        "Look at what is there: `ckptguard history --run RUN`; another save needs --save-id.",
    ),
    LeaseLostError: ErrorAnswer(ExitCode.UNUSABLE, "Nothing to do: another worker has this validation."),
    UnauthorizedError: ErrorAnswer(
        ExitCode.UNUSABLE, "Set CKPTGUARD_TOKEN to a token of this service: `ckptguard token create`."
    ),
    ForbiddenError: ErrorAnswer(
        ExitCode.UNUSABLE, "Use a token with the scope that the message names: `ckptguard token create`."
    ),
    InvalidRequestError: ErrorAnswer(ExitCode.USAGE, "Correct what is listed above."),
    LocationRefusedError: ErrorAnswer(
        ExitCode.UNUSABLE, "Have the operator allow the store as the message says, or name another location."
    ),
    TooLargeError: ErrorAnswer(ExitCode.UNUSABLE, "Send less: the message names the limit."),
    ServiceUnavailableError: ErrorAnswer(
        ExitCode.TRY_AGAIN, "Run the same command again later; `ckptguard doctor` says whether it is up."
    ),
    TooManyRequestsError: ErrorAnswer(ExitCode.TRY_AGAIN, "Run the same command again in a few seconds."),
}
"""One answer per class of `ckptguard.errors`; a class without its own takes its parent's."""


def exit_code_of_resume_error(error: CkptGuardError) -> ExitCode:
    """Return the exit code of a `resume` that could not find out.

    40 means that a run is known and empty, and an error never proves that: it is 30 here.
    """
    code = answer_to_error(error).exit_code
    return ExitCode.UNUSABLE if code is ExitCode.NOTHING_THERE else code


def answer_to_error(error: CkptGuardError) -> ErrorAnswer:
    """Return the answer of the nearest class that has one."""
    for kind in type(error).__mro__:
        if issubclass(kind, CkptGuardError) and kind in ERROR_ANSWERS:
            return ERROR_ANSWERS[kind]
    code = ExitCode.TRY_AGAIN if error.is_retryable else ExitCode.UNUSABLE
    return ErrorAnswer(code, "Run `ckptguard doctor`.")
