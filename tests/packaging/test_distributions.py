"""The wheel and the sdist hold what is on disk: all of it, and under the right names."""

from __future__ import annotations

import hashlib
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agentsdir.formats.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[2]
PACKAGES = ("adapters", "cli", "engine", "formats", "schemas")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
METADATA = {
    "METADATA",
    "RECORD",
    "WHEEL",
    "entry_points.txt",
    "licenses/LICENSE",
    "top_level.txt",
}


OF_PACKAGE = ("__init__.py", "py.typed")
"""The files of the package `agentsdir` itself, which stand beside the folders."""


def files_below(folders: Iterable[str]) -> dict[str, Path]:
    """Return every file of the checkout below `folders`, by its path, without caches."""
    return {
        path.relative_to(ROOT).as_posix(): path
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }


def wheel_files(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel and their bytes."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def test_every_package_on_disk_is_listed() -> None:
    """A package missing from pyproject.toml works in a checkout and is absent from the wheel."""
    on_disk = {
        "agentsdir." + ".".join(path.parent.relative_to(ROOT).parts)
        for name in PACKAGES
        for path in (ROOT / name).rglob("__init__.py")
    }

    assert set(PROJECT["tool"]["setuptools"]["packages"]) == {"agentsdir", *on_disk}


def test_every_folder_with_modules_is_a_package() -> None:
    """No module stands in a folder without `__init__.py`, where no wheel would take it along."""
    folders = {path.parent for name in PACKAGES for path in (ROOT / name).rglob("*.py")}

    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_one_version_everywhere() -> None:
    """The project, the program and the changelog name the same version."""
    headings = [
        line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")
    ]

    assert PROJECT["project"]["version"] == VERSION
    assert headings[0].split()[1] == VERSION


def test_the_wheel_holds_exactly_the_files_on_disk(built: Any) -> None:
    """Every module, schema and marker is in the wheel under `agentsdir/`, and nothing else."""
    expected = {
        f"agentsdir/{name}": path.read_bytes() for name, path in files_below(PACKAGES).items()
    } | {f"agentsdir/{name}": (ROOT / name).read_bytes() for name in OF_PACKAGE}
    expected_metadata = {f"agentsdir-{VERSION}.dist-info/{name}" for name in METADATA}

    found = wheel_files(built.wheel)

    assert set(found) == set(expected) | expected_metadata
    assert {name for name, data in expected.items() if found[name] != data} == set()


def test_the_wheel_is_the_same_made_directly_and_from_the_sdist(built: Any) -> None:
    """The sdist lacks nothing that the wheel needs."""
    indirect, direct = wheel_files(built.wheel), wheel_files(built.direct_wheel)

    assert {name: hashlib.sha256(data).digest() for name, data in indirect.items()} == {
        name: hashlib.sha256(data).digest() for name, data in direct.items()
    }


def test_every_package_says_that_it_is_typed(built: Any) -> None:
    """Type checkers of those who use the library see its types."""
    found = wheel_files(built.wheel)

    assert "agentsdir/py.typed" in found
    assert [name for name in PACKAGES if f"agentsdir/{name}/py.typed" not in found] == []


@pytest.mark.feature("C-15")
def test_the_sdist_holds_specification_fixtures_and_tests(built: Any) -> None:
    """A user of the source distribution has all that the checkout has."""
    base = f"agentsdir-{VERSION}/"
    with tarfile.open(built.sdist) as archive:
        found = {
            member.name.removeprefix(base) for member in archive.getmembers() if member.isfile()
        }

    documents = {"SPEC.md", "DECISIONS.md", "README.md", "CHANGELOG.md", "LICENSE"}
    documents |= {"pyproject.toml", "MANIFEST.in", *OF_PACKAGE}
    folders = [*PACKAGES, "docs", "examples", "tests", "fixtures"]
    expected = documents | set(files_below(folders))
    assert expected - found == set()
    generated = {name for name in found - expected if "egg-info" not in name}
    assert generated == {"PKG-INFO", "setup.cfg"}
