"""The bytes of a resume target's answer (docs/service.md, "Launcher")."""

from datetime import datetime
from typing import Any

import orjson
import xxhash
from sqlalchemy import Row

from ckptguard_api.domain.resume import Asked, Candidate, PassedOver, Reason
from ckptguard_api.repositories.resume import MAX_PASSED_OVER
from ckptguard_api.use_cases.resume_target import ResumeAnswer


def to_bytes(answer: ResumeAnswer) -> bytes:
    """Return the JSON of an answer, as it stands."""
    target, below = answer.choice.target, answer.choice.below
    return orjson.dumps(
        {
            "state": answer.choice.state,
            "run": answer.run,
            "index": answer.index,
            "is_cached": False,
            "asked": _asked(answer.asked),
            "target": None if target is None else _target(answer, target),
            "below": None if below is None else _target(answer, below),
            "passed_over": [_passed_over(answer, one) for one in answer.choice.passed_over[:MAX_PASSED_OVER]],
            "passed_over_total": answer.newer_total,
            "superseded": answer.left_total,
        }
    )


def etag_of(body: bytes) -> str:
    """Return the strong validator of these bytes."""
    return f'"{xxhash.xxh3_128_hexdigest(body)}"'


def _asked(asked: Asked) -> dict[str, Any]:
    return {
        "min_assurance": asked.min_assurance,
        "min_provenance": asked.min_provenance,
        "device": asked.device,
        "step": asked.step,
        "before_step": asked.before_step,
        "max_age_s": asked.max_age_s,
        "require_newest": asked.require_newest,
        "exclude": asked.exclude,
    }


def _target(answer: ResumeAnswer, chosen: Candidate) -> dict[str, Any]:
    row = answer.rows[chosen.id]
    return {
        **_place(row),
        "save_id": row.save_id,
        "store": answer.stores[row.store_id].name,
        "path": row.path,
        "url": row.location,
        "assurance": row.assurance,
        "provenance": row.provenance,
        "device": row.device,
        "validated_at": _time(row.validated_at),
        "validation_id": row.verdict_validation_id,
        "format": row.format,
        "num_files": row.num_files,
        "bytes_total": row.bytes_total,
    }


def _passed_over(answer: ResumeAnswer, passed: PassedOver) -> dict[str, Any]:
    row = answer.rows[passed.candidate.id]
    return {
        **_place(row),
        "save_id": row.save_id,
        "verdict": row.verdict,
        "basis": row.basis,
        "assurance": row.assurance,
        "lifecycle": row.lifecycle,
        "holds": _holds(row),
        "reason": passed.reason,
        "detail": _detail(answer, passed, row),
        "retry_at": _time(passed.candidate.next_try_at),
        "validation": _validation(answer, row),
    }


def _place(row: Row[Any]) -> dict[str, Any]:
    return {"id": row.id, "branch": row.branch, "step": row.step, "created_at": _time(row.created_at)}


def _holds(row: Row[Any]) -> list[str]:
    holds = (("pinned", row.is_pinned), ("quarantined", row.is_quarantined), ("suspect", row.is_suspect))
    return [name for name, is_held in holds if is_held]


def _detail(answer: ResumeAnswer, passed: PassedOver, row: Row[Any]) -> str:
    asked = answer.asked
    match passed.reason:
        case Reason.BELOW_ASSURANCE:
            return f"{row.assurance}, and {asked.min_assurance} is asked for"
        case Reason.BELOW_PROVENANCE:
            return f"{row.provenance}, and {asked.min_provenance} is asked for"
        case Reason.OTHER_DEVICE:
            return f"loaded on {row.device}, and {asked.device} is asked for"
        case Reason.TOO_OLD:
            return f"validated at {_time(row.validated_at)}"
        case Reason.UNKNOWN if passed.candidate.next_try_at is not None:
            found = answer.details.get(row.verdict_validation_id, "")
            return f"{found}; tried again by itself at {passed.candidate.next_try_at:%Y-%m-%dT%H:%M:%SZ}"
        case _:
            return answer.details.get(row.verdict_validation_id, "")


def _validation(answer: ResumeAnswer, row: Row[Any]) -> dict[str, Any] | None:
    if row.validation_state is None:
        return None
    progress = answer.progress.get(row.open_id)
    return {
        "id": row.open_id,
        "state": row.validation_state,
        "bytes_done": None if progress is None else progress.bytes_done,
        "bytes_total": None if progress is None else progress.bytes_total,
        "bytes_per_s": None if progress is None else progress.bytes_per_s,
        "eta_s": None if progress is None else progress.eta_s,
    }


def _time(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat(timespec="microseconds").replace("+00:00", "Z")
