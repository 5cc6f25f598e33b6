"""Time and memory of reading the `.metadata` of a very large checkpoint.

    python benchmarks/metadata_scale.py [--items 1000000] [--slices 64]

Writes such a file with stand-ins of torch's classes under their real names (no torch),
then reads it in a fresh process, whose peak memory is that of reading alone.
"""

import argparse
import json
import pickle
import resource
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import Any

METADATA = "torch.distributed.checkpoint.metadata"
FILESYSTEM = "torch.distributed.checkpoint.filesystem"


def _module(name: str) -> types.ModuleType:
    return sys.modules.setdefault(name, types.ModuleType(name))


def _class(module: str, name: str, bases: tuple[type, ...] = (), **body: object) -> Any:  # noqa: ANN401
    cls = type(name, bases, {"__module__": module, **body})
    setattr(_module(module), name, cls)
    return cls


def _function(module: str, name: str) -> Any:  # noqa: ANN401
    def stand_in(*args: object) -> object:
        return args

    stand_in.__module__, stand_in.__qualname__, stand_in.__name__ = module, name, name
    setattr(_module(module), name, stand_in)
    return stand_in


class Writer:
    """Builds torch's `Metadata` out of stand-ins."""

    def __init__(self) -> None:
        """Make the stand-ins importable under torch's names, as pickle demands."""
        for name in ("torch", "torch.distributed", "torch.distributed.checkpoint", "torch.serialization"):
            _module(name)
        self.size = _class("torch", "Size", (tuple,), __reduce__=lambda s: (type(s), (tuple(s),)))
        self.metadata = _class(METADATA, "Metadata")
        self.index = _class(METADATA, "MetadataIndex")
        self.tensor = _class(METADATA, "TensorStorageMetadata")
        self.chunk = _class(METADATA, "ChunkStorageMetadata")
        self.info = _class(FILESYSTEM, "_StorageInfo")
        get_layout = _function("torch.serialization", "_get_layout")
        encoding = _function(METADATA, "_MEM_FORMAT_ENCODING")
        dtype = _class("torch", "dtype", __reduce__=lambda _: "bfloat16")()
        sys.modules["torch"].bfloat16 = dtype  # type: ignore[attr-defined]
        layout = _class("torch", "layout", __reduce__=lambda _: (get_layout, ("torch.strided",)))()
        form = _class("torch", "form", __reduce__=lambda _: (encoding, (0,)))()
        state = (dtype, layout, False, form, False)
        self.properties = _class(METADATA, "TensorProperties", __getstate__=lambda _: (*state,))

    def make(self, num_items: int, num_slices: int) -> object:
        """Return metadata of `num_items` items in tensors of `num_slices` slices each."""
        tensors: dict[str, object] = {}
        planner: dict[str, object] = {}
        stored: dict[object, object] = {}
        ends = [0] * num_slices
        for number in range(num_items // num_slices):
            fqn = f"model.layers.{number // 8}.attention.w{number % 8}.weight"
            tensors[fqn] = self._tensor(num_slices)
            planner[fqn] = ("model", fqn.removeprefix("model."))
            for rank in range(num_slices):
                index = self._filled(self.index, fqn=fqn, index=rank, offset=self.size((rank * 128, 0)))
                length = 128 * 4096 * 2 + 1577
                path = f"__{rank}_0.distcp"
                stored[index] = self._filled(self.info, relative_path=path, offset=ends[rank], length=length)
                ends[rank] += length
        return self._filled(
            self.metadata,
            state_dict_metadata=tensors,
            planner_data=planner,
            storage_data=stored,
            storage_meta=None,
            version="1.0.0",
        )

    def _tensor(self, num_slices: int) -> object:
        chunks = [
            self._filled(self.chunk, offsets=self.size((rank * 128, 0)), sizes=self.size((128, 4096)))
            for rank in range(num_slices)
        ]
        size = self.size((num_slices * 128, 4096))
        return self._filled(self.tensor, properties=self.properties(), size=size, chunks=chunks)

    @staticmethod
    def _filled(cls: Any, **fields: object) -> object:  # noqa: ANN401, PLW0211
        made = cls()
        made.__dict__.update(fields)
        return made


def write(path: Path, num_items: int, num_slices: int) -> None:
    """Write the file."""
    with path.open("wb") as stream:
        pickle.dump(Writer().make(num_items, num_slices), stream)


def read(path: Path, step: str) -> None:
    """Read the file and print what it took, as one line of JSON."""
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started, cpu_started = time.perf_counter(), time.process_time()
    num_items = READERS[step](path)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    peak_bytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) << 10
    size = path.stat().st_size
    print(
        json.dumps(
            {
                "step": step,
                "items": num_items,
                "file_bytes": size,
                "bytes_per_item": round(size / num_items, 1),
                "seconds": round(seconds, 3),
                "us_per_item": round(seconds * 1e6 / num_items, 2),
                "cpu_us_per_item": round(cpu_seconds * 1e6 / num_items, 2),
                "peak_bytes": peak_bytes,
                "peak_per_file_byte": round(peak_bytes / size, 2),
                "allowed_bytes": (64 << 20) + 16 * size,
            }
        )
    )


def _pickle(path: Path) -> int:
    from ckptguard.formats.dcp_builders import BUILDERS  # noqa: PLC0415 - the writer's process lacks it
    from ckptguard.formats.pickle_reader import read_pickle  # noqa: PLC0415

    reading = read_pickle(path.read_bytes(), builders=BUILDERS)
    return len(reading.value.storage_data)  # type: ignore[attr-defined]


def _layout(path: Path) -> int:
    from ckptguard.formats.dcp import ADAPTER  # noqa: PLC0415
    from ckptguard.model.policy import Limits  # noqa: PLC0415
    from ckptguard.storage.listing import list_folder  # noqa: PLC0415
    from ckptguard.storage.local import LocalStore  # noqa: PLC0415

    store = LocalStore(path.parent)
    (layout,) = ADAPTER.open(store, list_folder(store, "", max_files=10), Limits())
    return sum(len(shard.items) for shard in layout.shards)


READERS = {"pickle": _pickle, "layout": _layout}


def main() -> None:
    """Write once, read each way in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--slices", type=int, default=64)
    parser.add_argument("--read", type=Path)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--step", choices=sorted(READERS), default="layout")
    options = parser.parse_args()
    if options.read:
        read(options.read, options.step)
        return
    if options.write:
        write(options.write, options.items, options.slices)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ".metadata"
        sizes = ["--items", str(options.items), "--slices", str(options.slices)]
        subprocess.run([sys.executable, __file__, "--write", path, *sizes], check=True)
        for step in READERS:
            subprocess.run([sys.executable, __file__, "--read", path, "--step", step], check=True)


if __name__ == "__main__":
    main()
