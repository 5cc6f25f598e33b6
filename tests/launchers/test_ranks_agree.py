"""`resume_target` under a real torchrun: one rank asks, all get its answer, whatever it is."""

import json
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.launchers.launch_site import PROJECT, own_environment
from tests.scripted_service import TOKEN, Reply, ScriptedService, problem, resume_value, scripted_service

pytestmark = pytest.mark.torch
PROGRAM = Path(__file__).with_name("ranks_program.py")
AWAY = problem(503, "service_unavailable", "the database gives no answer", headers={"Retry-After": "60"})


def scripted(service: ScriptedService, folder: Path) -> threading.Event:
    """Write down an answer for each run; return what ends the wait of the one that is held."""
    checkpoint = folder / "store" / "run-7" / "step-1200"
    checkpoint.mkdir(parents=True)
    shard = checkpoint / "__0_0.distcp"
    shard.write_bytes(b"12345")
    status = shard.stat()
    seen = {
        "path": shard.name,
        "length_bytes": 5,
        "version": f"{status.st_ino}-{status.st_mtime_ns}-5",
        "modified_at": datetime.fromtimestamp(status.st_mtime, UTC).isoformat(),
    }
    release = threading.Event()
    answers = {
        "run-7": Reply(value=resume_value()),
        "empty": Reply(value=resume_value("none_exist", run="empty")),
        "damaged": Reply(value=resume_value("none_valid", run="damaged")),
        "away": AWAY,
        "refused": problem(401, "unauthorized", "no"),
        "held": Reply(value=resume_value(), held=release),
    }
    for run, reply in answers.items():
        service.on(f"GET /v1/runs/{run}/resume-target", reply)
    service.on("GET /v1/validations/9/evidence", Reply(value={"items": [seen], "next": None}))
    service.on("POST /v1/runs/run-7/restarts", Reply(status=201, value={"branch": 4, "opened": True}))
    return release


def release_once_there(release: threading.Event, files: list[Path]) -> None:
    """Let the first rank have its answer when the others have given up, or after a bound."""
    ends_s = time.monotonic() + 100
    while not all(file.exists() for file in files) and time.monotonic() < ends_s:
        if release.wait(0.1):
            return
    release.set()


@pytest.fixture(
    scope="module",
    params=[pytest.param(2, id="2 ranks"), pytest.param(4, id="4 ranks", marks=pytest.mark.slow)],
)
def asked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[dict[str, Any]], ScriptedService]:
    """Return the notes of all ranks, and the service that they asked."""
    folder = tmp_path_factory.mktemp("ranks")
    with scripted_service() as service:
        release = scripted(service, folder)
        others = [folder / f"{rank}.json" for rank in range(1, request.param)]
        releasing = threading.Thread(target=release_once_there, args=(release, others))
        environment = own_environment() | {
            "CKPTGUARD_URL": service.url,
            "CKPTGUARD_TOKEN": TOKEN,
            "CKPTGUARD_STORES": f"demo={folder / 'store'}",
            "CKPTGUARD_CACHE_DIR": str(folder / "cache"),
            "CKPTGUARD_ATTEMPT": "mine",
            "PYTHONPATH": str(PROJECT),
        }
        command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={request.param}"]
        releasing.start()
        try:
            done = subprocess.run(
                [sys.executable, *command, PROGRAM, folder],
                check=False,
                capture_output=True,
                text=True,
                env=environment,
                timeout=120,
            )
        finally:
            release.set()
            releasing.join()
        assert done.returncode == 0, done.stdout + done.stderr
        notes = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(request.param)]
        return notes, service


Asked = tuple[list[dict[str, Any]], ScriptedService]


@pytest.mark.parametrize("when", ["before", "after"])
def test_all_ranks_get_the_answer_that_one_of_them_asked_for(when: str, asked: Asked) -> None:
    notes, service = asked
    answers = [note[when]["run-7"] for note in notes]
    assert {(answer["step"], answer["branch"], answer["attempt"]) for answer in answers} == {
        (1200, 4, "mine")
    }
    assert {Path(answer["path"]).name for answer in answers} == {"step-1200"}
    assert [bool(answer["hosts"]) for answer in answers] == [True] + [False] * (len(notes) - 1)
    assert len(service.requests("GET /v1/runs/run-7/resume-target")) == 2  # before and after, by rank 0
    assert len(service.requests("POST /v1/runs/run-7/restarts")) == 2


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("run", "ending"),
    [
        ("damaged", "none_usable"),
        ("away", "try_again"),
        ("refused", "none_usable"),
        ("handed", "none_usable"),
    ],
)
def test_a_refusal_of_one_rank_is_the_same_error_on_all(
    run: str, ending: str, when: str, asked: Asked
) -> None:
    notes, _ = asked
    assert {note[when][run]["refused"] for note in notes} == {ending}
    assert len({note[when][run]["message"] for note in notes}) == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_empty_run_is_a_fresh_start_on_all_ranks(when: str, asked: Asked) -> None:
    notes, _ = asked
    assert [note[when]["empty"]["path"] for note in notes] == [None] * len(notes)


def test_a_rank_that_gets_no_answer_from_the_first_waits_no_longer_than_it_may(asked: Asked) -> None:
    notes, _ = asked
    for note in notes[1:]:
        assert "apart" in note["late"], note["late"]
        assert note["late"]["seconds"] < 10
    assert "apart" in notes[0]["late"] or "refused" in notes[0]["late"]


def test_nothing_imports_torch_until_ranks_have_to_agree(asked: Asked) -> None:
    notes, _ = asked
    assert [note["has_torch_first"] for note in notes] == [False] * len(notes)
