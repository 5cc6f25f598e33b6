"""What reading one file found, and its JSON form (the canary child sends it to its parent)."""

from collections.abc import Mapping
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


def scan_to_json(scan: FileScan) -> dict[str, Any]:
    """Return plain JSON values; NaN and infinity as Python's json writes them."""
    return {
        **{name: getattr(scan, name) for name in _PLAIN},
        "checksums": [str(checksum) for checksum in scan.checksums],
        "findings": [asdict(finding) for finding in scan.findings],
        "object_globals": {fqn: list(names) for fqn, names in scan.object_globals.items()},
        # Plain lists: asdict copies deeply, 20 times slower, and there is one of these per tensor.
        "numerics": {
            fqn: [part.minimum, part.maximum, part.is_finite, part.is_zero, part.is_denormal]
            for fqn, part in scan.numerics.items()
        },
    }


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
    minimum: float, maximum: float, is_finite: object, is_zero: object, is_denormal: object
) -> TensorNumerics:
    return TensorNumerics(
        minimum=float(minimum),
        maximum=float(maximum),
        is_finite=bool(is_finite),
        is_zero=bool(is_zero),
        is_denormal=bool(is_denormal),
    )


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
