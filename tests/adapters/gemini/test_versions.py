"""A version is what the program's package says; only a program without one is started for it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from agentsdir.adapters.gemini.run import takes_session_id, version_of

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


def install(folder: Path, version: str, name: str = "@google/gemini-cli") -> Path:
    """Make a package as npm installs it; return the link that is on the search path."""
    bundle = folder / "lib/node_modules/@google/gemini-cli/bundle"
    bundle.mkdir(parents=True)
    program = bundle / "gemini.js"
    program.write_text(f"#!/bin/sh\necho started > {folder}/started\n")
    program.chmod(0o700)
    (bundle.parent / "package.json").write_text(json.dumps({"name": name, "version": version}))
    link = folder / "bin/gemini"
    link.parent.mkdir()
    link.symlink_to(program)
    return link


@pytest.mark.parametrize(
    ("version", "numbers", "takes"),
    [
        ("0.38.2", (0, 38, 2), False),
        ("0.40.1", (0, 40, 1), False),
        ("0.41.2", (0, 41, 2), True),
        ("0.62.0-nightly.20261101.1", (0, 62, 0), True),
    ],
)
def test_a_package_says_its_version_and_is_not_started(
    tmp_path: Path, version: str, numbers: tuple[int, ...], takes: bool
) -> None:
    """Starting the client takes seconds. Its first argument may be the file, too."""
    link = install(tmp_path, version)
    assert version_of([str(link)], ENVIRONMENT) == numbers
    assert version_of(["/bin/sh", str(link)], ENVIRONMENT) == numbers
    assert takes_session_id([str(link)], ENVIRONMENT) is takes
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("body", "numbers"),
    [("print('0.61.0')", (0, 61, 0)), ("print('?')", ()), ("raise SystemExit(3)", ())],
)
def test_a_program_without_a_package_is_asked(
    tmp_path: Path, body: str, numbers: tuple[int, ...]
) -> None:
    """What cannot be known counts as old: an old client's way works with all."""
    script = tmp_path / "wrapper.py"
    script.write_text(f"import sys\nassert sys.argv[1:] == ['--version']\n{body}\n")
    assert version_of([sys.executable, str(script)], ENVIRONMENT) == numbers


def test_a_program_that_cannot_run_has_no_version(tmp_path: Path) -> None:
    """Why not, the start of the turn says."""
    assert version_of([str(tmp_path / "gone")], ENVIRONMENT) == ()


def test_another_package_around_the_program_says_nothing_of_it(tmp_path: Path) -> None:
    """A wrapper may stand in any project."""
    link = install(tmp_path, "9.9.9", name="somebody-else")
    assert version_of([str(link)], ENVIRONMENT) == ()
