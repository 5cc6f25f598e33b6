"""What one checkpoint leaves behind: row, part, validations, verdict, checks, a finding, events, holds."""

from dataclasses import dataclass
from typing import Any, Final

from ckptguard.model.finding import Basis, CheckName, FindingCode, Severity
from ckptguard.model.service import EventKind, Hold, Lifecycle, SupersededBy, ValidationState
from ckptguard.model.verdict import Assurance, CheckStatus, Verdict
from ckptguard_api.tables import check_results, checkpoints, parts, verdicts
from tests.pages.seeded_rows import GB, Past

_LADDER: Final = tuple(CheckName)
_REACHED: Final = {Assurance.STRUCTURE: 3, Assurance.CONTENT: 4, Assurance.LOADED: 5, Assurance.RESUMABLE: 8}
_CHECK_OF: Final = {
    FindingCode.CRC_MISMATCH: CheckName.CONTENT,
    FindingCode.MISSING_SHARD: CheckName.EXISTENCE,
    FindingCode.STORE_UNAVAILABLE: CheckName.EXISTENCE,
    FindingCode.UNSAFE_PICKLE: CheckName.COVERAGE,
}
_VERSIONS: Final = {"checks": "1", "ckptguard": "0.1.0", "torch": "2.13.0", "python": "3.13.1"}
_BYTES_PER_S: Final = 1.5 * GB
_TOLD_S: Final = 4 * 3600.0
"""The checks of older VALID ones are left out, and their events: a page of one looks like that of another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which run of which store a checkpoint is of, who validates it, and how large it is."""

    project_id: int
    run_id: int
    store_id: int
    worker_id: int
    num_files: int = 65
    bytes_total: int = 640 * GB


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """One checkpoint, as a story tells it.

    Args:
        step: Of the save.
        age_s: Since the save.
        verdict: In force; None: none yet.
        assurance: Of a VALID.
        basis: Of an INVALID.
        code: Of the finding of what is not VALID.
        state: Of a validation that is open.
        lifecycle: Where it stands.
        superseded_by: Why it is superseded.
        holds: On it.
        branch: It is saved in.
        retry_in_s: Until the service asks again; None: never.
        lag_s: From the save to the verdict.
    """

    step: int
    age_s: float
    verdict: Verdict | None = Verdict.VALID
    assurance: Assurance = Assurance.LOADED
    basis: Basis = Basis.DAMAGE
    code: FindingCode = FindingCode.CRC_MISMATCH
    state: ValidationState | None = None
    lifecycle: Lifecycle = Lifecycle.REGISTERED
    superseded_by: SupersededBy | None = None
    holds: frozenset[Hold] = frozenset()
    branch: int = 0
    retry_in_s: float | None = None
    lag_s: float = 200.0

    @property
    def is_registered(self) -> bool:
        """Whether it was ever complete."""
        return self.lifecycle not in (Lifecycle.ANNOUNCED, Lifecycle.INCOMPLETE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What is there of a checkpoint; the row may be changed until all is written."""

    id: int
    row: dict[str, Any]
    last_validation_id: int | None

    @property
    def validation_id(self) -> int:
        """Its last validation, which must be there."""
        assert self.last_validation_id is not None
        return self.last_validation_id


def add_checkpoint(past: Past, place: Place, saved: Saved) -> Left:
    """Add a checkpoint with all that it leaves behind."""
    checkpoint_id = past.add(checkpoints, **_columns(past, place, saved))
    row = past.rows[checkpoints][-1]
    _tell_of_save(past, row, saved)
    if saved.is_registered:
        _add_part(past, row, saved)
    validation_id = None
    if saved.verdict is not None:
        validation_id = _judge(past, row, place, saved)
    if saved.state is not None:
        validation_id = _leave_open(past, row, place, saved)
    for hold in sorted(saved.holds):
        data = {"hold": hold.value, "reason": f"{hold.value}, as the story of this run goes"}
        past.event(EventKind.CHECKPOINT_HELD, saved.age_s / 3, actor="mara", data=data, **_about(row))
    return Left(id=checkpoint_id, row=row, last_validation_id=validation_id)


def _columns(past: Past, place: Place, saved: Saved) -> dict[str, Any]:
    number = len(past.rows[checkpoints]) + 1
    is_gone = saved.lifecycle in (Lifecycle.SUPERSEDED, Lifecycle.DELETED)
    path = f"run-{place.run_id}/step-{saved.step}-{number}"
    return {
        "project_id": place.project_id,
        "run_id": place.run_id,
        "branch": saved.branch,
        "step": saved.step,
        "save_id": f"c-{number:032x}" if saved.is_registered else f"announced-{number}",
        "store_id": place.store_id,
        "path": path,
        "location": f"file:///data/ckpts/{path}",
        "created_at": past.at(saved.age_s),
        "registered_at": past.at(saved.age_s) if saved.is_registered else None,
        "format": "dcp" if saved.is_registered else None,
        "num_files": place.num_files if saved.is_registered else None,
        "bytes_total": place.bytes_total if saved.is_registered else None,
        "expected_parts": [""] if saved.is_registered else [],
        "lifecycle": saved.lifecycle.value,
        "superseded_by": saved.superseded_by.value if saved.superseded_by else None,
        "gone_at": past.at(saved.age_s / 2) if is_gone else None,
        "keep_alive_until": past.at(-12 * 3600) if saved.lifecycle is Lifecycle.ANNOUNCED else None,
        "is_pinned": Hold.PINNED in saved.holds,
        "is_quarantined": Hold.QUARANTINED in saved.holds,
        "is_suspect": Hold.SUSPECT in saved.holds,
        "validation_state": saved.state.value if saved.state else None,
        "retry_at": None if saved.retry_in_s is None else past.at(-saved.retry_in_s),
        **_judged_columns(past, saved),
    }


def _judged_columns(past: Past, saved: Saved) -> dict[str, Any]:
    is_judged = saved.verdict is not None
    return {
        "verdict": saved.verdict.value if saved.verdict else None,
        "basis": saved.basis.value if saved.verdict is Verdict.INVALID else None,
        "assurance": saved.assurance.value if saved.verdict is Verdict.VALID else None,
        "provenance": "unproven" if is_judged else None,
        "device": "cuda:0 NVIDIA H200" if is_judged else None,
        "verdict_validation_id": None,
        "validated_at": past.at(saved.age_s - saved.lag_s) if is_judged else None,
        "first_verdict_at": past.at(saved.age_s - saved.lag_s) if is_judged else None,
    }


def _about(row: dict[str, Any], validation_id: int | None = None) -> dict[str, Any]:
    return {"run_id": row["run_id"], "checkpoint_id": row["id"], "validation_id": validation_id}


def _tell_of_save(past: Past, row: dict[str, Any], saved: Saved) -> None:
    kind = EventKind.CHECKPOINT_REGISTERED if saved.is_registered else EventKind.CHECKPOINT_ANNOUNCED
    told = ("step", "branch", "save_id", "location", "num_files", "bytes_total")
    data = {name: row[name] for name in told} | {"part": "", "identity": None}
    past.event(kind, saved.age_s, actor="trainer", data=data, **_about(row))
    if saved.lifecycle is Lifecycle.INCOMPLETE:
        past.event(EventKind.CHECKPOINT_INCOMPLETE, saved.age_s - 600, **_about(row))
    if saved.lifecycle is Lifecycle.DELETED:
        reason = {"reason": "older than the newest hundred"}
        past.event(
            EventKind.CHECKPOINT_DELETED, saved.age_s / 2, actor="retention", data=reason, **_about(row)
        )
    if saved.superseded_by is not None:
        reason = {"superseded_by": saved.superseded_by.value}
        past.event(EventKind.CHECKPOINT_SUPERSEDED, saved.age_s / 2, data=reason, **_about(row))


def _add_part(past: Past, row: dict[str, Any], saved: Saved) -> None:
    past.add(
        parts,
        checkpoint_id=row["id"],
        name="",
        manifest_id=None,
        identity=None,
        header=None,
        registered_by="trainer",
        is_from_writer=False,
        registered_at=past.at(saved.age_s),
    )


def _judge(past: Past, row: dict[str, Any], place: Place, saved: Saved) -> int:
    done_s = saved.age_s - saved.lag_s
    is_told = saved.age_s < _TOLD_S or saved.verdict is not Verdict.VALID
    validation_id = past.validation(row, age_s=saved.age_s, state="finished", finished_at=past.at(done_s))
    row["verdict_validation_id"] = validation_id
    attempt_id = past.attempt(
        validation_id,
        place.worker_id,
        age_s=done_s + place.bytes_total / _BYTES_PER_S,
        ended_at=past.at(done_s),
        ending="finished",
        new_files=place.num_files,
        bytes_read=place.bytes_total,
    )
    past.add_plain(verdicts, **_verdict(row, validation_id, saved, place), attempt_id=attempt_id)
    for number, name in enumerate(_LADDER if is_told else ()):
        past.add(check_results, validation_id=validation_id, **_check(saved, place, number, name))
    if saved.verdict is not Verdict.VALID:
        severity = Severity.ERROR if saved.verdict is Verdict.INVALID else Severity.UNKNOWN
        check = _CHECK_OF[saved.code].value
        past.finding(validation_id, 0, code=saved.code.value, severity=severity.value, check=check)
    if is_told:
        _tell_of_verdict(past, row, validation_id, done_s)
    return validation_id


def _verdict(row: dict[str, Any], validation_id: int, saved: Saved, place: Place) -> dict[str, Any]:
    same = ("verdict", "basis", "assurance", "provenance", "device", "format", "bytes_total")
    reading_s = place.bytes_total / _BYTES_PER_S
    return {
        "validation_id": validation_id,
        "worker_id": place.worker_id,
        "is_retryable": saved.verdict is Verdict.UNKNOWN,
        "is_in_force": True,
        "why_not_in_force": None,
        "bytes_identity": f"sha256:{row['id']:064x}",
        "content_identity": f"sha256:{row['id']:064x}",
        "versions": _VERSIONS,
        "seconds": reading_s + 2.5,
        "seconds_reading": reading_s,
        "bytes_read": place.bytes_total,
        "totals": {"shards": place.num_files - 1, "items": 40 * place.num_files, "tensors": 290},
        "given_at": row["validated_at"],
        **{name: row[name] for name in same},
    }


def _check(saved: Saved, place: Place, number: int, name: CheckName) -> dict[str, Any]:
    status, reason = _ending(saved, number, name)
    is_read = name in (CheckName.CONTENT, CheckName.LOAD) and status is not CheckStatus.SKIPPED
    return {
        "name": name.value,
        "status": status.value,
        "reason": reason,
        "counts": {"files": place.num_files} if name is CheckName.EXISTENCE else {},
        "seconds": place.bytes_total / _BYTES_PER_S if is_read else 0.02,
        "bytes_read": place.bytes_total if name is CheckName.CONTENT and is_read else 0,
    }


def _ending(saved: Saved, number: int, name: CheckName) -> tuple[CheckStatus, str]:
    if saved.verdict is not Verdict.VALID and name is _CHECK_OF[saved.code]:
        is_bad = saved.verdict is Verdict.INVALID
        return (CheckStatus.FAIL, "1 error") if is_bad else (CheckStatus.UNKNOWN, "the store gave no answer")
    if name is CheckName.PROVENANCE:
        return CheckStatus.UNKNOWN, "no manifest from the writer"
    if name is CheckName.PROBE:
        return CheckStatus.SKIPPED, "not asked for"
    reached = _REACHED[saved.assurance] if saved.verdict is Verdict.VALID else len(_LADDER)
    if name is CheckName.NUMERICS or number < reached:
        return CheckStatus.PASS, ""
    return CheckStatus.UNKNOWN, "a global of .metadata is not importable by the reader"


def _tell_of_verdict(past: Past, row: dict[str, Any], validation_id: int, done_s: float) -> None:
    judged = {name: row[name] for name in ("verdict", "basis", "assurance")}
    told = judged | {"is_in_force": True, "why_not_in_force": None, "retry_at": None}
    about = _about(row, validation_id)
    past.event(EventKind.VALIDATION_FINISHED, done_s, actor="canary", data=told, **about)
    names = {"step": row["step"], "save_id": row["save_id"], "was": dict.fromkeys(judged)}
    past.event(EventKind.CHECKPOINT_VERDICT_CHANGED, done_s, data=names | judged, **about)


def _leave_open(past: Past, row: dict[str, Any], place: Place, saved: Saved) -> int:
    is_running = saved.state is ValidationState.RUNNING
    assert saved.state is not None
    validation_id = past.validation(row, age_s=saved.age_s, state=saved.state.value, attempts=int(is_running))
    data = {"reason": "registered", "depth": "load"}
    about = _about(row, validation_id)
    past.event(EventKind.VALIDATION_QUEUED, saved.age_s, actor="trainer", data=data, **about)
    if is_running:
        attempt_id = past.attempt(validation_id, place.worker_id, age_s=saved.age_s / 2)
        past.lease(attempt_id, validation_id, place.worker_id, _progress(place))
        started = {"attempt": 1, "worker": f"canary-{place.worker_id}"}
        past.event(EventKind.VALIDATION_STARTED, saved.age_s / 2, data=started, **about)
    return validation_id


def _progress(place: Place) -> dict[str, Any]:
    return {
        "phase": "reading",
        "bytes_done": place.bytes_total * 42 // 100,
        "bytes_total": place.bytes_total,
        "files_done": place.num_files * 42 // 100,
        "files_total": place.num_files,
        "file": "__27_0.distcp",
    }
