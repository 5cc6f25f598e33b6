"""One lease, from its manifests to its report: everything in children (ADR 0011)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from ckptguard.clock import Clock
from ckptguard.errors import ServiceError
from ckptguard.model.service import EVERY_STORE
from ckptguard.operations.isolated import CanaryServer, IsolatedOutcome, Watch, validate_isolated
from ckptguard.operations.validation_job import ValidationJob
from ckptguard.scan.progress import Progress, ProgressListener
from ckptguard_workers.lease import Lease
from ckptguard_workers.lease_keeper import LeaseKeeper
from ckptguard_workers.machine_stores import MachineStore
from ckptguard_workers.service_calls import ServiceCalls

_LEAST_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What this machine gives to a validation.

    Args:
        stores: By name, and `EVERY_STORE` for all others; what is not mapped is not opened, whatever a lease
            says.
        device: torch device to load onto.
        jobs: Files read at the same time; None: as the policy says.
        window_bytes: Read buffers; None: as the policy says.
        memory_bytes: Address space of the validation child; None: not bounded.
    """

    stores: Mapping[str, MachineStore]
    device: str = "cpu"
    jobs: int | None = None
    window_bytes: int | None = None
    memory_bytes: int | None = None

    def store_of(self, name: str, url: str) -> tuple[str, Mapping[str, object]]:
        """Return the root of a store on this machine, and what opens it.

        Args:
            name: Of the store.
            url: Its root as the service knows it.

        Raises:
            ServiceError: This machine maps no store of that name, and the service gave it all the same.
        """
        store = self.stores.get(name) or self.stores.get(EVERY_STORE)
        if store is None:
            msg = f"the lease is of store {name[:80]!r}, which this machine does not map"
            raise ServiceError(msg)
        return store.url or url, store.options_for(store.url or url)


def job_of(lease: Lease, machine: Machine, calls: ServiceCalls) -> ValidationJob:
    """Fetch all that a validation needs to know besides the bytes.

    Raises:
        ServiceError: As `ServiceCalls`.
    """
    url, options = machine.store_of(lease.store, lease.store_url)
    known: list[dict[str, Any]] = calls.known_files(lease) if lease.known_files else []
    return ValidationJob(
        url=url,
        path=lease.path,
        options=options,
        policy=replace(
            lease.policy,
            device=machine.device,
            jobs=machine.jobs or lease.policy.jobs,
            window_bytes=machine.window_bytes or lease.policy.window_bytes,
        ),
        manifests={part.name: calls.manifest(lease, part.name) for part in lease.parts if part.has_manifest},
        is_from_writer=lease.is_from_writer,
        known=known,
        memory_bytes=machine.memory_bytes,
    )


def validate_lease(
    lease: Lease,
    job: ValidationJob,
    *,
    canary: CanaryServer,
    keeper: LeaseKeeper,
    clock: Clock,
    show: ProgressListener,
) -> IsolatedOutcome:
    """Validate what a lease is about, for as long as anybody wants it; `show` is told how it fares."""

    def tell(progress: Progress) -> None:
        keeper.report(progress)
        show(progress)

    left_s = (lease.deadline_at - clock.now()).total_seconds()
    watch = Watch(
        deadline_s=max(left_s, _LEAST_S),
        clock=clock,
        progress=tell,
        on_file=keeper.report_file,
        is_wanted=lambda: keeper.is_wanted,
    )
    return validate_isolated(job, canary=canary, watch=watch)
