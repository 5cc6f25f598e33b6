"""Guarded saves by two real ranks, small, in every layout that the writer has: bases for damage."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch.distributed.checkpoint.filesystem import SerializationFormat

from ckptguard.testing.guarded_trials import GuardedSave
from tests.kills.guarded_ranks import Job
from tests.kills.guarded_saves import Server

_SAFETENSORS: Final = {"format": SerializationFormat.SAFETENSORS.value, "with_objects": False}
LAYOUTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "2 ranks": {},
    "2 ranks, 3 threads": {"options": {"thread_count": 3}},
    "2 ranks, a file per item": {"options": {"single_file_per_rank": False}},
    "2 ranks, safetensors": _SAFETENSORS,
    "2 ranks, safetensors, 3 threads": {**_SAFETENSORS, "options": {"thread_count": 3}},
    "2 ranks, fsspec": {"is_url": True},
    "2 ranks, sidecars": {"sidecars": ("meta.pt", "scheduler.pt")},
}
_OTHER: Final = {name: "2 ranks" if "3 threads" in name else "2 ranks, 3 threads" for name in LAYOUTS} | {
    "2 ranks, safetensors": "2 ranks, safetensors, 3 threads",
    "2 ranks, safetensors, 3 threads": "2 ranks, safetensors",
}
_ROWS: Final = 4


def write_guarded_saves(server: Server, root: Path) -> Iterator[GuardedSave]:
    """Save two steps in every layout, and yield what to damage."""
    for number, layout in enumerate(LAYOUTS.values()):
        for step in (1, 2):
            _write(server, root / str(number) / f"step-{step}", step, dict(layout))
    places = {name: root / str(number) for number, name in enumerate(LAYOUTS)}
    for name in LAYOUTS:
        yield GuardedSave(
            name=name,
            folder=places[name] / "step-1",
            other=places[name] / "step-2",
            other_layout=places[_OTHER[name]] / "step-2",
        )


def _write(server: Server, folder: Path, step: int, layout: dict[str, Any]) -> None:
    sidecars = layout.pop("sidecars", ())
    is_url = layout.pop("is_url", False)
    scratch = folder.parent / f"job-{step}"
    target = f"file://{folder}" if is_url else str(folder)
    server.save(Job(folder=target, step=step, scratch=str(scratch), rows=_ROWS, **layout))
    for name in sidecars:
        torch.save({"epoch": step}, folder / name)
