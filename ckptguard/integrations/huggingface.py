"""Hugging Face Trainer: FSDP, sharded (`fsdp_config={"state_dict_type": "SHARDED_STATE_DICT"}`).

    trainer = Trainer(…, callbacks=[guarded_saves(run="run-7")])

The Trainer saves model and optimizer through Accelerate, then the states of scheduler and random generators,
then `trainer_state.json`, and only then tells its callbacks. From a checkpoint without `scheduler.pt` it
resumes without a word, with a new optimizer: so nothing is registered before.
Source: transformers 5.24, trainer.py (`_save_checkpoint`, `_load_optimizer_and_scheduler`).
"""

from typing import Any

import torch.distributed as dist
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ckptguard.integrations.accelerate import parts_of
from ckptguard.integrations.dcp import install, release


class RegisteredSaves(TrainerCallback):
    """Registers what was saved guarded, once every rank has written all of its checkpoint."""

    def on_save(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **_kwargs: Any,
    ) -> None:
        """Wait for the other ranks' random states, then register."""
        del args, state, control
        if dist.is_initialized():
            dist.barrier()
        release()


def guarded_saves(*, run: str, **facts: Any) -> RegisteredSaves:
    """Guard the DCP saves of this process, and return the callback that has them registered.

    Args:
        run: Training lineage. The step is that of the folder, `checkpoint-1200`.
        **facts: Others of `SaveFacts` that hold for every save.

    Raises:
        ConfigError: They make no sense.
    """
    install(run=run, hold=True, **{"parts": parts_of(), **facts})
    return RegisteredSaves()
