"""What a process does to the objects of one folder of a bucket, as steps.

s3fs tells its log (`s3fs`, level DEBUG) of every call with its arguments, before it makes it.
Source: s3fs 2026.9, `S3FileSystem._call_s3`.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.kills.steps import Steps, called

_VERBS: Final = {
    "put_object": "create",
    "create_multipart_upload": "create",
    "copy_object": "rename to",
    "delete_object": "remove",
}


def watch_objects(folder: str, steps: Steps) -> None:
    """Make steps of what this process does to the objects below `s3://BUCKET/…`, from now on, to its end."""
    log = logging.getLogger("s3fs")
    log.setLevel(logging.DEBUG)
    log.propagate = False
    log.addHandler(_Handler(folder.removeprefix("s3://"), steps))


class _Handler(logging.Handler):
    def __init__(self, folder: str, steps: Steps) -> None:
        super().__init__()
        self._folder = folder
        self._steps = steps

    def emit(self, record: logging.LogRecord) -> None:
        if not record.msg.startswith("CALL: ") or not isinstance(record.args, tuple):
            return
        method, given, named = record.args
        arguments: dict[str, Any] = {}
        for each in (*given, named):  # type: ignore[misc] # s3fs's own: a tuple of dicts, and a dict
            arguments |= each
        for step in _steps_of(str(method), arguments, self._folder):
            self._steps.reach(step)


def _steps_of(method: str, arguments: Mapping[str, Any], folder: str) -> Iterator[str]:
    keys = [arguments.get("Key", "")]
    if method == "delete_objects":
        method, keys = "delete_object", [each["Key"] for each in arguments["Delete"]["Objects"]]
    for key in keys:
        above, _, name = f"{arguments.get('Bucket')}/{key}".rpartition("/")
        if method in _VERBS and above == folder:
            yield f"{_VERBS[method]} {called(name)}"
