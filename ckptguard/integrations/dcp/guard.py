"""What is added to a stock writer: at five of its hooks, and in no other place.

| hook | runs on | does |
| --- | --- | --- |
| `__init__` | every rank | wraps the writer's file system, so that every stream hashes what passes |
| `set_up_storage_writer` | every rank | begins a save: a new save id, nothing written yet |
| `prepare_global_plan` | the coordinator, before any rank writes | leaves a marker, removes what committed |
| `write_data` | every rank | fails where items were not written; reports the shards |
| `finish` | the coordinator | lets stock commit, leaves the manifest, removes the marker, has it registered |

What happens after stock's `finish` never fails the save (`ckptguard.integrations.incidents`).
Source: torch 2.4 to 2.14, torch/distributed/checkpoint/filesystem.py and state_dict_saver.py.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from ckptguard.errors import StoreError
from ckptguard.integrations import incidents
from ckptguard.integrations import registration as background
from ckptguard.integrations.dcp.announcement import announcement, registration
from ckptguard.integrations.dcp.commit import manifest_of_save
from ckptguard.integrations.dcp.manifest_file import leave_manifest, remove_commit, remove_manifest
from ckptguard.integrations.dcp.marker_file import Marked, mark_folder, unmark_folder
from ckptguard.integrations.dcp.recording_fs import RecordingFileSystem
from ckptguard.integrations.dcp.save_facts import Place, SaveFacts, facts_for, folder_text, place_of
from ckptguard.integrations.dcp.save_ids import SAVE_IDS
from ckptguard.integrations.dcp.shard_report import ShardReport, report_of, take_reports
from ckptguard.integrations.known_start import KnownStart, known_start
from ckptguard.model.manifest import Manifest

if TYPE_CHECKING:
    from torch.distributed.checkpoint.filesystem import FileSystemWriter as Stock
else:
    Stock = object

_FACT_NAMES: Final = frozenset(each.name for each in fields(SaveFacts))
_RENAMED: Final = {"validate": "is_validated", "announce": "is_announced", "hold": "is_held"}
_SHOWN: Final = 3


class ItemsNotWrittenError(StoreError):
    """Stock returned normally, and some of the planned items are in no shard: the save is unusable.

    Stock's writer threads swallow what they fail of (torch 2.13, thread_count above 1).
    """

    code = "items_not_written"


class Guard(Stock):
    """Stands before a stock writer in the bases of a class; takes `SaveFacts` as options beside stock's."""

    def __init__(self, path: str | os.PathLike[str], *args: Any, **options: Any) -> None:
        given, stock = part_options(options)
        self._facts = SaveFacts(**given)
        super().__init__(path, *args, **stock)
        self._described = folder_text(self.path)
        self._now = self._facts
        self._place: Place | None = None
        self._marked: Marked | None = None
        self._is_first_part = True
        self._use_collectives = True
        self._start_elsewhere: KnownStart | None = None
        if self.is_guarding:
            place_of(self._facts, self._described)  # what is wrong with it is said before anything is saved
            self.fs: Any = RecordingFileSystem(self.fs, self.path_options(stock))

    def __getstate__(self) -> dict[str, Any]:
        """Travel to a process that saves for this one, which knows nothing of its start."""
        return {**self.__dict__, "_start_elsewhere": self._start}

    @property
    def _start(self) -> KnownStart | None:
        return self._start_elsewhere or known_start()

    @property
    def is_guarding(self) -> bool:
        """Say whether anything is added at all; a subclass may be told not to."""
        return True

    def path_options(self, stock: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return those of stock's options that the file system needs again for another path."""
        del stock
        return {}

    @property
    def facts(self) -> SaveFacts:
        """Return what was told of the save that comes next."""
        return self._facts

    def describe(self, **changes: Any) -> None:
        """Tell of the next save, where one writer makes several; names as in the constructor.

        Raises:
            ConfigError: It makes no sense.
        """
        given, _ = part_options(changes)
        self._facts = replace(self._facts, **given)
        self._described = folder_text(self.path)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Begin a save."""
        super().set_up_storage_writer(is_coordinator, *args, **kwargs)
        self._place = self._marked = None
        if not self.is_guarding:
            return
        self.fs.forget_all()
        self._use_collectives = kwargs.get("use_collectives", True)
        with incidents.swallowed("not_guarded", "this save is not guarded"):
            folder = folder_text(self.path)
            self._now = facts_for(self._facts, described=self._described, folder=folder)
            self._place = place_of(self._now, folder)
        if is_coordinator and self._place is not None:
            self.save_id, self._is_first_part = SAVE_IDS.begin(self._now, self._place)

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Mark the folder, remove the manifest and `.metadata` there; no rank has written yet.

        They could bless a mixture of the old files and the new ones.
        """
        planned = super().prepare_global_plan(plans)
        if self.is_guarding:
            with incidents.swallowed("not_marked", "a second save into the same folder may go unnoticed"):
                self._mark()
            with incidents.swallowed("old_manifest_stays", "an old manifest or .metadata was not removed"):
                self._remove_old()
            with incidents.swallowed("not_announced", "the save was not announced"):
                self._announce()
        return planned

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write as stock does, and report what was written.

        Raises:
            ItemsNotWrittenError: Planned items are in no shard; DCP raises CheckpointException on all ranks.
        """
        written = super().write_data(plan, planner)
        if not self.is_guarding:
            return written
        results = list(written.wait())
        _require_written(plan, results)
        done: Future[list[WriteResult]] = Future()
        done.set_result([*results, report_of(self.fs.written(self.path))])
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Commit as stock does; then leave the manifest, last, and have the save registered."""
        stock, reports = take_reports(results)
        super().finish(metadata, stock)
        if not self.is_guarding or self._place is None:
            return
        if not self._use_collectives:
            incidents.tell("no_collectives", "a save with use_collectives=False gets no manifest")
            return
        manifest, written = None, b""
        with incidents.swallowed("manifest_failed", f"no manifest of the save in {self._place.folder}"):
            manifest, written = self._leave_manifest(self._place, metadata, reports, world_size=len(results))
        if manifest is None:
            with incidents.swallowed("old_manifest_stays", "an old manifest was not removed"):
                remove_manifest(self.fs, self._place.folder)
        with incidents.swallowed("marker_stays", "the marker of a save was not removed"):
            self._unmark(is_proven=manifest is not None)
        if manifest is None:
            return
        incidents.count("saves_guarded")
        with incidents.swallowed("not_registered", f"the save in {self._place.folder} is not registered"):
            self._register(self._place, manifest, written)

    def _mark(self) -> None:
        if self._place is not None and self._use_collectives:
            self._marked = mark_folder(self.fs, self._place.folder, self.save_id)

    def _unmark(self, *, is_proven: bool) -> None:
        if self._marked is not None:
            unmark_folder(self.fs, self._marked, is_proven=is_proven)
            self._marked = None

    def _remove_old(self) -> None:
        remove_commit(self.fs, folder_text(self.path), is_durable=self.sync_files)
        if self._place is not None and self._place.part is not None and self._is_first_part:
            for part in set(self._now.parts) - {self._place.part}:
                remove_manifest(self.fs, f"{self._place.root}/{part}")

    def _announce(self) -> None:
        if self._place is None or not self._use_collectives or self._now.run is None:
            return
        background.wake()
        call = announcement(self._now, self._place, self.save_id, start=self._start)
        if call is not None:
            background.announce(call)

    def _leave_manifest(
        self, place: Place, metadata: Metadata, reports: Sequence[ShardReport], *, world_size: int
    ) -> tuple[Manifest, bytes]:
        manifest = manifest_of_save(
            self._now,
            place,
            metadata=metadata,
            reports=reports,
            own=self.fs.written(self.path),
            world_size=world_size,
        )
        written = leave_manifest(self.fs, place.folder, manifest)
        SAVE_IDS.finish(place, manifest.save_id)
        return manifest, written

    def _register(self, place: Place, manifest: Manifest, written: bytes) -> None:
        if self._now.run is None:
            return
        entry = registration(self._now, place, manifest, written, start=self._start)
        act = background.hold if self._now.is_held else background.register
        act(entry, is_in_place=place.final_root == place.root)


def part_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Part what `SaveFacts` takes from what the stock writer takes."""
    named = {_RENAMED.get(name, name): value for name, value in options.items()}
    given = {name: value for name, value in named.items() if name in _FACT_NAMES}
    return given, {name: value for name, value in named.items() if name not in _FACT_NAMES}


def _require_written(plan: SavePlan, results: Sequence[WriteResult]) -> None:
    if len(results) == len(plan.items):  # stock gives one result for each item that it wrote
        return
    written = {result.index for result in results}
    missing = sorted({item.index.fqn for item in plan.items if item.index not in written})
    msg = (
        f"{len(plan.items) - len(results)} of {len(plan.items)} items were not written, though stock reports "
        f"no error: {', '.join(missing[:_SHOWN])}"
    )
    raise ItemsNotWrittenError(msg)
