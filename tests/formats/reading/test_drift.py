"""Kinds that a reader does not know are counted, and named once each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentsdir.formats.findings import MAX_KINDS, MAX_NAME, Drifts

if TYPE_CHECKING:
    from agentsdir.formats.blocks import BlockSource


def source(line: int) -> BlockSource:
    """Return a place in a file."""
    return {"file": "a.jsonl", "line": line, "offset": 10 * line, "length": 9}


def test_a_kind_is_named_once_with_its_count_its_versions_and_its_first_place() -> None:
    """Over several files, too."""
    first, second = Drifts(), Drifts()
    first.note("row", "tomorrow", source(3), "2.2.0")
    first.note("row", "tomorrow", source(4), None)
    second.note("row", "tomorrow", source(1), "2.1.400")
    second.note("part", "tomorrow", source(2), None)
    first.add(second)
    assert [(found.id, found.line, found.message) for found in first.findings()] == [
        ("drift", 3, "row 'tomorrow': unknown, x 3 (client 2.1.400, 2.2.0)"),
        ("drift", 2, "part 'tomorrow': unknown, x 1"),
    ]


def test_a_file_of_any_number_of_kinds_gives_a_bounded_number_of_findings() -> None:
    """What is beyond the bound is counted together, and a name has a greatest length."""
    drifts = Drifts()
    for number in range(3 * MAX_KINDS):
        drifts.note("row", f"{number:0{2 * MAX_NAME}}"[::-1], source(number + 1), None)
    found = list(drifts.findings())
    assert len(found) == MAX_KINDS + 1
    assert found[-1].message == f"other kinds: unknown, x {2 * MAX_KINDS}"
    assert all(len(one.message) < MAX_NAME + 40 for one in found)


def test_without_a_kind_nothing_is_said() -> None:
    """A reader that knows all it meets has no finding."""
    assert not Drifts()
    assert list(Drifts().findings()) == []
