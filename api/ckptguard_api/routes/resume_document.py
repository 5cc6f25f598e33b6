"""Parameters and answer of a resume target, as the OpenAPI document describes them."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from ckptguard.model.finding import Basis
from ckptguard.model.service import Hold, Lifecycle, ResumeState, ValidationState
from ckptguard.model.verdict import Assurance, Provenance, Verdict
from ckptguard_api.domain.resume import Reason


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AskedDocument(_Document):
    """What was asked for, with the run's policy filled in."""

    min_assurance: Assurance
    min_provenance: Provenance | None
    device: str | None
    step: int | None
    before_step: int | None
    max_age_s: float | None
    require_newest: bool
    exclude: list[int]


class TargetDocument(_Document):
    """A checkpoint that is VALID, and where it lies."""

    id: int
    branch: int
    step: int
    save_id: str
    created_at: datetime
    store: str
    path: str
    url: str
    assurance: Assurance
    provenance: Provenance | None
    device: str | None
    validated_at: datetime
    validation_id: int
    format: str | None
    num_files: int | None
    bytes_total: int | None


class OpenValidationDocument(_Document):
    """A validation that is queued or running, and how far it is."""

    id: int | None
    state: ValidationState
    bytes_done: int | None
    bytes_total: int | None
    bytes_per_s: float | None
    eta_s: float | None


class PassedOverDocument(_Document):
    """A newer checkpoint that is not the target, and why."""

    id: int
    branch: int
    step: int
    save_id: str
    created_at: datetime
    verdict: Verdict | None
    basis: Basis | None
    assurance: Assurance | None
    lifecycle: Lifecycle
    holds: list[Hold]
    reason: Reason
    detail: str
    retry_at: datetime | None
    validation: OpenValidationDocument | None


class ResumeTargetDocument(_Document):
    """Which checkpoint is the last one proven good; `target` is set in state `valid` alone."""

    state: ResumeState
    run: str
    index: int
    is_cached: bool
    asked: AskedDocument
    target: TargetDocument | None
    below: TargetDocument | None
    passed_over: list[PassedOverDocument]
    passed_over_total: int
    superseded: int


def query_parameters(model: type[BaseModel]) -> list[dict[str, Any]]:
    """Return the fields of a flat model as OpenAPI parameters of the query."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    inlined = schema.get("$defs", {})
    return [
        {"name": name, "in": "query", "required": False, "schema": _inline(field, inlined)}
        for name, field in schema["properties"].items()
    ]


def _inline(field: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    choices = [one for one in field.get("anyOf", [field]) if one.get("type") != "null"]
    (choice,) = choices
    reference = choice.get("$ref", "").rpartition("/")[2]
    described = definitions[reference] if reference else choice
    return {key: value for key, value in described.items() if key not in ("title", "default", "description")}
