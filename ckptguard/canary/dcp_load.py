"""The load: `dcp.load` unchanged, with a reader that verifies and a planner that hands out windows.

`dcp.load({}, storage_reader=…, planner=…)` keeps DCP's own plan, gather, scatter and
error handling. The plan that travels through its collectives names shards only; the
items are expanded on each rank in `finish_plan`. Imports torch: only the canary child
loads this module.

Source: torch distributed/checkpoint/{planner,storage,state_dict_loader}.py, read for
2.4.1, 2.6.0, 2.9.1, 2.13.0 and 2.14.1; `no_dist` is never passed (absent before 2.8).
"""

import gc
import io
import itertools
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from ckptguard.canary.extremes import NumericsMeter
from ckptguard.canary.job import Group
from ckptguard.canary.window import Window, torch_dtype
from ckptguard.formats.protocol import StoredTensor
from ckptguard.model.finding import CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Item, ItemKind, Shard
from ckptguard.model.policy import NumericsMode
from ckptguard.model.report import TensorNumerics
from ckptguard.scan.files import ScanSetting, scan_files
from ckptguard.scan.result import FileScan

ScanListener = Callable[[FileScan], None]


def load_through_dcp(
    shards: Sequence[Shard],
    setting: ScanSetting,
    *,
    device: torch.device,
    numerics: NumericsMode,
    rank: int,
    world_size: int,
    on_scan: ScanListener,
) -> None:
    """Load this rank's share of the shards through DCP; every byte is read once, by one rank.

    Args:
        shards: All shards of the checkpoint, the same on every rank.
        setting: Where they lie and how to read them.
        device: Where windows are allocated.
        numerics: Whether values are measured.
        rank: This rank.
        world_size: Ranks that share the load.
        on_scan: Told of each shard of this rank as it is done.

    Raises:
        torch.distributed.checkpoint.api.CheckpointException: A `BaseException`: DCP failed.
    """
    planner = WindowPlanner(
        share_of_rank(shards, rank=rank, world_size=world_size), device=device, numerics=numerics
    )
    run_load(VerifyingReader(setting, on_scan=on_scan), planner)


def run_load(reader: StorageReader, planner: LoadPlanner) -> None:
    """Run `dcp.load` on no model: all that is loaded goes through the planner's windows."""
    with warnings.catch_warnings(), torch.inference_mode(), _collector_off():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        dcp_load({}, storage_reader=reader, planner=planner)


@contextmanager
def process_group(group: Group | None, *, device: torch.device) -> Iterator[None]:
    """Join the canaries of a group for the time of a load; alone: do nothing."""
    if group is None:
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)  # NCCL and DCP's collectives take the current one
    dist.init_process_group(
        group.backend, init_method=group.init_method, rank=group.rank, world_size=group.world_size
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


def share_of_rank(shards: Sequence[Shard], *, rank: int, world_size: int) -> list[Shard]:
    """Give each rank about the same bytes: largest shard first, to whoever has least."""
    loads = [0] * world_size
    mine: list[Shard] = []
    for shard in sorted(shards, key=lambda shard: (-shard.min_length_bytes, shard.path)):
        owner = loads.index(min(loads))
        loads[owner] += max(shard.min_length_bytes, 1)
        if owner == rank:
            mine.append(shard)
    return mine


@contextmanager
def _collector_off() -> Iterator[None]:
    """Keep the garbage collector from walking torch's heap while millions of small values are made.

    They hold no cycles. Measured on 2,000 small tensors: 80-90 microseconds an item with it on.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class WindowPlanner(LoadPlanner):
    """Plans the items of this rank's shards; hands out windows instead of a model's tensors.

    Args:
        share: Shards of this rank.
        device: Where windows are allocated.
        numerics: Whether committed values are measured.
    """

    def __init__(self, share: Sequence[Shard], *, device: torch.device, numerics: NumericsMode) -> None:
        self.shards: Mapping[str, Shard] = {shard.path: shard for shard in share}
        self.dtypes = {item.fqn: item.dtype or "" for shard in share for item in shard.items}
        self.device = device
        self.is_measuring = numerics is not NumericsMode.OFF
        self._of_thread = threading.local()

    def set_up_planner(
        self,
        state_dict: dict[str, Any],
        metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:
        """Take nothing: there is no model to fill."""

    def create_local_plan(self) -> LoadPlan:
        """Name this rank's shards."""
        return LoadPlan(items=[], planner_data=tuple(self.shards))

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        """Hold, on the coordinator, that no shard is named by two ranks.

        Raises:
            ValueError: One is.
        """
        names = [name for plan in global_plan for name in plan.planner_data]
        if len(names) != len(set(names)):
            msg = "a shard is planned by two ranks"
            raise ValueError(msg)
        return global_plan

    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        """Expand the shards named into one ReadItem per item."""
        items = [read_item(item) for name in central_plan.planner_data for item in self.shards[name].items]
        return LoadPlan(items=items, planner_data=central_plan.planner_data)

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Take a pickled object's bytes. They are not unpickled: our parser has read them."""

    def window(self) -> Window:
        """Return the window of the calling thread."""
        if not hasattr(self._of_thread, "window"):
            self._of_thread.window = Window(self.device)
        window: Window = self._of_thread.window
        return window

    def resolve_tensor(self, read_item: ReadItem) -> torch.Tensor:
        """Hand out the part of this thread's window that the item, or a piece of it, goes into."""
        return self.window().target

    def commit_tensor(self, read_item: ReadItem, tensor: torch.Tensor) -> None:
        """Take back a window that holds values, and measure them."""
        if self.is_measuring:
            fqn = read_item.storage_index.fqn
            self.window().measure(fqn, self.dtypes[fqn])


class VerifyingReader(StorageReader):
    """Verifies every byte of the planned shards while it reads them (design §4).

    Damage is collected, never raised: one raise would fail all ranks.

    Args:
        setting: Where the shards lie and how to read them.
        on_scan: Told of each shard as it is done.
    """

    def __init__(self, setting: ScanSetting, *, on_scan: ScanListener) -> None:
        self._setting = setting
        self._on_scan = on_scan

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Accept any: the store was opened before."""
        return True

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Keep no state between loads."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Return an empty one: our own parser has read the stored metadata, DCP never looks inside."""
        return Metadata(state_dict_metadata={})

    def set_up_storage_reader(
        self,
        metadata: Metadata,
        is_coordinator: bool,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Need nothing."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Keep the plan."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Keep the plans."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read each planned shard once, verify it, and hand its items to the planner."""
        if not isinstance(planner, WindowPlanner):
            msg = f"reads for a WindowPlanner, not for {type(planner).__name__}"
            raise TypeError(msg)
        planned = iter(plan.items)
        read_items = {
            name: list(itertools.islice(planned, len(shard.items))) for name, shard in planner.shards.items()
        }
        scans = scan_files(
            list(planner.shards.values()),
            self._setting,
            new_sink=lambda shard: WindowSink(planner, shard, read_items[shard.path]),
        )
        for scan in scans:
            self._on_scan(scan)
        done: Future[None] = Future()
        done.set_result(None)
        return done


class WindowSink:
    """Hands the payload of one shard to the planner, item by item (a `PayloadSink`).

    Args:
        planner: Hands out windows.
        shard: The shard being read.
        read_items: DCP's names of `shard.items`, in the same order.
    """

    def __init__(self, planner: WindowPlanner, shard: Shard, read_items: Sequence[ReadItem]) -> None:
        self._planner = planner
        self._shard = shard
        self._window = planner.window()
        self._window.meter = NumericsMeter()
        self._read_items = {
            (item.offset, item.fqn): read_item
            for item, read_item in zip(shard.items, read_items, strict=True)
        }
        self._dtypes_missing: dict[str, Item] = {}
        self._cut = b""
        self.num_loaded = 0

    def buffer(self, length_bytes: int) -> memoryview:
        """Return this thread's window: on the CPU, to read into it is to place the bytes."""
        return self._window.host(length_bytes)

    def whole(self, item: Item, stored: StoredTensor, payload: memoryview) -> None:
        """Place one tensor and commit it."""
        if self._place(item, payload, stored):
            self.num_loaded += 1

    def piece(self, item: Item, start: int, view: memoryview) -> None:
        """Place and commit part of a tensor.

        Pieces of stored items begin and end between elements; those of decoded ones may
        cut one, whose first bytes wait for the next piece.
        """
        if start == 0:
            self._cut = b""
        dtype = torch_dtype(item.dtype or "")
        size = dtype.itemsize if dtype is not None else 1
        if self._cut or len(view) % size:
            view = memoryview(self._cut + bytes(view))
            whole_bytes = len(view) - len(view) % size
            self._cut, view = bytes(view[whole_bytes:]), view[:whole_bytes]
        self._place(item, view, None)

    def end(self, item: Item, stored: StoredTensor | None) -> None:
        """Count a tensor that passed in pieces, if it was sound."""
        if stored is not None and item.dtype not in self._dtypes_missing:
            self.num_loaded += 1

    def whole_object(self, item: Item, view: memoryview | None) -> None:
        """Hand a pickled object's bytes to the planner."""
        self._planner.load_bytes(self._read_items[item.offset, item.fqn], io.BytesIO(view or b""))
        self.num_loaded += 1

    def numerics(self) -> Mapping[str, TensorNumerics]:
        """Return what was measured in this shard."""
        return self._window.meter.results()

    def findings(self) -> list[Finding]:
        """Name the dtypes that this torch does not have."""
        return [
            Finding(
                code=FindingCode.NEEDS_OTHER_READER,
                check=CheckName.LOAD,
                severity=Severity.WARNING,
                message=f"torch {torch.__version__} has no dtype {dtype} ({item.fqn} in {self._shard.path})",
                file=self._shard.path,
                fqn=item.fqn,
                expected=dtype,
            )
            for dtype, item in self._dtypes_missing.items()
        ]

    def _place(self, item: Item, view: memoryview, stored: StoredTensor | None) -> bool:
        dtype = torch_dtype(item.dtype or "uint8")  # of what nothing declares: bytes
        if dtype is None:
            self._dtypes_missing.setdefault(item.dtype or "", item)
            return False
        self._window.place(view, dtype, stored)
        read_item = self._read_items[item.offset, item.fqn]
        self._planner.commit_tensor(read_item, self._planner.resolve_tensor(read_item))
        return True


def read_item(item: Item) -> ReadItem:
    """Describe one item to DCP."""
    if item.kind is ItemKind.BYTES or item.slice is None:
        index, origin = MetadataIndex(item.fqn), torch.Size((0,))
        return ReadItem(
            type=LoadItemType.BYTE_IO,
            dest_index=index,
            dest_offsets=origin,
            storage_index=index,
            storage_offsets=origin,
            lengths=origin,
        )
    offsets = torch.Size(item.slice.offsets)
    index = MetadataIndex(item.fqn, offsets)
    return ReadItem(
        type=LoadItemType.TENSOR,
        dest_index=index,
        dest_offsets=offsets,
        storage_index=index,
        storage_offsets=torch.Size((0,) * len(offsets)),
        lengths=torch.Size(item.slice.sizes),
    )
