"""The trainers' own code, asked what it makes of a command line or of an argument; prints it as JSON.

`python trainer_parsers.py TRAINER ARGUMENT…`, by an interpreter that has the trainer. Nothing is trained.
"""

import importlib.util
import json
import sys
import types
from pathlib import Path
from typing import Any, NoReturn


def torchtitan(arguments: list[str]) -> dict[str, Any]:
    """Parse as `torchtitan.train` does; its package itself needs triton, the parser does not."""
    spec = importlib.util.find_spec("torchtitan")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    package = types.ModuleType("torchtitan")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["torchtitan"] = package
    from torchtitan.config.manager import ConfigManager  # noqa: PLC0415

    parsed = ConfigManager().parse_args(arguments)
    folder = Path(parsed.job.dump_folder, parsed.checkpoint.folder)
    return {"enable": parsed.checkpoint.enable, "path": f"{folder}/step-{parsed.checkpoint.load_step}"}


def transformers(arguments: list[str]) -> dict[str, Any]:
    """Parse as the example scripts of transformers do."""
    from transformers import HfArgumentParser, TrainingArguments  # noqa: PLC0415

    (parsed,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(arguments)
    return {"path": parsed.resume_from_checkpoint}


def lightning(arguments: list[str]) -> dict[str, Any]:
    """Choose as `trainer.fit(model, ckpt_path=…)` does."""
    import lightning.pytorch as pl  # noqa: PLC0415
    from lightning.pytorch.trainer.states import TrainerFn  # noqa: PLC0415

    trainer = pl.Trainer(accelerator="cpu", devices=1, logger=False, enable_checkpointing=False)
    chosen = trainer._checkpoint_connector._parse_ckpt_path(
        TrainerFn.FITTING, arguments[-1], model_provided=True, model_connected=True
    )
    return {"path": str(chosen)}


def deepspeed(arguments: list[str]) -> dict[str, Any]:
    """Go as far as `engine.load_checkpoint(load_dir, tag)` chooses a folder: by `latest` without a tag."""
    from deepspeed.runtime.engine import DeepSpeedEngine  # noqa: PLC0415

    class Chosen(Exception):  # noqa: N818 - no error
        """What the engine would load."""

    class Engine:
        """As far as the choice asks for it."""

        def load_universal_checkpoint(self) -> bool:
            return False

        def _optimizer_has_ckpt_event_prologue(self) -> bool:
            return False

        def _load_checkpoint(self, folder: str, tag: str, **options: Any) -> NoReturn:  # noqa: ANN401 - DeepSpeed's
            del options
            chosen = f"{folder}/{tag}"
            raise Chosen(chosen)

    try:
        DeepSpeedEngine.load_checkpoint(Engine(), *arguments)
    except Chosen as chosen:
        return {"path": str(chosen)}
    return {"path": None}


if __name__ == "__main__":
    trainers = {trainer.__name__: trainer for trainer in (torchtitan, transformers, lightning, deepspeed)}
    answer = trainers[sys.argv[1]](sys.argv[2:])
    sys.stdout.write(f"\nANSWER {json.dumps(answer)}\n")
