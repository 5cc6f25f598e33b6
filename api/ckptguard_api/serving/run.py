"""Starts everything in order, serves until told to stop, and ends everything in order."""

import hashlib
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from ckptguard.clock import SystemClock
from ckptguard.errors import ConfigError, ServiceUnavailableError
from ckptguard_api.app import create_app
from ckptguard_api.database import Database
from ckptguard_api.process_life import answer_steadily
from ckptguard_api.services import Services
from ckptguard_api.serving.data_folder import DataFolder
from ckptguard_api.serving.open_files import allow_open_files
from ckptguard_api.serving.plan import ServePlan
from ckptguard_api.serving.server import FACTORY, SeveralServers, SingleServer, server_config
from ckptguard_api.serving.terminal import quiet_terminal
from ckptguard_api.serving.worker_process import WORKER_COMMAND, WorkerEnvironment, WorkerKeeper
from ckptguard_api.use_cases.first_start import (
    end_worker_token,
    ensure_operator,
    ensure_stores,
    has_any_store,
    renew_worker_token,
    stores_of_settings,
)
from ckptguard_migrations import current, head, upgrade

DATABASE_START_S: Final = 30.0
"""How long a start waits for a database that gives no answer."""
_ASK_AGAIN_S: Final = 0.5
_NAME_CHARS: Final = 12

Announce = Callable[["Address"], None]


class Address:
    """Where a service that just started is, and where its token lies.

    Args:
        url: For clients on this machine.
        folder: Its data folder.
        has_token: Whether the folder holds a token.
        has_store: Whether any store is allowed; without one there is no work yet.
    """

    def __init__(self, url: str, folder: DataFolder, *, has_token: bool, has_store: bool) -> None:
        self.url = url
        self.folder = folder
        self.has_token = has_token
        self.has_store = has_store

    def to_json(self) -> dict[str, str | int]:
        """Return what `address.json` holds."""
        return {"url": self.url, "pid": os.getpid(), "token_file": str(self.folder.token_file)}


def serve(plan: ServePlan, announce: Announce) -> None:
    """Serve until a signal comes.

    Args:
        plan: What to do.
        announce: Called when requests are answered, or will be without a further step.

    Raises:
        ConfigError: Something is not as it must be; nothing was started.
    """
    os.umask(0o077)  # the database holds secrets of webhooks
    allow_open_files()
    folder = DataFolder(plan.settings.data_dir)
    with folder.locked(), ExitStack() as ending:
        if plan.is_for_person:
            ending.enter_context(quiet_terminal(folder.log_file, clock=SystemClock()))
        _migrate_patiently(plan)
        services = Services(database=Database(plan.settings.database_address), settings=plan.settings)
        ending.callback(services.database.close)
        ensure_operator(services, folder.write_token, is_new_wanted=plan.is_new_token_wanted)
        ensure_stores(services, plan.settings.stores)
        listening = plan.listener.open()
        ending.callback(listening.close)
        url = plan.public_url or plan.listener.url(listening.getsockname()[1])
        address = Address(
            url,
            folder,
            has_token=folder.read_token() is not None,
            has_store=has_any_store(services),
        )
        keeper = _worker(plan, services, url, ending) if plan.has_worker else None
        _serve(plan, services, listening, keeper=keeper, on_started=lambda: _tell(address, announce, ending))


def _migrate_patiently(plan: ServePlan) -> None:
    """Give a database that recovers, or starts beside this service, its time."""
    clock = SystemClock()
    ends_s = clock.monotonic_s() + DATABASE_START_S
    while True:
        try:
            _migrate(plan)
        except ServiceUnavailableError:
            if clock.monotonic_s() >= ends_s:
                raise
            clock.sleep(_ASK_AGAIN_S)
        else:
            return


def _migrate(plan: ServePlan) -> None:
    url = plan.settings.database_address
    if not plan.is_postgresql or plan.is_migration_wanted:
        upgrade(url)
        return
    revision = current(url)
    if revision != head():
        msg = (
            f"the database is at {revision or 'nothing'}, and this version needs {head()}: "
            "run `ckptguard db upgrade`, or give --migrate"
        )
        raise ConfigError(msg)


def _worker(plan: ServePlan, services: Services, url: str, ending: ExitStack) -> WorkerKeeper:
    name = _worker_name(plan.settings.data_dir)
    environment = WorkerEnvironment(
        url=url,
        token=renew_worker_token(services, name).text,
        is_http_allowed=plan.listener.is_tls_terminated_by_proxy,
    )

    def end_token() -> None:
        with suppress(ServiceUnavailableError):  # the next start ends it too
            end_worker_token(services, name)

    ending.callback(end_token)
    keeper = WorkerKeeper(WORKER_COMMAND, environment.over(os.environ), clock=SystemClock())
    ending.callback(keeper.stop)
    return keeper


def _worker_name(data_dir: Path) -> str:
    place = f"{socket.gethostname()}:{data_dir.resolve()}"
    return f"worker of serve {hashlib.sha256(place.encode()).hexdigest()[:_NAME_CHARS]}"


def _tell(address: Address, announce: Announce, ending: ExitStack) -> None:
    ending.callback(address.folder.remove_address)
    address.folder.write_address(address.to_json())
    announce(address)


def _serve(
    plan: ServePlan,
    services: Services,
    listening: socket.socket,
    *,
    keeper: WorkerKeeper | None,
    on_started: Callable[[], None],
) -> None:
    def started() -> None:
        on_started()
        if keeper is not None:
            keeper.start()

    def before_stop() -> None:
        if keeper is not None:
            keeper.stop()

    if plan.num_processes > 1:
        os.environ.update(_environment(plan))
        config = server_config(FACTORY, plan.listener, num_processes=plan.num_processes)
        several = SeveralServers(config, listening, before_stop=before_stop)
        started()
        several.run()
        return
    app = create_app(services, stops_with_signals=False)
    answer_steadily()
    server = SingleServer(
        server_config(app, plan.listener),
        on_started=started,
        before_stop=before_stop,
        stop_waits=services.stopping.set,
    )
    server.run(sockets=[listening])
    if not server.started:
        msg = "the service did not start; the log above says why"
        raise ConfigError(msg)


def _environment(plan: ServePlan) -> dict[str, str]:
    """Return what each process of several reads its settings from."""
    settings = plan.settings
    return {
        "CKPTGUARD_DATABASE_URL": settings.database_address,
        "CKPTGUARD_DATA_DIR": str(settings.data_dir),
        "CKPTGUARD_STORES": stores_of_settings(settings.stores),
    }
