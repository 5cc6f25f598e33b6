"""DCP: legal values, dtypes and contents that rules of thumb call broken."""

from typing import Final

from ckptguard.model.finding import FindingCode as Code
from ckptguard.model.policy import Depth, Policy
from ckptguard.model.verdict import Assurance
from ckptguard.testing.case import Case, valid
from ckptguard.testing.traps.trap import trap

_WITH_LOAD: Final = Policy(settle_s=0, depth=Depth.LOAD)

DCP_VALUES: Final[tuple[Case, ...]] = (
    trap("F16 rare dtypes", "dtypes", valid(absent=(Code.DTYPE_MISMATCH, Code.SHAPE_MISMATCH))),
    trap("F16 quantized", "quantized", valid(at_least=None)),
    trap("F18 legal odd values", "legal_odd_values", valid()),
    trap("F18 all NaN, nobody asked", "all_nan", valid()),
    trap("F18 all denormal, nobody asked", "all_denormal", valid()),
    trap(
        "F18 odd values, told",
        "legal_odd_values",
        valid(Code.NON_FINITE, Code.ALL_ZERO, at_least=Assurance.LOADED),
        policy=_WITH_LOAD,
    ),
    trap(
        "B15 all denormal, told",
        "all_denormal",
        valid(Code.ALL_DENORMAL, at_least=Assurance.LOADED),
        policy=_WITH_LOAD,
    ),
    trap("F19 objects of every kind", "objects", valid(absent=(Code.UNSAFE_PICKLE, Code.UNKNOWN_GLOBAL))),
    trap("F20 seed checkpoint at step 0", "seed_step", valid()),
    trap("F27 optimizer state for some", "without_bias", valid()),
    trap("F28 model only", "model_only", valid(absent=(Code.MISSING_TENSOR,))),
    trap("F36 loader states of four ranks", "loader_states", valid()),
    trap("F36 one loader state absent, nobody asked", "loader_state_missing", valid()),
)
