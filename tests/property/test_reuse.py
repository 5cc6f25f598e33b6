"""A verdict that takes over what an earlier attempt has read equals one that reads all of it."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ckptguard.model.finding import Finding
from ckptguard.model.policy import Depth, NumericsMode, Policy
from ckptguard.model.report import FileEvidence, Report
from ckptguard.model.verdict import Judgement
from ckptguard.operations.place import Place
from ckptguard.operations.reading import Attempt
from ckptguard.operations.validate import validate_in
from ckptguard.scan.result import FileResult, file_result_from_json, file_result_to_json
from ckptguard.testing.edits import copy_checkpoint

CORPUS = Path(__file__).resolve().parent.parent / "data" / "corpus"
SAVES = (
    "dcp_torch2_14_1_fsdp2_ws2",
    "dcp_torch2_13_0_uneven_ws4",
    "dcp_torch2_13_0_threads16_emptyfiles_ws2",
    "dcp_torch2_13_0_fswriter_safetensors_ws2",
    "hf_hub_sharded_safetensors",
    "accelerate_fsdp2_sharded_ws2",
    "torchsnapshot_ddp_ws2",
)
SEEDS = range(2)
Outcome = tuple[Judgement, tuple[Finding, ...], tuple[FileEvidence, ...], tuple[str, ...]]


def run(
    folder: Path, policy: Policy, *, known: dict[str, FileResult] | None = None
) -> tuple[Report, dict[str, FileResult]]:
    """Validate; return the report and what the next attempt may know, as it crosses the service."""
    told: dict[str, FileResult] = {}

    def take(result: FileResult) -> None:
        told[result.scan.path] = file_result_from_json(file_result_to_json(result))

    attempt = Attempt(known=known or {}, on_file=take)
    return validate_in(Place.of(str(folder)), policy=policy, attempt=attempt), told


def outcome(report: Report) -> Outcome:
    statuses = tuple(f"{check.name}:{check.status}:{check.reason}" for check in report.checks)
    return report.judgement, report.findings, report.files, statuses


def reused(report: Report) -> int:
    return sum(check.counts.get("files_reused", 0) for check in report.checks)


def shards(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size]


def nothing(_: Path, __: random.Random) -> None:
    """Leave all as it is."""


def flip(folder: Path, chance: random.Random) -> None:
    path = chance.choice([path for path in shards(folder) if path.name != ".metadata"])
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def cut(folder: Path, chance: random.Random) -> None:
    path = chance.choice(shards(folder))
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("before", [nothing, flip, cut])
@pytest.mark.parametrize("between", [nothing, flip])
@pytest.mark.parametrize("save", SAVES)
def test_what_is_taken_over_changes_no_verdict(
    save: str,
    before: Callable[[Path, random.Random], None],
    between: Callable[[Path, random.Random], None],
    tmp_path: Path,
) -> None:
    policy = Policy(depth=Depth.CONTENT, settle_s=0, jobs=2, is_mtime_ignored=True)
    for seed in SEEDS:
        chance = random.Random(seed)  # noqa: S311 - a seeded test
        folder = copy_checkpoint(CORPUS / save, tmp_path / f"{seed}")
        before(folder, chance)
        _, told = run(folder, policy)
        known = {path: told[path] for path in sorted(told) if chance.random() < 0.7}  # it died somewhere
        between(folder, chance)
        again, _ = run(folder, policy, known=known)
        fresh, _ = run(folder, policy)
        assert outcome(again) == outcome(fresh), f"seed {seed}"
        if before is nothing and between is nothing and known:
            assert reused(again) == len(known), f"seed {seed}"
            assert again.bytes_read < fresh.bytes_read


@pytest.mark.torch
def test_what_was_loaded_need_not_be_loaded_again_but_for_the_damaged(tmp_path: Path) -> None:
    policy = Policy(settle_s=0, is_mtime_ignored=True)
    folder = copy_checkpoint(CORPUS / SAVES[0], tmp_path / "save")
    flip(folder, random.Random(1))  # noqa: S311 - a seeded test
    fresh, told = run(folder, policy)
    again, _ = run(folder, policy, known=told)
    assert outcome(again) == outcome(fresh)
    assert reused(again) == sum(not result.scan.findings for result in told.values()) == 1
    assert again.numerics == fresh.numerics


def test_only_the_same_question_has_the_same_answer(tmp_path: Path) -> None:
    policy = Policy(depth=Depth.CONTENT, settle_s=0, is_mtime_ignored=True)
    folder = copy_checkpoint(CORPUS / SAVES[0], tmp_path / "save")
    _, told = run(folder, policy)
    known = dict(told)
    assert reused(run(folder, policy, known=known)[0]) == len(known)
    other_mode = replace(policy, numerics=NumericsMode.OFF)
    assert reused(run(folder, other_mode, known=known)[0]) == 0
    newer = {path: replace(r, versions={**r.versions, "checks": "0"}) for path, r in known.items()}
    assert reused(run(folder, policy, known=newer)[0]) == 0
    metadata = folder / ".metadata"
    metadata.write_bytes(metadata.read_bytes().replace(b"float32", b"float16"))
    assert reused(run(folder, policy, known=known)[0]) == 0


@pytest.mark.torch
def test_what_was_only_read_is_loaded_where_a_load_is_asked_for(tmp_path: Path) -> None:
    folder = copy_checkpoint(CORPUS / SAVES[0], tmp_path / "save")
    _, told = run(folder, Policy(depth=Depth.CONTENT, settle_s=0, is_mtime_ignored=True))
    report, _ = run(folder, Policy(settle_s=0, is_mtime_ignored=True), known=told)
    assert reused(report) == 0
    assert report.judgement.assurance == "loaded"
