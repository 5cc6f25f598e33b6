"""The operator's commands against a scripted service: what is asked, what is shown, what is never obeyed."""

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ckptguard.cli.explain import turning_point
from ckptguard.cli.lines import line_text
from ckptguard.cli.main import run
from ckptguard.cli.service_health import look_at_service
from ckptguard.cli.table import cell, render_table
from ckptguard.cli.watch import event_line, progress_of
from ckptguard.client.answers import Validation
from ckptguard.client.sse import ServerEvent
from ckptguard.model.verdict import Verdict
from tests.scripted_service import TOKEN, Reply, ScriptedService, problem

HOSTILE = "run\x1b[2J\r\n\u202e"
Ask = Callable[..., tuple[int, str, str]]


def checkpoint(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON values
    return {
        "id": 7,
        "run": "run-7",
        "step": 1200,
        "save_id": "s",
        "lifecycle": "registered",
        "store": "demo",
        "path": "run-7/step-1200",
        "url": "file:///data/run-7/step-1200",
        "verdict": "INVALID",
        "basis": "damage",
        "holds": ["quarantined"],
        **changes,
    }


def detail(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON values
    in_force = {
        "id": 9,
        "state": "finished",
        "verdict": "INVALID",
        "basis": "damage",
        "checks": [
            {"name": "content", "status": "fail", "reason": "a bit"},
            {"name": "new", "status": "novel"},
        ],
    }
    history = [
        in_force | {"finished_at": "2026-11-29T12:00:00Z"},
        {"id": 8, "state": "finished", "verdict": "VALID", "assurance": "loaded"},
    ]
    holds = [{"hold": "quarantined", "reason": f"because {HOSTILE}", "by": "op", "at": None}]
    return checkpoint(verdict=in_force, holds=holds, history=history, verdict_validation_id=9, **changes)


FINDINGS = [
    {"code": "no_checksum", "severity": "warning", "message": "w"},
    {"code": "crc_mismatch", "severity": "error", "message": "bad", "file": "a; rm -rf /", "offset": 5},
    {"code": "of_a_later_version", "severity": "error", "message": HOSTILE},
]


def test_show_and_explain_tell_what_is_damaged_and_obey_nothing(service: ScriptedService, ask: Ask) -> None:
    service.on("GET /v1/checkpoints/7", Reply(value=detail(run=HOSTILE)))
    service.on("GET /v1/validations/9/findings", Reply(value={"items": FINDINGS, "next": None}))
    code, out, _ = ask("show", "7")
    assert code == 0
    assert "INVALID (damage)" in out
    assert "x content     FAIL" in out
    code, out, _ = ask("explain", "7")
    assert code == 0
    assert out.index("crc_mismatch") < out.index("no_checksum")
    assert "'a; rm -rf /'" in out
    assert "validation 8" in out
    assert "it changed in between" in out


def test_what_the_service_tries_again_by_itself_is_said(service: ScriptedService, ask: Ask) -> None:
    doubted = {"verdict": {**detail()["verdict"], "verdict": "UNKNOWN", "basis": None}, "holds": []}
    value = detail(retry_at="2020-01-01T00:00:00Z") | doubted
    service.on("GET /v1/checkpoints/7", Reply(value=value))
    service.on("GET /v1/validations/9/findings", Reply(value={"items": [], "next": None}))
    assert "tried again  now" in ask("show", "7")[1]
    assert "The service asks again by itself" in ask("explain", "7")[1]


@pytest.mark.parametrize("command", ["show", "explain"])
def test_json_of_one_checkpoint_is_one_object(command: str, service: ScriptedService, ask: Ask) -> None:
    service.on("GET /v1/checkpoints/7", Reply(value=detail()))
    service.on("GET /v1/validations/9/findings", Reply(value={"items": FINDINGS, "next": None}))
    service.on("GET /v1/checkpoints", Reply(value={"items": [checkpoint()], "next": None}))
    _, out, _ = ask(command, "--run", "run-7", "--step", "1200", "--json")
    answer = json.loads(out)
    assert answer["checkpoint"]["in_force"]["id"] == 9
    assert answer["checkpoint"]["verdict"] == "INVALID"
    assert service.requests("GET /v1/checkpoints")[0].query == {"run": "run-7", "step": "1200", "limit": "1"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("show",),
        ("show", "7", "--run", "r", "--step", "1"),
        ("explain", "--run", "r"),
        ("pin", "--reason", "x"),
    ],
)
def test_a_checkpoint_is_named_in_one_way(arguments: tuple[str, ...], ask: Ask) -> None:
    assert ask(*arguments)[0] == 2


def test_a_step_that_is_not_there_is_40(service: ScriptedService, ask: Ask) -> None:
    service.on("GET /v1/checkpoints", Reply(value={"items": [], "next": None}))
    assert ask("show", "--run", "r", "--step", "1")[0] == 40


def test_history_asks_for_what_was_filtered_and_says_when_there_is_more(
    service: ScriptedService, ask: Ask
) -> None:
    service.on("GET /v1/runs/run-7", Reply(value={"name": "run-7"}))
    rows = [checkpoint(id=number, run=HOSTILE, path=HOSTILE) for number in (3, 2, 1)]
    service.on("GET /v1/checkpoints", Reply(value={"items": rows, "next": None}))
    code, out, err = ask(
        "history", "--run", "run-7", "--verdict", "INVALID", "--min-step", "5", "--limit", "2"
    )
    assert code == 0
    assert len(out.splitlines()) == 2
    assert "--limit 4" in err
    (asked,) = service.requests("GET /v1/checkpoints")
    assert asked.query == {"run": "run-7", "verdict": "INVALID", "min_step": "5", "limit": "3"}


def test_holds_send_a_reason_and_say_what_holds_now(service: ScriptedService, ask: Ask) -> None:
    for verb in ("pin", "quarantine", "release"):
        service.on(f"POST /v1/checkpoints/7/{verb}", Reply(value=checkpoint()))
        code, out, _ = ask(verb, "7", "--reason", "why")
        assert code == 0
        assert "quarantined; verdict INVALID (damage)" in out
        assert service.requests(f"POST /v1/checkpoints/7/{verb}")[0].body == {"reason": "why"}


def test_a_note_is_sent_as_it_is_and_told(service: ScriptedService, ask: Ask) -> None:
    written = {"id": 9, "checkpoint_id": 7, "at": "2026-01-01T00:00:00Z", "actor": "op", "text": HOSTILE}
    service.on("POST /v1/checkpoints/7/notes", Reply(status=201, value=written))
    code, out, _ = ask("note", "7", "--text", "two\nlines")
    assert (code, out) == (0, "noted about checkpoint 7\n")
    assert service.requests("POST /v1/checkpoints/7/notes")[0].body == {"text": "two\nlines"}
    code, out, _ = ask("note", "7", "--text", "again", "--json")
    assert json.loads(out)["note"]["text"] == HOSTILE


@pytest.mark.parametrize(
    ("validation", "code"),
    [
        ({"state": "finished", "verdict": "VALID", "assurance": "loaded"}, 0),
        ({"state": "finished", "verdict": "VALID", "assurance": "content"}, 10),
        ({"state": "finished", "verdict": "UNKNOWN", "is_retryable": True}, 20),
        ({"state": "finished", "verdict": "UNKNOWN", "is_retryable": False}, 30),
        ({"state": "finished", "verdict": "INVALID", "basis": "damage"}, 30),
        ({"state": "queued"}, 20),
        ({"state": "cancelled"}, 20),
    ],
)
def test_revalidate_ends_with_the_exit_code_of_check(
    validation: dict[str, Any], code: int, service: ScriptedService, ask: Ask
) -> None:
    service.on("POST /v1/checkpoints/7/validations", Reply(status=202, value={"id": 9, "state": "queued"}))
    running = {
        "id": 9,
        "state": "running",
        "progress": {"state": "running", "bytes_done": 1, "bytes_total": 2},
    }
    service.on("GET /v1/validations/9", Reply(value=running), Reply(value={"id": 9, **validation}))
    assert ask("revalidate", "7", "--wait", "0.5s")[0] == code


def dcp(folder: Path) -> Path:
    source = Path(__file__).resolve().parents[2] / "data" / "corpus" / "dcp_torch2_14_1_fsdp2_ws2"
    folder.mkdir(parents=True)
    for file in source.iterdir():
        if file.is_file():
            (folder / file.name).write_bytes(file.read_bytes())
    return folder


def test_a_registration_without_a_manifest_tells_what_the_listing_tells(
    service: ScriptedService, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = dcp(tmp_path / "store" / "run-7" / "step-1200")
    os.utime(folder / ".metadata", ns=(0, 1_000_000_000))
    answer = {"checkpoint": checkpoint(), "validation": None, "is_new": True, "notes": [HOSTILE]}
    service.on("POST /v1/runs/run-7/checkpoints", Reply(status=201, value=answer))
    monkeypatch.setenv("CKPTGUARD_STORES", f"demo={tmp_path / 'store'}")
    assert ask("register", str(folder), "--run", "run-7")[0] == 0
    (asked,) = service.requests("POST /v1/runs/run-7/checkpoints")
    files = [file for file in folder.iterdir() if file.is_file()]
    assert asked.body == {
        "location": {"store": "demo", "path": "run-7/step-1200"},
        "step": 1200,
        "save_id": asked.body["save_id"],
        "format": "dcp",
        "num_files": len(files),
        "bytes_total": sum(file.stat().st_size for file in files),
        "created_at": "1970-01-01T00:00:01.000000Z",
        "depth": "load",
        "validate": True,
    }
    assert asked.body["save_id"]


def test_a_manifest_beside_the_shards_is_sent_along(
    service: ScriptedService, ask: Ask, tmp_path: Path
) -> None:
    folder = dcp(tmp_path / "run-7" / "step-1200")
    assert run(["manifest", str(folder), "--write"]) == 0
    service.on(
        "POST /v1/runs/run-7/checkpoints",
        Reply(status=201, value={"checkpoint": checkpoint(), "validation": None}),
    )
    assert ask("register", str(folder), "--run", "run-7", "--step", "1200")[0] == 0
    (asked,) = service.requests("POST /v1/runs/run-7/checkpoints")
    manifest = asked.body["manifest"]
    assert manifest["origin"] == "read_back"
    assert asked.body["save_id"] == manifest["save_id"]
    assert asked.body["location"] == {"url": str(folder.resolve())}
    assert {entry["path"] for entry in manifest["files"]} >= {".metadata"}


def test_a_broken_manifest_is_not_left_out_in_silence(
    service: ScriptedService, ask: Ask, tmp_path: Path
) -> None:
    folder = dcp(tmp_path / "step-1200")
    (folder / "ckptguard.manifest.json").write_text("{")
    assert ask("register", str(folder), "--run", "run-7")[0] == 30
    assert not service.asked


@pytest.mark.parametrize(("name", "code"), [("empty", 40), ("nothing", 40)])
def test_a_place_without_a_checkpoint_is_40(
    name: str, code: int, service: ScriptedService, ask: Ask, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    assert ask("register", str(tmp_path / name), "--run", "run-7", "--step", "1")[0] == code
    assert not service.asked


def test_an_announced_place_need_not_be_there(service: ScriptedService, ask: Ask, tmp_path: Path) -> None:
    service.on(
        "POST /v1/runs/run-7/announcements", Reply(status=201, value=checkpoint(lifecycle="announced"))
    )
    place = tmp_path / "run-7" / "step-9"
    assert ask("announce", str(place), "--run", "run-7", "--step", "9", "--keep-alive", "5m")[0] == 0
    assert ask("announce", "s3://bucket/run/step-9/", "--run", "run-7", "--step", "9")[0] == 0
    local, remote = service.requests("POST /v1/runs/run-7/announcements")
    assert local.body["location"] == {"url": str(place)}
    assert local.body["keep_alive_s"] == 300
    assert remote.body["location"] == {"url": "s3://bucket/run/step-9"}


@pytest.mark.parametrize(
    ("reply", "code", "name"),
    [
        (problem(401, "unauthorized"), 30, "unauthorized"),
        (problem(404, "not_found"), 40, "not_found"),
        (problem(422, "invalid_request", problems=["/x: no"]), 2, "invalid_request"),
        (Reply(value=[]), 30, "service"),
    ],
)
def test_an_error_is_one_object_with_all_problems(
    reply: Reply, code: int, name: str, service: ScriptedService, ask: Ask
) -> None:
    service.on("GET /v1/runs", reply)
    found, out, _ = ask("runs", "--json")
    answer = json.loads(out)["error"]
    assert (found, answer["exit_code"], answer["code"]) == (code, code, name)
    assert answer["problems"] == (["/x: no"] if name == "invalid_request" else [])


def test_a_table_is_aligned_on_a_terminal_and_tabs_in_a_pipe() -> None:
    rows = [(cell("ä漢"), cell(1)), (cell("a"), cell(None))]
    shown = [line_text(line) for line in render_table(("name", "n"), rows, is_terminal=True)]
    assert shown == ["name  n", "ä漢   1", "a     -"]
    assert [line_text(line) for line in render_table(("name", "n"), rows, is_terminal=False)] == [
        "ä漢\t1",
        "a\t-",
    ]


def test_doctor_says_what_is_wrong_with_the_service(service: ScriptedService, tmp_path: Path) -> None:
    environment = {"CKPTGUARD_URL": service.url, "CKPTGUARD_TOKEN": TOKEN}
    service.on("GET /readyz", Reply(value={"status": "ready"}))
    stores = [{"name": "here", "url": f"file://{tmp_path}"}, {"name": "away", "url": "file:///no/such/place"}]
    service.on("GET /v1/stores", Reply(value={"items": stores, "next": None}))
    silent = {"name": "w", "seen_at": "2026-11-29T12:00:00Z", "age_s": 999.0}
    service.on("GET /v1/workers", Reply(value={"items": [silent], "next": None}))
    rows = {row.name: row.health.value for row in look_at_service(environment, tmp_path)}
    assert rows == {
        "service": "ok",
        "token": "ok",
        "store here": "ok",
        "store away": "absent",
        "workers": "BAD",
    }
    service.on("GET /v1/stores", problem(401, "unauthorized"))
    assert ("token", "BAD") in {
        (row.name, row.health.value) for row in look_at_service(environment, tmp_path)
    }
    assert [row.health.value for row in look_at_service({}, tmp_path)] == ["absent"]


def entry(number: int, verdict: Verdict | None, *, is_in_force: bool = True) -> Validation:
    return Validation(id=number, state="finished", verdict=verdict, is_in_force=is_in_force)


def test_the_turning_point_is_between_the_last_valid_and_the_first_trouble() -> None:
    good, bad = Verdict.VALID, Verdict.INVALID
    history = [entry(5, bad), entry(4, bad), entry(3, good), entry(2, bad), entry(1, good), entry(6, None)]
    last_good, first_bad = turning_point(history)
    assert last_good is not None
    assert first_bad is not None
    assert (last_good.id, first_bad.id) == (3, 4)
    assert turning_point([entry(1, good), entry(2, Verdict.UNKNOWN, is_in_force=False)])[1] is None
    assert turning_point([]) == (None, None)


@pytest.mark.parametrize(
    "data", [None, [], "x", {"progress": 7}, {"data": [], "step": "x"}, {"bytes_done": -1}]
)
def test_an_event_of_any_shape_is_shown_as_far_as_it_goes(data: object) -> None:
    event = ServerEvent(kind=HOSTILE, data=data)
    assert line_text(event_line(event)).isprintable()
    assert progress_of(event).bytes_done == 0


def test_progress_of_an_event_drives_the_bar() -> None:
    told = {
        "progress": {
            "phase": "reading",
            "bytes_done": 5,
            "bytes_total": 10,
            "files_done": 1,
            "files_total": 2,
        }
    }
    progress = progress_of(ServerEvent(kind="progress", data=told))
    assert (progress.bytes_done, progress.bytes_total, progress.phase) == (5, 10, "reading")


def test_no_service_is_a_usage_error_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("CKPTGUARD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    for arguments in (["runs"], ["resume", "--run", "r"], ["watch", "--run", "r"], ["token", "list"]):
        assert run(arguments) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert "CKPTGUARD_URL" in err
