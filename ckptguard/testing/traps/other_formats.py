"""Other formats: what is normal there and would be damage in DCP."""

from typing import Final

from ckptguard.model.finding import FindingCode as Code
from ckptguard.model.verdict import Assurance
from ckptguard.testing import edits
from ckptguard.testing.case import Case, Damage, Scene, unknown, valid
from ckptguard.testing.safetensors_bytes import INDEX_NAME, write_index
from ckptguard.testing.saves import DEEPSPEED, HF_SHARDED, TORCH_SAVE
from ckptguard.testing.traps.trap import corpus_trap, trap


def _trailing_zeros(scene: Scene) -> Damage:
    return edits.append(scene.folder, "model.pt", data=bytes(100))


def _index_of_other_build(scene: Scene) -> Damage:
    """The index names 13 shards of another build; what is there is complete in itself."""
    names = {f"layer{number}": f"model-{number + 1:05}-of-00013.safetensors" for number in range(13)}
    write_index(scene.folder, names, total_bytes=1)
    return Damage(kind="foreign_index", file=INDEX_NAME)


def _inner_step_differs(scene: Scene) -> Damage:
    (scene.folder / "checkpoint-11").mkdir()
    for name in ("global_step10", "latest"):
        (scene.folder / name).rename(scene.folder / "checkpoint-11" / name)
    return Damage(kind="inner_step", file="checkpoint-11/global_step10")


_NO_CHECKSUM: Final = valid(Code.NO_CHECKSUM, at_most=Assurance.STRUCTURE, absent=(Code.NOT_COMMITTED,))

OTHER_FORMATS: Final[tuple[Case, ...]] = (
    trap("F14 sharded safetensors", HF_SHARDED, _NO_CHECKSUM),
    corpus_trap("F14 HF writer with index", "dcp_torch2_13_0_hf_rank0_3files", _NO_CHECKSUM),
    corpus_trap("F14 HF writer without index", "dcp_torch2_13_0_hf_distributed_ws2", _NO_CHECKSUM),
    corpus_trap("F25 Megatron without common.pt", "megatron0_19_py313_dp_fullpar_ws2", valid()),
    trap(
        "F26 inner step differs",
        DEEPSPEED,
        valid(surroundings=(Code.MIXED_SAVES,)),
        arrange=_inner_step_differs,
        target="checkpoint-11",
    ),
    trap("F29 ZeRO-3 placeholders", "deepspeed_zero3", valid(absent=(Code.SHAPE_MISMATCH,))),
    trap(
        "F31 index of another build", HF_SHARDED, unknown(Code.INDEX_MISMATCH), arrange=_index_of_other_build
    ),
    trap("F34 torch.save", TORCH_SAVE, valid(absent=(Code.OBJECT_NOT_BUILT,))),
    trap(
        "F34 legacy torch.save",
        "torch_save_legacy",
        valid(Code.NO_CHECKSUM, at_most=Assurance.STRUCTURE),
    ),
    trap("F34 zeros behind a zip", TORCH_SAVE, valid(), arrange=_trailing_zeros),
)
