"""The body of a registration: parsed once, strictly, the manifest inside it too."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Self

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from ckptguard.errors import InvalidRequestError, ManifestFormatError
from ckptguard.formats.manifest_json import ManifestLimits, manifest_of
from ckptguard.formats.pickle_reader import paused_collector
from ckptguard.formats.strict_json import StrictJson, parse_strict_json
from ckptguard.model.manifest import Manifest
from ckptguard.model.policy import MIB, Depth
from ckptguard.storage.allowed_urls import MAX_URL_BYTES
from ckptguard_api.body_decoding import LARGE_JSON
from ckptguard_api.domain.locations import AskedLocation
from ckptguard_api.domain.registration import Described, Registration
from ckptguard_api.problems import problem_of_validation

_LIMITS: Final = ManifestLimits(max_values=LARGE_JSON.max_values)
_AT: Final = "/manifest"
_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)

Step = Annotated[int, Field(strict=True, ge=0, le=2**53 - 1)]
Branch = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)]
Count = Annotated[int, Field(strict=True, ge=0, le=2**53 - 1)]


class LocationRequest(BaseModel):
    """A folder in a store of the project: `store` and `path`, or the `url` of the folder."""

    model_config = ConfigDict(extra="forbid")

    store: Annotated[str, Field(max_length=64)] | None = None
    path: Annotated[str, Field(min_length=1, max_length=MAX_URL_BYTES)] | None = None
    url: Annotated[str, Field(min_length=1, max_length=MAX_URL_BYTES)] | None = None

    @model_validator(mode="after")
    def _is_one_of_two(self) -> Self:
        is_path = self.store is not None and self.path is not None and self.url is None
        if not is_path and (self.url is None or self.store is not None or self.path is not None):
            msg = "either store and path, or url"
            raise ValueError(msg)
        return self

    def asked(self) -> AskedLocation:
        """Return it as a value."""
        return AskedLocation(store=self.store, path=self.path, url=self.url)


def _time(value: object) -> datetime:
    if not isinstance(value, str) or _TIME.fullmatch(value) is None:
        msg = "not a time like 2026-11-29T12:00:00Z"
        raise ValueError(msg)
    try:
        return datetime.fromisoformat(value).astimezone(UTC)
    except OverflowError as error:
        msg = "a time before the year 1 or after the year 9999"
        raise ValueError(msg) from error


class RegistrationRequest(BaseModel):
    """A save, or one part of it (docs/service.md, docs/manifest.md)."""

    model_config = ConfigDict(extra="forbid")

    location: LocationRequest
    step: Step
    save_id: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    manifest: dict[str, Any] | None = None
    format: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    num_files: Annotated[Count, Field(ge=1, le=2**31 - 1)] | None = None
    bytes_total: Count | None = None
    created_at: Annotated[AwareDatetime, BeforeValidator(_time)] | None = None
    branch: Branch | None = None
    depth: Depth = Depth.LOAD
    validate_: Annotated[bool, Field(alias="validate", strict=True)] = True


def request_schema() -> dict[str, Any]:
    """Return the JSON Schema of the body, without references: it stands in the OpenAPI document."""
    schema = RegistrationRequest.model_json_schema(by_alias=True)
    shared = schema.pop("$defs", {})
    inlined = _inlined(schema, shared)
    assert isinstance(inlined, dict)  # noqa: S101 - it was one
    return inlined


def _inlined(value: object, shared: dict[str, Any]) -> object:
    if isinstance(value, list):
        return [_inlined(each, shared) for each in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        named = _inlined(shared[value["$ref"].rpartition("/")[2]], shared)
        assert isinstance(named, dict)  # noqa: S101 - a schema
        return named | {key: each for key, each in value.items() if key != "$ref"}
    return {key: _inlined(each, shared) for key, each in value.items()}


def parse_registration(run: str, body: bytes) -> Registration:
    """Parse the body of a registration.

    Args:
        run: Of the address.
        body: Decoded.

    Raises:
        InvalidRequestError: With every problem, those of the manifest too.
        ManifestFormatError: Only the manifest breaks its rules; every problem.
        UnsupportedFormatError: A manifest of a later version.
        LimitExceededError: Longer, deeper, or more values, files or items than the limits.
    """
    with paused_collector(is_needed=len(body) >= MIB):  # its values hold no cycles
        members, faults = _members(body)
        manifest, manifest_problems = _manifest(members, faults)
    request, problems = _request(members)
    problems = [*(fault for fault in faults if not _is_of_manifest(fault)), *problems]
    if problems:
        raise _invalid([*problems, *manifest_problems])
    if manifest_problems:
        raise ManifestFormatError(manifest_problems)
    assert request is not None  # noqa: S101 - it had no problem
    return _registration(run, request, manifest)


def _members(body: bytes) -> tuple[dict[str, Any], tuple[str, ...]]:
    try:
        parsed = parse_strict_json(body, LARGE_JSON)
    except ManifestFormatError as error:
        raise _invalid(error.problems) from error
    if not isinstance(parsed.value, dict):
        raise _invalid([": not a JSON object"])
    return parsed.value, parsed.problems


def _invalid(problems: Sequence[str]) -> InvalidRequestError:
    msg = f"the registration breaks {len(problems)} rule{'s' if len(problems) > 1 else ''}"
    return InvalidRequestError(msg, problems=problems)


def _is_of_manifest(problem: str) -> bool:
    return problem.startswith(f"{_AT}/")


def _manifest(members: dict[str, Any], faults: Sequence[str]) -> tuple[Manifest | None, list[str]]:
    """Take the manifest out of the members, so that nothing else looks at its many entries."""
    value = members.pop("manifest", None)
    if value is None:
        return None, []
    own = tuple(fault.removeprefix(_AT) for fault in faults if _is_of_manifest(fault))
    try:
        return manifest_of(StrictJson(value=value, problems=own), limits=_LIMITS), []
    except ManifestFormatError as error:
        return None, [f"{_AT}{problem}" for problem in error.problems]


def _request(members: dict[str, Any]) -> tuple[RegistrationRequest | None, list[str]]:
    try:
        return RegistrationRequest.model_validate(members), []
    except ValidationError as error:
        faults = [{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors()]
        return None, list(problem_of_validation(faults).problems)


def _registration(run: str, request: RegistrationRequest, manifest: Manifest | None) -> Registration:
    return Registration(
        run=run,
        step=request.step,
        location=request.location.asked(),
        save_id=request.save_id,
        manifest=manifest,
        described=Described(
            format=request.format,
            num_files=request.num_files,
            bytes_total=request.bytes_total,
            created_at=request.created_at,
        ),
        branch=request.branch,
        depth=request.depth,
        is_validated=request.validate_,
    )
