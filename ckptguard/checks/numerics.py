"""Check 7: what the values look like. By default it reports; it never condemns legal NaN or -inf."""

from collections.abc import Iterator, Mapping
from functools import partial
from math import isfinite, isnan
from typing import Final

from ckptguard.checks.bounded import bounded
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.policy import NumericsMode
from ckptguard.model.report import TensorNumerics

JUMP_FACTOR: Final = 1000.0
"""Growth of the largest magnitude, against the last VALID step, that is worth a warning."""

_info = partial(Finding, check=CheckName.NUMERICS, severity=Severity.INFO)
_warning = partial(Finding, check=CheckName.NUMERICS, severity=Severity.WARNING)
_error = partial(Finding, check=CheckName.NUMERICS, severity=Severity.ERROR, basis=Basis.POLICY)


def check_numerics(
    numerics: Mapping[str, TensorNumerics],
    mode: NumericsMode,
    *,
    baseline: Mapping[str, TensorNumerics] | None = None,
) -> tuple[Finding, ...]:
    """Report tensors whose values look wrong.

    Args:
        numerics: What was measured, by FQN.
        mode: `report`: non-finite values are an info, or a warning where the last VALID
            step was finite. `enforce`: they are an error of basis `policy`. `off`: nothing
            was measured, nothing is said.
        baseline: The same of the last VALID step; None if there is none.

    Returns:
        Findings of check 7, bounded per kind.
    """
    if mode is NumericsMode.OFF:
        return ()
    before = baseline or {}
    judged = (
        finding
        for fqn, seen in sorted(numerics.items())
        for finding in _judge(fqn, seen, before.get(fqn), mode)
    )
    return bounded(judged)


def _judge(
    fqn: str, seen: TensorNumerics, before: TensorNumerics | None, mode: NumericsMode
) -> Iterator[Finding]:
    if not seen.is_finite:
        yield _non_finite(fqn, seen, before, mode)
    elif seen.is_zero:
        yield _info(code=FindingCode.ALL_ZERO, message=f"{fqn}: every element is 0", fqn=fqn)
    elif seen.is_denormal:
        yield _warning(
            code=FindingCode.ALL_DENORMAL,
            message=f"{fqn}: every magnitude is below the smallest normal number of its dtype,"
            " as uninitialised memory often is",
            fqn=fqn,
            expected="some normal number, or zeros",
            observed=_range(seen),
        )
    if before is not None and _is_jump(seen, before):
        yield _jump(fqn, seen, before)


def _non_finite(fqn: str, seen: TensorNumerics, before: TensorNumerics | None, mode: NumericsMode) -> Finding:
    is_new = before is not None and before.is_finite
    build = _error if mode is NumericsMode.ENFORCE else _warning if is_new else _info
    what = "NaN" if isnan(seen.minimum) or isnan(seen.maximum) else "infinity"
    since = ", and held none at the last VALID step" if is_new else ""
    return build(
        code=FindingCode.NON_FINITE,
        message=f"{fqn}: holds {what}{since}",
        fqn=fqn,
        expected="finite values",
        observed=_range(seen),
    )


def _is_jump(seen: TensorNumerics, before: TensorNumerics) -> bool:
    now, then = _peak(seen), _peak(before)
    return isfinite(now) and isfinite(then) and then > 0 and now > JUMP_FACTOR * then


def _peak(values: TensorNumerics) -> float:
    return max(abs(values.minimum), abs(values.maximum))


def _jump(fqn: str, seen: TensorNumerics, before: TensorNumerics) -> Finding:
    return _warning(
        code=FindingCode.VALUE_JUMP,
        message=f"{fqn}: largest magnitude went from {_peak(before):.3g} at the last VALID step"
        f" to {_peak(seen):.3g}",
        fqn=fqn,
        expected=f"at most {JUMP_FACTOR * _peak(before):.3g}",
        observed=_range(seen),
    )


def _range(values: TensorNumerics) -> str:
    return f"{values.minimum:.6g} .. {values.maximum:.6g}"
