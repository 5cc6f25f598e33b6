"""Messages between a supervisor and its validation child; the child may write anything."""

import io
import random

import pytest

from ckptguard.errors import CanaryError
from ckptguard.model.policy import Policy
from ckptguard.operations.frames import Frame, FrameBuffer, read_frame, write_frame
from ckptguard.operations.validation_job import ValidationJob, job_from_frame, job_to_frame


def written(*frames: Frame) -> bytes:
    stream = io.BytesIO()
    for frame in frames:
        write_frame(frame, stream)
    return stream.getvalue()


def test_frames_come_out_whole_however_the_pipe_cuts_them() -> None:
    frames = [Frame(header={"n": n}, body=bytes(n * 1000)) for n in range(5)]
    data = written(*frames)
    chance = random.Random(3)  # noqa: S311 - a seeded test
    buffer = FrameBuffer()
    found: list[Frame] = []
    while data:
        count = chance.randrange(1, 3000)
        found += buffer.feed(data[:count])
        data = data[count:]
    assert found == frames


def test_a_stream_that_ends_early_holds_no_frame() -> None:
    data = written(Frame(header={"n": 1}, body=b"abc"))
    assert read_frame(io.BytesIO(data)) == Frame(header={"n": 1}, body=b"abc")
    assert all(read_frame(io.BytesIO(data[:count])) is None for count in range(len(data)))


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 16,
        (1 << 31).to_bytes(8, "little") + bytes(8),
        bytes(8) + (1 << 40).to_bytes(8, "little"),
        (2).to_bytes(8, "little") + bytes(8) + b"[]",
        (1).to_bytes(8, "little") + bytes(8) + b"{",
    ],
)
def test_what_is_no_frame_is_refused_before_anything_is_allocated(data: bytes) -> None:
    with pytest.raises(CanaryError):
        list(FrameBuffer().feed(data))


def test_a_job_comes_back_as_it_went() -> None:
    job = ValidationJob(
        url="file:///ckpts",
        path="run/step-1",
        options={"key": "k"},
        policy=Policy(settle_s=0),
        manifests={"": b"{}", "part": b"{1}"},
        is_from_writer=True,
        known=[{"scan": {}}],
        memory_bytes=1 << 30,
    )
    frame = read_frame(io.BytesIO(written(job_to_frame(job))))
    assert frame is not None
    assert job_from_frame(frame) == job
    assert "'k'" not in repr(job)


@pytest.mark.parametrize("header", [{}, {"url": 1}, {"manifests": 7}])
def test_what_is_no_job_is_refused(header: dict[str, object]) -> None:
    with pytest.raises(CanaryError):
        job_from_frame(Frame(header=header))
