"""DeepSpeed ZeRO: `engine.save_checkpoint`.

    save_checkpoint(engine, "run-7", run="run-7")

DeepSpeed writes one `torch.save` file for each rank, and no metadata that names them all: they are read
back right after the save (`ckptguard.integrations.read_back`).
Source: deepspeed 0.19.8, runtime/engine.py (`save_checkpoint`).
"""

from pathlib import Path
from typing import Any

from ckptguard.integrations import incidents
from ckptguard.integrations.dcp import SaveFacts
from ckptguard.integrations.read_back import READ_BACKS


def save_checkpoint(
    engine: Any,
    save_dir: str,
    tag: str | None = None,
    *,
    run: str | None = None,
    facts: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Save as `engine.save_checkpoint` does; then have the checkpoint read back and registered.

    Args:
        engine: DeepSpeed's; its `global_steps` is the step.
        save_dir: As for DeepSpeed; rank 0 must see what all ranks write there.
        tag: As for DeepSpeed; None: `global_stepN`.
        run: Training lineage; None: a manifest is left, and nothing is registered.
        facts: Others of `SaveFacts`.
        **options: Of `engine.save_checkpoint`.

    Returns:
        As DeepSpeed.

    Raises:
        ConfigError: The facts make no sense.
    """
    told = SaveFacts(**{"run": run, "step": int(engine.global_steps), **(facts or {})})
    name = f"global_step{engine.global_steps}" if tag is None else str(tag)
    folder = str(Path(save_dir) / name)
    if engine.global_rank != 0 or not _can_be_read_back(engine):
        return engine.save_checkpoint(save_dir, tag=name, **options)
    READ_BACKS.begin(folder, told)
    done = engine.save_checkpoint(save_dir, tag=name, **options)
    READ_BACKS.finish(folder, told)
    return done


def _can_be_read_back(engine: Any) -> bool:
    if engine.use_node_local_storage():
        incidents.tell("not_read_back", "each node keeps its own files: no process can read them all back")
        return False
    if engine.checkpoint_engine.is_decoupled():
        incidents.tell("not_read_back", "DeepSpeed still writes after save_checkpoint: use ckptguard adopt")
        return False
    return True
