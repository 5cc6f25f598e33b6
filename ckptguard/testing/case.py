"""A named case: real bytes, one change, and the answer that is right about them.

Corruptions (`ckptguard.testing.corruptions`) and traps (`ckptguard.testing.traps`)
are both lists of `Case`. What is right is data, so that a validator of any kind can
be held against it: `mismatches` says in words where a report differs.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ckptguard.model.finding import Basis, Finding, FindingCode
from ckptguard.model.policy import Depth, Policy
from ckptguard.model.report import Report
from ckptguard.model.verdict import Assurance, Judgement, Verdict

WITHOUT_WAITING = Policy(settle_s=0, depth=Depth.CONTENT)
"""What cases are judged under unless they say otherwise: files here are at rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """What was done to a checkpoint.

    Args:
        kind: Name of the change.
        file: Path relative to the checkpoint's root; "" where several files changed.
        offset: First byte changed, from the start of the file.
        length_bytes: Bytes changed, removed or added.
        bit: Bit flipped, 0 is the least significant.
        fqn: Tensor or object aimed at.
        before: First changed bytes as they were, hex; at most 16 bytes.
        after: The same bytes as they are now, hex.
        note: Anything else, for a person.
    """

    kind: str
    file: str = ""
    offset: int | None = None
    length_bytes: int | None = None
    bit: int | None = None
    fqn: str | None = None
    before: str | None = None
    after: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The right answer about one case.

    Args:
        verdict: The verdict, exactly.
        basis: The basis, exactly; None unless INVALID.
        codes: Codes that must all appear, among findings about this checkpoint.
        any_codes: Of these at least one must appear; empty: no such rule.
        absent_codes: Codes that must not appear.
        surrounding_codes: Codes that must all appear among findings about the surroundings.
        file: Where the verdict is not VALID: some finding of `codes` names this file.
        fqn: The same for the tensor or object.
        max_assurance: VALID may claim no more.
        min_assurance: VALID must claim at least this.
        step: The step that must have been checked, where several stand below the target.
    """

    verdict: Verdict
    basis: Basis | None = None
    codes: frozenset[FindingCode] = frozenset()
    any_codes: frozenset[FindingCode] = frozenset()
    absent_codes: frozenset[FindingCode] = frozenset()
    surrounding_codes: frozenset[FindingCode] = frozenset()
    file: str | None = None
    fqn: str | None = None
    max_assurance: Assurance | None = None
    min_assurance: Assurance | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Where a case is set up.

    Args:
        folder: A private copy of the case's base; the case may do with it what it likes.
        saves: Folder of all saves (`ckptguard.testing.saves`); read only.
    """

    folder: Path
    saves: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One change to a real checkpoint, and the right answer.

    Args:
        name: `format/what`, unique over all corruptions and traps.
        source: Where the case comes from: a row of the case list, or a public thread.
        base: Save that it starts from (`ckptguard.testing.saves`).
        arrange: Makes the change in a copy of the base.
        expected: The right answer without a manifest.
        with_manifest: The right answer where a save-time manifest was left before the
            change; None where that adds nothing.
        target: What is checked, relative to the copy.
        policy: What it is judged under.
        is_corpus: `base` names a checkpoint of the corpus.
    """

    name: str
    source: str
    base: str
    arrange: Callable[[Scene], Damage]
    expected: Expectation
    with_manifest: Expectation | None = None
    target: str = ""
    policy: Policy = field(default=WITHOUT_WAITING)
    is_corpus: bool = False


def invalid(
    *codes: FindingCode,
    basis: Basis = Basis.DAMAGE,
    file: str | None = None,
    fqn: str | None = None,
    any_codes: Iterable[FindingCode] = (),
    step: int | None = None,
) -> Expectation:
    """Expect INVALID with these codes."""
    return Expectation(
        verdict=Verdict.INVALID,
        step=step,
        basis=basis,
        codes=frozenset(codes),
        any_codes=frozenset(any_codes),
        file=file,
        fqn=fqn,
    )


def unknown(*codes: FindingCode, file: str | None = None, fqn: str | None = None) -> Expectation:
    """Expect UNKNOWN with these codes."""
    return Expectation(verdict=Verdict.UNKNOWN, codes=frozenset(codes), file=file, fqn=fqn)


def valid(
    *codes: FindingCode,
    at_most: Assurance | None = None,
    at_least: Assurance | None = Assurance.CONTENT,
    absent: Iterable[FindingCode] = (),
    surroundings: Iterable[FindingCode] = (),
    step: int | None = None,
) -> Expectation:
    """Expect VALID, with these codes as warnings or infos.

    Unless told otherwise at least `content`; where `at_most` is weaker, exactly that.
    """
    if at_most is not None and at_least is not None and at_most.rank < at_least.rank:
        at_least = at_most
    return Expectation(
        verdict=Verdict.VALID,
        step=step,
        codes=frozenset(codes),
        absent_codes=frozenset(absent),
        surrounding_codes=frozenset(surroundings),
        max_assurance=at_most,
        min_assurance=at_least,
    )


def mismatches(expected: Expectation, report: Report) -> list[str]:
    """Say every way a report differs from the right answer; empty if it does not."""
    judgement = report.judgement
    seen = {finding.code for finding in report.findings}
    around = {finding.code for finding in report.other_findings}
    problems = [
        *_differing("verdict", expected.verdict, judgement.verdict),
        *_differing("basis", expected.basis, judgement.basis),
        *(f"code {code} is missing" for code in sorted(expected.codes - seen)),
        *(f"code {code} must not appear" for code in sorted(expected.absent_codes & seen)),
        *(
            f"code {code} is missing in the surroundings"
            for code in sorted(expected.surrounding_codes - around)
        ),
        *_assurance_problems(expected, judgement),
        *_place_problems(expected, report.findings),
        *(_differing("step", expected.step, report.step) if expected.step is not None else ()),
    ]
    if expected.any_codes and not expected.any_codes & seen:
        problems.append(f"none of {sorted(expected.any_codes)} appears")
    if problems:
        problems.append(f"findings: {[_one_line(finding) for finding in report.findings]}")
    return problems


def _differing(what: str, expected: object, observed: object) -> list[str]:
    return [] if expected == observed else [f"{what}: expected {expected}, got {observed}"]


def _assurance_problems(expected: Expectation, judgement: Judgement) -> list[str]:
    if judgement.verdict is not Verdict.VALID or judgement.assurance is None:
        return []
    reached, problems = judgement.assurance, []
    if expected.max_assurance is not None and reached.rank > expected.max_assurance.rank:
        problems.append(f"assurance {reached} claims more than {expected.max_assurance}")
    if expected.min_assurance is not None and reached.rank < expected.min_assurance.rank:
        problems.append(f"assurance {reached} is below {expected.min_assurance}")
    return problems


def _place_problems(expected: Expectation, findings: Iterable[Finding]) -> list[str]:
    telling = expected.codes | expected.any_codes
    named = [finding for finding in findings if finding.code in telling]
    problems = []
    if expected.file is not None and expected.file not in {finding.file for finding in named}:
        problems.append(f"file {expected.file} is not named")
    if expected.fqn is not None and expected.fqn not in {finding.fqn for finding in named}:
        problems.append(f"fqn {expected.fqn} is not named")
    return problems


def _one_line(finding: Finding) -> str:
    place = " ".join(str(part) for part in (finding.file, finding.fqn) if part is not None)
    return f"{finding.severity}:{finding.code} [{place}] {finding.message}"
