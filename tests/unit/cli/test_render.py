"""The verdict table says what was found, in ten seconds, and obeys no name in it."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckptguard.cli.lines import line_text
from ckptguard.cli.next_steps import MAX_STEPS, NEXT_STEPS, next_steps
from ckptguard.cli.plain_text import cell_width
from ckptguard.cli.render import render_report, render_step_line
from ckptguard.model.finding import CheckName, Finding, FindingCode, Severity
from ckptguard.model.policy import Depth, Policy
from ckptguard.model.report import Report, StepSummary

MakeReport = Callable[..., Report]


def shown(report: Report, *, width: int | None = None, policy: Policy | None = None) -> str:
    return "\n".join(line_text(line) for line in render_report(report, policy or Policy(), width=width))


def test_a_loaded_checkpoint_says_so_first(make_report: MakeReport) -> None:
    assert shown(make_report()).splitlines()[:3] == [
        "VALID (loaded)  Every byte is as it was written, and it loads.",
        "/runs/7/step-2 (dcp, step 2)",
        "provenance: unproven (nothing shows that all files come from one save)",
    ]


def test_every_check_has_a_row_with_a_sign_and_a_word(make_report: MakeReport, damage: Finding) -> None:
    lines = shown(make_report(damage)).splitlines()
    for name in CheckName:
        assert any(line[2:].startswith(name.value) for line in lines), name
    assert any(line.startswith("x content     FAIL") for line in lines)
    assert any(line.startswith("+ existence   pass     4 files") for line in lines)
    assert any(line.startswith("- probe       skipped  not asked for") for line in lines)
    assert any(line.startswith("? provenance  unknown  no save-time manifest") for line in lines)


def test_a_damaged_place_is_named_with_all_its_evidence(make_report: MakeReport, damage: Finding) -> None:
    text = shown(make_report(damage))
    assert text.startswith("INVALID (damage)  Do not resume from it")
    for evidence in (
        "file      __2_0.distcp",
        "tensor    model.layers.0.attention.wq.weight",
        "slice     offsets [256, 0], sizes [128, 512]",
        "record    data/0",
        "bytes     from byte 1843200 (0x1c2000) of the file, 262,144 bytes",
        "expected  crc32:1a2b3c4d",
        "observed  crc32:99887766",
    ):
        assert evidence in text


def test_the_tail_of_a_childs_output_keeps_its_lines(make_report: MakeReport) -> None:
    crash = Finding(
        code=FindingCode.CANARY_CRASHED,
        check=CheckName.LOAD,
        severity=Severity.UNKNOWN,
        message="ended by signal 11",
        observed="\n".join(f"line {number}\x1b[31m" for number in range(20)),
    )
    lines = shown(make_report(crash)).splitlines()
    assert [line for line in lines if "line 1" in line][-1].strip() == r"line 19\x1b[31m"
    assert r"    observed  line 14\x1b[31m" in lines


def test_many_damaged_places_are_counted_not_listed(make_report: MakeReport, damage: Finding) -> None:
    text = shown(make_report(*(replace(damage, offset=number) for number in range(50))))
    assert text.count("tensor    ") == 3
    assert "and 47 more: crc_mismatch 47" in text


def test_what_to_do_next_carries_the_command(make_report: MakeReport, damage: Finding) -> None:
    text = shown(make_report(damage))
    assert "What to do next" in text
    assert "ckptguard check /runs/7 --step all" in text


def test_a_healthy_checkpoint_gets_no_advice(make_report: MakeReport) -> None:
    assert "What to do next" not in shown(make_report())


def test_every_finding_code_has_a_next_step_that_can_be_filled(make_report: MakeReport) -> None:
    assert set(NEXT_STEPS) == set(FindingCode)
    for code in FindingCode:
        doubt = Finding(code=code, check=CheckName.CONTENT, severity=Severity.UNKNOWN, message="m")
        (step,) = next_steps(make_report(doubt))
        assert step
        assert "{" not in step


def test_next_steps_are_few_and_gravest_first(make_report: MakeReport, damage: Finding) -> None:
    codes = list(FindingCode)
    doubts = [
        Finding(code=code, check=CheckName.CONTENT, severity=Severity.UNKNOWN, message="m") for code in codes
    ]
    assert len(next_steps(make_report(*doubts))) == MAX_STEPS
    assert next_steps(make_report(*doubts, damage)) == next_steps(make_report(damage))


def test_a_folder_of_steps_is_named_itself(make_report: MakeReport, damage: Finding) -> None:
    steps = (StepSummary(step=2, path="step-2", format="dcp", is_committed=True),)
    report = make_report(damage, target="/runs/7", steps=steps)
    assert "ckptguard check /runs/7 --step all" in next_steps(report)[0]


def test_the_footer_says_what_was_read(make_report: MakeReport) -> None:
    last = shown(make_report()).splitlines()[-1]
    assert last == (
        "read 200.0 MB (1.000 x its size) in 0.10 s, 2.0 GB/s; cached pages where there were any; "
        "device cpu; checks 1, ckptguard 0.1.0, torch 2.13.0; 1.50 s in all"
    )
    assert "past the page cache" in shown(make_report(), policy=Policy(is_direct=True))
    assert "names, sizes and metadata only" in shown(make_report(), policy=Policy(depth=Depth.STRUCTURE))


HOSTILE = (
    "\x1b[2J\x1b]0;owned\x07",
    "[bold red]x[/]",
    "a\nVALID (loaded)",
    "\u202egnp.exe",
    "[/]" * 40,
    "字" * 90,
)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_shown_never_obeyed(make_report: MakeReport, damage: Finding, name: str) -> None:
    hostile = replace(damage, fqn=name, file=name, message=name, expected=name, observed=name, record=name)
    report = make_report(hostile, target=name, path=name, format=name, device=name)
    for line in render_report(report, Policy(), width=80):
        assert line_text(line).isprintable()
        assert not line_text(line).startswith("VALID")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(name=st.text(max_size=300), width=st.integers(60, 120))
def test_no_line_is_wider_than_the_terminal(
    make_report: MakeReport, damage: Finding, name: str, width: int
) -> None:
    hostile = replace(damage, fqn=name, file=name, message=name, expected=name, observed=name)
    warning = replace(hostile, severity=Severity.WARNING, basis=None)
    report = make_report(*[hostile] * 5, *[warning] * 5, path=name)
    for line in render_report(report, Policy(), width=width):
        assert cell_width(line_text(line)) <= width, line_text(line)


def test_a_pipe_gets_each_row_on_one_line(make_report: MakeReport, damage: Finding) -> None:
    long = replace(damage, message="word " * 60)
    rows = [line for line in shown(make_report(long)).splitlines() if line.startswith("x content")]
    assert len(rows) == 1
    assert rows[0].count("word") == 60


def test_a_step_of_many_is_one_line(make_report: MakeReport, damage: Finding) -> None:
    good, bad = line_text(render_step_line(make_report())), line_text(render_step_line(make_report(damage)))
    assert good.startswith("step 2          VALID (loaded)")
    assert bad.startswith("step 2          INVALID (damage)")
    assert bad.endswith("crc_mismatch __2_0.distcp")
