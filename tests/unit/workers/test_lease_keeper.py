"""What the service is told of a lease while it is worked on."""

import random
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from structlog.testing import capture_logs

from ckptguard.client.address import Address
from ckptguard.errors import ServiceUnavailableError
from ckptguard.model.policy import Policy
from ckptguard.scan.result import FileResult, FileScan
from ckptguard.testing.fakes import FakeClock
from ckptguard_workers.drain import Drain
from ckptguard_workers.lease import Lease
from ckptguard_workers.lease_keeper import LeaseKeeper
from ckptguard_workers.service_calls import ServiceCalls
from tests.integration.lease_service import eventually
from tests.scripted_service import Reply, ScriptedService, problem, scripted_service

FILES, HEARTBEAT = "POST /v1/leases/1/files", "POST /v1/leases/1/heartbeat"


def _lease() -> Lease:
    return Lease(
        id=1,
        token="ckl_1",  # noqa: S106 - of a test
        heartbeat_every_s=0.05,
        deadline_at=datetime.now(UTC) + timedelta(hours=1),
        validation_id=1,
        label="r step 1",
        store="demo",
        store_url="file:///data",
        path="p",
        policy=Policy(),
        parts=(),
        known_files=0,
    )


def test_results_that_the_service_refuses_stop_no_heartbeat() -> None:
    with scripted_service() as service:
        service.on(FILES, problem(413, "too_large"))
        service.on(HEARTBEAT, Reply(value={"expires_at": "2026-01-01T00:00:00Z", "is_wanted": True}))
        keeper = _told_of_a_file(service)
        assert (keeper.is_lost, keeper.is_unwanted) == (False, False)
        assert len(service.requests(FILES)) == 1, "what was refused is not sent again"


@pytest.mark.parametrize("is_handed_in", [False, True])
def test_a_lease_that_ends_with_its_verdict_is_no_news(is_handed_in: bool) -> None:  # noqa: FBT001 - a case
    with scripted_service() as service, capture_logs() as logged:
        service.on(HEARTBEAT, problem(409, "lease_lost"))
        calls = ServiceCalls(Address.of(service.url, "ckg_t"))
        drain = Drain(FakeClock(), drain_s=1.0)
        keeper = LeaseKeeper(calls, _lease(), drain=drain, chance=random.Random(1))  # noqa: S311 - as above
        if is_handed_in:
            with keeper.expecting_end():
                pass
        with keeper.keeping():
            eventually(lambda: keeper.is_lost, what="the end of the lease")
        calls.close()
    assert [event["event"] for event in logged] == ([] if is_handed_in else ["lease lost"])


def test_what_a_verdict_holds_is_not_sent_after_it() -> None:
    with scripted_service() as service:
        service.on(HEARTBEAT, Reply(value={"expires_at": "2026-01-01T00:00:00Z", "is_wanted": True}))
        calls = ServiceCalls(Address.of(service.url, "ckg_t"))
        drain = Drain(FakeClock(), drain_s=1.0)
        lease = replace(_lease(), heartbeat_every_s=600.0)
        keeper = LeaseKeeper(calls, lease, drain=drain, chance=random.Random(1))  # noqa: S311 - as above
        with keeper.keeping():
            eventually(lambda: service.requests(HEARTBEAT), what="the first heartbeat")
            with keeper.expecting_end():
                keeper.report_file(FileResult(scan=FileScan(path="a", length_bytes=1)))
        calls.close()
        assert service.requests(FILES) == []


def test_files_are_told_while_the_verdict_does_not_arrive() -> None:
    with scripted_service() as service:
        service.on(HEARTBEAT, Reply(value={"expires_at": "2026-01-01T00:00:00Z", "is_wanted": True}))
        service.on(FILES, Reply(value={"stored": 1, "new": 1}))
        calls = ServiceCalls(Address.of(service.url, "ckg_t"))
        drain = Drain(FakeClock(), drain_s=1.0)
        keeper = LeaseKeeper(calls, _lease(), drain=drain, chance=random.Random(1))  # noqa: S311 - as above
        with keeper.keeping():
            with suppress(ServiceUnavailableError), keeper.expecting_end():
                keeper.report_file(FileResult(scan=FileScan(path="a", length_bytes=1)))
                raise ServiceUnavailableError("503")  # noqa: EM101 - a test
            eventually(lambda: service.requests(FILES), what="the result")
        calls.close()


def _told_of_a_file(service: ScriptedService) -> LeaseKeeper:
    calls = ServiceCalls(Address.of(service.url, "ckg_t"))
    drain = Drain(FakeClock(), drain_s=1.0)
    keeper = LeaseKeeper(calls, _lease(), drain=drain, chance=random.Random(1))  # noqa: S311 - a seeded test
    with keeper.keeping():
        keeper.report_file(FileResult(scan=FileScan(path="a", length_bytes=1)))
        eventually(lambda: service.requests(FILES), what="a result")
        told = len(service.requests(HEARTBEAT))
        eventually(lambda: len(service.requests(HEARTBEAT)) > told + 1, within_s=60, what="heartbeats")
    calls.close()
    return keeper
