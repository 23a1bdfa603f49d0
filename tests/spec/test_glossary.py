"""docs/glossary.md names modules and classes that there are."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("adapters", "cli", "engine", "formats", "schemas")
PAGE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
# Word, meaning, code, more.
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| **")
]
NAMES = sorted({name for row in ROWS for name in re.findall(r"`([\w.]+)`", row[2])})


@pytest.mark.parametrize("name", NAMES)
def test_what_stands_for_a_word_exists(name: str) -> None:
    """A dotted name is a module of agentsdir, or a class or function in one."""
    module, _, attribute = name.rpartition(".")
    path = ROOT / name.replace(".", "/")
    if path.with_suffix(".py").is_file() or (path / "__init__.py").is_file():
        return
    assert (ROOT / module.replace(".", "/")).with_suffix(".py").is_file(), name
    assert hasattr(import_module(f"agentsdir.{module}"), attribute), name


def test_each_word_has_its_row() -> None:
    """A meaning of one or two sentences, a place in the code and one in the documents."""
    for row in ROWS:
        assert len(row) == 4, row
        word, meaning, code, more = row
        assert 1 <= len(re.findall(r"[.?](?: |$|\))", meaning)) <= 3, word
        assert len(meaning.split()) <= 40, word
        assert re.findall(r"`([\w.]+)`", code), word
        assert re.fullmatch(r"\[.*\)", more.strip(" |")), word
    words = [word for row in ROWS for word in re.findall(r"\*\*(.*?)\*\*", row[0])]
    assert len(words) == len(set(words)) > 40


def test_every_module_of_the_engine_has_a_word() -> None:
    """What the engine does has a name that can be looked up."""
    modules = {f"engine.{path.stem}" for path in (ROOT / "engine").glob("*.py")}
    named = {".".join(name.split(".")[:2]) for name in NAMES}
    plain = {
        "__init__",
        "services",
        "settings",
        "create",
        "listing",
        "parse",
        "replay",
        "watch",
    }  # as their commands say
    assert modules - named == {f"engine.{name}" for name in plain}
