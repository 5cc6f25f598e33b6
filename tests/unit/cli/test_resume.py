"""`resume` against a scripted service and a real folder: exit codes, and what stands on stdout."""

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ckptguard.operations import resume as resume_operation
from tests.scripted_service import (
    Reply,
    ScriptedService,
    problem,
    resume_value,
    target_value,
)

TARGET = "GET /v1/runs/run-7/resume-target"
EVIDENCE = "GET /v1/validations/9/evidence"
RESTARTS = "POST /v1/runs/run-7/restarts"
REVALIDATE = "POST /v1/checkpoints/7/validations"
STARTED = Reply(status=201, value={"branch": 0, "opened": False})
ASKED_FOR = Reply(status=202, value={"id": 12, "state": "queued"})
FORBIDDEN = problem(403, "forbidden", "needs the scope register")
LATER = {"Retry-After": "60"}  # beyond the deadline: no second try
AWAY = problem(503, "service_unavailable", "the database gives no answer", headers=LATER)

ENVIRONMENT = """\
export CKPTGUARD_RUN=run-7
export CKPTGUARD_RESUME_PATH={path}
export CKPTGUARD_RESUME_ROOT={path.parent}
export CKPTGUARD_RESUME_TAG=step-1200
export CKPTGUARD_RESUME_STEP=1200
export CKPTGUARD_RESUME_CHECKPOINT=7
export CKPTGUARD_RESUME_BRANCH=0
export CKPTGUARD_RESUME_ENDING=proven
export CKPTGUARD_ATTEMPT=mine
"""

Outcome = tuple[int, str, str]
Ask = Callable[..., Outcome]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Return the folder of step 1200, in a store."""
    folder = tmp_path / "store" / "run-7" / "step-1200"
    folder.mkdir(parents=True)
    (folder / "a.distcp").write_bytes(b"12345")
    (folder / ".metadata").write_bytes(b"1234567")
    return folder


@pytest.fixture
def ask(
    ask: Ask, service: ScriptedService, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Ask:
    """Return what runs `resume` and gives exit code, stdout and stderr."""
    monkeypatch.setenv("CKPTGUARD_STORES", f"demo={tmp_path / 'store'}")
    monkeypatch.setenv("CKPTGUARD_CACHE_DIR", str(tmp_path / "cache"))
    service.on(RESTARTS, STARTED)
    service.on(REVALIDATE, ASKED_FOR)
    service.on(EVIDENCE, evidence(checkpoint))
    return lambda *arguments: ask("resume", "--run", "run-7", "--deadline", "1s", *arguments)


def evidence(folder: Path) -> Reply:
    """Return what the verdict binds to: the folder as it is now."""
    items = []
    for file in sorted(folder.iterdir()):
        status = file.stat()
        items.append(
            {
                "path": file.name,
                "length_bytes": status.st_size,
                "version": f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}",
                "modified_at": datetime.fromtimestamp(status.st_mtime, UTC).isoformat(),
            }
        )
    return Reply(value={"items": items, "next": None})


def passed_over(step: int = 1300, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON values
    return {"id": 8, "branch": 0, "step": step, "reason": "invalid", **changes}


def test_a_valid_one_is_printed_and_its_start_reported(
    service: ScriptedService, ask: Ask, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)
    newer = passed_over(detail="crc_mismatch in __0_0.distcp\x1b[31m")
    service.on(TARGET, Reply(value=resume_value(passed_over=[newer], passed_over_total=5)))
    code, out, err = ask()
    assert (code, out) == (0, f"{checkpoint}\n")
    assert "passed over step 1300: invalid: crc_mismatch in __0_0.distcp\\x1b[31m\n" in err
    assert "and 4 more were passed over" in err
    (told,) = service.requests(RESTARTS)
    assert told.body == {"attempt": "slurm-77-0", "outcome": "resumed", "checkpoint_id": 7}


def test_only_looking_reports_nothing(service: ScriptedService, ask: Ask) -> None:
    service.on(TARGET, Reply(value=resume_value()))
    assert ask("--no-report")[0] == 0
    assert not service.requests(RESTARTS)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("path", "{path}\n"),
        ("step", "1200\n"),
        ("tag", "step-1200\n"),
        ("env", ENVIRONMENT),
    ],
)
def test_each_format_prints_what_it_says(
    output: str,
    expected: str,
    service: ScriptedService,
    ask: Ask,
    checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CKPTGUARD_ATTEMPT", "mine")
    service.on(TARGET, Reply(value=resume_value()))
    assert ask("--format", output)[:2] == (0, expected.format(path=checkpoint))


def test_json_is_one_object(service: ScriptedService, ask: Ask, checkpoint: Path) -> None:
    service.on(TARGET, Reply(value=resume_value()))
    for option in (("--json",), ("--format", "json")):
        code, out, _ = ask(*option)
        answer = json.loads(out)
        assert (code, answer["schema"], answer["path"], answer["ending"]) == (0, 1, str(checkpoint), "proven")
        assert answer["target"]["validation_id"] == 9


BELOW = target_value(assurance="content")
STATES = {
    "valid": (resume_value(), 0),
    "valid_below": (resume_value("valid_below"), 10),
    "pending": (resume_value("pending"), 20),
    "none_valid": (resume_value("none_valid"), 30),
    "unknown_run": (resume_value("unknown_run", index=0), 30),
    "none_exist": (resume_value("none_exist"), 40),
    "cached": (resume_value(is_cached=True), 20),
}
FLAGS = {
    "no flag": (),
    "accept below": ("--accept-below",),
    "allow fresh": ("--allow-fresh",),
    "fresh despite": ("--fresh-despite", "run-7"),
    "last known": ("--on-unavailable", "last-known"),
    "newest committed": ("--on-unavailable", "newest-committed"),
}
CHANGED_BY_FLAG = {
    ("none_valid", "fresh despite"): 0,
    ("unknown_run", "fresh despite"): 0,
    ("none_exist", "allow fresh"): 0,
    ("cached", "last known"): 10,
    ("cached", "newest committed"): 10,
}
WITH_PATH = {
    ("valid_below", "accept below"),
    ("cached", "last known"),
    ("cached", "newest committed"),
    *(("valid", flag) for flag in FLAGS),
}


@pytest.mark.parametrize("output", ["path", "json"])
@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("state", STATES)
def test_every_state_under_every_flag(
    state: str, flag: str, output: str, service: ScriptedService, ask: Ask, checkpoint: Path
) -> None:
    value, code = STATES[state]
    service.on(TARGET, Reply(value=value))
    service.on("POST /v1/runs", Reply(status=201, value={"name": "run-7"}))
    found, out, _ = ask("--format", output, *FLAGS[flag])
    assert found == CHANGED_BY_FLAG.get((state, flag), code)
    assert (out != "") == ((state, flag) in WITH_PATH)
    if out:
        assert str(checkpoint) in out


def test_without_a_path_json_still_is_one_object(service: ScriptedService, ask: Ask) -> None:
    service.on(TARGET, Reply(value=resume_value("none_valid")))
    code, out, _ = ask("--json")
    answer = json.loads(out)
    assert (code, answer["exit_code"], answer["path"], answer["ending"]) == (30, 30, None, "none_usable")


@pytest.mark.parametrize("name", ["run", "run-70", "", "RUN-7"])
def test_a_fresh_start_over_checkpoints_repeats_the_name_of_the_run(
    name: str, service: ScriptedService, ask: Ask
) -> None:
    assert ask("--fresh-despite", name)[:2] == (2, "")
    assert not service.asked


def test_a_fresh_start_over_checkpoints_is_audited(service: ScriptedService, ask: Ask) -> None:
    service.on(TARGET, Reply(value=resume_value("none_valid")))
    assert ask("--fresh-despite", "run-7")[:2] == (0, "")
    (told,) = service.requests(RESTARTS)
    assert told.body["is_fresh_despite"] is True
    assert told.body["run"] == "run-7"
    assert "checkpoint_id" not in told.body


@pytest.mark.parametrize(
    ("reply", "code"), [(FORBIDDEN, 30), (AWAY, 20), (Reply(raw=b"?"), 30), (Reply(value={}), 30)]
)
def test_a_fresh_start_that_is_not_audited_does_not_happen(
    reply: Reply, code: int, service: ScriptedService, ask: Ask
) -> None:
    service.on(TARGET, Reply(value=resume_value("none_valid")))
    service.on(RESTARTS, reply)
    assert ask("--fresh-despite", "run-7")[:2] == (code, "")


def older(service: ScriptedService, checkpoint: Path) -> Path:
    """Add step 1100, which the service offers when the one above is not taken."""
    folder = checkpoint.parent / "step-1100"
    folder.mkdir()
    (folder / "a.distcp").write_bytes(b"1")
    service.on("GET /v1/validations/5/evidence", evidence(folder))
    target = target_value(id=6, step=1100, path="run-7/step-1100", validation_id=5)
    service.on(TARGET, Reply(value=resume_value()), Reply(value=resume_value(target=target)))
    return folder


def rewrite(folder: Path) -> None:
    (folder / "a.distcp").write_bytes(b"54321")
    os.utime(folder / "a.distcp", ns=(0, 0))


def lengthen(folder: Path) -> None:
    (folder / "a.distcp").write_bytes(b"123456")


def remove_one(folder: Path) -> None:
    (folder / "a.distcp").unlink()


def remove_all(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


def link_away(folder: Path) -> None:
    outside = folder.parents[2] / "outside"
    (folder / "a.distcp").rename(outside)
    (folder / "a.distcp").symlink_to(outside)


CHANGES = [rewrite, lengthen, remove_one, remove_all, link_away]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_changed_is_not_printed_and_the_next_one_is(
    change: Callable[[Path], None], service: ScriptedService, ask: Ask, checkpoint: Path
) -> None:
    next_one = older(service, checkpoint)
    change(checkpoint)
    code, out, err = ask()
    assert (code, out) == (0, f"{next_one}\n")
    assert "step 1200 is not as it was validated" in err
    assert [asked.query.get("exclude") for asked in service.requests(TARGET)] == [None, "7"]
    (asked_for,) = service.requests(REVALIDATE)
    assert "changed" in asked_for.body["reason"]
    assert service.requests(RESTARTS)[0].body["checkpoint_id"] == 6


@pytest.mark.parametrize(("reply", "code"), [(ASKED_FOR, 20), (FORBIDDEN, 30)])
@pytest.mark.parametrize("state", ["none_valid", "none_exist", "unknown_run"])
def test_a_changed_one_never_makes_a_run_empty(
    state: str, reply: Reply, code: int, service: ScriptedService, ask: Ask, checkpoint: Path
) -> None:
    service.on(TARGET, Reply(value=resume_value()), Reply(value=resume_value(state)))
    service.on(REVALIDATE, reply)
    lengthen(checkpoint)
    assert ask("--allow-fresh")[:2] == (code, "")


def test_looking_is_bounded(service: ScriptedService, ask: Ask, checkpoint: Path) -> None:
    targets = [target_value(id=number) for number in range(1, 30)]
    service.on(TARGET, *(Reply(value=resume_value(target=target)) for target in targets))
    service.on(REVALIDATE, FORBIDDEN)
    lengthen(checkpoint)
    assert ask()[:2] == (30, "")
    last = service.requests(TARGET)[-1]
    assert len(service.requests(TARGET)) == resume_operation.MAX_DROPPED + 1
    assert last.query["exclude"] == ",".join(map(str, range(1, resume_operation.MAX_DROPPED + 1)))


@pytest.mark.parametrize("named", [(), ("--step", "1200")])
def test_another_save_of_the_same_step_is_the_next_one(
    named: tuple[str, ...], service: ScriptedService, ask: Ask, checkpoint: Path
) -> None:
    sibling = checkpoint.with_name("step-1200-again")
    sibling.mkdir()
    (sibling / "a.distcp").write_bytes(b"1")
    service.on("GET /v1/validations/5/evidence", evidence(sibling))
    target = target_value(id=6, path="run-7/step-1200-again", validation_id=5)
    service.on(TARGET, Reply(value=resume_value()), Reply(value=resume_value(target=target)))
    remove_all(checkpoint)
    assert ask(*named)[:2] == (0, f"{sibling}\n")
    first, second = (asked.query for asked in service.requests(TARGET))
    assert dict(second) == {**first, "exclude": "7"}
    assert first.get("step") == (named[1] if named else None)


def test_a_step_that_was_named_may_have_no_next_one(
    service: ScriptedService, ask: Ask, checkpoint: Path
) -> None:
    service.on(TARGET, Reply(value=resume_value()), Reply(value=resume_value("none_valid")))
    service.on(REVALIDATE, FORBIDDEN)
    lengthen(checkpoint)
    assert ask("--step", "1200")[:2] == (30, "")


def test_what_was_passed_over_is_told_once(service: ScriptedService, ask: Ask, checkpoint: Path) -> None:
    older(service, checkpoint)
    between = passed_over(1150, id=4)
    both = resume_value(target=target_value(id=6, step=1100, path="run-7/step-1100", validation_id=5))
    both |= {"passed_over": [passed_over(), between], "passed_over_total": 5}
    first = resume_value(passed_over=[passed_over()], passed_over_total=4)
    service.on(TARGET, Reply(value=first), Reply(value=both))
    lengthen(checkpoint)
    code, _, err = ask()
    assert code == 0
    assert (err.count("step 1300"), err.count("step 1150"), err.count("3 more")) == (1, 1, 1)


def test_without_evidence_nothing_is_printed(service: ScriptedService, ask: Ask) -> None:
    service.on(TARGET, Reply(value=resume_value()))
    service.on(EVIDENCE, Reply(value={"items": [], "next": None}))
    assert ask()[:2] == (30, "")


def test_a_store_that_is_not_here_can_be_tried_again(
    service: ScriptedService, ask: Ask, tmp_path: Path
) -> None:
    service.on(TARGET, Reply(value=resume_value()))
    code, out, err = ask("--store", f"demo={tmp_path / 'not-mounted'}", "--allow-fresh")
    assert (code, out) == (20, "")
    assert "--store NAME=PATH" in err
    assert not service.requests(REVALIDATE)


@pytest.mark.parametrize(
    "path", ["../step", "/etc", "run-7/../../etc", "run-7/\nrm -rf", "run-7/\x1b[2J", "a//b"]
)
def test_a_hostile_folder_is_never_printed(path: str, service: ScriptedService, ask: Ask) -> None:
    target = target_value(path=path, url=f"file:///data/{path}")
    service.on(TARGET, Reply(value=resume_value(target=target)))
    code, out, err = ask()
    assert (code, out) == (30, "")
    assert "\x1b" not in err


@pytest.mark.parametrize(
    "reply",
    [
        Reply(raw=b""),
        Reply(raw=b"\x00\xff"),
        Reply(raw=b"[" * 100_000),
        Reply(value=None),
        Reply(value={"state": "valid"}),
        Reply(value=resume_value("excellent")),
        Reply(value=resume_value(target=None)),
        Reply(value=resume_value("none_exist", target=target_value())),
        Reply(value=resume_value("valid_below", below=None)),
        Reply(value=resume_value(target=target_value(step="1200"))),
        Reply(value=resume_value(target=target_value(assurance="absolute"))),
        Reply(value=resume_value(passed_over=[{}])),
        Reply(value=resume_value(is_cached="no")),
        Reply(status=302, headers={"Location": "http://127.0.0.1:1/"}),
        problem(401, "unauthorized"),
        problem(404, "not_found", "no such project"),
        problem(500, "internal"),
    ],
)
def test_an_answer_that_is_none_gives_no_path_and_no_fresh_start(
    reply: Reply, service: ScriptedService, ask: Ask
) -> None:
    service.on(TARGET, reply)
    code, out, err = ask("--allow-fresh", "--accept-below", "--on-unavailable", "last-known")
    assert (code, out) == (30, "")
    assert "next: " in err


def test_a_service_that_is_away_is_20_with_one_json_object(service: ScriptedService, ask: Ask) -> None:
    service.on(TARGET, AWAY)
    assert ask()[:2] == (20, "")
    code, out, _ = ask("--json")
    assert (code, json.loads(out)["ending"]) == (20, "try_again")


@pytest.mark.parametrize("away", [AWAY, Reply(status=502, raw=b"<html>", headers=LATER)])
def test_the_last_known_answer_is_printed_only_with_the_flag(
    away: Reply, service: ScriptedService, ask: Ask, checkpoint: Path, tmp_path: Path
) -> None:
    service.on(TARGET, Reply(value=resume_value()))
    assert ask()[0] == 0
    (kept,) = (tmp_path / "cache").iterdir()
    assert kept.stat().st_mode & 0o077 == 0
    service.on(TARGET, away)
    assert ask()[:2] == (20, "")
    code, out, err = ask("--on-unavailable", "last-known")
    assert (code, out) == (10, f"{checkpoint}\n")
    assert "last known" in err
    assert ask("--on-unavailable", "last-known", "--min-assurance", "resumable")[:2] == (20, "")
    lengthen(checkpoint)
    assert ask("--on-unavailable", "last-known")[:2] == (20, "")


def test_what_the_service_remembers_is_compared_by_totals(
    service: ScriptedService, ask: Ask, checkpoint: Path
) -> None:
    service.on(
        TARGET, problem(503, "service_unavailable", headers=LATER, last_known=resume_value(is_cached=True))
    )
    code, out, err = ask("--on-unavailable", "last-known")
    assert (code, out) == (10, f"{checkpoint}\n")
    assert "only totals are known" in err
    remove_one(checkpoint)
    assert ask("--on-unavailable", "last-known")[:2] == (20, "")


def test_a_service_that_goes_away_before_its_evidence_is_a_service_that_is_away(
    service: ScriptedService, ask: Ask, checkpoint: Path
) -> None:
    service.on(TARGET, Reply(value=resume_value()))
    assert ask()[0] == 0
    service.on(EVIDENCE, AWAY)
    assert ask()[:2] == (20, "")
    assert ask("--on-unavailable", "last-known")[:2] == (10, f"{checkpoint}\n")


@pytest.mark.parametrize("last_known", [{}, {"state": "valid"}, resume_value(run="another")])
def test_a_memory_that_is_none_is_not_taken(
    last_known: dict[str, Any], service: ScriptedService, ask: Ask
) -> None:
    service.on(TARGET, problem(503, "service_unavailable", headers=LATER, last_known=last_known))
    assert ask("--on-unavailable", "last-known")[:2] == (20, "")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"answer": {}}'])
def test_a_kept_answer_that_is_broken_is_as_if_there_were_none(
    text: str, service: ScriptedService, ask: Ask, tmp_path: Path
) -> None:
    service.on(TARGET, Reply(value=resume_value()))
    assert ask()[0] == 0
    (kept,) = (tmp_path / "cache").iterdir()
    kept.write_text(text)
    service.on(TARGET, AWAY)
    assert ask("--on-unavailable", "last-known")[:2] == (20, "")


def test_the_newest_committed_is_printed_only_with_the_flag_and_never_called_valid(
    service: ScriptedService, ask: Ask, own_dcp: Path, checkpoint: Path
) -> None:
    for step, is_committed in ((1300, True), (1400, False)):
        folder = checkpoint.parent / f"step-{step}"
        folder.mkdir()
        for file in own_dcp.iterdir():
            if file.is_file() and (is_committed or file.name != ".metadata"):
                (folder / file.name).write_bytes(file.read_bytes())
    service.on(TARGET, AWAY)
    code, out, err = ask("--on-unavailable", "newest-committed")
    assert (code, out) == (10, f"{checkpoint.parent / 'step-1300'}\n")
    assert "nothing of it is proven" in err
    assert "VALID" not in err
    assert ask("--on-unavailable", "last-known")[:2] == (20, "")


@pytest.fixture
def own_dcp() -> Path:
    """Return a small real checkpoint."""
    return Path(__file__).resolve().parents[2] / "data" / "corpus" / "dcp_torch2_14_1_fsdp2_ws2"


@pytest.mark.parametrize("reply", [FORBIDDEN, AWAY, Reply(raw=b"?"), problem(404, "not_found")])
def test_a_start_that_cannot_be_reported_is_told_and_still_happens(
    reply: Reply, service: ScriptedService, ask: Ask, checkpoint: Path
) -> None:
    service.on(TARGET, Reply(value=resume_value()))
    service.on(RESTARTS, reply)
    code, out, err = ask()
    assert (code, out) == (0, f"{checkpoint}\n")
    assert "WARNING: the start could not be reported" in err


def test_a_second_start_under_one_name_gets_a_name_of_its_own(
    service: ScriptedService, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CKPTGUARD_ATTEMPT", "mine")
    service.on(TARGET, Reply(value=resume_value()))
    service.on(RESTARTS, problem(409, "conflict"), STARTED)
    _, out, _ = ask("--format", "env")
    assert out.endswith("export CKPTGUARD_ATTEMPT=mine/7\n")


def test_what_the_service_no_longer_lets_a_run_go_on_from_is_asked_for_anew(
    service: ScriptedService, ask: Ask, checkpoint: Path
) -> None:
    gone = problem(409, "conflict", "checkpoint 7 is superseded: a run cannot go on from it")
    valid, none = Reply(value=resume_value()), Reply(value=resume_value("none_valid"))
    service.on(TARGET, valid, none)
    service.on(RESTARTS, gone)
    assert ask()[:2] == (30, "")
    service.on(TARGET, valid)
    service.on(RESTARTS, gone, gone, STARTED)
    assert ask()[:2] == (0, f"{checkpoint}\n")
    service.on(RESTARTS, gone)
    code, out, err = ask()
    assert (code, out) == (20, "")
    assert "a run cannot go on from it" in err


def test_waiting_is_made_of_slices_and_ends_with_the_answer(
    service: ScriptedService, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resume_operation, "SLICE_S", 0.2)
    monkeypatch.setattr(resume_operation, "_EARLY", 0.0)  # as if each slice had been waited out
    running = passed_over(
        reason="running",
        validation={"state": "running", "bytes_done": 1, "bytes_total": 2, "bytes_per_s": 1.0, "eta_s": 4.0},
    )
    pending = Reply(value=resume_value("pending", passed_over=[running], passed_over_total=1))
    service.on(TARGET, pending, pending, Reply(value=resume_value()))
    code, _, err = ask("--wait", "0.5s")
    waits = [float(asked.query.get("wait_s", 0)) for asked in service.requests(TARGET)]
    assert waits[0] == pytest.approx(0.2, abs=0.01)
    assert "waiting for step 1300" in err
    assert code in {0, 20}
    assert (code == 0) == (len(waits) >= 3)


def test_an_answer_before_the_time_is_final(service: ScriptedService, ask: Ask) -> None:
    service.on(TARGET, Reply(value=resume_value("pending")))
    assert ask("--wait", "60s")[:2] == (20, "")
    assert len(service.requests(TARGET)) == 1


@pytest.mark.parametrize(
    "arguments",
    [("--wait", "soon"), ("--device", "tpu"), ("--format", "xml"), ("--store", "demo"), ("--step", "-1")],
)
def test_usage_is_2(arguments: tuple[str, ...], ask: Ask) -> None:
    assert ask(*arguments)[:2] == (2, "")
