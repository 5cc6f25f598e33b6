"""`ckptguard check s3://...` end to end, against a real server: sound, damaged, refused, gone."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import fsspec
import pytest

from ckptguard.model.finding import FindingCode as Code
from ckptguard.model.policy import Depth, Policy
from ckptguard.model.report import Report
from ckptguard.model.verdict import Verdict
from ckptguard.operations.place import Place
from ckptguard.operations.validate import validate_in
from ckptguard.scan.progress import Progress, ProgressListener
from ckptguard.storage.fsspec_store import FsspecStore
from ckptguard.storage.retry import RetryingStore, RetryPolicy
from ckptguard.testing.aim import find_payloads
from tests.integration.s3_server import (
    SERVICES,
    S3Server,
    command,
    free_ports,
    make_bucket,
    wait_until_ready,
)

pytestmark = pytest.mark.s3

FSDP2 = "dcp_torch2_13_0_run_ws2_step2"
NEXT_STEP = "dcp_torch2_13_0_run_ws2_step4"
SOON = RetryPolicy(attempts=2, wait_initial_s=0, wait_max_s=0, wait_jitter_s=0)


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """A bucket of the real server, and the command against it."""

    server: S3Server
    corpus: Path
    filesystem: Any
    """Of a user who may write. fsspec's classes carry no types."""

    @classmethod
    def of(cls, server: S3Server, corpus: Path) -> Self:
        """Connect once: a client of botocore takes long to make."""
        options = {**server.options(), "skip_instance_cache": True, "use_listings_cache": False}
        return cls(server=server, corpus=corpus, filesystem=fsspec.filesystem("s3", **options))

    @property
    def name(self) -> str:
        """Of the bucket."""
        return self.server.bucket

    @property
    def environment(self) -> dict[str, str]:
        """What s3fs, botocore and obstore understand; a user who may read and list, no more."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        return kept | {
            "AWS_ENDPOINT_URL": self.server.endpoint,
            "AWS_ACCESS_KEY_ID": "reader",
            "AWS_SECRET_ACCESS_KEY": "reader-secret",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def put(self, checkpoint: str, key: str) -> str:
        """Upload a checkpoint of the corpus, metadata last, as a writer does; return its URL."""
        root = self.corpus / checkpoint
        contents = {
            f"{self.name}/{key}/{path.relative_to(root).as_posix()}": path.read_bytes()
            for path in root.rglob("*")
            if path.is_file()
        }
        last = {path for path in contents if path.endswith((".metadata", ".json"))}
        self.filesystem.pipe({path: contents[path] for path in contents.keys() - last})
        self.filesystem.pipe({path: contents[path] for path in last})
        return f"s3://{self.name}/{key}"

    def write(self, key: str, content: bytes) -> None:
        """Put one object."""
        self.filesystem.pipe_file(f"{self.name}/{key}", content)

    def read(self, key: str) -> bytes:
        """Get one object."""
        content: bytes = self.filesystem.cat_file(f"{self.name}/{key}")
        return content

    def delete(self, key: str) -> None:
        """Delete one object."""
        self.filesystem.rm_file(f"{self.name}/{key}")

    def check(self, url: str, *options: str, **changes: str) -> tuple[int, dict[str, Any]]:
        """Run the command; return its exit code and its one JSON object."""
        done = subprocess.run(
            [sys.executable, "-m", "ckptguard", "check", url, "--json", *options],
            check=False,
            capture_output=True,
            text=True,
            env=self.environment | changes,
        )
        assert done.stdout, done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        assert "-secret" not in done.stdout + done.stderr
        return done.returncode, report


@pytest.fixture(scope="session")
def bucket(s3_server: S3Server, corpus_dir: Path) -> Bucket:
    return Bucket.of(s3_server, corpus_dir)


def codes(report: dict[str, Any]) -> set[str]:
    return {finding["code"] for finding in report["findings"] if finding["severity"] in ("error", "unknown")}


@pytest.mark.parametrize(
    "checkpoint", [FSDP2, pytest.param("accelerate_fsdp2_sharded_ws2", marks=pytest.mark.slow)]
)
@pytest.mark.torch
def test_healthy_checkpoint_is_loaded_from_s3(bucket: Bucket, checkpoint: str) -> None:
    returned, report = bucket.check(bucket.put(checkpoint, f"healthy/{checkpoint}"))
    assert (returned, report["verdict"], report["assurance"]) == (0, "VALID", "loaded"), report
    assert report["device"] == "cpu"
    load = next(check for check in report["checks"] if check["name"] == "load")
    assert load["counts"]["items"] == report["items"] > 0
    assert report["bytes_read"] <= 1.02 * report["bytes_total"]


@pytest.mark.parametrize(
    ("checkpoint", "assurance", "code"),
    [("dcp_torch2_13_0_zstd_ws2", "content", 0), ("hf_hub_sharded_safetensors", "structure", 10)],
)
@pytest.mark.parametrize(
    "depth", ["content", pytest.param("load", marks=(pytest.mark.torch, pytest.mark.slow))]
)
def test_other_layouts_are_read_from_s3(
    bucket: Bucket, checkpoint: str, assurance: str, code: int, depth: str
) -> None:
    url = bucket.put(checkpoint, f"healthy/{checkpoint}")
    returned, report = bucket.check(url, "--depth", depth)
    reached = {"content": "loaded"}.get(assurance, assurance) if depth == "load" else assurance
    assert (returned, report["verdict"], report["assurance"]) == (code, "VALID", reached), report
    headers = 20_000 if "safetensors" in checkpoint else 0  # read once more: for the layout, for the checksum
    assert report["bytes_read"] <= 1.02 * report["bytes_total"] + headers


@pytest.mark.slow
@pytest.mark.torch
def test_newest_step_of_a_folder_in_s3_is_checked(bucket: Bucket) -> None:
    bucket.put(FSDP2, "run-7/step-2")
    bucket.put(NEXT_STEP, "run-7/step-4")
    returned, report = bucket.check(f"s3://{bucket.name}/run-7")
    assert (returned, report["step"], report["assurance"]) == (0, 4, "loaded")
    returned, report = bucket.check(f"s3://{bucket.name}/run-7", "--step", "all", "--depth", "structure")
    assert [one["step"] for one in report["reports"]] == [2, 4]


def test_wrong_credentials_are_refused_and_unknown_for_good(bucket: Bucket) -> None:
    url = bucket.put(FSDP2, "healthy/refused")
    returned, report = bucket.check(url, AWS_SECRET_ACCESS_KEY="wrong")  # noqa: S106 - not a password
    assert (returned, report["verdict"], codes(report)) == (30, "UNKNOWN", {"access_denied"})
    assert not [check for check in report["checks"] if check["status"] == "pass"]


def test_missing_bucket_may_come_back_and_empty_prefix_is_nothing_there(bucket: Bucket) -> None:
    returned, report = bucket.check("s3://no-such-bucket/run-7")
    assert (returned, report["verdict"]) == (20, "UNKNOWN")
    returned, report = bucket.check(f"s3://{bucket.name}/no-such-prefix")
    assert (returned, report["verdict"]) == (40, "UNKNOWN")


def test_flipped_byte_in_an_object_is_named(bucket: Bucket) -> None:
    url = bucket.put(FSDP2, "flipped")
    payload = next(one for one in find_payloads(bucket.corpus / FSDP2) if one.file == "__1_0.distcp")
    content = bytearray(bucket.read("flipped/__1_0.distcp"))
    content[payload.offset + 1] ^= 4
    bucket.write("flipped/__1_0.distcp", bytes(content))
    returned, report = bucket.check(url, "--depth", "content", "--ignore-mtime")
    assert (returned, report["verdict"], codes(report)) == (30, "INVALID", {"crc_mismatch"})
    (finding,) = (one for one in report["findings"] if one["code"] == "crc_mismatch")
    assert (finding["file"], finding["fqn"]) == ("__1_0.distcp", payload.fqn)


def test_truncated_object_is_short_and_deleted_shard_is_missing(bucket: Bucket) -> None:
    options = ("--depth", "content", "--ignore-mtime", "--settle", "0")
    url = bucket.put(FSDP2, "truncated")
    bucket.write("truncated/__0_0.distcp", bucket.read("truncated/__0_0.distcp")[:-1])
    returned, report = bucket.check(url, *options)
    assert (returned, report["verdict"], codes(report)) == (30, "INVALID", {"short_shard"})
    bucket.delete("truncated/__0_0.distcp")
    returned, report = bucket.check(url, *options)
    assert (returned, report["verdict"], codes(report)) == (30, "INVALID", {"missing_shard"})


def check_here(
    server: S3Server, prefix: str, *, progress: ProgressListener | None = None, depth: Depth = Depth.CONTENT
) -> Report:
    """Check in this process, with credentials handed in instead of taken from the environment."""
    options = server.options("reader")
    place = Place(
        store=RetryingStore(FsspecStore(f"s3://{server.bucket}", options), SOON),
        prefix=prefix,
        target=f"s3://{server.bucket}/{prefix}",
        options=options,
    )
    return validate_in(place, policy=Policy(depth=depth, jobs=1, settle_s=0), progress=progress)


def once(action: Callable[[], object]) -> ProgressListener:
    acted = threading.Event()

    def listener(progress: Progress) -> None:
        if progress.files_done and not acted.is_set():
            acted.set()
            action()

    return listener


def doubts(report: Report) -> set[Code]:
    return {finding.code for finding in report.findings if finding.severity in ("error", "unknown")}


@pytest.mark.torch
def test_the_canary_gets_the_credentials_of_this_store_and_needs_no_environment(bucket: Bucket) -> None:
    bucket.put(FSDP2, "handed-in")
    report = check_here(bucket.server, "handed-in", depth=Depth.LOAD)
    assert (report.judgement.verdict, report.judgement.assurance) == (Verdict.VALID, "loaded"), (
        report.findings
    )
    assert "-secret" not in repr(report)


def test_object_replaced_during_the_check_is_never_judged(bucket: Bucket) -> None:
    bucket.put(FSDP2, "replaced")
    other = bytes(len(bucket.read("replaced/__0_0.distcp")))
    report = check_here(
        bucket.server, "replaced", progress=once(lambda: bucket.write("replaced/__1_0.distcp", other))
    )
    assert (report.judgement.verdict, doubts(report)) == (Verdict.UNKNOWN, {Code.CHANGED_DURING_CHECK})
    assert report.judgement.is_retryable


def test_resave_that_commits_during_the_check_is_doubt(bucket: Bucket) -> None:
    bucket.put(FSDP2, "resaved")
    report = check_here(bucket.server, "resaved", progress=once(lambda: bucket.put(NEXT_STEP, "resaved")))
    assert (report.judgement.verdict, doubts(report)) == (Verdict.UNKNOWN, {Code.CHANGED_DURING_CHECK})


@pytest.fixture
def mortal(corpus_dir: Path) -> Iterator[tuple[Bucket, Callable[[], None]]]:
    """Return the bucket of a server of its own with a checkpoint `many`, and what kills the server."""
    folder = Path(tempfile.mkdtemp(prefix="ckptguard-s3-"))
    ports = dict(zip(SERVICES, free_ports(len(SERVICES)), strict=True))
    with (folder / "weed.log").open("wb") as log:
        process = subprocess.Popen(command(folder, ports), stdout=log, stderr=subprocess.STDOUT)
    server = S3Server(endpoint=f"http://127.0.0.1:{ports['s3']}", bucket="checkpoints")

    def kill() -> None:
        process.kill()
        process.wait()

    try:
        wait_until_ready(server, process, folder / "weed.log")
        make_bucket(server)
        bucket = Bucket.of(server, corpus_dir)
        bucket.put("dcp_torch2_13_0_file_per_item_ws2", "many")
        yield bucket, kill
    finally:
        kill()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize(
    "depth",
    # The canary opens the store by itself, so with all the patience of a user's retry policy.
    [Depth.CONTENT, pytest.param(Depth.LOAD, marks=(pytest.mark.torch, pytest.mark.slow))],
)
def test_server_that_dies_during_the_check_is_unknown_and_worth_another_try(
    mortal: tuple[Bucket, Callable[[], None]], depth: Depth
) -> None:
    bucket, kill = mortal
    report = check_here(bucket.server, "many", progress=once(kill), depth=depth)
    assert (report.judgement.verdict, doubts(report)) == (Verdict.UNKNOWN, {Code.STORE_UNAVAILABLE})
    assert report.judgement.is_retryable


def test_server_that_is_not_there_is_20(bucket: Bucket) -> None:
    (port,) = free_ports(1)
    url = f"s3://{bucket.name}/run-7"
    returned, report = bucket.check(url, AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}")
    assert (returned, report["verdict"], codes(report)) == (20, "UNKNOWN", {"store_unavailable"})
