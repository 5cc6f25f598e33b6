"""A rank that asks for one run after another, before and after a process group is there, and notes it all.

`torchrun ranks_program.py FOLDER`; the note of rank N is FOLDER/N.json.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ckptguard.integrations import (
    RanksApartError,
    ResumeRefusedError,
    ResumeTarget,
    handed_target,
    resume_target,
)


def noted(ask: Callable[[], ResumeTarget | None]) -> dict[str, Any]:
    """Return what came of one question, and how long it took."""
    started_s = time.monotonic()
    try:
        target = ask()
    except ResumeRefusedError as error:
        answer: dict[str, Any] = {"refused": error.ending.value, "message": str(error)}
    except RanksApartError as error:
        answer = {"apart": str(error)}
    else:
        answer = {"path": None if target is None else target.path}
        if target is not None:
            answer |= {"step": target.step, "branch": target.branch, "attempt": target.attempt}
            answer |= {"hosts": list(target.hosts)}
    return answer | {"seconds": time.monotonic() - started_s}


def ask_all() -> dict[str, Any]:
    """Ask for a run in each state."""
    answers = {
        run: noted(lambda run=run: resume_target(run, wait_s=0.0, allow_fresh=True))  # type: ignore[misc]
        for run in ("run-7", "empty", "damaged", "away", "refused")
    }
    return answers | {"handed": noted(handed_target)}


def main() -> None:
    """Ask before and after, and once more where rank 0 gets no answer."""
    has_torch_first = "torch" in sys.modules
    notes: dict[str, Any] = {"before": ask_all(), "has_torch_first": has_torch_first}
    import torch.distributed as dist  # noqa: PLC0415 - to see that nothing imported it

    dist.init_process_group("gloo")
    dist.barrier()
    notes["after"] = ask_all()
    dist.barrier()
    notes["late"] = noted(lambda: resume_target("held", wait_s=0.0, ranks_deadline_s=1.5))
    Path(sys.argv[1], f"{os.environ['RANK']}.json").write_text(json.dumps(notes), encoding="utf-8")
    os._exit(0)  # the group is broken on purpose


if __name__ == "__main__":
    main()
