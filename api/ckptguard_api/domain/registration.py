"""What a training job says of a save: the request as values, held against its own rules."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from ckptguard.errors import InvalidRequestError
from ckptguard.model.manifest import Manifest
from ckptguard.model.manifest_laws import integer_problems, label_problems, time_problems
from ckptguard.model.policy import Depth
from ckptguard_api.domain.locations import AskedLocation
from ckptguard_api.domain.run_policy import run_name_problems

MIN_KEEP_ALIVE_S: Final = 1.0
MAX_KEEP_ALIVE_S: Final = 86_400.0
DEFAULT_KEEP_ALIVE_S: Final = 600.0
MAX_PARTS: Final = 1000

_MAX_TOLD: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What a registration without a manifest may say of the save."""

    format: str | None = None
    num_files: int | None = None
    bytes_total: int | None = None
    created_at: datetime | None = None


NOTHING_DESCRIBED: Final = Described()


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A request to register a save, or one part of it.

    Args:
        run: Name of the run.
        step: Optimizer step.
        location: Of the checkpoint, not of the part.
        save_id: None: the manifest's, or derived from location and `created_at`.
        manifest: None: there is none.
        described: Only without a manifest.
        branch: None: the run's current one.
        depth: Of the validation.
        is_validated: Queue a validation once it is complete.

    Raises:
        InvalidRequestError: With every broken rule.
    """

    run: str
    step: int
    location: AskedLocation
    save_id: str | None = None
    manifest: Manifest | None = None
    described: Described = NOTHING_DESCRIBED
    branch: int | None = None
    depth: Depth = Depth.LOAD
    is_validated: bool = True

    def __post_init__(self) -> None:
        """Hold all rules."""
        _raise([*_key_problems(self), *_content_problems(self)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """A request to expect a save, or to go on expecting it.

    Args:
        run: Name of the run.
        step: Optimizer step.
        location: Of the checkpoint.
        save_id: None: not known yet. That of an earlier answer: keep alive that announcement, and no more.
        keep_alive_s: Seconds after which it is `incomplete` unless something was heard.
        branch: None: the run's current one.

    Raises:
        InvalidRequestError: With every broken rule.
    """

    run: str
    step: int
    location: AskedLocation
    save_id: str | None = None
    keep_alive_s: float = DEFAULT_KEEP_ALIVE_S
    branch: int | None = None

    def __post_init__(self) -> None:
        """Hold all rules."""
        problems = list(_key_problems(self))
        if not MIN_KEEP_ALIVE_S <= self.keep_alive_s <= MAX_KEEP_ALIVE_S:
            problems.append(
                f"/keep_alive_s: {self.keep_alive_s!r} is not in {MIN_KEEP_ALIVE_S:g}..{MAX_KEEP_ALIVE_S:g}"
            )
        _raise(problems)


def _raise(problems: list[str]) -> None:
    if problems:
        msg = f"the request breaks its rules: {'; '.join(problems[:_MAX_TOLD])}"
        raise InvalidRequestError(msg, problems=problems)


def _key_problems(request: Registration | Announcement) -> Iterator[str]:
    yield from run_name_problems(request.run, at="/run")
    yield from integer_problems(request.step, at="/step")
    if request.save_id is not None:
        yield from label_problems(request.save_id, at="/save_id")
    if request.branch is not None:
        yield from integer_problems(request.branch, at="/branch")


def _content_problems(request: Registration) -> Iterator[str]:
    if request.manifest is not None:
        yield from _disagreements(request, request.manifest)
    else:
        yield from _described_problems(request.described)
        if request.save_id is None and request.described.created_at is None:
            yield "/created_at: needed where there is neither manifest nor save_id, to tell two saves apart"


def _disagreements(request: Registration, manifest: Manifest) -> Iterator[str]:
    said: tuple[tuple[str, Any, Any], ...] = (
        ("run", request.run, manifest.run),
        ("step", request.step, manifest.step),
        ("save_id", request.save_id or manifest.save_id, manifest.save_id),
    )
    if len(manifest.parts) > MAX_PARTS:
        yield f"/manifest/parts: {len(manifest.parts)} parts, at most {MAX_PARTS}"
    for name, of_request, of_manifest in said:
        if of_request != of_manifest:
            yield f"/manifest/{name}: {of_manifest!r}, but the request says {of_request!r}"
    for name in Described.__dataclass_fields__:
        if getattr(request.described, name) is not None:
            yield f"/{name}: the manifest says it; leave it out"


def _described_problems(described: Described) -> Iterator[str]:
    if described.format is not None:
        yield from label_problems(described.format, at="/format")
    if described.num_files is not None:
        yield from integer_problems(described.num_files, at="/num_files", minimum=1)
    if described.bytes_total is not None:
        yield from integer_problems(described.bytes_total, at="/bytes_total")
    if described.created_at is not None:
        yield from time_problems(described.created_at, at="/created_at")
