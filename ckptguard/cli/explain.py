"""`ckptguard explain`: what is damaged, where, since when, and what to do next."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final

import typer

from ckptguard.cli import check_arguments as arg
from ckptguard.cli import service_arguments as service_arg
from ckptguard.cli.exit_codes import ExitCode
from ckptguard.cli.json_output import SCHEMA, write_json
from ckptguard.cli.lines import Line, Span, Style, plain, write_lines
from ckptguard.cli.next_steps import next_step_of, shell_word
from ckptguard.cli.plain_text import printable
from ckptguard.cli.service import checkpoint_named, service
from ckptguard.cli.service_rows import age_text, checkpoint_facts, headline, verdict_of
from ckptguard.client.answers import CheckpointDetail, Finding, Validation
from ckptguard.client.client import Client
from ckptguard.client.decode import encode
from ckptguard.clock import SystemClock
from ckptguard.model.verdict import Verdict

app = typer.Typer(add_completion=False, rich_markup_mode=None)

MAX_FINDINGS: Final = 200
_MAX_PLACES: Final = 5
_MAX_STEPS: Final = 4
_GRAVEST_FIRST: Final = ("error", "unknown", "warning", "info")

_HELP = """Explain a checkpoint: what is damaged, where, since when, and what to do next.

\b
Examples:
  ckptguard explain 42
  ckptguard explain --run pretrain-7 --step 1200
  ckptguard explain 42 --json
"""


@app.command(help=_HELP)
def explain(
    checkpoint: service_arg.CheckpointId = None,
    *,
    run: service_arg.RunFilter = None,
    step: service_arg.StepFilter = None,
    json: arg.JsonOption = False,
) -> int:
    """Run `explain` and return its exit code."""
    with service() as client:
        story = _story(client, checkpoint_named(client, checkpoint, run=run, step=step))
    if json:
        write_json(
            {
                "schema": SCHEMA,
                "checkpoint": encode(story.checkpoint),
                "findings": encode(story.findings),
                "last_good": encode(story.last_good),
                "first_bad": encode(story.first_bad),
                "next_steps": list(story.next_steps),
            }
        )
    else:
        write_lines(render_story(story, SystemClock().now()), sys.stdout)
    return ExitCode.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What happened to a checkpoint.

    Args:
        checkpoint: As it is now.
        findings: Of the verdict in force, gravest first.
        last_good: The last validation that found it VALID before it was found otherwise.
        first_bad: The first one after that which found it otherwise.
    """

    checkpoint: CheckpointDetail
    findings: tuple[Finding, ...]
    last_good: Validation | None
    first_bad: Validation | None

    @property
    def next_steps(self) -> tuple[str, ...]:
        """What to do, gravest first, each line once."""
        return tuple(_next_steps(self))


def _story(client: Client, checkpoint_id: int) -> Story:
    seen = client.checkpoint(checkpoint_id)
    in_force = seen.verdict_validation_id
    found = [] if in_force is None else list(islice(client.findings(in_force), MAX_FINDINGS))
    last_good, first_bad = turning_point(seen.history)
    return Story(
        checkpoint=seen,
        findings=tuple(sorted(found, key=_gravity)),
        last_good=last_good,
        first_bad=first_bad,
    )


def _gravity(finding: Finding) -> int:
    is_known = finding.severity in _GRAVEST_FIRST
    return _GRAVEST_FIRST.index(finding.severity) if is_known else len(_GRAVEST_FIRST)


def turning_point(history: Sequence[Validation]) -> tuple[Validation | None, Validation | None]:
    """Return the last VALID before the trouble, and where the trouble was first seen.

    Verdicts that never came into force do not count: they tell of trouble with the infrastructure.

    Args:
        history: Of one checkpoint, in any order.
    """
    told = [entry for entry in history if entry.verdict is not None and entry.is_in_force is not False]
    told.sort(key=lambda entry: entry.id)
    last_good, first_bad = None, None
    for entry in told:
        if entry.verdict is Verdict.VALID:
            last_good, first_bad = entry, None
        elif first_bad is None:
            first_bad = entry
    return last_good, first_bad


def render_story(story: Story, now: datetime) -> Iterator[Line]:
    """Yield the explanation."""
    seen = story.checkpoint
    yield headline(seen)
    yield from checkpoint_facts(seen, now)
    yield ()
    yield plain(_since_text(story, now))
    decisive = [finding for finding in story.findings if finding.severity in {"error", "unknown", "warning"}]
    if decisive:
        yield ()
        yield (Span("What was found", Style.STRONG),)
    for finding in decisive[:_MAX_PLACES]:
        yield from _place(finding)
    if decisive[_MAX_PLACES:]:
        yield plain(f"  and {len(decisive) - _MAX_PLACES} more (--json lists them)")
    yield ()
    yield (Span("What to do next", Style.STRONG),)
    for step in story.next_steps:
        yield plain(f"  - {printable(step, max_chars=1000)}")


def _since_text(story: Story, now: datetime) -> str:
    last_good, first_bad = story.last_good, story.first_bad
    if first_bad is None:
        return "No validation found anything against it." if last_good else "No validation has ended yet."
    bad = f"{verdict_of(first_bad)} since validation {first_bad.id}, {age_text(first_bad.finished_at, now)}"
    if last_good is None:
        return f"{bad}; it was never found VALID."
    good = (
        f"validation {last_good.id}, {age_text(last_good.finished_at, now)}, found it {verdict_of(last_good)}"
    )
    return f"{bad}; {good}: it changed in between."


def _place(finding: Finding) -> Iterator[Line]:
    style = {"error": Style.BAD, "unknown": Style.DOUBT}.get(finding.severity, Style.PLAIN)
    yield (Span("  "), Span(printable(finding.code), style), Span(f"  {printable(finding.message)}"))
    extent = None
    if finding.offset is not None:
        length = f", {finding.length_bytes:,} bytes" if finding.length_bytes is not None else ""
        extent = f"from byte {finding.offset}{length}"
    for label, value in (
        ("file", finding.file),
        ("bytes", extent),
        ("record", finding.record),
        ("tensor", finding.fqn),
        ("expected", finding.expected),
        ("observed", finding.observed),
    ):
        if value is not None:
            yield plain(f"      {label:<10}{printable(value)}")


def _next_steps(story: Story) -> Iterator[str]:
    yield from islice(_steps_of_findings(story), _MAX_STEPS)
    seen = story.checkpoint
    run = shell_word(seen.run)
    if seen.holds:
        yield f"It is held: ckptguard release {seen.id} --reason TEXT"
    if seen.validation_state is not None:
        yield f"A validation is {seen.validation_state}: ckptguard watch --run {run}"
    elif seen.retry_at is not None:
        again = f"ckptguard revalidate --run {run} --step {seen.step}"
        yield f"The service asks again by itself; at once: {again}"
    elif seen.verdict is not Verdict.VALID:
        yield f"Ask for a new verdict: ckptguard revalidate --run {run} --step {seen.step} --wait 10m"
    if seen.verdict is Verdict.VALID and not seen.holds:
        yield f"It may be resumed from: ckptguard resume --run {run} --no-report"
    else:
        yield f"See what a launcher gets instead: ckptguard resume --run {run} --no-report"


def _steps_of_findings(story: Story) -> Iterator[str]:
    """Yield what to do about the gravest findings, each line once."""
    gravest = next((finding.severity for finding in story.findings), None)
    told: set[str] = set()
    for finding in story.findings:
        step = next_step_of(
            finding.code,
            target=(story.checkpoint.url or "PATH").removeprefix("file://"),
            file=finding.file,
            fqn=finding.fqn,
            observed=finding.observed,
        )
        if finding.severity == gravest != "info" and step is not None and step not in told:
            told.add(step)
            yield step
