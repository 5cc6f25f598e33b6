"""Whether the service, its token, stores and workers are fine, as this machine sees them."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from ckptguard.cli.machine import Health, Row
from ckptguard.cli.plain_text import seconds_text
from ckptguard.cli.stores import stores_of
from ckptguard.client.address import Address, find_service
from ckptguard.client.answers import Store, Worker
from ckptguard.client.client import Client
from ckptguard.errors import CkptGuardError, ConfigError, ServiceUnavailableError, UnauthorizedError
from ckptguard.operations.store_view import StoreView

DEADLINE_S: Final = 5.0
HEARD_WITHIN_S: Final = 60.0
"""A worker that was silent for longer is not counted on: a launcher does not wait for it either."""
_MAX_ROWS: Final = 100


def look_at_service(environment: Mapping[str, str], folder: Path) -> Iterator[Row]:
    """Yield what there is to say of the service; one row where none is known.

    Args:
        environment: Of the process.
        folder: Where the data folder of `serve` is looked for.
    """
    try:
        address = find_service(environment, folder=folder)
        mapped = stores_of(environment, ())
    except ConfigError as error:
        yield Row("service", Health.ABSENT, "not known", str(error))
        return
    for warning in address.warnings:
        yield Row("token file", Health.BAD, address.source, warning)
    with Client(address, deadline_s=DEADLINE_S) as client:
        yield from _ask(client, address, mapped)


def _ask(client: Client, address: Address, mapped: Mapping[str, str]) -> Iterator[Row]:
    try:
        client.readiness()
    except ServiceUnavailableError as error:
        yield Row("service", Health.BAD, f"no answer at {address.url}", str(error))
        return
    except CkptGuardError as error:
        yield Row("service", Health.BAD, f"{address.url} is no service of this version", str(error))
        return
    yield Row("service", Health.OK, f"ready at {address.url}")
    try:
        stores = list(islice(client.stores(), _MAX_ROWS))
        workers = list(islice(client.workers(), _MAX_ROWS))
    except UnauthorizedError as error:
        yield Row("token", Health.BAD, "refused", f"{error}: set CKPTGUARD_TOKEN to a token of this service")
        return
    except CkptGuardError as error:
        yield Row("token", Health.BAD, error.code, str(error))
        return
    yield Row("token", Health.OK, f"accepted; found in {address.source or 'the call'}")
    yield from _store_rows(stores, StoreView(roots=mapped))
    yield _worker_row(workers)


def _store_rows(stores: Sequence[Store], view: StoreView) -> Iterator[Row]:
    if not stores:
        yield Row(
            "stores", Health.BAD, "none", "nothing can be registered: ckptguard serve --store NAME=PATH"
        )
    for store in stores:
        name = f"store {store.name}"
        try:
            spot = view.spot(store.name, "", store.url)
        except CkptGuardError as error:
            yield Row(name, Health.ABSENT, "not reached from here", str(error))
            continue
        if "://" in spot.root or Path(spot.root).is_dir():
            yield Row(name, Health.OK, spot.text)
        else:
            consequence = f"`resume` cannot look at it here: CKPTGUARD_STORES={store.name}=PATH"
            yield Row(name, Health.ABSENT, f"no folder {spot.text}", consequence)


def _worker_row(workers: Sequence[Worker]) -> Row:
    heard = [worker for worker in workers if _is_counted_on(worker)]
    if heard:
        busy = sum(worker.doing is not None for worker in heard)
        return Row("workers", Health.OK, f"{len(heard)} heard from lately, {busy} busy")
    ages = [worker.age_s for worker in workers if worker.age_s is not None]
    last = f"last heard from {seconds_text(min(ages))} ago" if ages else "none ever"
    return Row(
        "workers", Health.BAD, last, "nothing is validated: ckptguard worker --url URL --token-file FILE"
    )


def _is_counted_on(worker: Worker) -> bool:
    return not worker.is_draining and worker.age_s is not None and worker.age_s <= HEARD_WITHIN_S
