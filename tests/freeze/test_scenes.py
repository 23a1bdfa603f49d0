"""Command lines print, write and return what they did when these scenes were recorded.

Change a scene by its `$` lines. `python tests/freeze/record.py [NAME] …` records scenes anew; read
the diff before you commit it, and say in CHANGELOG.md what a user notices of it. `scene` says how
a scene is written.

The texts of `--help` are recorded apart: docs/reference.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import scene

NAMES = sorted(path.stem for path in scene.SCENES.glob("*.txt"))


@pytest.mark.parametrize("name", NAMES)
def test_a_scene_comes_out_as_it_was_recorded(name: str) -> None:
    """A difference is a change of behaviour: none that a refactoring may make."""
    recorded = (scene.SCENES / f"{name}.txt").read_text(encoding="utf-8")
    assert scene.played(recorded).splitlines() == recorded.splitlines()
