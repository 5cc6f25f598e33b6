"""`/v1/leases`: everything that a worker asks and tells (docs/service.md, "Worker")."""

import asyncio
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from ckptguard.errors import InvalidRequestError
from ckptguard.formats.pickle_reader import paused_collector
from ckptguard.model.policy import MIB, Depth
from ckptguard.model.policy_json import policy_to_json
from ckptguard.model.service import AttemptEnding
from ckptguard_api.body_decoding import parse_large_json
from ckptguard_api.leasing.capabilities import Capabilities
from ckptguard_api.leasing.claim import claim
from ckptguard_api.leasing.heartbeat import Progress, hear
from ckptguard_api.leasing.lease import Lease, LeaseKey
from ckptguard_api.leasing.leased_manifest import leased_manifest
from ckptguard_api.leasing.release import release
from ckptguard_api.leasing.results import known_files, store_files
from ckptguard_api.leasing.verdict import give_verdict
from ckptguard_api.routes.answers import RowId
from ckptguard_api.routes.bodies import RawBody
from ckptguard_api.routes.dependencies import ServicesDep, WorkerDep

router = APIRouter(prefix="/v1/leases", tags=["workers"])

_MAX_WAIT_S = 60.0
_MAX_COUNT = 2**63 - 1
_STRICT = ConfigDict(extra="forbid")
_FROM_VALUES = ConfigDict(from_attributes=True)

WorkerName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[\w.:@/-]+$")]
Word = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Count = Annotated[int, Field(ge=0, le=_MAX_COUNT)]


class CapabilitiesRequest(BaseModel):
    """What a worker can do."""

    model_config = _STRICT

    stores: Annotated[list[Word], Field(max_length=1000)]
    depths: Annotated[list[Depth], Field(max_length=len(Depth))] = []
    devices: Annotated[list[Word], Field(max_length=64)] = []
    formats: Annotated[list[Word], Field(max_length=100)] = []
    torch: Word | None = None
    python: Word | None = None
    ckptguard: Word | None = None
    world_size: Annotated[int, Field(ge=1, le=1_000_000)] = 1


class LeaseRequest(BaseModel):
    """A worker asks for work."""

    model_config = _STRICT

    worker: WorkerName
    capabilities: CapabilitiesRequest
    wait_s: Annotated[float, Field(ge=0, le=_MAX_WAIT_S)] = 0.0


class LeasedValidationAnswer(BaseModel):
    """What is asked."""

    model_config = _FROM_VALUES

    id: int
    depth: Depth
    attempt: int


class LeasedCheckpointAnswer(BaseModel):
    """What it is asked of."""

    model_config = _FROM_VALUES

    id: int
    run: str
    step: int
    save_id: str
    created_at: datetime


class LeasedStoreAnswer(BaseModel):
    """Where it lies."""

    model_config = _FROM_VALUES

    name: str
    url: str
    path: str


class LeasedPartAnswer(BaseModel):
    """One part; without `identity` no manifest was registered."""

    model_config = _FROM_VALUES

    name: str
    identity: str | None
    is_from_writer: bool


class LeaseAnswer(BaseModel):
    """One attempt; `token` goes into the header `Ckptguard-Lease` of every write to it."""

    id: int
    token: str
    fence: int
    expires_at: datetime
    heartbeat_every_s: float
    stall_after_s: float
    deadline_at: datetime
    validation: LeasedValidationAnswer
    checkpoint: LeasedCheckpointAnswer
    store: LeasedStoreAnswer
    policy: dict[str, Any]
    parts: list[LeasedPartAnswer]
    known_files: int


class ProgressRequest(BaseModel):
    """How far an attempt is."""

    model_config = _STRICT

    phase: Annotated[str, StringConstraints(max_length=64)] = ""
    bytes_done: Count = 0
    bytes_total: Count | None = None
    files_done: Count = 0
    files_total: Count | None = None
    file: Annotated[str, StringConstraints(max_length=65_536)] | None = None


class HeartbeatRequest(BaseModel):
    """A worker lives."""

    model_config = _STRICT

    progress: ProgressRequest
    is_draining: bool = False


class HeartbeatAnswer(BaseModel):
    """Until when the lease holds; not wanted: release it."""

    model_config = _FROM_VALUES

    expires_at: datetime
    is_wanted: bool


class StoredAnswer(BaseModel):
    """How many results are stored; `new` are of files that had none."""

    model_config = _FROM_VALUES

    stored: int
    new: int


class VerdictAnswer(BaseModel):
    """The verdict as the service derived it."""

    model_config = _FROM_VALUES

    verdict: str
    is_in_force: bool


class ReleaseRequest(BaseModel):
    """A worker gives its attempt back."""

    model_config = _STRICT

    ending: Literal["drained", "failed"]
    reason: Annotated[str, StringConstraints(max_length=65_536)] = ""


def _key(
    lease_id: RowId,
    token: Annotated[str, Header(alias="Ckptguard-Lease", max_length=200, description="The lease's token.")],
) -> LeaseKey:
    return LeaseKey(id=lease_id, token=token)


KeyDep = Annotated[LeaseKey, Depends(_key)]


def _body_of(member: str, kind: str) -> dict[str, Any]:
    schema = {
        "type": "object",
        "required": [member],
        "properties": {member: {"type": kind, **({"items": {"type": "object"}} if kind == "array" else {})}},
        "additionalProperties": False,
    }
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


@router.post("", status_code=201, responses={204: {"description": "No work came within `wait_s`."}})
async def claim_route(
    body: LeaseRequest, request: Request, caller: WorkerDep, services: ServicesDep
) -> LeaseAnswer:
    """Wait for work: one attempt at one validation, or 204."""
    capabilities = _capabilities(body.capabilities)
    loop = asyncio.get_running_loop()
    until = loop.time() + body.wait_s
    while True:
        lease = await run_in_threadpool(
            claim, services, worker=body.worker, capabilities=capabilities, actor=caller.actor
        )
        if lease is not None:
            return _lease_answer(lease)
        left_s = until - loop.time()
        if left_s <= 0 or services.stopping.is_set:
            return Response(status_code=204)  # type: ignore[return-value] # FastAPI passes it on
        await services.stopping.first_of(services.work.wait(left_s))
        if await request.is_disconnected():  # nobody would hold the lease
            return Response(status_code=204)  # type: ignore[return-value] # FastAPI passes it on


@router.post("/{lease_id}/heartbeat")  # noqa: FAST003 - KeyDep takes it
def heartbeat_route(
    body: HeartbeatRequest, key: KeyDep, caller: WorkerDep, services: ServicesDep
) -> HeartbeatAnswer:
    """Keep the lease, and say how far the attempt is."""
    progress = Progress(**body.progress.model_dump())
    heard = hear(services, key, progress=progress, is_draining=body.is_draining, actor=caller.actor)
    return HeartbeatAnswer.model_validate(heard)


@router.post("/{lease_id}/files", openapi_extra=_body_of("files", "array"))  # noqa: FAST003 - KeyDep takes it
def store_files_route(body: RawBody, key: KeyDep, caller: WorkerDep, services: ServicesDep) -> StoredAnswer:
    """Keep results of single files, for the next attempt if this one fails."""
    files = _member(body, "files", list)
    return StoredAnswer.model_validate(store_files(services, key, files=files, actor=caller.actor))


@router.get("/{lease_id}/files")  # noqa: FAST003 - KeyDep takes it
def known_files_route(
    key: KeyDep,
    caller: WorkerDep,
    services: ServicesDep,
    cursor: Annotated[str, Query(max_length=64, pattern=r"^[0-9a-f]*$")] = "",
) -> Response:
    """Return the results that there are, as they were sent."""
    page = known_files(services, key, after=cursor, actor=caller.actor)
    content = b'{"files":[%b],"next":%b}' % (b",".join(page.files), json.dumps(page.next).encode())
    return Response(content=content, media_type="application/json")


@router.get("/{lease_id}/manifest")  # noqa: FAST003 - KeyDep takes it
def manifest_route(
    key: KeyDep,
    caller: WorkerDep,
    services: ServicesDep,
    part: Annotated[str, Query(max_length=4096)] = "",
) -> Response:
    """Return the manifest of a part, as it was registered."""
    content = leased_manifest(services, key, part=part, actor=caller.actor)
    return Response(content=content, media_type="application/json")


@router.post("/{lease_id}/verdict", openapi_extra=_body_of("report", "object"))  # noqa: FAST003 - KeyDep takes it
def verdict_route(body: RawBody, key: KeyDep, caller: WorkerDep, services: ServicesDep) -> VerdictAnswer:
    """Finish the validation; the verdict is derived from the report's checks and findings."""
    report = _member(body, "report", dict)
    return VerdictAnswer.model_validate(give_verdict(services, key, report=report, actor=caller.actor))


@router.post("/{lease_id}/release", status_code=204)  # noqa: FAST003 - KeyDep takes it
def release_route(body: ReleaseRequest, key: KeyDep, caller: WorkerDep, services: ServicesDep) -> None:
    """Give the attempt back; `drained` costs none."""
    release(services, key, ending=AttemptEnding(body.ending), reason=body.reason, actor=caller.actor)


def _member(body: bytes, name: str, kind: type) -> Any:  # noqa: ANN401 - a JSON value of that kind
    with paused_collector(is_needed=len(body) >= MIB):  # its values hold no cycles
        value = parse_large_json(body)
    if not isinstance(value, Mapping) or set(value) != {name} or not isinstance(value[name], kind):
        msg = f"the body is not an object with {name} alone"
        raise InvalidRequestError(msg)
    return value[name]


def _capabilities(told: CapabilitiesRequest) -> Capabilities:
    return Capabilities(
        stores=tuple(told.stores),
        depths=tuple(depth.value for depth in told.depths),
        devices=tuple(told.devices),
        formats=tuple(told.formats),
        torch=told.torch,
        python=told.python,
        ckptguard=told.ckptguard,
        world_size=told.world_size,
    )


def _lease_answer(lease: Lease) -> LeaseAnswer:
    return LeaseAnswer(
        id=lease.id,
        token=lease.token,
        fence=lease.id,
        expires_at=lease.expires_at,
        heartbeat_every_s=lease.heartbeat_every_s,
        stall_after_s=lease.stall_after_s,
        deadline_at=lease.deadline_at,
        validation=LeasedValidationAnswer.model_validate(lease.validation),
        checkpoint=LeasedCheckpointAnswer.model_validate(lease.checkpoint),
        store=LeasedStoreAnswer.model_validate(lease.store),
        policy=policy_to_json(lease.policy),
        parts=[LeasedPartAnswer.model_validate(part) for part in lease.parts],
        known_files=lease.known_files,
    )
