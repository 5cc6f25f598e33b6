"""The report on a checkpoint that was not looked at: UNKNOWN, and why."""

from datetime import datetime

import ckptguard
from ckptguard.checks.version import CHECKS_VERSION
from ckptguard.model.finding import CheckName, Finding
from ckptguard.model.report import Report
from ckptguard.model.verdict import Provenance, conclude, skipped


def refusal(finding: Finding, *, target: str, at: datetime) -> Report:
    """Make a report of one finding, about a location that was never opened.

    Args:
        finding: Of check `existence`; a doubt.
        target: What was asked.
        at: When.
    """
    others = [name for name in CheckName if name is not CheckName.EXISTENCE]
    return Report(
        target=target,
        path=target,
        format="unknown",
        checks=(
            conclude(CheckName.EXISTENCE, (finding,)),
            *(skipped(name, "nothing was opened") for name in others),
        ),
        provenance=Provenance.UNPROVEN,
        device=None,
        started_at=at,
        seconds=0.0,
        seconds_reading=0.0,
        num_shards=0,
        num_items=0,
        num_tensors=0,
        bytes_total=0,
        bytes_read=0,
        versions={"ckptguard": ckptguard.__version__, "checks": CHECKS_VERSION},
    )
