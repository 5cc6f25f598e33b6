"""What a person sees of `serve` and `worker` at a terminal, and what a program reads from a pipe."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from ckptguard.model.policy import Depth, Policy
from ckptguard.testing.edits import copy_checkpoint, flip_bit
from ckptguard_api.serving.data_folder import DataFolder
from tests.integration.lease_service import TOKEN, lease_service
from tests.kills.victims import descendants, is_dead, wait_until
from tests.postgres_server import create_database, drop_database
from tests.pseudo_terminal import DEADLINE_S, PseudoTerminal, at_a_terminal

CORPUS: Final = Path(__file__).resolve().parent.parent / "data" / "corpus"
SOUND: Final = "dcp_torch2_14_1_fsdp2_ws2"
VERDICT: Final = r"\d\d:\d\d:\d\d run demo step {step}: {verdict}, [\d.]+ [kMG]?B in [\d.]+ s"


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CKPTGUARD_")}
    return {**kept, "OMP_NUM_THREADS": "1", "COLUMNS": "200", **more}


def serve(data: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "ckptguard", "serve", "--port", "0", "--data-dir", str(data), *options]


@contextmanager
def served_at_a_terminal(data: Path, *options: str, **more: str) -> Iterator[PseudoTerminal]:
    with at_a_terminal(serve(data, *options), environment(**more)) as terminal:
        terminal.wait_for(lambda: "stop: Ctrl-C" in terminal.lines, what="its address")
        yield terminal


def checkpoints(folder: Path) -> Path:
    """Make a store with a good step 2 and a damaged step 3."""
    copy_checkpoint(CORPUS / SOUND, folder / "step-2")
    copy_checkpoint(CORPUS / SOUND, folder / "step-3")
    flip_bit(folder / "step-3", "__0_0.distcp", offset=3000, bit=3)
    return folder


def run_example(terminal: PseudoTerminal, **replaced: str) -> int:
    """Do what the terminal says a person may try."""
    (line,) = [line for line in terminal.lines if line.startswith("try, in another terminal: ")]
    command = line.removeprefix("try, in another terminal: ")
    for word, value in replaced.items():
        command = command.replace(word, value)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", command],  # noqa: S607 - any bash
        check=False,
        capture_output=True,
        env=environment(PATH=path),
        timeout=DEADLINE_S,
    ).returncode


@pytest.mark.torch
def test_a_person_at_the_terminal_of_serve_reads_what_matters_and_finds_the_rest(tmp_path: Path) -> None:
    data, store = tmp_path / "data", checkpoints(tmp_path / "ckpts")
    with served_at_a_terminal(data, "--store", f"demo={store}") as terminal:
        url = json.loads((data / "address.json").read_text())["url"]
        assert run_example(terminal, CHECKPOINT="step-2", RUN="demo", STEP="2") == 0
        assert run_example(terminal, CHECKPOINT="step-3", RUN="demo", STEP="3") == 30
        terminal.wait_for(lambda: "INVALID" in terminal.raw, what="the second verdict")
        assert terminal.stop() == 0
        lines = terminal.lines
    example = f"CKPTGUARD_DATA_DIR={data} ckptguard register {store}/CHECKPOINT --run RUN --step STEP"
    assert lines[:5] == [
        f"ckptguard serves at {url}",
        f"token: {data / 'token'}",
        f"logs: {data / 'serve.log'}",
        f"try, in another terminal: {example} --wait 120s",
        "stop: Ctrl-C",
    ]
    assert re.fullmatch(rf"\d\d:\d\d:\d\d worker \S+ takes work from {url}", lines[5])
    assert re.fullmatch(VERDICT.format(step=2, verdict=r"VALID \(loaded\)"), lines[6])
    assert re.fullmatch(VERDICT.format(step=3, verdict=r"INVALID \(damage: \w+\)"), lines[7])
    assert len(lines) == 8, lines
    logged = events(data / "serve.log")
    assert {"request", "verdict", "lease", "started"} <= {event["event"] for event in logged}
    assert (data / "serve.log").stat().st_mode & 0o077 == 0
    assert (data / "token").read_text().strip() not in (data / "serve.log").read_text()


def events(file: Path) -> list[dict[str, Any]]:
    """Return what a file of logs holds: each line is an object."""
    return [json.loads(line) for line in file.read_text(encoding="ascii").splitlines()]


def piped(command: Sequence[str], more: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**more),
    )


@pytest.mark.slow
def test_each_line_that_serve_writes_into_a_pipe_is_an_object(tmp_path: Path) -> None:
    (tmp_path / "ckpts").mkdir()
    options = ("--store", f"demo={tmp_path / 'ckpts'}", "--until-stdin-ends")
    with piped(serve(tmp_path / "data", *options), {}) as process:
        assert process.stderr is not None
        logged = []
        for line in process.stderr:
            logged.append(json.loads(line))
            if logged[-1]["event"] == "started":  # by the worker: both are up
                break
        out, errors = process.communicate(timeout=DEADLINE_S)  # it closes standard input
    assert (process.returncode, out) == (0, "")
    logged += [json.loads(line) for line in errors.splitlines()]
    (serving,) = [event for event in logged if event["event"] == "serving"]
    assert serving["url"].startswith("http://127.0.0.1:")
    assert serving["token_file"] == str(tmp_path / "data" / "token")
    assert all({"at", "level", "event"} <= set(event) for event in logged)
    assert not (tmp_path / "data" / "serve.log").exists()


def test_a_terminal_gets_json_where_it_is_asked_for(tmp_path: Path) -> None:
    command = serve(tmp_path / "data", "--no-worker", "--log", "json")
    with at_a_terminal(command, environment()) as terminal:
        terminal.wait_for(lambda: '"serving"' in terminal.raw, what="its address")
        assert terminal.stop() == 0
        logged = [json.loads(line) for line in terminal.lines]
    assert "no store is allowed yet" in " ".join(str(event["event"]) for event in logged)


def test_what_cannot_be_served_is_still_said_at_the_terminal(tmp_path: Path) -> None:
    command = serve(tmp_path, "--no-worker")
    with DataFolder(tmp_path).locked(), at_a_terminal(command, environment()) as terminal:
        terminal.wait_for(lambda: "--data-dir" in terminal.raw, what="the reason")
        assert terminal.process.wait(DEADLINE_S) == 2
        assert f"pid {os.getpid()}" in terminal.raw
    assert not (tmp_path / "serve.log").exists(), "the file is the other one's"


def test_several_processes_share_one_quiet_terminal_and_one_file(tmp_path: Path, postgres: str) -> None:
    url = create_database(postgres, "serve_terminal")
    options = ("--no-worker", "--api-processes", "2", "--migrate", "--store", f"demo={tmp_path}")
    try:
        with served_at_a_terminal(tmp_path / "data", *options, CKPTGUARD_DATABASE_URL=url) as terminal:
            served = json.loads((tmp_path / "data" / "address.json").read_text())["url"]
            refused = httpx.get(f"{served}/v1/projects", trust_env=False, timeout=DEADLINE_S)
            assert refused.status_code == 401
            assert terminal.stop() == 0
            assert terminal.lines[-1] == "stop: Ctrl-C", terminal.raw
        logged = events(tmp_path / "data" / "serve.log")
        assert [event["status"] for event in logged if event["event"] == "request"] == [401]
    finally:
        drop_database(postgres, "serve_terminal")


def test_a_service_that_is_killed_takes_its_worker_along(tmp_path: Path) -> None:
    with served_at_a_terminal(tmp_path / "data", "--store", f"demo={tmp_path}") as terminal:
        terminal.wait_for(lambda: "takes work from" in terminal.raw, what="its worker")
        pids = [pid for pid, _ in descendants(terminal.process.pid)]
        assert len(pids) == 2, "the worker, and its warm canary"
        terminal.stop(signal.SIGKILL)
        wait_until(lambda: all(map(is_dead, pids)), what="the end of the worker")


def test_a_person_at_the_terminal_of_a_worker_reads_verdicts_and_no_json(tmp_path: Path) -> None:
    store = checkpoints(tmp_path / "ckpts")
    with lease_service() as service:
        for name in ("step-2", "step-3"):
            service.add(name, policy=Policy(settle_s=0, depth=Depth.CONTENT))
        command = [sys.executable, "-m", "ckptguard", "worker", "--url", service.url]
        command += ["--store", f"demo=file://{store}", "--name", "node-17"]
        with at_a_terminal(command, environment(CKPTGUARD_TOKEN=TOKEN)) as terminal:
            terminal.wait_for(lambda: "INVALID" in terminal.raw, what="both verdicts")
            assert terminal.stop() == 0
            lines = terminal.lines
        url = service.url
    assert re.fullmatch(rf"\d\d:\d\d:\d\d worker node-17 takes work from {url}", lines[0])
    assert re.search(r" run r step \d+: VALID \(content\), [\d.]+ kB in", lines[1])
    assert re.search(r"INVALID \(damage: \w+\), [\d.]+ kB in", lines[2])
    assert len(lines) == 3, lines
