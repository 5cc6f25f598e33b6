"""Megatron-core: `dist_checkpointing.save` in the format `torch_dist`.

    from ckptguard.integrations.megatron import save

Megatron-core writes its shards past DCP's file system, from processes of its own, so no guarded writer
sees them: they are read back right after its finalization (`ckptguard.integrations.read_back`).
Source: megatron-core 0.16.1, dist_checkpointing/serialization.py and strategies/torch.py.
"""

from functools import partial
from typing import Any

import torch.distributed as dist
from megatron.core import dist_checkpointing

from ckptguard.integrations.dcp import SaveFacts
from ckptguard.integrations.read_back import READ_BACKS


def save(
    sharded_state_dict: Any,
    checkpoint_dir: str,
    *args: Any,
    run: str | None = None,
    step: int | None = None,
    facts: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Save as `dist_checkpointing.save` does; then have the checkpoint read back and registered.

    Args:
        sharded_state_dict: As for Megatron-core.
        checkpoint_dir: As for Megatron-core; rank 0 must see what all ranks write there.
        *args: Of `dist_checkpointing.save`.
        run: Training lineage; None: a manifest is left, and nothing is registered.
        step: Iteration; None: what the folder's name tells (`iter_0000700`).
        facts: Others of `SaveFacts`.
        **options: Of `dist_checkpointing.save`.

    Returns:
        As Megatron-core: for an asynchronous save the request, whose last finalization has it read back.

    Raises:
        ConfigError: The facts make no sense.
    """
    told = SaveFacts(run=run, step=step, **(facts or {}))
    is_first = dist.get_rank() == 0
    if is_first:
        READ_BACKS.begin(checkpoint_dir, told)
    request = dist_checkpointing.save(sharded_state_dict, checkpoint_dir, *args, **options)
    if not is_first:
        return request
    finish = partial(READ_BACKS.finish, checkpoint_dir, told)
    if request is None:
        finish()
    else:
        request.add_finalize_fn(finish)
    return request
