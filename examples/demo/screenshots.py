"""Pictures of every page of the service, from the demo's real checkpoints, for docs/pages.md.

    python examples/demo/screenshots.py [FOLDER]

Trains and saves as the demo does, registers, damages, validates, and looks at what the pages then show.
"""

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any, Final

import run as demo
from pictures import PHONE, Camera, camera

IN_PROJECT: Final = "/ui/in/default"
PLACE: Final = Path("/tmp/ckptguard-demo")  # noqa: S108 - shown on the pages: a path of no particular machine
APART_S: Final = 600
"""The three saves are told to be so far apart, so that the time line has something to show."""
NUM_PARTS: Final = 32
"""Of the one that is looked at while it is read: seconds, whatever the machine."""
_POLICY: Final = ("--gpus", "512", "--usd-per-gpu-hour", "2.5", "--unprotected-after", "6h")


def main(pictures: Path) -> None:
    """Make the past, and take the pictures."""
    PLACE.mkdir(mode=0o700)  # nobody else's
    try:
        picture(PLACE, pictures)
    finally:
        shutil.rmtree(PLACE)


def picture(folder: Path, pictures: Path) -> None:
    """Train, let things happen, and look."""
    checkpoints = folder / "checkpoints"
    demo.run(["torchrun", "--nproc-per-node=4", demo.HERE / "train.py", checkpoints / "demo"])
    age(checkpoints / "demo")
    for step in (1, 2):
        shutil.copytree(checkpoints / "demo" / f"step-{step}", checkpoints / "ablation" / f"step-{step}")
    save_in_parts(checkpoints / "ablation" / "step-1", checkpoints / "ablation" / "step-3")
    os.environ["CKPTGUARD_WORKER_NAME"] = "canary-1"
    os.environ["CKPTGUARD_HEARTBEAT_EVERY_S"] = "0.2"  # so that a validation of a second shows its progress
    with demo.service(folder, store=checkpoints):
        data = folder / "service"
        url = json.loads((data / "address.json").read_text())["url"]
        with camera(url, pictures) as eye:
            before(eye, (data / "token").read_text().strip())
            happen(folder, checkpoints)
            after(eye, checkpoints)


def age(saves: Path) -> None:
    """Date the saves back: one each `APART_S`, the last one just now."""
    steps = sorted(saves.iterdir())
    for number, save in enumerate(reversed(steps)):
        for file in save.iterdir():
            at = time.time() - 60 - number * APART_S  # noqa: TID251 - real files, real time
            os.utime(file, (at, at))


def save_in_parts(save: Path, into: Path) -> None:
    """Make a checkpoint of many parts, each a save; links, so that 6 GB to read cost no disk."""
    for number in range(NUM_PARTS):
        shutil.copytree(save, into / f"part_{number}", copy_function=os.link)


def before(eye: Camera, token: str) -> None:
    """Look at a service that knows nothing yet."""
    eye.take("sign-in", "/ui/sign-in")
    eye.sign_in(token)
    eye.take("runs-empty", f"{IN_PROJECT}/runs")


def happen(folder: Path, checkpoints: Path) -> None:
    """Two runs: of one the newest rots, and the launcher gets the one before; one is being saved."""
    saves = checkpoints / "demo"
    demo.run(["ckptguard", "run", "create", demo.RUN, *_POLICY])
    for step in (1, 2, 3):
        register(saves / f"step-{step}", run=demo.RUN, step=step)
    demo.resume(expected=demo.VALID, path=saves / "step-3", wait=True)
    demo.run(["ckptguard", "restarted", "--run", demo.RUN, "--failed", "--from-step", "3", "--step", "4",
              "--reason", "loss is NaN", "--attempt", "job-1"])  # fmt: skip
    demo.rot(saves / "step-3", aside=folder / "aside-3")
    of_3 = ["--run", demo.RUN, "--step", "3"]
    demo.run(["ckptguard", "revalidate", *of_3, "--wait", "120s"], expected=demo.INVALID)
    demo.run(["ckptguard", "note", *of_3, "--text", "the store's controller was replaced that night"])
    demo.run(["ckptguard", "resume", "--run", demo.RUN, "--no-report"], is_captured=True)
    of_1 = ["--run", demo.RUN, "--step", "1"]
    demo.run(["ckptguard", "pin", *of_1, "--reason", "kept for the paper"])
    for step in (1, 2):
        register(checkpoints / "ablation" / f"step-{step}", run="ablation", step=step)
    coming = checkpoints / "ablation" / "step-4"
    coming.mkdir()
    demo.run(["ckptguard", "announce", coming, "--run", "ablation", "--step", "4"])
    demo.run(["ckptguard", "resume", "--run", "ablation", "--wait", "120s", "--no-report"], is_captured=True)


def register(save: Path, *, run: str, step: int) -> None:
    """Register as a training job does."""
    demo.run(["ckptguard", "register", save, "--run", run, "--step", str(step)])


def after(eye: Camera, checkpoints: Path) -> None:
    """Look at every page."""
    bad, good = shown(step=3), shown(step=2)
    damaged = f"{IN_PROJECT}/checkpoints/{bad['id']}"
    eye.take("runs", f"{IN_PROJECT}/runs")
    eye.take("runs-dark", f"{IN_PROJECT}/runs", scheme="dark")
    eye.take("runs-phone", f"{IN_PROJECT}/runs", size=PHONE)
    eye.take("run", f"{IN_PROJECT}/runs/{demo.RUN}", max_height=1300)
    eye.take("run-dark", f"{IN_PROJECT}/runs/{demo.RUN}", scheme="dark", max_height=1300)
    eye.take("run-phone", f"{IN_PROJECT}/runs/{demo.RUN}", size=PHONE)
    eye.take("checkpoint-damaged", damaged)
    eye.take("checkpoint-dark", f"{IN_PROJECT}/checkpoints/{good['id']}", scheme="dark")
    eye.take("checkpoint-phone", damaged, size=PHONE)
    eye.take("findings", f"{damaged}/findings")
    eye.take("files", f"{damaged}/files")
    eye.take("tensors", f"{damaged}/tensors?fqn=layers.3.qkv")
    eye.take("diff", f"{damaged}/diff?with={good['id']}")
    eye.take("about-a-finding", f"{IN_PROJECT}/findings/crc_mismatch")
    eye.take("validation", f"{IN_PROJECT}/validations/{bad['verdict_validation_id']}")
    take_live(eye, checkpoints / "ablation" / "step-3")
    take_confirmation(eye, f"{IN_PROJECT}/checkpoints/{good['id']}")
    for part in ("workers", "stores"):
        eye.take(part, f"{IN_PROJECT}/{part}")
    eye.take("events", f"{IN_PROJECT}/events?run={demo.RUN}", max_height=860)


def shown(*, step: int) -> dict[str, Any]:
    """Return what the service knows of a checkpoint of the demo's run."""
    text = demo.run(["ckptguard", "show", "--run", demo.RUN, "--step", str(step), "--json"], is_captured=True)
    checkpoint: dict[str, Any] = json.loads(text)["checkpoint"]
    return checkpoint


def take_live(eye: Camera, save: Path) -> None:
    """Register the checkpoint of many parts, and take a picture while it is read."""
    told = demo.run(
        ["ckptguard", "register", save, "--run", "ablation", "--step", "3", "--json"], is_captured=True
    )
    eye.open(f"{IN_PROJECT}/validations/{json.loads(told)['registered'][0]['validation']['id']}")
    eye.page.wait_for_function("() => document.querySelector('progress')?.value > 0")
    eye.take("validation-live")


def take_confirmation(eye: Camera, checkpoint: str) -> None:
    """Ask for a quarantine, and take a picture of what it says before it is done."""
    eye.open(checkpoint)
    eye.page.locator("#action-quarantine summary").click()
    form = eye.page.locator("form[action$='/quarantine']")
    form.locator("[name=reason]").fill("loss spike after it")
    form.get_by_role("button").click()
    eye.page.wait_for_load_state("load")
    eye.take("confirmation")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/screenshots").resolve())
