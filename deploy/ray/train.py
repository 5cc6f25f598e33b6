"""Ray Train from the last checkpoint proven good, also when Ray restarts its workers.

python train.py pretrain-7 [--workers 8] [--allow-fresh] [--wait 120]

`ray.train.get_checkpoint()` is the last one that was reported, proven or not. The workers ask instead: Ray
has set up torch's process group when the function begins, rank 0 asks, and all get one answer.
"""

import argparse
import sys
from typing import Any

import ray.train
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from ckptguard.cli.exit_codes import EXIT_CODE_OF_ENDING
from ckptguard.integrations import ResumeRefusedError, StartFeedback, resume_target


def train(config: dict[str, Any]) -> None:
    """Train on one worker."""
    target = resume_target(config["run"], allow_fresh=config["allow_fresh"])
    with StartFeedback(target, is_telling_progress=ray.train.get_context().get_world_rank() == 0) as feedback:
        step = target.step if target else 0
        if target:
            load(target.path)
        for _ in range(config["steps"]):
            step += 1
            feedback.step()
        ray.train.report({"step": step})


def load(path: str) -> None:
    """Load your model's state: `torch.distributed.checkpoint.load(state, checkpoint_id=path)`."""
    print(f"loading {path}")


def main() -> int:
    """Look first, with the driver's own eyes: a run without a target starts no worker."""
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--allow-fresh", action="store_true")
    parser.add_argument("--wait", type=float, default=120.0, help="seconds, for a newer one's verdict")
    asked = parser.parse_args()
    try:
        resume_target(asked.run, wait_s=asked.wait, allow_fresh=asked.allow_fresh, is_reported=False)
    except ResumeRefusedError as refused:
        print(refused, file=sys.stderr)
        return EXIT_CODE_OF_ENDING[refused.ending]
    trainer = TorchTrainer(
        train,
        train_loop_config={"run": asked.run, "allow_fresh": asked.allow_fresh, "steps": 100},
        scaling_config=ScalingConfig(num_workers=asked.workers, use_gpu=True),
        run_config=RunConfig(name=asked.run, failure_config=FailureConfig(max_failures=3)),
    )
    trainer.fit()
    return 0


if __name__ == "__main__":
    sys.exit(main())
