"""A script that asks by itself, also when torchrun restarts its ranks (`--max-restarts`).

torchrun --nproc-per-node 8 --max-restarts 3 train.py pretrain-7 [--allow-fresh]
"""

import argparse
import sys

import torch
from torch.distributed import checkpoint as dcp
from torch.distributed import init_process_group

from ckptguard.cli.exit_codes import EXIT_CODE_OF_ENDING
from ckptguard.integrations import ResumeRefusedError, StartFeedback, resume_target


def main() -> int:
    """Train ten steps from where the run is."""
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("--allow-fresh", action="store_true")
    parser.add_argument("--wait", type=float, default=120.0, help="seconds, for a newer one's verdict")
    asked = parser.parse_args()
    try:  # rank 0 asks, every rank gets the same answer, or the same refusal
        target = resume_target(asked.run, wait_s=asked.wait, allow_fresh=asked.allow_fresh)
    except ResumeRefusedError as refused:
        print(refused, file=sys.stderr)
        return EXIT_CODE_OF_ENDING[refused.ending]
    init_process_group("gloo")
    model = torch.nn.Linear(64, 64)
    with StartFeedback(target, steps=5) as feedback:
        if target is not None:
            state = {"model": model.state_dict()}
            dcp.load(state, checkpoint_id=target.path)
            model.load_state_dict(state["model"])
        print(f"from step {target.step if target else 0}")
        for _ in range(10):
            model(torch.randn(8, 64)).sum().backward()
            feedback.step()
    return 0


if __name__ == "__main__":
    sys.exit(main())
