"""What a worker says to the service, one method a request (docs/service.md, "Worker")."""

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, NoReturn

import httpx

from ckptguard.client.address import Address
from ckptguard.client.exchange import headers_for, http_options
from ckptguard.client.problems import error_of_answer
from ckptguard.errors import ServiceError, ServiceUnavailableError
from ckptguard.model.report import Report, report_to_json
from ckptguard.scan.progress import Progress
from ckptguard_workers.lease import Lease, lease_from_json

CONNECT_TIMEOUT_S: Final = 5.0
ANSWER_TIMEOUT_S: Final = 30.0
MAX_ANSWER_BYTES: Final = 320 << 20
"""Decoded: a manifest has 256 MiB at most. Whoever answers more is no service, or would fill this machine."""
MAX_KNOWN_BYTES: Final = 512 << 20
COMPRESSED_FROM_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back, all of it."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes


class ServiceCalls:
    """One connection to the service, kept alive. Safe to share between threads.

    Every method raises `ServiceUnavailableError` where nobody answered, so that the same call may
    succeed later; `LeaseLostError` where the lease is over; another `ServiceError` where the
    service refuses for good.

    Args:
        address: Whom, with the token.
        timeout_s: Silence after which a call is given up.
    """

    def __init__(self, address: Address, *, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._client = httpx.Client(
            base_url=address.url,
            headers=headers_for(address),
            timeout=httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S),
            **http_options(address),
        )

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def take_lease(self, *, worker: str, capabilities: Mapping[str, Any], wait_s: float) -> Lease | None:
        """Ask for work; None after `wait_s` without any."""
        body = {"worker": worker, "capabilities": dict(capabilities), "wait_s": wait_s}
        answer = self._post("/v1/leases", body, timeout_s=self._timeout_s + wait_s)
        return None if answer.status_code == HTTPStatus.NO_CONTENT else lease_from_json(_object(answer))

    def heartbeat(self, lease: Lease, progress: Progress, *, is_draining: bool) -> bool:
        """Say that the lease is held, and how far it is; return whether its verdict is still wanted."""
        body = {
            "progress": {
                "phase": progress.phase,
                "bytes_done": progress.bytes_done,
                "bytes_total": progress.bytes_total,
                "files_done": progress.files_done,
                "files_total": progress.files_total,
                "file": progress.file,
            },
            "is_draining": is_draining,
        }
        return bool(_object(self._post(_at(lease, "heartbeat"), body, lease=lease)).get("is_wanted", True))

    def store_files(self, lease: Lease, results: Sequence[Mapping[str, Any]]) -> None:
        """Keep results of files, so that no later attempt reads them again."""
        self._post(_at(lease, "files"), {"files": list(results)}, lease=lease)

    def known_files(self, lease: Lease) -> list[dict[str, Any]]:
        """Return the results that earlier attempts kept, as many as fit; the rest is read again."""
        known: list[dict[str, Any]] = []
        cursor, size_bytes = "", 0
        while size_bytes < MAX_KNOWN_BYTES:
            answer = self._get(_at(lease, "files"), lease=lease, cursor=cursor)
            page = _object(answer)
            size_bytes += len(answer.content)
            known += page.get("files") or []
            cursor = page.get("next") or ""
            if not cursor:
                break
        return known

    def manifest(self, lease: Lease, part: str) -> bytes:
        """Return the text of a part's manifest; not looked at here."""
        return self._get(_at(lease, "manifest"), lease=lease, part=part).content

    def verdict(self, lease: Lease, report: Report) -> None:
        """Hand in the report."""
        self._post(_at(lease, "verdict"), {"report": report_to_json(report)}, lease=lease)

    def release(self, lease: Lease, *, ending: str, reason: str, timeout_s: float | None = None) -> None:
        """Give the lease back without a verdict."""
        body = {"ending": ending, "reason": reason}
        self._post(_at(lease, "release"), body, lease=lease, timeout_s=timeout_s)

    def _post(
        self, path: str, body: object, *, lease: Lease | None = None, timeout_s: float | None = None
    ) -> Answer:
        content = json.dumps(body, allow_nan=False, separators=(",", ":")).encode()
        headers = {"Content-Type": "application/json", **_of_lease(lease)}
        if len(content) >= COMPRESSED_FROM_BYTES:
            content = gzip.compress(content, compresslevel=1)
            headers["Content-Encoding"] = "gzip"
        timeout = httpx.Timeout(timeout_s or self._timeout_s, connect=CONNECT_TIMEOUT_S)
        return self._asked("POST", path, content=content, headers=headers, timeout=timeout)

    def _get(self, path: str, *, lease: Lease, **query: str) -> Answer:
        return self._asked("GET", path, params=query, headers=_of_lease(lease))

    def _asked(self, method: str, path: str, **how: Any) -> Answer:  # noqa: ANN401 - httpx's own
        try:
            with self._client.stream(method, path, **how) as response:
                content = _bounded(response)
        except httpx.HTTPError as error:
            msg = f"no answer from the service: {type(error).__name__}: {error}"
            raise ServiceUnavailableError(msg) from error
        answer = Answer(status_code=response.status_code, headers=dict(response.headers), content=content)
        if response.is_success:
            return answer
        if answer.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            msg = f"the service answered {answer.status_code}"
            raise ServiceUnavailableError(msg)
        raise error_of_answer(answer.status_code, dict(answer.headers), answer.content)


def _bounded(response: httpx.Response) -> bytes:
    content = bytearray()
    for piece in response.iter_bytes():
        content += piece
        if len(content) > MAX_ANSWER_BYTES:
            msg = f"the service's answer is longer than {MAX_ANSWER_BYTES} bytes"
            raise ServiceError(msg)
    return bytes(content)


def _refuse_constant(text: str) -> NoReturn:
    msg = f"{text} is not JSON"
    raise ValueError(msg)


def _at(lease: Lease, what: str) -> str:
    return f"/v1/leases/{lease.id}/{what}"


def _of_lease(lease: Lease | None) -> dict[str, str]:
    return {} if lease is None else {"Ckptguard-Lease": lease.token}


def _object(answer: Answer) -> dict[str, Any]:
    try:
        value = json.loads(answer.content, parse_constant=_refuse_constant)
    except ValueError as error:
        msg = "the service answered what is no JSON"
        raise ServiceUnavailableError(msg) from error
    if not isinstance(value, dict):
        msg = "the service answered what is no JSON object"
        raise ServiceUnavailableError(msg)
    return value
