"""`send --events` shows what becomes of the agents that the agent spawns."""

from __future__ import annotations

import io
from typing import Any

import orjson
import pytest

from agentsdir.cli.environment import Environment
from agentsdir.cli.services import services_of
from agentsdir.engine.spawn import SpawnRequest, create_child
from agentsdir.formats.blocks import Reducer

pytestmark = pytest.mark.feature("C-06")


def left(shell: Any, parent: str, *names: str) -> list[str]:
    """Make subagents that the next turn of their parent runs; return their ids."""
    out, err = io.StringIO(), io.StringIO()
    variables = {"AGENTSDIR_ROOT": str(shell.root)}
    env = Environment(io.BytesIO(), out, err, variables, shell.cwd, shell.home, login="me")
    services = services_of(env)
    paths = services.layout.agent(parent)
    made = []
    for name in names:
        wanted = SpawnRequest([{"type": "text", "text": f"task of {name}"}], name=name)
        made.append(create_child(services, paths, wanted, turn_id=None, sync=True).paths.id)
    return made


@pytest.mark.parametrize("names", [("one",), ("one", "two", "three")])
def test_subagents_are_shown_in_this_process_and_in_processes_of_their_own(
    shell: Any, names: tuple[str, ...]
) -> None:
    """One runs in this process, several run side by side."""
    parent = shell.new()
    children = left(shell, parent, *names)
    done = shell.process("send", parent, "go", "--events", "--children", stdout=-1)

    assert (done.returncode, done.stderr) == (0, "")
    events = [orjson.loads(line) for line in done.stdout.splitlines()]
    reducer = Reducer()
    for event in events:
        reducer.apply(event)
    shown = shell.ok("inspect", parent, "--runtime").json["subagents"]
    assert [one["id"] for one in shown] == children
    assert {one["id"]: reducer.blocks(one["id"]) for one in shown} == {
        one["id"]: one["blocks"] for one in shown
    }
    for child in children:
        own = [e for e in events if e.get("blockId") == f"spawn:{child}"]
        assert [event["type"] for event in own] == ["block_start", "block_complete"]
        assert [event["block"]["status"] for event in own] == ["running", "success"]


def test_without_children_their_own_events_are_left_out(shell: Any) -> None:
    """The stream is of one conversation."""
    parent = shell.new()
    left(shell, parent, "one")
    events = shell.ok("send", parent, "go", "--events").rows

    assert {event["conversationId"] for event in events} == {"main"}
    assert [e["type"] for e in events if str(e.get("blockId")).startswith("spawn:")] == [
        "block_start", "block_complete",
    ]  # fmt: skip


def test_the_text_of_the_answer_has_nothing_of_them(shell: Any) -> None:
    """As before: the answers of the agent alone."""
    parent = shell.new()
    left(shell, parent, "one")
    assert "Subagent" not in shell.ok("send", parent, "go").out


def test_children_is_refused_without_events(shell: Any) -> None:
    """It would have no effect."""
    done = shell("send", shell.new(), "go", "--children")
    assert (done.code, "--children goes with --events" in done.err) == (2, True)
