"""Classes and functions that loading would import: denied, unknown, or vouched for.

Names only; nothing is imported. Which names are denied or known is the business of
`ckptguard.formats`, so both come as predicates.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

from ckptguard.checks.bounded import bounded
from ckptguard.checks.phrases import some_of
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Layout
from ckptguard.model.policy import Policy

NamePredicate = Callable[[str], bool]
"""Asked with `module.name`."""

_unsafe = partial(Finding, code=FindingCode.UNSAFE_PICKLE, severity=Severity.ERROR, basis=Basis.UNSAFE)


def check_metadata_globals(
    layouts: Sequence[Layout],
    *,
    is_denied: NamePredicate,
    is_known: NamePredicate,
    allowed_globals: Collection[str] = (),
) -> tuple[Finding, ...]:
    """Report what opening the metadata with pickle would import.

    A denied name is `unsafe_pickle`, whoever vouches for it. A name that is neither
    known nor allowed leaves in doubt what the metadata means: `unknown_global`.

    Args:
        layouts: All parts; `stock_globals` are judged, names that a layout's own
            findings already report are not told twice.
        is_denied: Loading it would run code.
        is_known: A class that torch or a known trainer writes into metadata.
        allowed_globals: `module.name` that the user vouches for (`--allow-global`).
    """
    return bounded(
        finding
        for layout in layouts
        for finding in _judge_metadata(layout, is_denied, is_known, allowed_globals)
    )


def _judge_metadata(
    layout: Layout, is_denied: NamePredicate, is_known: NamePredicate, allowed: Collection[str]
) -> Iterator[Finding]:
    told = {
        finding.observed
        for finding in layout.findings
        if finding.code in (FindingCode.UNSAFE_PICKLE, FindingCode.UNKNOWN_GLOBAL)
    }
    file = layout.metadata_files[0].path if layout.metadata_files else None
    for name in sorted(layout.stock_globals - told):
        if is_denied(name):
            yield _unsafe(
                check=CheckName.EXISTENCE,
                message=f"{file or 'the metadata'} names {name}: torch's own loader would run it",
                file=file,
                expected="classes of torch's metadata",
                observed=name,
            )
        elif not is_known(name) and name not in allowed:
            yield Finding(
                code=FindingCode.UNKNOWN_GLOBAL,
                check=CheckName.EXISTENCE,
                severity=Severity.UNKNOWN,
                message=f"{file or 'the metadata'} names {name}, which this version does not know:"
                " written by a newer torch, or by another library",
                file=file,
                expected="classes of torch's metadata",
                observed=name,
            )


def check_object_globals(
    object_globals: Mapping[str, Mapping[str, Collection[str]]],
    *,
    is_denied: NamePredicate,
    policy: Policy,
) -> tuple[Finding, ...]:
    """Report what building the stored objects (BYTES items) would import.

    A denied name is an error. Any other is an object that was proven and not built: a
    warning per name, `unknown` where the user is strict, nothing where he allows it.

    Args:
        object_globals: By file, then by FQN: `module.name` that the object needs and
            that are not among the harmless ones.
        is_denied: Loading it would run code.
        policy: `is_strict_objects`, `allowed_globals`.
    """
    not_built: dict[tuple[str, str], list[str]] = defaultdict(list)
    unsafe: list[Finding] = []
    for file, objects in sorted(object_globals.items()):
        for fqn, names in sorted(objects.items()):
            for name in sorted(names):
                if is_denied(name):
                    unsafe.append(_unsafe_object(file, fqn, name))
                elif name not in policy.allowed_globals:
                    not_built[file, name].append(fqn)
    doubts = (_not_built(file, name, fqns, policy) for (file, name), fqns in not_built.items())
    return bounded(chain(unsafe, doubts))


def _unsafe_object(file: str, fqn: str, name: str) -> Finding:
    return _unsafe(
        check=CheckName.CONTENT,
        message=f"{fqn} names {name}: loading this object would run it",
        file=file,
        fqn=fqn,
        expected="plain values",
        observed=name,
    )


def _not_built(file: str, name: str, fqns: Sequence[str], policy: Policy) -> Finding:
    return Finding(
        code=FindingCode.OBJECT_NOT_BUILT,
        check=CheckName.CONTENT,
        severity=Severity.UNKNOWN if policy.is_strict_objects else Severity.WARNING,
        message=f"{some_of(fqns)}: bytes are proven, the object was not built, because it needs {name}",
        file=file,
        fqn=fqns[0],
        expected="plain values",
        observed=name,
    )
