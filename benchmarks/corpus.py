"""The verdict on every real checkpoint of the corpus, through the canary, as a table.

    python benchmarks/corpus.py [FOLDER]

FOLDER is CKPTGUARD_CORPUS, or ../shared/corpus. A line per checkpoint: verdict, assurance,
and why it is not higher. Exit code 1 if any healthy checkpoint is called INVALID.
"""

import os
import sys
from collections import Counter
from pathlib import Path

from ckptguard.model.finding import Severity
from ckptguard.model.policy import Policy
from ckptguard.model.report import Report
from ckptguard.model.verdict import CAPPING_CODES, Verdict
from ckptguard.operations.validate import validate

DEFAULT = Path(__file__).resolve().parent.parent.parent / "shared" / "corpus"


def why_not_higher(report: Report) -> str:
    """Return the codes that capped the assurance, or left the verdict in doubt."""
    codes = Counter(
        finding.code.value
        for finding in report.findings
        if finding.code in CAPPING_CODES or finding.severity in (Severity.ERROR, Severity.UNKNOWN)
    )
    return ", ".join(codes)


def main() -> int:
    """Print the table."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("CKPTGUARD_CORPUS", DEFAULT))
    names = sorted(path.stem for path in folder.glob("*.json"))
    print(f"\n### {len(names)} real checkpoints, depth load\n")
    print("| checkpoint | verdict | assurance | not higher because | items | loaded |")
    print("| --- | --- | --- | --- | --- | --- |")
    totals: Counter[str] = Counter()
    for name in names:
        report = validate(str(folder / name), policy=Policy(settle_s=0, is_mtime_ignored=True))
        judgement = report.judgement
        loaded = next(check.counts.get("items", 0) for check in report.checks if check.name.value == "load")
        level = judgement.assurance.value if judgement.assurance else ""
        totals[f"{judgement.verdict.value} {level}".strip()] += 1
        print(
            f"| {name} | {judgement.verdict.value} | {level} | {why_not_higher(report)}"
            f" | {report.num_items} | {loaded} |"
        )
    print("\n" + ", ".join(f"{key}: {count}" for key, count in sorted(totals.items())))
    return int(any(key.startswith(Verdict.INVALID.value) for key in totals))


if __name__ == "__main__":
    sys.exit(main())
