"""The whole story by real processes: serve, register, resume, damage, explain, revalidate."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ckptguard.cli.main import run as run_command
from ckptguard.testing.edits import copy_checkpoint

pytestmark = [pytest.mark.torch]

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Call = Callable[..., tuple[int, str]]
START_S = 60.0
OWN = Path(__file__).resolve().parent.parent / "data" / "corpus" / "dcp_torch2_14_1_fsdp2_ws2"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with a store, served; steps 2 and 4 of `run-7` are registered and VALID."""
    folder = tmp_path_factory.mktemp("served")
    for step in (2, 4):
        copy_checkpoint(OWN, folder / "store" / "run-7" / f"step-{step}")
    command = [
        sys.executable,
        "-m",
        "ckptguard",
        "serve",
        "--port",
        "0",
        "--store",
        f"demo={folder / 'store'}",
    ]
    with (folder / "serve.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=_environment(folder))
    try:
        _until_it_serves(folder, server)
        for step in (2, 4):
            done = _run(
                folder, "register", f"store/run-7/step-{step}", "--run", "run-7", "--save-id", f"s{step}"
            )
            assert done.returncode == 0, done.stderr
        for step in (2, 4):
            done = _run(folder, "revalidate", "--run", "run-7", "--step", str(step), "--wait", "120s")
            assert done.returncode == 0, done.stderr
        yield folder
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(60)


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CKPTGUARD_")}
    return kept | {"CKPTGUARD_CACHE_DIR": str(folder / "cache"), "OMP_NUM_THREADS": "1"}


def _until_it_serves(folder: Path, server: "subprocess.Popen[bytes]") -> None:
    ends_s = time.monotonic() + START_S
    while not (folder / "ckptguard-data" / "address.json").exists():
        assert server.poll() is None, (folder / "serve.log").read_text()
        assert time.monotonic() < ends_s, (folder / "serve.log").read_text()
        time.sleep(0.05)


def _run(folder: Path, *arguments: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "ckptguard", *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env=_environment(folder),
        timeout=150,
    )


@pytest.fixture
def ckpt(home: Path) -> Run:
    """Return a runner of the command in the folder of the service."""
    return lambda *arguments: _run(home, *arguments)


def test_the_operator_sees_everything_in_a_pipe(ckpt: Run) -> None:
    history = ckpt("history", "--run", "run-7")
    rows = [line.split("\t") for line in history.stdout.splitlines()]
    assert [(row[2], row[3]) for row in rows] == [("4", "VALID (loaded)"), ("2", "VALID (loaded)")]
    assert "step 4" in ckpt("runs").stdout
    shown = ckpt("show", "--run", "run-7", "--step", "2").stdout
    assert "VALID (loaded)  run-7, step 2" in shown
    assert "+ load        pass" in shown
    listed = json.loads(ckpt("history", "--run", "run-7", "--limit", "1", "--json").stdout)
    assert (listed["schema"], len(listed["checkpoints"]), listed["has_more"]) == (1, 1, True)


def test_the_doctor_finds_the_service_well(ckpt: Run) -> None:
    rows = {row["name"]: row["health"] for row in json.loads(ckpt("doctor", "--json").stdout)["rows"]}
    assert {rows[name] for name in ("service", "token", "store demo", "workers")} == {"ok"}


def test_nobody_known_is_an_error_and_no_empty_list(ckpt: Run) -> None:
    for arguments in (("history",), ("watch",)):
        done = ckpt(*arguments, "--run", "nobody")
        assert (done.returncode, done.stdout) == (40, "")
    done = ckpt("resume", "--run", "nobody", "--allow-fresh")
    assert (done.returncode, done.stdout) == (30, "")


def test_an_empty_run_is_40_and_fresh_only_if_allowed(ckpt: Run) -> None:
    assert ckpt("run", "create", "empty", "--gpus", 8, "--usd-per-gpu-hour", 3).returncode == 0
    assert ckpt("run", "set", "empty", "--min-steps", 5).returncode == 0
    assert json.loads(ckpt("run", "show", "empty", "--json").stdout)["run"]["min_steps"] == 5
    refused, allowed = ckpt("resume", "--run", "empty"), ckpt("resume", "--run", "empty", "--allow-fresh")
    assert (refused.returncode, refused.stdout) == (40, "")
    assert (allowed.returncode, allowed.stdout) == (0, "")


def test_tokens_are_made_listed_and_revoked(ckpt: Run) -> None:
    made = json.loads(ckpt("token", "create", "trainer", "--scope", "read", "--json").stdout)["token"]
    listed = ckpt("token", "list").stdout
    assert "trainer" in listed
    assert made["token"] not in listed
    assert ckpt("token", "revoke", made["id"]).returncode == 0
    assert [
        line
        for line in ckpt("token", "list").stdout.splitlines()
        if "trainer\t" in line and "revoked" in line
    ]


def test_a_location_outside_every_store_names_the_flag(ckpt: Run, tmp_path: Path) -> None:
    copy_checkpoint(OWN, tmp_path / "step-9")
    done = ckpt("register", tmp_path / "step-9", "--run", "other")
    assert done.returncode == 30
    assert "--store" in done.stderr


def test_what_is_damaged_after_its_verdict_is_found_before_it_is_used(ckpt: Run, home: Path) -> None:
    step_2, step_4 = (home / "store" / "run-7" / f"step-{step}" for step in (2, 4))
    good = ckpt("resume", "--run", "run-7", "--no-report")
    assert (good.returncode, good.stdout) == (0, f"{step_4}\n")

    shard = next(iter(sorted(step_4.glob("*.distcp"))))
    with shard.open("r+b") as stream:
        stream.seek(20_000)
        stream.write(b"XXXX")
    older = ckpt("resume", "--run", "run-7", "--wait", "1s")
    assert (older.returncode, older.stdout) == (0, f"{step_2}\n"), older.stderr
    assert "step 4 is not as it was validated" in older.stderr

    judged = ckpt("revalidate", "--run", "run-7", "--step", "4", "--wait", "120s")
    assert judged.returncode == 30, judged.stderr
    explained = json.loads(ckpt("explain", "--run", "run-7", "--step", "4", "--json").stdout)
    assert explained["findings"][0]["code"] == "crc_mismatch"
    assert explained["findings"][0]["file"] == shard.name
    assert explained["last_good"]["verdict"] == "VALID"
    assert explained["first_bad"]["verdict"] == "INVALID"
    assert explained["next_steps"]

    assert ckpt("quarantine", "--run", "run-7", "--step", "2", "--reason", "drill").returncode == 0
    none = ckpt("resume", "--run", "run-7")
    assert (none.returncode, none.stdout) == (30, "")
    assert "step 2: quarantined" in none.stderr
    fresh = ckpt("resume", "--run", "run-7", "--fresh-despite", "run-7")
    assert (fresh.returncode, fresh.stdout) == (0, "")
    assert ckpt("release", "--run", "run-7", "--step", "2", "--reason", "drill over").returncode == 0


@pytest.fixture
def call(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Return what runs the command in this process, which starts at once, and gives exit code and stdout."""
    monkeypatch.chdir(home)
    monkeypatch.setenv("CKPTGUARD_CACHE_DIR", str(home / "cache"))

    def call(*arguments: object) -> tuple[int, str]:
        code = run_command([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out

    return call


@pytest.fixture
def saved(home: Path, call: Call) -> Callable[..., Path]:
    """Return what makes a run with one VALID step, or with one that nobody judged, in the store."""

    def save(run: str, *, step: int = 2, is_judged: bool = True) -> Path:
        folder = home / "store" / run / f"step-{step}"
        copy_checkpoint(OWN, folder)
        given = ("--run", run, "--save-id", f"{run}-{step}")
        judged = ("--wait", "120s") if is_judged else ("--no-validate",)
        assert call("register", folder, *given, *judged)[0] == 0
        return folder

    return save


def test_only_what_time_can_change_is_20(call: Call, home: Path, saved: Callable[..., Path]) -> None:
    saved("unjudged", is_judged=False)
    assert call("resume", "--run", "unjudged", "--allow-fresh") == (20, "")
    coming = home / "store" / "coming" / "step-5"
    assert call("announce", coming, "--run", "coming", "--step", "5")[0] == 0
    assert call("resume", "--run", "coming", "--allow-fresh") == (20, "")


def test_below_what_was_asked_is_10_and_printed_only_if_accepted(
    call: Call, saved: Callable[..., Path]
) -> None:
    folder = saved("below")
    asked = ("--run", "below", "--min-assurance", "resumable", "--no-report")
    assert call("resume", *asked) == (10, "")
    assert call("resume", *asked, "--accept-below") == (10, f"{folder}\n")


def test_a_last_known_answer_is_10_and_only_with_the_flag(
    call: Call, home: Path, saved: Callable[..., Path]
) -> None:
    folder = saved("known")
    assert call("resume", "--run", "known", "--no-report") == (0, f"{folder}\n")
    server_pid = int((home / "ckptguard-data" / "lock").read_text())
    os.kill(server_pid, signal.SIGSTOP)
    try:
        asked = ("resume", "--run", "known", "--deadline", "1s")
        failed, known = call(*asked, "--allow-fresh"), call(*asked, "--on-unavailable", "last-known")
    finally:
        os.kill(server_pid, signal.SIGCONT)
    assert failed == (20, "")
    assert known == (10, f"{folder}\n")


def test_after_a_fresh_start_nothing_is_usable_and_the_run_is_not_empty(
    call: Call, saved: Callable[..., Path]
) -> None:
    folder = saved("anew")
    assert call("quarantine", "--run", "anew", "--step", "2", "--reason", "drill")[0] == 0
    assert call("resume", "--run", "anew", "--allow-fresh") == (30, "")
    assert call("resume", "--run", "anew", "--fresh-despite", "other") == (2, "")
    assert call("resume", "--run", "anew", "--fresh-despite", "anew") == (0, "")
    assert call("release", "--run", "anew", "--step", "2", "--reason", "over")[0] == 0
    assert call("resume", "--run", "anew", "--allow-fresh") == (30, "")
    assert call("resume", "--run", "anew", "--step", "2", "--no-report") == (0, f"{folder}\n")


def test_bytes_rewritten_in_place_at_the_same_length_and_time_are_not_seen(
    call: Call, saved: Callable[..., Path]
) -> None:
    """A limit that docs/cli-json.md tells: the look before the use reads no byte; a new verdict finds it."""
    folder = saved("inplace")
    shard = min(folder.glob("*.distcp"))
    times = shard.stat()
    with shard.open("r+b") as stream:
        stream.seek(20_000)
        stream.write(b"XXXX")
    os.utime(shard, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert call("resume", "--run", "inplace", "--no-report") == (0, f"{folder}\n")
    assert call("revalidate", "--run", "inplace", "--step", "2", "--wait", "120s")[0] == 30
    assert call("resume", "--run", "inplace", "--no-report") == (30, "")


def test_what_is_no_longer_as_it_was_is_told_and_the_next_one_is_printed(
    ckpt: Run, saved: Callable[..., Path]
) -> None:
    shards = {step: min(saved("moved", step=step).glob("*.distcp")) for step in (2, 4, 6, 8)}
    content, times = shards[8].read_bytes(), shards[8].stat()
    with shards[4].open("ab") as grown:
        grown.write(b"x")
    shards[6].unlink()
    shards[8].with_name("new").write_bytes(content)  # while the old one is there: its inode is not free
    shards[8].with_name("new").rename(shards[8])
    os.utime(shards[8], ns=(times.st_atime_ns, times.st_mtime_ns))
    done = ckpt("resume", "--run", "moved", "--no-report")
    assert (done.returncode, done.stdout) == (0, f"{shards[2].parent}\n"), done.stderr
    for step, what in ((4, "bytes, "), (6, "is gone"), (8, "was replaced since")):
        assert f"step {step} is not as it was validated: {shards[step].name} " in done.stderr
        assert what in done.stderr


def test_watch_shows_what_happens_and_ends_on_interrupt(home: Path, ckpt: Run, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ckptguard", "watch", "--json", "--run", "run-7"]
    shown = tmp_path / "shown"
    with shown.open("wb") as output:
        watching = subprocess.Popen(command, cwd=home, env=_environment(home), stdout=output)
    kinds: set[str] = set()
    try:
        ends_s = time.monotonic() + START_S
        while "checkpoint.held" not in kinds and time.monotonic() < ends_s:
            # Again and again: until the stream stands, an event may be before its beginning.
            assert ckpt("pin", "--run", "run-7", "--step", "2", "--reason", "watched").returncode == 0
            assert ckpt("release", "--run", "run-7", "--step", "2", "--reason", "watched").returncode == 0
            kinds = {json.loads(line)["kind"] for line in shown.read_text().splitlines()}
    finally:
        watching.send_signal(signal.SIGINT)
        code = watching.wait(30)
    assert {"checkpoint.held", "checkpoint.released"} & kinds
    assert code == 0
