"""What an operator may set for a run, and what a run may be called."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from ckptguard.errors import InvalidRequestError
from ckptguard.model.manifest_laws import label_problems
from ckptguard.model.policy import NumericsMode
from ckptguard.model.verdict import Assurance, Provenance

MAX_FQNS: Final = 1000
MAX_GPUS: Final = 10_000_000
MAX_USD_PER_GPU_HOUR: Final = 1e6
MAX_SECONDS: Final = 10 * 366 * 86_400.0
MAX_MIN_STEPS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    """The policy of one run.

    Args:
        min_assurance: Least that a resume target reaches.
        min_provenance: Least that is known of a resume target's files; None: any.
        numerics: What check 7 does.
        required_fqns: Glob patterns of which each must match (`--profile`).
        gpus: How many train; None: not told.
        usd_per_gpu_hour: Their price; None: not told.
        unprotected_after_s: Tell when the newest VALID checkpoint is older; None: never.
        min_steps: A start that fails earlier speaks against the checkpoint it came from.

    Raises:
        InvalidRequestError: With every broken rule.
    """

    min_assurance: Assurance = Assurance.LOADED
    min_provenance: Provenance | None = None
    numerics: NumericsMode = NumericsMode.REPORT
    required_fqns: tuple[str, ...] = ()
    gpus: int | None = None
    usd_per_gpu_hour: float | None = None
    unprotected_after_s: float | None = None
    min_steps: int = 20

    def __post_init__(self) -> None:
        """Hold all bounds."""
        problems = list(_policy_problems(self))
        if problems:
            msg = "the run's policy breaks its rules"
            raise InvalidRequestError(msg, problems=problems)


def _policy_problems(policy: RunPolicy) -> Iterator[str]:
    if len(policy.required_fqns) > MAX_FQNS:
        yield f"/required_fqns: {len(policy.required_fqns)} patterns, at most {MAX_FQNS}"
    for index, pattern in enumerate(policy.required_fqns[:MAX_FQNS]):
        yield from label_problems(pattern, at=f"/required_fqns/{index}")
    yield from _range_problems(policy.gpus, 1, MAX_GPUS, at="/gpus")
    yield from _range_problems(policy.usd_per_gpu_hour, 0, MAX_USD_PER_GPU_HOUR, at="/usd_per_gpu_hour")
    yield from _range_problems(policy.unprotected_after_s, 1, MAX_SECONDS, at="/unprotected_after_s")
    yield from _range_problems(policy.min_steps, 0, MAX_MIN_STEPS, at="/min_steps")


def _range_problems(value: float | None, low: float, high: float, *, at: str) -> Iterator[str]:
    if value is not None and not (math.isfinite(value) and low <= value <= high):
        yield f"{at}: {value!r} is not in {low:g}..{high:g}"


def policy_of(row: Any) -> RunPolicy:  # noqa: ANN401 - a row of `runs`
    """Return the policy that a row of `runs` holds."""
    return RunPolicy(
        min_assurance=Assurance(row.min_assurance),
        min_provenance=None if row.min_provenance is None else Provenance(row.min_provenance),
        numerics=NumericsMode(row.numerics),
        required_fqns=tuple(row.required_fqns),
        gpus=row.gpus,
        usd_per_gpu_hour=row.usd_per_gpu_hour,
        unprotected_after_s=row.unprotected_after_s,
        min_steps=row.min_steps,
    )


def policy_values(policy: RunPolicy) -> dict[str, Any]:
    """Return the columns of `runs` that hold a policy; also what the audit shows."""
    values = {field.name: getattr(policy, field.name) for field in fields(policy)}
    return values | {
        "min_assurance": policy.min_assurance.value,
        "min_provenance": None if policy.min_provenance is None else policy.min_provenance.value,
        "numerics": policy.numerics.value,
        "required_fqns": list(policy.required_fqns),
    }


def changed_policy(policy: RunPolicy, changes: dict[str, Any]) -> RunPolicy:
    """Return the policy with some fields changed.

    Raises:
        InvalidRequestError: What comes out breaks a rule.
    """
    return replace(policy, **changes)


def run_name_problems(name: str, *, at: str = "/name") -> list[str]:
    """List why a run cannot have this name: it stands in addresses, logs and paths."""
    problems = list(label_problems(name, at=at))
    if "/" in name:
        problems.append(f"{at}: '/' in {name[:80]!r}")
    if name in {".", ".."}:
        problems.append(f"{at}: {name!r} means a folder")
    return problems
