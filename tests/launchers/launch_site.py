"""A real service with runs in every state, and stub programs that note how a launcher starts its training."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from sqlalchemy import select

from ckptguard.model.report import FileEvidence
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.domain.locations import AskedLocation
from ckptguard_api.domain.registration import Described, Registration
from ckptguard_api.domain.store_rules import StoreSettings
from ckptguard_api.tables import restarts, runs
from ckptguard_api.use_cases.register import register
from ckptguard_api.use_cases.stores import create_store
from tests.databases import fresh_database
from tests.leased_service import LeasedService, invalid, valid
from tests.served_app import ServedApp, served_app
from tests.service_rows import add_run

PROJECT: Final = Path(__file__).resolve().parents[2]
DEPLOY: Final = PROJECT / "deploy"
STALE: Final = {"CKPTGUARD_RESUME_PATH": "/stale", "CKPTGUARD_RESUME_STEP": "1"}
"""What an earlier start left in the environment: no launcher may take it."""

_STUB: Final = """\
#!/bin/bash
printf '%s\\0' "${0##*/}" "$@" >> "$STARTED"
printf '\\n' >> "$STARTED"
exit "${TRAINING_ENDS_WITH:-0}"
"""
_SRUN: Final = """\
#!/bin/bash
while [[ "${1:-}" == -* ]]; do shift; done
exec "$@"
"""
_SCONTROL: Final = """\
#!/bin/bash
if [[ "$1" == show ]]; then
  printf 'node1\\nnode2\\n'
else
  printf '%s ' "$@" >> "$SCONTROL"
fi
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """What came of one launch.

    Args:
        code: Exit code of the launcher's script.
        started: Command lines that trained, in order.
        output: Of the script, both streams.
        requeued: What `scontrol` was told.
    """

    code: int
    started: tuple[tuple[str, ...], ...]
    output: str
    requeued: str


@dataclass(kw_only=True)
class LaunchSite:
    """A machine with a store, a service, and launchers.

    Args:
        served: The service.
        folder: Of the machine; its store is `store` below it.
    """

    served: ServedApp
    folder: Path
    token: str
    _number: int = field(default=0)

    @property
    def store(self) -> Path:
        """Return where the checkpoints are."""
        return self.folder / "store"

    def save(
        self,
        run: str,
        step: int,
        *,
        name: str,
        is_valid: bool = True,
        write: Callable[[Path], object] | None = None,
    ) -> Path:
        """Put a checkpoint into the store, registered and judged; `write` fills its folder."""
        folder = self.store / run / name
        folder.mkdir(parents=True)
        (write or write_two_files)(folder)
        request = Registration(
            run=run,
            step=step,
            location=AskedLocation(store="demo", path=f"{run}/{name}"),
            save_id=f"{run}-{step}",
            described=Described(format="dcp", num_files=2, bytes_total=12, created_at=datetime.now(UTC)),
            is_validated=False,
        )
        services = self.served.services
        done = register(services, request, project_id=1, actor=SERVICE)
        report = valid(files=_evidence(folder)) if is_valid else invalid(files=_evidence(folder))
        LeasedService(database=services.database).judge(done.checkpoint.id, report)
        return folder

    def add_empty_run(self, name: str) -> None:
        """Make a run that never had a checkpoint."""
        with self.served.services.database.write() as tx:
            add_run(tx, 1, name=name)

    def restarts(self, run: str) -> list[tuple[str, str, str | None]]:
        """Return what was told of the starts of a run: attempt, outcome, detail."""
        with self.served.services.database.read() as tx:
            query = select(restarts.c.attempt_key, restarts.c.outcome, restarts.c.detail).join(
                runs, runs.c.id == restarts.c.run_id
            )
            rows = tx.execute(query.where(runs.c.name == run).order_by(restarts.c.id))
            return [(row.attempt_key, row.outcome, row.detail) for row in rows]

    def environment(self, run: str, **more: str) -> dict[str, str]:
        """Return what a process of this machine has; stub programs are found before real ones."""
        kept = own_environment()
        path = f"{self.folder / 'stubs'}:{Path(sys.executable).parent}:{kept['PATH']}"
        own = {
            "PATH": path,
            "RUN": run,
            "WAIT": "0s",
            "NPROC": "2",
            "CKPTGUARD_URL": self.served.url,
            "CKPTGUARD_TOKEN": self.token,
            "CKPTGUARD_CACHE_DIR": str(self.folder / "cache"),
            "OMP_NUM_THREADS": "1",
        }
        return kept | own | more

    def launch(self, command: list[str], environment: Mapping[str, str]) -> Launched:
        """Run a launcher's script, and see what it started."""
        self._number += 1
        started, scontrol = (self.folder / f"{name}-{self._number}" for name in ("started", "scontrol"))
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            env={**environment, "STARTED": str(started), "SCONTROL": str(scontrol)},
            cwd=self.folder,
            timeout=60,
        )
        lines = started.read_text(encoding="utf-8").splitlines() if started.exists() else []
        return Launched(
            code=done.returncode,
            started=tuple(tuple(line.rstrip("\0").split("\0")) for line in lines),
            output=done.stdout + done.stderr,
            requeued=scontrol.read_text(encoding="utf-8").strip() if scontrol.exists() else "",
        )


_NOT_INHERITED: Final = ("CKPTGUARD_", "SLURM_", "TORCHELASTIC_", "RANK", "WORLD_SIZE", "MASTER_")


def own_environment() -> dict[str, str]:
    """Return the environment of this process without what launchers and ckptguard put there."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}


def write_two_files(folder: Path) -> None:
    """Write what nobody loads."""
    (folder / ".metadata").write_bytes(b"1234567")
    (folder / "__0_0.distcp").write_bytes(b"12345")


def _evidence(folder: Path) -> tuple[FileEvidence, ...]:
    facts = {file.name: file.stat() for file in sorted(folder.iterdir())}
    return tuple(
        FileEvidence(
            path=name,
            length_bytes=status.st_size,
            version=f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}",
        )
        for name, status in facts.items()
    )


@contextmanager
def launch_site(folder: Path) -> Iterator[LaunchSite]:
    """Yield a machine below `folder`, with its service and its stub programs."""
    for name in ("store", "stubs"):
        (folder / name).mkdir()
    for name in ("torchrun", "deepspeed", "train-by-tracker"):
        _write_program(folder / "stubs" / name, _STUB)
    _write_program(folder / "stubs" / "srun", _SRUN)
    _write_program(folder / "stubs" / "scontrol", _SCONTROL)
    with fresh_database("sqlite", folder=folder) as database, served_app(database) as served:
        create_store(
            served.services,
            "demo",
            f"file://{folder / 'store'}",
            StoreSettings(),
            project_id=1,
            actor=SERVICE,
        )
        yield LaunchSite(served=served, folder=folder, token=served.token())


def _write_program(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def closed_port() -> int:
    """Return a port of this machine on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
