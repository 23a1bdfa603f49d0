"""docs/contributing.md names, for each kind of change, the files that its example is really in."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("adapters", "cli", "engine", "formats", "schemas")
PAGE = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")

# Section → what its example looks like in a file: in all of them, and in those of the program.
EXAMPLES = {
    "A subcommand": (r"\btag\b", r'"tag":|`agentsdir tag`|def tag\('),
    "A record": (r"agent[.-]tagged\b", r"agent[.-]tagged\b"),
    "A block": (r"\bsubagent\b", r'SubagentBlock|block-subagent|"subagent": BlockType'),
    "A finding": (r"\bnul[-_]run\b", r'"nul-run"'),
    "A setting": (r"\bmax_children\b", r"\bmax_children\b"),
    "An adapter": (r"\becho\b", r"EchoProvider"),
}


def section(heading: str) -> str:
    """Return one section of the page."""
    return PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def files(heading: str) -> list[str]:
    """Return the files that the table of a section lists."""
    cells = re.findall(r"^\| (`.*?`) \|", section(heading), re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([\w./-]+)`", cell)]


def test_each_kind_of_change_has_a_section() -> None:
    """And each section with a table has an example that is checked."""
    headings = re.findall(r"^## (An? .*)$", PAGE, re.MULTILINE)
    assert sorted(headings) == sorted(EXAMPLES)


@pytest.mark.parametrize("heading", EXAMPLES)
def test_each_file_of_a_change_has_the_example(heading: str) -> None:
    """So what the page says is what was done once, and can be copied."""
    listed = files(heading)
    assert len(listed) >= 4
    for name in listed:
        text = name + (ROOT / name).read_text(encoding="utf-8")
        assert re.search(EXAMPLES[heading][0], text), f"{name} has nothing of the example"


@pytest.mark.parametrize("heading", EXAMPLES)
def test_no_file_of_the_program_is_left_out(heading: str) -> None:
    """A module or schema that has the example is in the table."""
    pattern = EXAMPLES[heading][1]
    found = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.suffix in (".py", ".json")
        and re.search(pattern, path.read_text("utf-8"), re.MULTILINE)
    }
    assert found
    assert sorted(found - set(files(heading))) == []


def test_every_path_on_the_page_exists() -> None:
    """Those in the prose too."""
    named = re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", PAGE)
    named += re.findall(r"\b(tests/[\w./-]+)", PAGE)
    assert len(named) > 40
    assert [name for name in named if not (ROOT / name.rstrip(".")).exists()] == []
