"""Every error is one problem, and tells what a caller may know (RFC 9457, docs/service.md)."""

import re
from collections.abc import Iterator

import pytest

from ckptguard import errors
from ckptguard.errors import CkptGuardError
from ckptguard_api.problems import INTERNAL, STATUS_OF_ERROR, problem_of_error, problem_of_validation
from tests.served_app import ServedApp

DOCUMENTED = {
    "invalid_request": 422,
    "location_refused": 422,
    "manifest_format": 422,
    "unsupported_format": 422,
    "too_large": 413,
    "limit_exceeded": 413,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "conflict": 409,
    "lease_lost": 409,
    "too_many_requests": 429,
    "service_unavailable": 503,
}


def _classes(root: type[CkptGuardError] = CkptGuardError) -> Iterator[type[CkptGuardError]]:
    if root.__module__ == errors.__name__:
        yield root
    for error in root.__subclasses__():
        yield from _classes(error)


def test_every_error_has_a_status_of_its_own() -> None:
    assert set(_classes()) == set(STATUS_OF_ERROR)


@pytest.mark.parametrize(("code", "status"), DOCUMENTED.items())
def test_statuses_are_those_of_the_contract(code: str, status: int) -> None:
    found = [STATUS_OF_ERROR[kind] for kind in _classes() if kind.code == code]
    assert found == [status]


def test_what_time_can_change_says_when_to_come_again() -> None:
    for kind in STATUS_OF_ERROR:
        error = kind(["x"]) if kind is errors.ManifestFormatError else kind("x")
        problem = problem_of_error(error)
        assert ("Retry-After" in problem.headers) == (problem.status in (429, 503)), kind


def test_a_fault_of_the_service_tells_nothing_of_its_inside() -> None:
    for error in (errors.ConfigError("password=x"), errors.AccessDeniedError("x", key="s3://secret")):
        assert problem_of_error(error) is INTERNAL


def test_every_problem_of_an_error_is_listed() -> None:
    problem = problem_of_error(errors.InvalidRequestError("two", problems=["a", "b"]))
    assert problem.problems == ("a", "b")


def test_every_fault_of_a_body_is_listed_with_its_pointer(door: ServedApp) -> None:
    answer = door.client().post(
        "/v1/tokens", json={"name": "", "scopes": ["read", "own\nall"], "expires_in_s": -1, "a/b": 1}
    )
    document = answer.json()
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert document["type"] == "urn:ckptguard:problem:invalid_request"
    assert document["request_id"] == answer.headers["x-request-id"]
    places = {problem.partition(":")[0] for problem in document["problems"]}
    assert places == {"/name", "/scopes/1", "/expires_in_s", "/a~1b"}
    assert "own" not in answer.text, "what was sent is not repeated"


def test_faults_of_path_and_query_are_told_apart() -> None:
    faults = [{"loc": ("query", "limit"), "msg": "too many"}, {"loc": ("path", "id"), "msg": "no number"}]
    assert problem_of_validation(faults).problems == ("query limit: too many", "path id: no number")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "not_found"),
        ("GET", "/v1/tokens/", 404, "not_found"),
        ("PUT", "/v1/tokens", 405, "method_not_allowed"),
        ("GET", "/v1/tokens?limit=0", 422, "invalid_request"),
        ("GET", "/v1/tokens?cursor=%00", 422, "invalid_request"),
        ("GET", "/v1/tok%00ens", 422, "invalid_request"),
        ("GET", "/v1/tokens?cursor=é", 422, "invalid_request"),
        ("DELETE", "/v1/tokens/9223372036854775808", 422, "invalid_request"),
        ("DELETE", "/v1/tokens/9223372036854775807", 404, "not_found"),
    ],
)
def test_what_http_refuses_is_a_problem_too(
    door: ServedApp, method: str, path: str, status: int, code: str
) -> None:
    answer = door.client().request(method, path)
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, answer.json()["type"]) == (status, f"urn:ckptguard:problem:{code}")
    if status == 405:
        assert answer.headers["allow"] == "GET, POST"


def test_a_method_that_a_path_has_not_is_told_all_that_it_has(door: ServedApp) -> None:
    client = door.client()
    for path, item in door.app.openapi()["paths"].items():
        answer = client.put(re.sub(r"\{\w+\}", "1", path))
        assert answer.status_code == 405, path
        assert answer.headers["allow"] == ", ".join(sorted(method.upper() for method in item)), path


def test_an_exception_that_nobody_expected_is_told_as_500_and_nothing_more(
    door: ServedApp, capsys: pytest.CaptureFixture[str]
) -> None:
    def explode() -> None:
        msg = "the password is swordfish"
        raise RuntimeError(msg)

    door.app.add_api_route("/v1/explode", explode)
    answer = door.client().get("/v1/explode", headers={"X-Request-ID": "boom-1"})
    assert answer.status_code == 500
    assert answer.json()["type"] == "urn:ckptguard:problem:internal"
    assert answer.json()["request_id"] == "boom-1"
    assert "swordfish" not in answer.text
    assert "explode" not in answer.text
    logged = capsys.readouterr()
    assert "swordfish" in logged.out + logged.err
    assert "boom-1" in logged.out + logged.err
