"""Accelerate: `Accelerator.save_state` with FSDP, sharded (`SHARDED_STATE_DICT`).

    save_state(accelerator, "run-7/checkpoint-1200", run="run-7", step=1200)

Accelerate saves each model and each optimizer as a DCP folder of its own, through writers that it builds
itself, and then the states of schedulers, samplers and random generators beside them.
Source: accelerate 1.15, accelerator.py (`save_state`) and utils/fsdp_utils.py.
"""

from typing import Any, Final

from ckptguard.integrations.dcp import discard, installed, release

_MODEL: Final = "pytorch_model_fsdp"
_OPTIMIZER: Final = "optimizer"


def parts_of(*, models: int = 1, optimizers: int = 1) -> tuple[str, ...]:
    """Return the folders that one FSDP checkpoint consists of, in the order in which they are saved."""
    return (
        *(f"{_MODEL}_{index}" for index in range(models)),
        *(f"{_OPTIMIZER}_{index}" for index in range(optimizers)),
    )


def save_state(
    accelerator: Any,
    output_dir: str | None = None,
    *,
    run: str,
    step: int | None = None,
    models: int = 1,
    optimizers: int = 1,
    **options: Any,
) -> str:
    """Save as `accelerator.save_state` does, guarded; registered once every rank has written all of it.

    Args:
        accelerator: With an FSDP plugin whose state dict type is `SHARDED_STATE_DICT`.
        output_dir: As for `save_state`.
        run: Training lineage.
        step: Optimizer step; None: what the folder's name tells. Accelerate's own numbering
            (`checkpoint_3`) counts saves, not steps.
        models: That were prepared.
        optimizers: That were prepared.
        **options: Of `save_state`.

    Returns:
        The folder.

    Raises:
        ConfigError: The facts make no sense.
    """
    discard()  # of a save that failed half-way
    parts = parts_of(models=models, optimizers=optimizers)
    with installed(run=run, step=step, parts=parts, hold=True):
        folder: str = accelerator.save_state(output_dir, **options)
    accelerator.wait_for_everyone()
    release()
    return folder
