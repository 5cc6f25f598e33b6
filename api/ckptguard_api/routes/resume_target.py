"""`GET /v1/runs/{run}/resume-target`: the launcher's one question."""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl

import orjson
from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from ckptguard.errors import ServiceUnavailableError, TooManyRequestsError
from ckptguard.model.service import Scope as TokenScope
from ckptguard.model.verdict import Assurance, Provenance
from ckptguard_api.answers.resume import ResumeAnswers
from ckptguard_api.answers.targets import LastKnown, Prepared, TargetKey
from ckptguard_api.domain.resume import Question
from ckptguard_api.problems import problem_of_error, problem_response
from ckptguard_api.routes.dependencies import ReaderDep, requires, services_of
from ckptguard_api.routes.resume_document import ResumeTargetDocument, query_parameters

MAX_WAIT_S: Final = 600.0
_MAX_AGE_S: Final = 10 * 366 * 86_400.0
_MAX_STEP: Final = 2**63 - 1
MAX_EXCLUDED: Final = 32
_IDS: Final = rf"^[1-9][0-9]{{0,17}}(,[1-9][0-9]{{0,17}}){{0,{MAX_EXCLUDED - 1}}}$"
"""Numbers that a database can hold, with commas between them."""

_PATH: Final = "/v1/runs/{run}/resume-target"
_JSON: Final = (b"content-type", b"application/json")
_READER: Final = requires(TokenScope.READ)
_REVALIDATE: Final = (b"cache-control", b"private, no-cache")

router = APIRouter(tags=["launcher"])


class ResumeQuery(BaseModel):
    """What the launcher asks for; what it leaves out, the run's policy says."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_assurance: Assurance | None = None
    min_provenance: Provenance | None = None
    device: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    step: Annotated[int, Field(ge=0, le=_MAX_STEP)] | None = None
    before_step: Annotated[int, Field(ge=0, le=_MAX_STEP)] | None = None
    max_age_s: Annotated[float, Field(gt=0, le=_MAX_AGE_S, allow_inf_nan=False)] | None = None
    require_newest: bool = False
    exclude: Annotated[str, Field(pattern=_IDS)] | None = None
    wait_s: Annotated[float, Field(ge=0, le=MAX_WAIT_S, allow_inf_nan=False)] | None = None
    index: Annotated[int, Field(ge=0, le=_MAX_STEP)] | None = None

    def question(self) -> Question:
        """Return what decides the answer."""
        return Question(
            min_assurance=self.min_assurance,
            min_provenance=self.min_provenance,
            device=self.device,
            step=self.step,
            before_step=self.before_step,
            max_age_s=self.max_age_s,
            require_newest=self.require_newest,
            exclude=tuple(sorted({int(each) for each in (self.exclude or "").split(",") if each})),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parsed:
    question: Question
    wait_s: float | None
    index: int | None


class Shortcut(Route):
    """The same route without FastAPI around it, which would cost more than all else (docs/measurements.md).

    It goes before all routers. The one of FastAPI stays for the OpenAPI document, and is the same function.
    """

    def __init__(self) -> None:
        super().__init__(_PATH, _Endpoint(), methods=["GET"], include_in_schema=False)
        self.methods = {"GET"}  # Starlette adds HEAD, which no other route has

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Do as FastAPI's routes do: leave word who took it, for metrics and traces."""
        match, child_scope = super().matches(scope)
        if match is Match.FULL:
            child_scope["route"] = self
        return match, child_scope


class _Endpoint:
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        caller = await _READER(request)
        response = await get_resume_target(scope["path_params"]["run"], caller, request)
        await response(scope, receive, send)


@router.get(
    _PATH,
    response_model=ResumeTargetDocument,
    responses={304: {"description": "The answer is still the one of `If-None-Match`."}},
    openapi_extra={"parameters": query_parameters(ResumeQuery)},
)
async def get_resume_target(run: str, caller: ReaderDep, request: Request) -> Response:
    """Say which checkpoint is the last one proven good, and why no newer one is.

    With `wait_s` the answer comes when no newer checkpoint is queued or running that a worker heard from
    lately could do; with `index` too, when the run's revision is another.
    """
    parsed = _parse(request.scope["query_string"])
    answers = _answers_of(request)
    key = TargetKey(run=(caller.project_id, run), question=parsed.question)
    state = request.scope["state"]
    if "unavailable" in state:
        return _unavailable(request, state["unavailable"], answers.last_known(key))
    try:
        prepared = await answers.answer(
            key,
            wait_s=parsed.wait_s,
            index=parsed.index,
            is_gone=request.is_disconnected,
            seen=state.get("revisions"),
        )
    except TooManyRequestsError:
        raise
    except ServiceUnavailableError as error:
        return _unavailable(request, error, answers.last_known(key))
    return _response(request, prepared)


# FastAPI spends more on a model of query parameters than all else costs together (docs/measurements.md),
# and launchers ask the same over and over.
@lru_cache(maxsize=1024)
def _parse(query_string: bytes) -> _Parsed:
    pairs = parse_qsl(query_string.decode("latin-1"), keep_blank_values=True)
    names = Counter(name for name, _ in pairs)
    faults = [_fault(name, "given more than once") for name, count in names.items() if count > 1]
    try:
        query = ResumeQuery.model_validate_strings(dict(pairs))
    except ValidationError as error:
        faults += [{**fault, "loc": ("query", *fault["loc"])} for fault in error.errors()]
    if faults:
        raise RequestValidationError(faults)
    return _Parsed(question=query.question(), wait_s=query.wait_s, index=query.index)


def _fault(name: str, message: str) -> dict[str, Any]:
    return {"type": "value_error", "loc": ("query", name), "msg": message, "input": None}


def _answers_of(request: Request) -> ResumeAnswers:
    state = request.app.state
    if not hasattr(state, "resume_answers"):
        state.resume_answers = ResumeAnswers(services_of(request))
    answers: ResumeAnswers = state.resume_answers
    return answers


def _response(request: Request, prepared: Prepared) -> Response:
    known = request.headers.get("if-none-match")
    etag = prepared.etag
    if known is not None and etag in (tag.strip().removeprefix("W/") for tag in known.split(",")):
        return _ReadyResponse(b"", HTTPStatus.NOT_MODIFIED, [(b"etag", etag.encode()), _REVALIDATE])
    body = prepared.body
    length = (b"content-length", b"%d" % len(body))
    return _ReadyResponse(body, HTTPStatus.OK, [length, _JSON, (b"etag", etag.encode()), _REVALIDATE])


class _ReadyResponse(Response):
    """A response whose head is bytes already."""

    def __init__(self, body: bytes, status: HTTPStatus, raw_headers: list[tuple[bytes, bytes]]) -> None:
        self.body, self.status_code, self.raw_headers = body, status.value, raw_headers
        self.background = None


def _unavailable(request: Request, error: ServiceUnavailableError, last_known: LastKnown | None) -> Response:
    members = {} if last_known is None else {"last_known": _marked(last_known)}
    return problem_response(problem_of_error(error, members=members), request_id=request.state.request_id)


def _marked(last_known: LastKnown) -> dict[str, Any]:
    answer = orjson.loads(last_known.body)
    return {"age_s": last_known.age_s, "answer": {**answer, "is_cached": True}}
