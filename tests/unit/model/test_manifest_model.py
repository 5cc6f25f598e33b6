"""The manifest value: laws held where it is born, and an identity that means the bytes."""

import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
import rfc8785

from ckptguard.errors import ManifestFormatError
from ckptguard.model.checksum import Algorithm, Checksum
from ckptguard.model.manifest import (
    ChecksumSource,
    Manifest,
    ManifestFile,
    ManifestItem,
    Origin,
    Role,
    Writer,
    default_save_id,
    identity,
    is_manifest_path,
    portability_notes,
    rank_manifest_name,
)
from ckptguard.testing.manifests import checksum_of, manifest_of

CONTENTS = {".metadata": b"meta", "__0_0.distcp": b"zero", "__1_0.distcp": b"one", "rng ☃.pth": b""}
SHA256_OF_NOTHING = Checksum(algorithm=Algorithm.SHA256, hex_digits=hashlib.sha256().hexdigest())


def canonical(manifest: Manifest) -> dict[str, Any]:
    return {
        "manifest_version": 1,
        "format": manifest.format,
        "files": [
            {"path": file.path, "length_bytes": file.length_bytes, "checksum": str(file.checksum)}
            for file in sorted(manifest.files, key=lambda file: file.path)
        ],
        "items": [],
    }


def test_identity_is_the_sha256_of_the_rfc_8785_form() -> None:
    manifest = manifest_of(CONTENTS | {'"q" \u2028 \U0001f600 ü': b"x"})
    form = rfc8785.dumps(canonical(manifest))
    assert str(identity(manifest)) == f"sha256:{hashlib.sha256(form).hexdigest()}"


def test_the_same_bytes_have_the_same_identity_whoever_registers_them() -> None:
    saved = manifest_of(CONTENTS)
    read_back = manifest_of(dict(reversed(CONTENTS.items())), origin=Origin.READ_BACK)
    other = replace(
        read_back,
        run="other",
        step=0,
        save_id="other",
        created_at=datetime(2030, 1, 1, tzinfo=UTC),
        writer=Writer(ckptguard="9"),
        world_size=None,
        files=tuple(replace(file, role=Role.SIDECAR) for file in read_back.files),
        annotations={"a": 1.5},
        unknown_fields={"later": True},
    )
    assert identity(saved) == identity(read_back) == identity(other)


@pytest.mark.parametrize(
    "contents",
    [
        CONTENTS | {"__1_0.distcp": b"onf"},
        CONTENTS | {"more": b""},
        {path: data for path, data in CONTENTS.items() if path != ".metadata"},
        {path.upper(): data for path, data in CONTENTS.items()},
    ],
)
def test_other_bytes_have_another_identity(contents: dict[str, bytes]) -> None:
    assert identity(manifest_of(contents)) != identity(manifest_of(CONTENTS))


def test_a_save_without_id_is_named_by_its_identity() -> None:
    bytes_identity = identity(manifest_of(CONTENTS))
    assert default_save_id(bytes_identity) == f"c-{bytes_identity.hex_digits[:32]}"


def test_every_broken_law_is_in_one_error() -> None:
    good = manifest_of(CONTENTS)
    with pytest.raises(ManifestFormatError) as caught:
        replace(
            good,
            run="",
            step=-1,
            save_id="a\x00",
            created_at=datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1))),
            world_size=None,
            part="../up",
            files=(good.files[0], good.files[0]),
            annotations={"when": datetime(2026, 1, 1, tzinfo=UTC)},
        )
    places = [problem.partition(": ")[0] for problem in caught.value.problems]
    assert places == [
        *("/run", "/step", "/save_id", "/created_at", "/world_size", "/files", "/part"),
        "/annotations/when",
    ]


def test_a_naive_time_is_refused() -> None:
    with pytest.raises(ManifestFormatError, match="/created_at"):
        replace(manifest_of(CONTENTS), created_at=datetime(2026, 1, 1))  # noqa: DTZ001 - the point


@pytest.mark.parametrize("length_bytes", [-1, True, 2**53, 1.0])
def test_a_length_is_an_exact_integer(length_bytes: int) -> None:
    with pytest.raises(ManifestFormatError, match="/length_bytes"):
        replace(manifest_of(CONTENTS).files[0], length_bytes=length_bytes)


def test_what_was_read_back_cannot_have_been_in_memory() -> None:
    with pytest.raises(ManifestFormatError, match="from memory"):
        manifest_of(CONTENTS, origin=Origin.READ_BACK, source=ChecksumSource.MEMORY)


def test_an_item_lies_in_a_listed_file() -> None:
    item = ManifestItem(
        fqn="w",
        file="__0_0.distcp",
        offset=1,
        length_bytes=3,
        checksum=SHA256_OF_NOTHING,
        offsets=(0,),
        sizes=(1,),
        dtype="uint8",
    )
    assert replace(manifest_of(CONTENTS), items=(item,)).items == (item,)
    with pytest.raises(ManifestFormatError, match="beyond"):
        replace(manifest_of(CONTENTS), items=(replace(item, length_bytes=4),))
    with pytest.raises(ManifestFormatError, match="not listed"):
        replace(manifest_of(CONTENTS), items=(replace(item, file="__7_0.distcp"),))


def test_zero_size_slices_of_several_ranks_may_share_their_place() -> None:
    items = tuple(
        ManifestItem(
            fqn="w",
            file="__0_0.distcp",
            offset=offset,
            length_bytes=1,
            checksum=SHA256_OF_NOTHING,
            offsets=(8,),
            sizes=(0,),
            dtype="float32",
        )
        for offset in (0, 1)
    )
    assert replace(manifest_of(CONTENTS), items=items).items == items


def test_paths_that_fall_together_elsewhere_are_only_noted() -> None:
    nfc, nfd = "\u00e9.pt", "e\u0301.pt"
    manifest = manifest_of({"A.distcp": b"", "a.distcp": b"", nfc: b"", nfd: b"", "b": b""})
    assert len(portability_notes(manifest)) == 2
    assert portability_notes(manifest_of(CONTENTS)) == ()


@pytest.mark.parametrize(
    ("path", "is_manifest"),
    [
        ("ckptguard.manifest.json", True),
        (rank_manifest_name(12), True),
        ("a/b/ckptguard.manifest.json", True),
        ("my.ckptguard.manifest.json", False),
        ("__x.ckptguard.manifest.json", False),
        ("ckptguard.manifest.json/x", False),
    ],
)
def test_manifests_are_known_by_their_name(path: str, is_manifest: bool) -> None:  # noqa: FBT001 - a test's table
    assert is_manifest_path(path) is is_manifest


def test_file_of_another_module_is_equal_by_value() -> None:
    one = ManifestFile(
        path="a",
        role=Role.SHARD,
        length_bytes=1,
        checksum=checksum_of(b"x"),
        checksum_source=ChecksumSource.MEMORY,
    )
    assert one == replace(one)
