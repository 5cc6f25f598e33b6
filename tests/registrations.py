"""A project with a store, for tests that register and announce through the use cases."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import Row, Table, func, select

from ckptguard.model.manifest import Manifest, Origin
from ckptguard.model.report import FileEvidence
from ckptguard.testing.manifests import manifest_of
from ckptguard_api.database import Database
from ckptguard_api.domain.actor import SERVICE, Actor
from ckptguard_api.domain.locations import AskedLocation
from ckptguard_api.domain.registration import Announcement, Described, Registration
from ckptguard_api.domain.store_rules import StoreSettings
from ckptguard_api.repositories.projects import add_project
from ckptguard_api.services import Services
from ckptguard_api.settings import Settings
from ckptguard_api.tables import checkpoints, events, projects, runs
from ckptguard_api.use_cases.announce import Announced, announce
from ckptguard_api.use_cases.register import Registered, register
from ckptguard_api.use_cases.stores import create_store

SAVED_AT: Final = datetime(2026, 1, 1, tzinfo=UTC)
ROOT: Final = "file:///data/ckpts"


@dataclass(kw_only=True)
class Trainer:
    """A training job that tells a service of its saves.

    Args:
        database: Empty.
        project: Its name.
        run: Name of the run.
        actor: Whom the audit names.
    """

    database: Database
    project: str = "default"
    run: str = "r"
    actor: Actor = SERVICE
    services: Services = field(init=False)
    project_id: int = field(init=False)

    def __post_init__(self) -> None:
        self.services = Services(database=self.database, settings=Settings())
        self.project_id = _project_id(self.database, self.project)
        create_store(
            self.services, "demo", ROOT, StoreSettings(), project_id=self.project_id, actor=self.actor
        )

    def register(self, step: int, path: str | None = None, **fields: Any) -> Registered:  # noqa: ANN401
        """Register a save of this step with a manifest, unless `manifest` or `described` says otherwise.

        Args:
            step: Optimizer step.
            path: In the store; None: `RUN/step-STEP`.
            fields: Of `Registration`; `save` is the save id of the manifest, `content` what its shard holds.
        """
        save, content = fields.pop("save", f"save-{step}"), fields.pop("content", b"x")
        run = fields.pop("run", self.run)
        if "described" not in fields:
            fields.setdefault("manifest", saved(run, step, save=save, content=content))
        request = Registration(run=run, step=step, location=at(path or f"{run}/step-{step}"), **fields)
        return register(self.services, request, project_id=self.project_id, actor=self.actor)

    def announce(self, step: int, path: str | None = None, **fields: Any) -> Announced:  # noqa: ANN401
        """Announce a save of this step."""
        run = fields.pop("run", self.run)
        request = Announcement(run=run, step=step, location=at(path or f"{run}/step-{step}"), **fields)
        return announce(self.services, request, project_id=self.project_id, actor=self.actor)

    def checkpoint(self, checkpoint_id: int) -> Row[Any]:
        """Return a checkpoint as it is now."""
        with self.database.read() as tx:
            return tx.execute(select(checkpoints).where(checkpoints.c.id == checkpoint_id)).one()

    def rows(self, table: Table) -> Sequence[Row[Any]]:
        """Return all rows of a table."""
        with self.database.read() as tx:
            return tx.execute(select(table).order_by(*table.primary_key.columns)).all()

    def count(self, table: Table) -> int:
        """Return how many rows a table has."""
        with self.database.read() as tx:
            number: int = tx.execute(select(func.count()).select_from(table)).scalar_one()
            return number

    def kinds(self, checkpoint_id: int | None = None) -> list[str]:
        """Return the kinds of events, oldest first; those about one checkpoint, if it is given."""
        statement = select(events.c.kind).order_by(events.c.id)
        if checkpoint_id is not None:
            statement = statement.where(events.c.checkpoint_id == checkpoint_id)
        with self.database.read() as tx:
            return list(tx.execute(statement).scalars())

    def revision(self, run: str | None = None) -> int:
        """Return the revision of a run."""
        with self.database.read() as tx:
            number: int = tx.execute(
                select(runs.c.revision).where(runs.c.name == (run or self.run))
            ).scalar_one()
            return number


def _project_id(database: Database, name: str) -> int:
    named = select(projects.c.id).where(projects.c.name == name)
    with database.write() as tx:
        if tx.execute(named).one_or_none() is None:
            add_project(tx, name=name, allowed_globals=())
        found: int = tx.execute(named).scalar_one()
        return found


def at(path: str) -> AskedLocation:
    """Return a location in the store `demo`."""
    return AskedLocation(store="demo", path=path)


def saved(
    run: str,
    step: int,
    *,
    save: str = "save-1",
    content: bytes = b"x",
    origin: Origin = Origin.SAVE,
    part: str | None = None,
    parts: tuple[str, ...] = (),
) -> Manifest:
    """Return the manifest of a save of two files, made `step` minutes after SAVED_AT."""
    files = {".metadata": b"m", "__0_0.distcp": content}
    made = manifest_of(files, origin=origin, save_id=save)
    values = {name: getattr(made, name) for name in Manifest.__dataclass_fields__}
    values |= {"run": run, "step": step, "part": part, "parts": parts}
    values["created_at"] = SAVED_AT + timedelta(minutes=step)
    return Manifest(**values)


def evidence(manifest: Manifest) -> tuple[FileEvidence, ...]:
    """Return what a worker writes of the files of this manifest when they are whole."""
    return tuple(
        FileEvidence(path=file.path, length_bytes=file.length_bytes, checksum=file.checksum)
        for file in manifest.files
    )


def described(**facts: Any) -> Described:  # noqa: ANN401 - fields of Described
    """Return what is said of a save without a manifest."""
    return Described(**{"created_at": SAVED_AT, **facts})
