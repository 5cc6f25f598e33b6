"""Kill a running service at random points, and hold afterwards that nothing was lost, doubled or wrong.

A training job registers checkpoints, good and damaged ones, and repeats each POST until it is
acknowledged. Meanwhile API, worker, its children and the database are killed with SIGKILL, or the worker is
stopped until its lease is over and then continued. In the end everything is started again, and the
database itself is asked.
"""

import os
import random
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import httpx
from sqlalchemy import Connection, text

from ckptguard_api.database import Database
from tests.kills.victims import PostgresVictim, Victim, descendants, wait_until

RUNS: Final = 3
LEASE_S: Final = 3.0
DONE_S: Final = 600.0
SAVE_EVERY_S: Final = 1.5


class Target(StrEnum):
    """What is killed."""

    API = "api"
    WORKER = "worker"
    VALIDATION_CHILD = "validation child"
    CANARY = "canary"
    DATABASE = "database"
    ZOMBIE = "worker stopped beyond its lease, then continued"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do.

    Args:
        kind: `sqlite` or `postgresql`.
        kills: How often.
        seed: Of victims and moments.
        good: A healthy checkpoint.
        damaged: The same with one flipped bit.
        folder: For everything; empty.
    """

    kind: str
    kills: int
    seed: int
    good: Path
    damaged: Path
    folder: Path


@dataclass(kw_only=True)
class Acknowledged:
    """One registration that the service said it has."""

    id: int
    run: str
    step: int
    path: str
    expected: str


@dataclass(kw_only=True)
class Outcome:
    """What a campaign saw."""

    kills: Counter[Target] = field(default_factory=Counter)
    acknowledged: list[Acknowledged] = field(default_factory=list)
    validations: int = 0
    attempts: int = 0
    gave_up: int = 0
    seconds: float = 0.0


class Campaign:
    """One service, one training job, one killer."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._random = random.Random(plan.seed)  # noqa: S311 - not a secret
        self._port = _free_port()
        self._data = plan.folder / "service"
        self._checkpoints = plan.folder / "checkpoints"
        self._checkpoints.mkdir(parents=True)
        self._postgres = PostgresVictim(_postgres_folder(plan)) if plan.kind == "postgresql" else None
        self.database_url = (
            self._postgres.url
            if self._postgres is not None
            else f"sqlite:///{self._data / 'ckptguard.sqlite'}"
        )
        self._api = Victim(
            command=self._serve_command(), environment=self._environment(), log=plan.folder / "api.log"
        )
        self._worker: Victim | None = None
        self._outcome = Outcome()
        self._is_over = threading.Event()

    def run(self) -> Outcome:
        """Do it all, and raise AssertionError where something does not hold."""
        started = time.monotonic()
        try:
            self._start()
            job = threading.Thread(target=self._train, daemon=True)
            job.start()
            for _ in range(self._plan.kills):
                self._strike()
            self._is_over.set()
            job.join(DONE_S)
            assert not job.is_alive(), "the training job still waits for an acknowledgement"
            self._finish()
            self._hold_everything()
        finally:
            self._is_over.set()
            self._stop()
        self._outcome.seconds = time.monotonic() - started
        return self._outcome

    # processes

    def _serve_command(self) -> tuple[str, ...]:
        database = () if self._postgres is None else ("--database-url", self._postgres.url, "--migrate")
        return (
            *("-m", "ckptguard", "serve", "--no-worker", "--port", str(self._port)),
            *("--data-dir", str(self._data), "--store", f"demo={self._checkpoints}", *database),
        )

    def _environment(self) -> dict[str, str]:
        return {
            "CKPTGUARD_LEASE_S": str(LEASE_S),
            "CKPTGUARD_HEARTBEAT_EVERY_S": "0.5",
        }

    def _start(self) -> None:
        self._api.start()
        wait_until(self._is_ready, what="API ready")
        token_file = self._data / "token"
        self._token = token_file.read_text(encoding="utf-8").strip()
        self._worker = Victim(
            command=(
                *("-m", "ckptguard_workers", "--url", self._url, "--token-file", str(token_file)),
                *("--name", "canary-1", "--store", f"demo={self._checkpoints}"),
            ),
            environment={},
            log=self._plan.folder / "worker.log",
        )
        self._worker.start()

    @property
    def _url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self._url}/readyz", timeout=2).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def _stop(self) -> None:
        for victim in (self._worker, self._api):
            if victim is not None and victim.process is not None:
                victim.signal(signal.SIGCONT)
                victim.stop()
        if self._postgres is not None:
            self._postgres.stop()
            shutil.rmtree(_postgres_folder(self._plan), ignore_errors=True)

    # the training job

    def _train(self) -> None:
        step = 0
        while not self._is_over.is_set():
            step += 1
            self._save_and_register(f"run-{step % RUNS}", step, is_good=self._random.random() < 0.6)
            self._is_over.wait(SAVE_EVERY_S)

    def _save_and_register(self, run: str, step: int, *, is_good: bool) -> None:
        path = f"{run}/step-{step}"
        shutil.copytree(self._plan.good if is_good else self._plan.damaged, self._checkpoints / path)
        body = {
            "location": {"store": "demo", "path": path},
            "step": step,
            "created_at": datetime.now(UTC).isoformat(),
        }
        answer = self._post_until_acknowledged(f"/v1/runs/{run}/checkpoints", body)
        expected = "VALID" if is_good else "INVALID"
        self._outcome.acknowledged.append(
            Acknowledged(id=answer["checkpoint"]["id"], run=run, step=step, path=path, expected=expected)
        )

    def _post_until_acknowledged(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        end = time.monotonic() + DONE_S
        while time.monotonic() < end:
            try:
                answer = httpx.post(self._url + path, json=body, headers=self._headers(), timeout=20)
            except httpx.HTTPError:
                time.sleep(0.05)
                continue
            if answer.status_code < 300:
                found: dict[str, Any] = answer.json()
                return found
            assert answer.status_code >= 500, f"refused: {answer.status_code} {answer.text}"
            time.sleep(0.05)
        msg = f"never acknowledged: {path}"
        raise AssertionError(msg)

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"}

    # the killer

    def _strike(self) -> None:
        self._is_over.wait(self._random.uniform(0.05, 2.0))
        targets = [target for target in Target if target is not Target.DATABASE or self._postgres is not None]
        target = self._random.choice(targets)
        self._outcome.kills[target] += 1
        match target:
            case Target.API:
                self._api.kill()
                self._api.start()
                wait_until(self._is_ready, what="API ready again")
            case Target.WORKER:
                assert self._worker is not None
                self._worker.kill()
                self._worker.start()
            case Target.DATABASE:
                assert self._postgres is not None
                self._postgres.kill()
                self._postgres.start()
            case Target.ZOMBIE:
                assert self._worker is not None
                self._worker.signal(signal.SIGSTOP)
                self._is_over.wait(LEASE_S * 1.3)
                self._worker.signal(signal.SIGCONT)
            case _:
                self._kill_child(target)

    def _kill_child(self, target: Target) -> None:
        assert self._worker is not None
        module = "ckptguard.canary.child" if target is Target.CANARY else "validation_child"
        for pid, command in descendants(self._worker.pid):
            if module in command:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                return

    # the end

    def _finish(self) -> None:
        """Let everything be judged; what was given up for reasons of infrastructure is asked for again."""
        with httpx.Client(base_url=self._url, headers=self._headers(), timeout=20) as client:
            for known in self._outcome.acknowledged:
                self._judge(client, known)

    def _judge(self, client: httpx.Client, known: Acknowledged) -> None:
        end = time.monotonic() + DONE_S
        while True:
            checkpoint = client.get(f"/v1/checkpoints/{known.id}").json()
            if (checkpoint["verdict"] or {}).get("verdict") in ("VALID", "INVALID"):
                return
            if checkpoint["validation_state"] is None:
                client.post(f"/v1/checkpoints/{known.id}/validations", json={}).raise_for_status()
            assert time.monotonic() < end, f"no verdict for {known}: {checkpoint['validation_state']}"
            time.sleep(0.1)

    def _hold_everything(self) -> None:
        database = Database(self.database_url)
        with database.read() as tx:
            _hold_registrations(tx.connection, self._outcome.acknowledged)
            _hold_verdicts(tx.connection, self._outcome.acknowledged)
            _hold_leases(tx.connection)
            self._count(tx.connection)
        database.close()

    def _count(self, connection: Connection) -> None:
        self._outcome.validations = _number(connection, "SELECT count(*) FROM validations")
        self._outcome.attempts = _number(connection, "SELECT count(*) FROM attempts")
        self._outcome.gave_up = _number(connection, "SELECT count(*) FROM verdicts WHERE attempt_id IS NULL")


def _hold_registrations(connection: Connection, acknowledged: list[Acknowledged]) -> None:
    rows = connection.execute(
        text("SELECT c.id, r.name, c.step, c.path FROM checkpoints c JOIN runs r ON r.id = c.run_id")
    ).all()
    stored = {row.id: (row.name, row.step, row.path) for row in rows}
    lost = [known for known in acknowledged if stored.get(known.id) != (known.run, known.step, known.path)]
    assert not lost, f"acknowledged and not there: {lost}"
    assert len({known.id for known in acknowledged}) == len(acknowledged), "one id for two registrations"
    doubled = [place for place, count in Counter(stored.values()).items() if count > 1]
    assert not doubled, f"stored twice: {doubled}"


def _hold_verdicts(connection: Connection, acknowledged: list[Acknowledged]) -> None:
    found = {row.id: row.verdict for row in connection.execute(text("SELECT id, verdict FROM checkpoints"))}
    wrong = [(known, found[known.id]) for known in acknowledged if found[known.id] != known.expected]
    assert not wrong, f"wrong verdicts: {wrong}"
    without = _number(
        connection,
        "SELECT count(*) FROM validations v WHERE v.state = 'finished'"
        " AND NOT EXISTS (SELECT 1 FROM verdicts d WHERE d.validation_id = v.id)",
    )
    assert without == 0, f"{without} validations finished without a verdict"
    told = connection.execute(
        text("SELECT validation_id, count(*) AS n FROM events WHERE kind = 'validation.finished' GROUP BY 1")
    ).all()
    twice = [row.validation_id for row in told if row.n != 1]
    assert not twice, f"verdicts told more than once: {twice}"
    # Every single verdict, also one that was replaced later, is right or says that it does not know.
    given = connection.execute(
        text("SELECT v.checkpoint_id, d.verdict FROM verdicts d JOIN validations v ON v.id = d.validation_id")
    ).all()
    expected = {known.id: known.expected for known in acknowledged}
    false = [row for row in given if row.verdict not in ("UNKNOWN", expected.get(row.checkpoint_id))]
    assert not false, f"false verdicts: {false}"


def _hold_leases(connection: Connection) -> None:
    assert _number(connection, "SELECT count(*) FROM leases") == 0, "a lease of nothing"
    overlaps = _number(
        connection,
        "SELECT count(*) FROM attempts a JOIN attempts b ON a.validation_id = b.validation_id"
        " AND a.number < b.number AND (a.ended_at IS NULL OR a.ended_at > b.started_at)",
    )
    assert overlaps == 0, f"{overlaps} attempts at one validation overlap"


def _number(connection: Connection, query: str) -> int:
    number: int = connection.execute(text(query)).scalar_one()
    return number


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _postgres_folder(plan: Plan) -> Path:
    # The path of a Unix socket has 107 bytes at most, and pytest's folders are long.
    return Path(tempfile.gettempdir()) / f"ckg-kills-{os.getpid()}-{plan.seed}"
