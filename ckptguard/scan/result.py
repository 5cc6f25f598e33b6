"""What reading one file found, and its JSON form (the canary child sends it to its parent)."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from ckptguard.model.checksum import Checksum, parse_checksum
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.report import TensorNumerics


@dataclass(frozen=True, slots=True, kw_only=True)
class FileScan:
    """One file, read once from its first to its last byte.

    Args:
        path: Relative to the checkpoint's root.
        length_bytes: Length when it was opened.
        checksums: Of all its bytes, XXH3-128 first; empty if it could not be read to its end.
        findings: Confirmed faults, and doubts.
        items: Items whose bytes were verified.
        items_without_crc: Of these, items whose writer stored no CRC-32.
        items_unproven: Items whose content nothing in the format can prove.
        items_loaded: Items handed through DCP.
        records: Zip records verified.
        object_globals: `module.name` that each object would need, by FQN; safe ones left out.
        numerics: What was measured, by FQN.
        bytes_read: Bytes taken from storage, second looks included.
        version: What the store said before the file was read.
    """

    path: str
    length_bytes: int
    checksums: tuple[Checksum, ...] = ()
    findings: tuple[Finding, ...] = ()
    items: int = 0
    items_without_crc: int = 0
    items_unproven: int = 0
    items_loaded: int = 0
    records: int = 0
    object_globals: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    numerics: Mapping[str, TensorNumerics] = field(default_factory=dict)
    bytes_read: int = 0
    version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileResult:
    """What one attempt found in one file, and what that rests on: the next attempt may take it over.

    Args:
        scan: What reading it found.
        device: What it was loaded onto; None where it was only read.
        versions: Of everything that could give another result for the same bytes.
    """

    scan: FileScan
    device: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)


FileListener = Callable[[FileResult], None]


def file_result_to_json(result: FileResult) -> dict[str, Any]:
    """Return plain JSON values (docs/service.md, `files` of a lease)."""
    return {
        "scan": scan_to_json(result.scan),
        "device": result.device,
        "versions": dict(result.versions),
    }


def file_result_from_json(value: Mapping[str, Any]) -> FileResult:
    """Rebuild what `file_result_to_json` made.

    Raises:
        KeyError, ValueError, TypeError: It was not made by `file_result_to_json`.
    """
    versions = value["versions"]
    return FileResult(
        scan=scan_from_json(value["scan"]),
        device=_of_kind((str, type(None)), value["device"], "device"),
        versions={
            _of_kind((str,), name, "version"): _of_kind((str,), text, name) for name, text in versions.items()
        },
    )


def scan_to_json(scan: FileScan) -> dict[str, Any]:
    """Return plain JSON values; JSON has no NaN and no infinity: extremes of a tensor with any are texts."""
    return {
        **{name: getattr(scan, name) for name in _PLAIN},
        "checksums": [str(checksum) for checksum in scan.checksums],
        "findings": [asdict(finding) for finding in scan.findings],
        "object_globals": {fqn: list(names) for fqn, names in scan.object_globals.items()},
        # Plain lists: asdict copies deeply, 20 times slower, and there is one of these per tensor.
        "numerics": {
            fqn: [*_extremes(part), part.is_finite, part.is_zero, part.is_denormal]
            for fqn, part in scan.numerics.items()
        },
    }


def _extremes(part: TensorNumerics) -> tuple[float | str, float | str]:
    if part.is_finite:
        return part.minimum, part.maximum
    return str(part.minimum), str(part.maximum)


def scan_from_json(value: Mapping[str, Any]) -> FileScan:
    """Rebuild what `scan_to_json` made.

    Raises:
        KeyError, ValueError, TypeError: It was not made by `scan_to_json`.
    """
    return FileScan(
        **{name: _of_kind(kind, value[name], name) for name, kind in _PLAIN.items()},
        checksums=tuple(parse_checksum(text) for text in value["checksums"]),
        findings=tuple(finding_from_json(finding) for finding in value["findings"]),
        object_globals={fqn: tuple(names) for fqn, names in value["object_globals"].items()},
        numerics={fqn: _numerics_from_json(*parts) for fqn, parts in value["numerics"].items()},
    )


def _numerics_from_json(
    minimum: object, maximum: object, is_finite: object, is_zero: object, is_denormal: object
) -> TensorNumerics:
    kind = (int, float) if is_finite else (str,)
    return TensorNumerics(
        minimum=_extreme(_of_kind(kind, minimum, "minimum")),
        maximum=_extreme(_of_kind(kind, maximum, "maximum")),
        is_finite=_of_kind((bool,), is_finite, "is_finite"),
        is_zero=_of_kind((bool,), is_zero, "is_zero"),
        is_denormal=_of_kind((bool,), is_denormal, "is_denormal"),
    )


def _extreme(value: float | str) -> float:
    number = float(value)
    if isinstance(value, str) and str(number) != value:
        msg = f"{value[:40]!r} is no number as Python writes it"
        raise ValueError(msg)
    return number


def finding_from_json(value: Mapping[str, Any]) -> Finding:
    """Rebuild a finding from the values of its fields."""
    sizes, offsets = value["slice_sizes"], value["slice_offsets"]
    return Finding(
        **{
            **value,
            "code": FindingCode(value["code"]),
            "check": CheckName(value["check"]),
            "severity": Severity(value["severity"]),
            "basis": Basis(value["basis"]) if value["basis"] else None,
            "slice_offsets": tuple(offsets) if offsets is not None else None,
            "slice_sizes": tuple(sizes) if sizes is not None else None,
        }
    )


_PLAIN: Final[Mapping[str, tuple[type, ...]]] = {
    "path": (str,),
    "length_bytes": (int,),
    "items": (int,),
    "items_without_crc": (int,),
    "items_unproven": (int,),
    "items_loaded": (int,),
    "records": (int,),
    "bytes_read": (int,),
    "version": (str, type(None)),
}
"""Fields whose JSON form is their own, and their types."""


def _of_kind(kind: tuple[type, ...], value: object, name: str) -> Any:  # noqa: ANN401 - any of them
    if type(value) in kind:
        return value
    msg = f"{name} is a {type(value).__name__}"
    raise TypeError(msg)
