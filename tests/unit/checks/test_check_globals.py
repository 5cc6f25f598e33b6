"""Names that loading would import: denied, unknown, vouched for; and readers that lack them."""

from dataclasses import replace

import pytest

from ckptguard.checks.globals import check_metadata_globals, check_object_globals
from ckptguard.checks.reader import check_reader, why_not_importable
from ckptguard.model.checksum import Algorithm, Checksum
from ckptguard.model.finding import Basis, CheckName, FindingCode, Severity
from ckptguard.model.layout import Encoding, Item, ItemKind, Layout, MetadataFile, Shard
from ckptguard.model.policy import Policy, Reader
from ckptguard.model.verdict import CheckStatus, conclude

METADATA = "torch.distributed.checkpoint.metadata."
NEW = Reader(torch=(2, 13), python=(3, 13))


def _is_denied(name: str) -> bool:
    return name in {"os.system", "posix.system"}


def _is_known(name: str) -> bool:
    return name.startswith("torch.")


def _layout(*names: str, transforms: tuple[str, ...] = (), gap: str | None = None) -> Layout:
    item = Item("w", ItemKind.TENSOR, 0, 100, transforms=transforms)
    shard = Shard(path="__0_0.distcp", encoding=Encoding.TORCH_ZIP_ITEMS, items=(item,), min_length_bytes=100)
    metadata = MetadataFile(
        path=".metadata", length_bytes=1, checksum=Checksum(algorithm=Algorithm.XXH3_128, hex_digits="0" * 32)
    )
    return Layout(
        format="dcp",
        metadata_files=(metadata,),
        shards=(shard,),
        stock_globals=frozenset(names),
        stock_reader_gap=gap,
    )


def _metadata(*names: str, allowed: frozenset[str] = frozenset()) -> list[tuple[FindingCode, str | None]]:
    findings = check_metadata_globals(
        [_layout(*names)], is_denied=_is_denied, is_known=_is_known, allowed_globals=allowed
    )
    return [(finding.code, finding.observed) for finding in findings]


def test_known_names_in_metadata_say_nothing() -> None:
    assert _metadata(f"{METADATA}Metadata") == []


def test_a_denied_name_in_metadata_is_unsafe_whoever_allows_it() -> None:
    assert _metadata("os.system", allowed=frozenset({"os.system"})) == [
        (FindingCode.UNSAFE_PICKLE, "os.system")
    ]


def test_an_unknown_name_in_metadata_leaves_it_in_doubt_until_it_is_allowed() -> None:
    assert _metadata("newlib.Meta") == [(FindingCode.UNKNOWN_GLOBAL, "newlib.Meta")]
    assert _metadata("newlib.Meta", allowed=frozenset({"newlib.Meta"})) == []


def test_what_the_layout_already_reports_is_not_told_twice() -> None:
    (told,) = check_metadata_globals([_layout("os.system")], is_denied=_is_denied, is_known=_is_known)
    layout = replace(_layout("os.system"), findings=(told,))
    assert check_metadata_globals([layout], is_denied=_is_denied, is_known=_is_known) == ()


OBJECTS = {"__0_0.distcp": {"rng": ["numpy.ndarray"], "rng2": ["numpy.ndarray"], "evil": ["os.system"]}}


def test_a_denied_name_in_an_object_is_unsafe_and_the_rest_is_a_warning_per_name() -> None:
    findings = check_object_globals(OBJECTS, is_denied=_is_denied, policy=Policy())
    assert [(f.code, f.severity, f.basis, f.fqn, f.observed) for f in findings] == [
        (FindingCode.UNSAFE_PICKLE, Severity.ERROR, Basis.UNSAFE, "evil", "os.system"),
        (FindingCode.OBJECT_NOT_BUILT, Severity.WARNING, None, "rng", "numpy.ndarray"),
    ]
    assert findings[1].message.startswith("rng, rng2: bytes are proven, the object was not built")
    assert findings[1].file == "__0_0.distcp"


def test_strict_objects_are_in_doubt_and_allowed_ones_say_nothing() -> None:
    objects = {"f": {"rng": ["numpy.ndarray"]}}
    (strict,) = check_object_globals(objects, is_denied=_is_denied, policy=Policy(is_strict_objects=True))
    assert strict.severity is Severity.UNKNOWN
    allowed = Policy(is_strict_objects=True, allowed_globals=frozenset({"numpy.ndarray"}))
    assert check_object_globals(objects, is_denied=_is_denied, policy=allowed) == ()


def _reader(layout: Layout, reader: Reader, *packages: str) -> list[str]:
    return [
        f.message for f in check_reader([layout], reader=reader, has_module=lambda name: name in packages)
    ]


def test_paths_of_python_313_need_it() -> None:
    layout = _layout("pathlib._local.PosixPath")
    assert _reader(layout, NEW) == []
    assert _reader(layout, Reader(torch=(2, 13), python=(3, 11))) == [
        ".metadata names pathlib._local.PosixPath, which needs Python 3.13 or newer"
    ]


def test_newer_classes_need_newer_torch() -> None:
    layout = _layout(f"{METADATA}StorageMeta", f"{METADATA}TensorProperties")
    assert _reader(layout, Reader(torch=(2, 4), python=(3, 11))) == []
    assert len(_reader(layout, Reader(torch=(2, 2)))) == 2
    assert len(_reader(layout, Reader(torch=(2, 3)))) == 1


def test_windows_paths_and_foreign_packages_need_another_reader() -> None:
    assert _reader(_layout("pathlib.WindowsPath"), NEW) != []
    assert _reader(_layout("pathlib.PureWindowsPath", "pathlib.PosixPath"), NEW) == []
    olmo = _layout("olmo_core.distributed.checkpoint.filesystem._StorageInfo")
    assert _reader(olmo, NEW) != []
    assert _reader(olmo, NEW, "olmo_core") == []


def test_transforms_need_torch_28_and_their_package() -> None:
    assert _reader(_layout(transforms=("stream.zstd/1",)), NEW, "zstandard") == []
    assert "needs the package zstandard" in _reader(_layout(transforms=("stream.zstd/1",)), NEW)[0]
    assert (
        "needs torch 2.8"
        in _reader(_layout(transforms=("stream.zstd/1",)), Reader(torch=(2, 7)), "zstandard")[0]
    )
    assert "does not register" in _reader(_layout(transforms=("stream.rot13",)), NEW)[0]


def test_a_gap_of_the_layout_is_passed_on_and_every_gap_caps_at_content() -> None:
    findings = check_reader([_layout(gap="safetensors items")], reader=NEW, has_module=lambda _: True)
    assert findings[0].message == "stock torch cannot open this: safetensors items"
    load = conclude(CheckName.LOAD, findings)
    assert load.status is CheckStatus.UNKNOWN
    assert {finding.check for finding in findings} == {CheckName.LOAD}


def test_an_unnamed_version_is_not_judged() -> None:
    assert _reader(_layout("pathlib._local.PosixPath", f"{METADATA}StorageMeta"), Reader()) == []


@pytest.mark.torch
@pytest.mark.parametrize(
    "name",
    [
        "torch.distributed._shard.sharded_tensor.metadata.TensorProperties",
        "torch.distributed._shard.sharded_tensor.metadata.MEM_FORMAT_ENCODING",
        f"{METADATA}TensorProperties",
        f"{METADATA}_MEM_FORMAT_ENCODING",
        f"{METADATA}StorageMeta",
        "torch.distributed.checkpoint.filesystem._StorageInfo",
        "torch.distributed.checkpoint.planner.SavePlan",
        "torch.distributed.checkpoint.planner.WriteItem",
        "torch.distributed.checkpoint.planner.TensorWriteData",
        "torch.serialization._get_layout",
        "torch.float8_e8m0fnu",
        "torch.float4_e2m1fn_x2",
        "torch.uint16",
    ],
)
def test_names_said_to_be_importable_are_so_in_the_torch_installed(name: str) -> None:
    torch = pytest.importorskip("torch")
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    module, _, attribute = name.rpartition(".")
    can_import = hasattr(pytest.importorskip(module), attribute)
    said = why_not_importable(name, Reader(torch=(major, minor)), lambda _: True) is None
    assert said == can_import
