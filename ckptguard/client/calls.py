"""Every request of a training job and of a launcher (docs/service.md): pure, shared by both clients."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from ckptguard.client.answers import Checkpoint, Registered, Restart, ResumeAnswer, Run
from ckptguard.client.call import Call, get, post, segment, without_none
from ckptguard.client.decode import time_text
from ckptguard.model.policy import Depth
from ckptguard.model.service import RestartOutcome
from ckptguard.model.verdict import Assurance, Provenance

Location = Mapping[str, str]
"""`{"store": NAME, "path": FOLDER}`, or `{"url": PATH_OR_URL}`."""


def create_run(  # noqa: PLR0913 - one parameter for each field
    name: str,
    *,
    min_assurance: Assurance | None = None,
    min_provenance: Provenance | None = None,
    numerics: str | None = None,
    required_fqns: Sequence[str] | None = None,
    gpus: int | None = None,
    usd_per_gpu_hour: float | None = None,
    unprotected_after_s: float | None = None,
    min_steps: int | None = None,
) -> Call[Run]:
    """Make a run with its policy; the same again is the same run, another one a ConflictError."""
    body = {
        "name": name,
        "min_assurance": min_assurance,
        "min_provenance": min_provenance,
        "numerics": numerics,
        "required_fqns": None if required_fqns is None else list(required_fqns),
        "gpus": gpus,
        "usd_per_gpu_hour": usd_per_gpu_hour,
        "unprotected_after_s": unprotected_after_s,
        "min_steps": min_steps,
    }
    return post("/v1/runs", Run, body)


def change_run(run: str, **changes: Any) -> Call[Run]:  # noqa: ANN401 - JSON values
    """Change the policy of a run; fields as in `create_run`, only those given change."""
    return replace(post(f"/v1/runs/{segment(run)}", Run, changes), method="PATCH")


def announce(
    run: str,
    *,
    step: int,
    location: Location,
    save_id: str | None = None,
    keep_alive_s: float | None = None,
    branch: int | None = None,
) -> Call[Checkpoint]:
    """Say that a save begins; without news for `keep_alive_s` seconds it counts as `incomplete`."""
    body = {
        "step": step,
        "location": dict(location),
        "save_id": save_id,
        "keep_alive_s": keep_alive_s,
        "branch": branch,
    }
    return post(f"/v1/runs/{segment(run)}/announcements", Checkpoint, body)


def register(  # noqa: PLR0913 - one parameter for each field
    run: str,
    *,
    step: int,
    location: Location,
    save_id: str | None = None,
    manifest: Mapping[str, Any] | None = None,
    format: str | None = None,  # noqa: A002 - the contract's name
    num_files: int | None = None,
    bytes_total: int | None = None,
    created_at: datetime | None = None,
    branch: int | None = None,
    depth: Depth | None = None,
    validate: bool = True,
) -> Call[Registered]:
    """Register a checkpoint that is written, with its manifest where there is one (as JSON values)."""
    body = {
        "location": dict(location),
        "step": step,
        "save_id": save_id,
        "manifest": manifest,
        "format": format,
        "num_files": num_files,
        "bytes_total": bytes_total,
        "created_at": None if created_at is None else time_text(created_at),
        "branch": branch,
        "depth": depth,
        "validate": validate,
    }
    return post(f"/v1/runs/{segment(run)}/checkpoints", Registered, body)


def report_restart(  # noqa: PLR0913 - one parameter for each field
    run: str,
    *,
    attempt: str,
    outcome: RestartOutcome,
    checkpoint_id: int | None = None,
    nodes: Sequence[str] | None = None,
    steps_done: int | None = None,
    detail: str | None = None,
    fresh_despite: str | None = None,
) -> Call[Restart]:
    """Say what became of a start; told twice, it counts once.

    Args:
        run: Its name.
        attempt: The launcher's name of this start (`attempt.attempt_key`).
        outcome: What became of it.
        checkpoint_id: Where it started from; None: from nothing.
        nodes: Hosts that took part.
        steps_done: Steps before it failed.
        detail: For a person.
        fresh_despite: The run's name again, from whoever wants a start from nothing though
            checkpoints exist.
    """
    body = {
        "attempt": attempt,
        "outcome": outcome,
        "checkpoint_id": checkpoint_id,
        "nodes": None if nodes is None else list(nodes),
        "steps_done": steps_done,
        "detail": detail,
        "is_fresh_despite": True if fresh_despite is not None else None,
        "run": fresh_despite,
    }
    return post(f"/v1/runs/{segment(run)}/restarts", Restart, body)


def resume_target(  # noqa: PLR0913 - one parameter for each field
    run: str,
    *,
    min_assurance: Assurance | None = None,
    min_provenance: Provenance | None = None,
    device: str | None = None,
    step: int | None = None,
    before_step: int | None = None,
    max_age_s: float | None = None,
    require_newest: bool = False,
    exclude: Sequence[int] = (),
    index: int | None = None,
    wait_s: float = 0.0,
) -> Call[ResumeAnswer]:
    """Ask for the last checkpoint proven good (design §7).

    Args:
        run: Its name; an unknown one is an answer, not an error.
        min_assurance: At least; None: as the run's policy says.
        min_provenance: At least.
        device: Loaded on this kind of device.
        step: Only of this step.
        before_step: Only of earlier steps.
        max_age_s: Of the validation.
        require_newest: A newer one that is open makes `pending`.
        exclude: Ids of those that were not found whole where they are to be used; 32 at most.
        index: Answer when the run's revision is another one.
        wait_s: The service may wait so long, at most 600 s, while a newer one is open.
    """
    query = {
        "min_assurance": min_assurance,
        "min_provenance": min_provenance,
        "device": device,
        "step": step,
        "before_step": before_step,
        "max_age_s": max_age_s,
        "require_newest": require_newest or None,
        "exclude": ",".join(map(str, exclude)) or None,
        "index": index,
    }
    call = get(f"/v1/runs/{segment(run)}/resume-target", ResumeAnswer, **without_none(query))
    return replace(call, hold_s=wait_s)
