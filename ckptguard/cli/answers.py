"""What `check` says and returns, for one checkpoint or for all steps of a folder."""

import sys
from collections.abc import Callable
from dataclasses import replace

from ckptguard.cli.exit_codes import ExitCode, exit_code_of_check
from ckptguard.cli.json_output import SCHEMA, write_json
from ckptguard.cli.lines import terminal_width, write_lines
from ckptguard.cli.render import render_report, render_step_line
from ckptguard.model.finding import FindingCode
from ckptguard.model.policy import Depth, Policy
from ckptguard.model.report import Report, report_to_json

Ask = Callable[[Policy, int | None], Report]
"""Validates under a policy: the given step, or for None the one that `check` picks."""


def answer_for_one(ask: Ask, policy: Policy, *, step: int | None, is_json: bool) -> ExitCode:
    """Check one checkpoint, write the answer, return its exit code."""
    report = ask(policy, step)
    if is_json:
        write_json(report_to_json(report))
    else:
        write_lines(render_report(report, policy, width=terminal_width(sys.stdout)), sys.stdout)
    return exit_code_of_report(report, policy)


def answer_for_all(ask: Ask, policy: Policy, *, is_json: bool) -> ExitCode:
    """Check every step, oldest first; return the exit code of the one that `check` picks.

    A target that is one checkpoint, not a folder of steps, is checked as one.
    """
    picked = ask(replace(policy, depth=Depth.STRUCTURE, is_stock_load=False, settle_s=0.0), None)
    if not picked.steps:
        return answer_for_one(ask, policy, step=None, is_json=is_json)
    reports = []
    for step in sorted({summary.step for summary in picked.steps}):
        reports.append(ask(policy, step))
        if not is_json:
            write_lines([render_step_line(reports[-1])], sys.stdout)
    if is_json:
        write_json(
            {
                "schema": SCHEMA,
                "target": picked.target,
                "step": picked.step,
                "reports": [report_to_json(report) for report in reports],
            }
        )
    newest = next((report for report in reports if report.step == picked.step), reports[-1])
    return exit_code_of_report(newest, policy)


def exit_code_of_report(report: Report, policy: Policy) -> ExitCode:
    """Return the exit code of `check` for one report."""
    return exit_code_of_check(report.judgement, depth=policy.depth, is_nothing_there=is_nothing_there(report))


def is_nothing_there(report: Report) -> bool:
    """Say whether the place is empty: no file at all, not merely nothing that is understood."""
    return not report.files and {finding.code for finding in report.findings} == {FindingCode.UNKNOWN_LAYOUT}
