"""The process that writes the saves: four forked ranks, stock torch, gloo.

Run as `python -m ckptguard.testing.save_worker ROOT`. Each function below writes the
saves of one theme; together they are every base that the cases start from.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ckptguard.testing import saves
from ckptguard.testing.hostile import Evaluates, Foreign, RunsCommand
from ckptguard.testing.safetensors_bytes import floats, write_file, write_sharded

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed.device_mesh import DeviceMesh

WORLD: Final = 4
_ROWS, _COLUMNS = 64, 32

State: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One rank of the group, and what it writes with.

    Args:
        rank: Its number.
        root: Folder of all saves.
        world: Mesh of all ranks.
        pair: Mesh of ranks 0 and 1; None on the others.
        grid: Mesh of 2 x 2.
    """

    rank: int
    root: Path
    world: "DeviceMesh"
    pair: "DeviceMesh | None"
    grid: "DeviceMesh"

    def save(self, name: str, state: State, *, planner: object = None, **options: object) -> None:
        """Save to `root/name` with all ranks; options are those of FileSystemWriter."""
        from torch.distributed.checkpoint.filesystem import FileSystemWriter  # noqa: PLC0415 - torch late
        from torch.distributed.checkpoint.state_dict_saver import save  # noqa: PLC0415 - torch late

        use_collectives = bool(options.pop("use_collectives", True))
        writer: Any = FileSystemWriter(self.root / name, sync_files=False, **options)  # type: ignore[arg-type]
        chosen: Any = planner
        save(state, storage_writer=writer, planner=chosen, use_collectives=use_collectives)


def _sharded(mesh: "DeviceMesh", whole: "Tensor") -> "Tensor":
    """Return this rank's part of a tensor, sharded by rows as `torch.chunk` does."""
    from torch.distributed.tensor import Shard, distribute_tensor  # noqa: PLC0415 - torch late

    return distribute_tensor(whole, mesh, [Shard(0)])


def _base(step: int, mesh: "DeviceMesh") -> State:
    import torch  # noqa: PLC0415 - torch late

    chance = torch.Generator().manual_seed(1000 + step)
    weight = torch.randn(_ROWS, _COLUMNS, generator=chance)
    average = torch.randn(_ROWS, _COLUMNS, generator=chance)
    return {
        "model": {"w": _sharded(mesh, weight), "bias": torch.randn(_COLUMNS, generator=chance)},
        "optim": {"exp_avg.w": _sharded(mesh, average), "step": torch.tensor(float(step))},
        "train": {"step": step, "lr": 1e-3, "note": "x" * 16},
    }


def write_bases(rank: Rank) -> None:
    """Write BASE at several steps, the same run on two ranks, and a finished re-save."""
    from torch.distributed.checkpoint.filesystem import FileSystemWriter  # noqa: PLC0415 - torch late
    from torch.distributed.checkpoint.state_dict_saver import save  # noqa: PLC0415 - torch late

    for step in range(4):
        rank.save(f"base_step{step}", _base(step, rank.world))
    rank.save("resaved_smaller", _base(1, rank.world))
    if rank.pair is None:
        return
    for name in (saves.BASE_NEWER_WORLD_2, "resaved_smaller"):
        writer = FileSystemWriter(rank.root / name, sync_files=False)
        save(_base(2, rank.pair), storage_writer=writer, process_group=rank.pair.get_group())


def write_layouts(rank: Rank) -> None:
    """Write the same kind of state in every layout that the stock writer has."""
    import torch  # noqa: PLC0415 - torch late
    from torch.distributed.checkpoint.default_planner import DefaultSavePlanner  # noqa: PLC0415 - torch late

    rank.save("one_plain_tensor", {"w": torch.arange(8.0)})
    rank.save("threads3", _base(1, rank.world), thread_count=3)
    rank.save("file_per_item", _base(1, rank.world), single_file_per_rank=False)
    rank.save("lowest_rank", _base(1, rank.world), planner=DefaultSavePlanner(dedup_save_to_lowest_rank=True))
    rank.save("rank_local", _base(1, rank.world), use_collectives=False)
    torch.serialization.set_crc32_options(compute_crc32=False)
    rank.save("crc_off", _base(1, rank.world))
    torch.serialization.set_crc32_options(compute_crc32=True)


def write_shapes(rank: Rank) -> None:
    """Write uneven, empty and two-dimensional shardings."""
    import torch  # noqa: PLC0415 - torch late
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor  # noqa: PLC0415 - torch late

    rows = {size: torch.arange(size * 3.0).reshape(size, 3) for size in (5, 1)}
    uneven = {f"rows{size}": _sharded(rank.world, whole) for size, whole in rows.items()}
    rank.save("uneven", {**uneven, "two": _sharded(rank.world, torch.arange(2.0))})
    empties: State = {"none": torch.empty(0), "flat": torch.empty(0, 3), "scalar": torch.tensor(3.5)}
    rank.save("empty", {**empties, "sharded": _sharded(rank.world, torch.empty(0, 4))})
    grid = torch.arange(96.0).reshape(8, 12)
    rank.save(
        "grid",
        {
            "both": distribute_tensor(grid, rank.grid, [Shard(0), Shard(1)]),
            "hsdp": distribute_tensor(grid + 1, rank.grid, [Replicate(), Shard(0)]),
        },
    )


def write_values(rank: Rank) -> None:
    """Write values that look wrong and are right, or look right and are wrong."""
    import torch  # noqa: PLC0415 - torch late

    base, older = _base(1, rank.world), _base(0, rank.world)
    newer = _base(2, rank.world)
    rank.save("per_rank_values", {"w": torch.full((4,), float(rank.rank))})
    moving = {**base, "model": newer["model"], "optim": older["optim"]}
    rank.save("moving_target", moving)
    for name, value in (("all_nan", float("nan")), ("all_denormal", 1e-42)):
        whole = torch.full((_ROWS, _COLUMNS), value)
        rank.save(name, {**base, "model": {**base["model"], "w": _sharded(rank.world, whole)}})
    legal = {
        "mask": torch.full((4,), -torch.inf),
        "placeholder": torch.tensor([1.0, float("nan")]),
        "bias": torch.zeros(16),
    }
    rank.save("legal_odd_values", {**base, "extra": legal})


def write_contents(rank: Rank) -> None:
    """Write states in which something is absent, on purpose or by accident."""
    base = _base(1, rank.world)
    rank.save("model_only", {"model": base["model"]})
    rank.save("without_bias", {**base, "model": {"w": base["model"]["w"]}})
    rank.save("seed_step", {"model": base["model"], "optim": {"state": {}, "param_groups": []}, "step": 0})
    loaders = {f"rank_{number}": {"position": number} for number in range(WORLD)}
    rank.save("loader_states", {**base, "dl": loaders})
    loaders.pop("rank_2")
    rank.save("loader_state_missing", {**base, "dl": loaders})


def write_alone(root: Path) -> None:
    """Write what one process writes: dtypes, objects, hostile pickles, other formats."""
    _write_dtypes(root)
    _write_objects(root)
    _write_hostile(root)
    _write_torch_saves(root)
    _write_deepspeed(root)
    write_sharded(
        root / saves.HF_SHARDED,
        {
            "model-00001-of-00002.safetensors": {
                "a": floats(1, 2, 3, 4, 5, 6, 7, 8),
                "b": floats(*range(24)),
            },
            "model-00002-of-00002.safetensors": {"c": floats(*range(100, 132))},
        },
    )
    _write_trainer(root / "hf_trainer")


def _save_alone(folder: Path, state: State) -> None:
    from torch.distributed.checkpoint.filesystem import FileSystemWriter  # noqa: PLC0415 - torch late
    from torch.distributed.checkpoint.state_dict_saver import save  # noqa: PLC0415 - torch late

    save(state, storage_writer=FileSystemWriter(folder, sync_files=False), no_dist=True)


def _write_dtypes(root: Path) -> None:
    import torch  # noqa: PLC0415 - torch late

    names = "float64 float16 bfloat16 float8_e4m3fn float8_e5m2 float8_e8m0fnu complex64 int8 uint8 uint16"
    values = torch.arange(16, dtype=torch.float32)
    state: State = {name: values.to(getattr(torch, name)) for name in names.split()}
    state["bool"] = values > 7  # noqa: PLR2004 - half of them
    state["float4_e2m1fn_x2"] = torch.arange(16, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    _save_alone(root / "dtypes", state)
    _save_alone(root / "quantized", {"q": torch.quantize_per_tensor(values, 0.5, 0, torch.qint8)})


def _write_objects(root: Path) -> None:
    import io  # noqa: PLC0415 - used once

    import torch  # noqa: PLC0415 - torch late
    from torch.distributed.checkpoint import _version  # noqa: PLC0415 - torch late

    plain: State = {"none": None, "set": {1, 2}, "extra_state": io.BytesIO(b"12345"), "list": [], "empty": {}}
    _save_alone(root / "objects", {"w": torch.arange(8.0), **plain})
    _save_alone(root / "foreign_object", {"w": torch.arange(8.0), "loader": Foreign()})
    _version._derived_version = "2_3"  # noqa: SLF001 - the switch for the key layout before torch 2.4
    groups = [{"lr": 0.1, "params": [0]}]
    _save_alone(root / "old_key_layout", {"w": torch.arange(8.0), "optim": {"param_groups": groups}})
    _version._derived_version = None  # noqa: SLF001


def _write_hostile(root: Path) -> None:
    import torch  # noqa: PLC0415 - torch late

    marker = root / saves.EXECUTED_MARKER
    for name, bait in (("hostile_system", RunsCommand(marker)), ("hostile_eval", Evaluates(marker))):
        _save_alone(root / name, {"w": torch.arange(8.0), "obj": bait})
        (root / f"{name}_torch_save").mkdir()
        torch.save({"w": torch.arange(8.0), "obj": bait}, root / f"{name}_torch_save" / "model.pt")


def _write_torch_saves(root: Path) -> None:
    import torch  # noqa: PLC0415 - torch late

    state = {"w": torch.arange(2048.0).reshape(64, 32), "bias": torch.arange(32.0), "step": 7}
    for name, is_zip in ((saves.TORCH_SAVE, True), ("torch_save_legacy", False)):
        (root / name).mkdir()
        torch.save(state, root / name / "model.pt", _use_new_zipfile_serialization=is_zip)


def _write_deepspeed(root: Path) -> None:
    import torch  # noqa: PLC0415 - torch late

    for name, weight in ((saves.DEEPSPEED, torch.arange(64.0)), ("deepspeed_zero3", torch.empty(0))):
        folder = root / name / "global_step10"
        folder.mkdir(parents=True)
        shapes = {"w": torch.Size([64])}
        model = {"module": {"w": weight}, "param_shapes": [shapes], "dp_world_size": WORLD}
        torch.save(model, folder / "mp_rank_00_model_states.pt")
        for number in range(WORLD):
            part = {"optimizer_state_dict": {"fp32_flat_groups": [torch.arange(16.0) + number]}}
            torch.save(part, folder / f"zero_pp_rank_{number}_mp_rank_00_optim_states.pt")
        (root / name / "latest").write_text("global_step10")


def _write_trainer(root: Path) -> None:
    """Write two checkpoints as the Hugging Face Trainer lays them out."""
    for step in (100, 200):
        folder = root / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        write_file(folder / "model.safetensors", {"w": floats(*range(step, step + 64))})
        (folder / "trainer_state.json").write_text(f'{{"global_step": {step}}}\n')


_THEMES: Final[tuple[Callable[[Rank], None], ...]] = (
    write_bases,
    write_layouts,
    write_shapes,
    write_values,
    write_contents,
)


def _run_rank(number: int, root: Path) -> None:
    import torch  # noqa: PLC0415 - torch late
    from torch import distributed  # noqa: PLC0415 - torch late
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh  # noqa: PLC0415 - torch late

    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{root}/.rendezvous", rank=number, world_size=WORLD
    )
    pair_group = distributed.new_group([0, 1])
    rank = Rank(
        rank=number,
        root=root,
        world=init_device_mesh("cpu", (WORLD,)),
        pair=DeviceMesh.from_group(pair_group, "cpu") if number < 2 else None,  # noqa: PLR2004 - a pair
        grid=init_device_mesh("cpu", (2, 2)),
    )
    for write in _THEMES:
        write(rank)
        distributed.barrier()
    if number == WORLD - 1:
        write_alone(root)
    distributed.destroy_process_group()


def _fork_rank(number: int, root: Path) -> int:
    """Start one rank as a fork of this process, which has imported torch and started no thread."""
    child = os.fork()
    if child != 0:
        return child
    status = 1
    try:
        _run_rank(number, root)
        status = 0
    except BaseException:  # noqa: BLE001 - the edge of a process: say why, and end
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(status)


def main() -> int:
    """Write every save; return the exit code."""
    import torch.distributed.checkpoint  # noqa: PLC0415 - torch late, and before the forks

    _ = torch.distributed.checkpoint
    root = Path(sys.argv[1]).resolve()
    children = [_fork_rank(number, root) for number in range(WORLD)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    (root / ".rendezvous").unlink(missing_ok=True)
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())
