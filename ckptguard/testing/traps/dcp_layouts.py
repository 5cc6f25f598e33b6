"""DCP: legal layouts that rules of thumb call broken."""

from typing import Final

from ckptguard.model.finding import FindingCode as Code
from ckptguard.model.verdict import Assurance
from ckptguard.testing.case import Case, valid
from ckptguard.testing.saves import BASE
from ckptguard.testing.traps.trap import corpus_trap, trap

_NO_GEOMETRY: Final = (
    Code.COVERAGE_HOLE,
    Code.COVERAGE_OVERLAP,
    Code.SLICE_OUT_OF_BOUNDS,
    Code.ITEM_OVERLAP,
    Code.ITEM_OUT_OF_BOUNDS,
)
_NO_SHORT: Final = (Code.SHORT_SHARD, Code.MISSING_SHARD)

DCP_LAYOUTS: Final[tuple[Case, ...]] = (
    trap(
        "F00 plain save",
        BASE,
        valid(absent=(*_NO_GEOMETRY, *_NO_SHORT, Code.UNREFERENCED_FILE, Code.OBJECT_NOT_BUILT)),
    ),
    trap("F01 ranks with nothing left", "one_plain_tensor", valid(absent=_NO_SHORT)),
    trap("F03 three threads", "threads3", valid(absent=_NO_SHORT)),
    trap("F04 a file per item", "file_per_item", valid(absent=_NO_SHORT)),
    trap("F05 uneven shards", "uneven", valid(absent=_NO_GEOMETRY)),
    trap("F06 nothing in tensors", "empty", valid(absent=(*_NO_GEOMETRY, *_NO_SHORT))),
    trap("F07 replicated in one file", "lowest_rank", valid(absent=_NO_SHORT)),
    trap("F11 CRC turned off", "crc_off", valid(Code.CRC_ABSENT, at_most=Assurance.STRUCTURE)),
    corpus_trap("F12 zstd", "dcp_torch2_13_0_zstd_ws2", valid(absent=(Code.ZIP_MALFORMED,))),
    corpus_trap(
        "F13 safetensors inside",
        "dcp_torch2_13_0_fswriter_safetensors_ws2",
        valid(Code.NO_CHECKSUM, at_most=Assurance.STRUCTURE, absent=(Code.ITEM_OVERLAP,)),
    ),
    trap(
        "F15 rank-local metadata",
        "rank_local",
        valid(
            Code.RANK_LOCAL_METADATA,
            at_most=Assurance.STRUCTURE,
            absent=(Code.NOT_COMMITTED, Code.COVERAGE_HOLE),
        ),
    ),
    trap("F35 two dimensions and HSDP", "grid", valid(absent=_NO_GEOMETRY)),
    trap("B22 old key layout", "old_key_layout", valid()),
)
