"""The tree of agents: what goes round, is missing or too deep is refused by name."""

from __future__ import annotations

import shutil
from typing import Any

import orjson
import pytest

from agentsdir.engine.lookup import ancestors, depth_of, descendants
from agentsdir.formats.errors import Invalid, NoSuchAgent
from agentsdir.formats.store.layout import AgentPaths, Layout


def line_of(stage: Any, length: int) -> list[AgentPaths]:
    """Return an agent, its child, the child's child, and so on."""
    line = [stage.new()]
    for number in range(1, length):
        line.append(stage.new(kind="subagent", parent=line[-1].id, name=f"level {number}"))
    return line


def adopt(paths: AgentPaths, parent: str) -> None:
    """Have the first record of an agent's log name another parent."""
    first, *rest = paths.log.read_bytes().splitlines(keepends=True)
    record = orjson.loads(first)
    descriptor = {"type": "subagent", "id": paths.id, "parentAgentId": parent, "name": "x"}
    record["data"] |= {"descriptor": descriptor, "parentAgentId": parent}
    paths.log.write_bytes(b"".join((orjson.dumps(record) + b"\n", *rest)))
    paths.state.unlink()


def test_ancestors_are_named_from_the_parent_to_the_root(stage: Any) -> None:
    """Each once, whatever else is in the directory."""
    line = line_of(stage, 4)
    stage.new()

    found = ancestors(Layout(stage.root), stage.state(line[-1]))

    assert [paths.id for paths in found] == [paths.id for paths in reversed(line[:-1])]
    assert [depth_of(Layout(stage.root), stage.state(paths)) for paths in line] == [0, 1, 2, 3]


def test_a_parent_that_is_gone_is_refused_by_name(stage: Any) -> None:
    """However far up it is missing."""
    top, middle, low = line_of(stage, 3)
    shutil.rmtree(top.folder)

    with pytest.raises(NoSuchAgent, match=f"agent {middle.id} has the parent {top.id}") as gone:
        ancestors(Layout(stage.root), stage.state(low))

    assert gone.value.kind == "missing-parent"


@pytest.mark.parametrize("length", [1, 2, 5])
def test_parents_that_go_round_are_refused_by_name(stage: Any, length: int) -> None:
    """Also where an agent is its own parent, and where the asker is not on the way round."""
    line = line_of(stage, length + 1)
    adopt(line[0], line[length - 1].id)

    with pytest.raises(Invalid, match="go round") as refused:
        ancestors(Layout(stage.root), stage.state(line[-1]))

    assert refused.value.kind == "parent-cycle"
    assert f"{line[length - 1].id} → " in refused.value.message
    assert refused.value.message.endswith(line[length - 1].id)
    below = descendants(Layout(stage.root), line[0].id)
    assert {one.paths.id for one in below} == {paths.id for paths in line[1:]}


def test_descendants_come_after_their_parents_and_never_upwards(stage: Any) -> None:
    """Children, grandchildren; neither siblings nor the agents above."""
    top, middle, low = line_of(stage, 3)
    aunt = stage.new(kind="subagent", parent=top.id, name="aunt")
    layout = Layout(stage.root)

    assert [one.paths.id for one in descendants(layout, top.id)] in (
        [middle.id, aunt.id, low.id],
        [aunt.id, middle.id, low.id],
    )
    assert [one.paths.id for one in descendants(layout, middle.id)] == [low.id]
    assert descendants(layout, low.id) == []


def test_an_agent_that_cannot_be_read_does_not_hide_the_others(stage: Any) -> None:
    """It names no parent any more."""
    top, middle, low = line_of(stage, 3)
    middle.log.unlink()
    layout = Layout(stage.root)

    assert descendants(layout, top.id) == []
    with pytest.raises(Invalid, match="cannot be known"):
        ancestors(layout, stage.state(low))
