"""Can the software that will load this checkpoint open it? (design §3, "`loaded` means…")."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from ckptguard.checks.bounded import bounded
from ckptguard.checks.phrases import counted, some_of
from ckptguard.model.finding import CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Layout
from ckptguard.model.policy import Reader

Version = tuple[int, int]


class _Since(NamedTuple):
    """First versions that can import a name; None where every supported one can."""

    torch: Version | None = None
    python: Version | None = None


_METADATA: Final = "torch.distributed.checkpoint.metadata."

_SINCE: Final[Mapping[str, _Since]] = {
    # Seen in metadata of corpus checkpoints by torch 2.1.2 … 2.14.1: absent in the version before.
    f"{_METADATA}TensorProperties": _Since(torch=(2, 3)),
    f"{_METADATA}_MEM_FORMAT_ENCODING": _Since(torch=(2, 3)),
    f"{_METADATA}StorageMeta": _Since(torch=(2, 4)),
    # The dtypes a writer of that version knew (corpus dcp_torch*_dtypes_nodist) or release notes name.
    "torch.uint16": _Since(torch=(2, 3)),
    "torch.uint32": _Since(torch=(2, 3)),
    "torch.uint64": _Since(torch=(2, 3)),
    "torch.float8_e4m3fnuz": _Since(torch=(2, 2)),
    "torch.float8_e5m2fnuz": _Since(torch=(2, 2)),
    "torch.float8_e8m0fnu": _Since(torch=(2, 7)),
    "torch.float4_e2m1fn_x2": _Since(torch=(2, 8)),
}
"""Conservative where unsure: a name too new caps the assurance, it never condemns."""

_PYTHON_313_PATHS: Final = "pathlib._local."
"""Python 3.13 pickles paths under this module; 3.11 and 3.12 have no such module."""
_WINDOWS_PATH: Final = ".WindowsPath"
"""Building one elsewhere raises; `PureWindowsPath` can be built everywhere."""
_IMPORTABLE_ROOTS: Final = frozenset(
    {"torch", "pathlib", "collections", "builtins", "__builtin__", "_codecs"}
)
_TRANSFORMS_SINCE: Final[Version] = (2, 8)
"""`_StorageInfo.transform_descriptors` (torch 2.8, distributed/checkpoint/filesystem.py)."""
_TRANSFORM_PACKAGES: Final[Mapping[str, str]] = {"stream.zstd": "zstandard"}
"""Registered by default, with the package each needs (torch 2.13, checkpoint/_extension.py)."""

_warning = partial(
    Finding, code=FindingCode.NEEDS_OTHER_READER, check=CheckName.LOAD, severity=Severity.WARNING
)


def check_reader(
    layouts: Sequence[Layout], *, reader: Reader, has_module: Callable[[str], bool]
) -> tuple[Finding, ...]:
    """Warn of everything that the reader named could not open; each caps the assurance at `content`.

    Args:
        layouts: All parts of one checkpoint.
        reader: Versions of torch and Python that will load; a version that is None is
            not judged. The caller fills in its default (the writer's, else the canary's).
        has_module: Says whether the reader has a top-level package; by default ask
            the canary's environment.

    Returns:
        Capping warnings of check 5, bounded.
    """
    opened = [layout for layout in layouts if not layout.is_companion]
    return bounded(finding for layout in opened for finding in _gaps(layout, reader, has_module))


def _gaps(layout: Layout, reader: Reader, has_module: Callable[[str], bool]) -> Iterator[Finding]:
    file = layout.metadata_files[0].path if layout.metadata_files else None
    if layout.stock_reader_gap is not None:
        yield _warning(message=f"stock torch cannot open this: {layout.stock_reader_gap}", file=file)
    for name in sorted(layout.stock_globals):
        reason = why_not_importable(name, reader, has_module)
        if reason is not None:
            yield _warning(
                message=f"{file or 'the metadata'} names {name}, which {reason}",
                file=file,
                expected=f"importable by {reader_in_words(reader)}",
                observed=name,
            )
    yield from _transform_gaps(layout, reader, has_module)


def why_not_importable(name: str, reader: Reader, has_module: Callable[[str], bool]) -> str | None:
    """Say why a reader cannot import `module.name`; None if it can, as far as is known."""
    since = _SINCE.get(name, _Since(python=(3, 13) if name.startswith(_PYTHON_313_PATHS) else None))
    root = name.partition(".")[0]
    if reader.torch is not None and since.torch is not None and reader.torch < since.torch:
        return f"needs torch {_dotted(since.torch)} or newer"
    if reader.python is not None and since.python is not None and reader.python < since.python:
        return f"needs Python {_dotted(since.python)} or newer"
    if root == "pathlib" and name.endswith(_WINDOWS_PATH):
        return "can be built on Windows only"
    if root not in _IMPORTABLE_ROOTS and not has_module(root):
        return f"needs the package {root}"
    return None


def _transform_gaps(layout: Layout, reader: Reader, has_module: Callable[[str], bool]) -> Iterator[Finding]:
    files: dict[str, list[str]] = {}
    for shard in layout.shards:
        for transform in sorted({name for item in shard.items for name in item.transforms}):
            files.setdefault(transform, []).append(shard.path)
    for transform, paths in files.items():
        reason = _why_not_decodable(transform, reader, has_module)
        if reason is not None:
            yield _warning(
                message=f"{counted(len(paths), 'file')} written with {transform}, which {reason}:"
                f" {some_of(paths)}",
                file=paths[0],
                expected=f"decodable by {reader_in_words(reader)}",
                observed=transform,
            )


def _why_not_decodable(transform: str, reader: Reader, has_module: Callable[[str], bool]) -> str | None:
    if reader.torch is not None and reader.torch < _TRANSFORMS_SINCE:
        return f"needs torch {_dotted(_TRANSFORMS_SINCE)} or newer"
    package = _TRANSFORM_PACKAGES.get(transform.partition("/")[0])  # `stream.zstd/1`: name, version
    if package is None:
        return "stock torch does not register"
    return None if has_module(package) else f"needs the package {package}"


def reader_in_words(reader: Reader) -> str:
    """Return `torch=2.13,python=3.11`, the form of `--reader`."""
    parts = (("torch", reader.torch), ("python", reader.python))
    return ",".join(f"{name}={_dotted(version)}" for name, version in parts if version) or "any reader"


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))
