"""Front-end files of others lie in the tree as npm has them, each with its licence, and go with the wheel."""

import hashlib
import json
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

import pytest
from hatchling.builders.wheel import WheelBuilder

PROJECT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = PROJECT / "api" / "ckptguard_api" / "pages"
FOLDERS: Final = (PAGES / "static" / "vendor", PROJECT / "tests" / "pages" / "vendor")
LISTED: Final = "VENDORED.json"
MEMBERS: Final = {"name", "version", "licence", "licence_file", "source", "files"}


def packages_in(folder: Path) -> list[dict[str, Any]]:
    packages: list[dict[str, Any]] = json.loads((folder / LISTED).read_text())["packages"]
    return packages


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.parent.name)
def test_every_vendored_file_is_listed_with_its_digest(folder: Path) -> None:
    listed = {file["file"]: file["sha256"] for package in packages_in(folder) for file in package["files"]}
    there = [file for file in folder.iterdir() if file.suffix in {".js", ".css"}]
    assert {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in there} == listed


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.parent.name)
def test_every_vendored_package_says_what_it_is_and_has_its_licence(folder: Path) -> None:
    for package in packages_in(folder):
        assert package.keys() == MEMBERS
        assert package["source"] == f"npm:{package['name']}@{package['version']}"
        assert (folder / package["licence_file"]).stat().st_size > 500, package["name"]


def test_the_wheel_has_every_template_and_every_static_file(tmp_path: Path) -> None:
    (built,) = WheelBuilder(str(PROJECT)).build(directory=str(tmp_path), versions=["standard"])
    with ZipFile(built) as wheel:
        packed = set(wheel.namelist())
    files = [file for name in ("templates", "static") for file in (PAGES / name).rglob("*")]
    names = {f"ckptguard_api/pages/{file.relative_to(PAGES)}" for file in files if file.is_file()}
    assert names, "there are pages"
    assert names <= packed, sorted(names - packed)
