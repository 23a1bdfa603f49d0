"""A spawner that is killed at any instant: its parent hears of each subagent once, all the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from asking import Told

from agentsdir.engine.dispatcher import run_inbox, run_until
from agentsdir.engine.restore import restore_all
from agentsdir.engine.spawn import SpawnRequest, create_child
from agentsdir.engine.turn import TurnOptions
from agentsdir.formats.errors import AgentsdirError
from agentsdir.formats.store.agent import AgentWriter
from agentsdir.formats.store.layout import AgentPaths, Layout

QUIET = TurnOptions(lambda _event: None)
ASKS = """
from asking import Told
if "<system_message" not in str(content):
    Told.on_prompt(str(content))
yield self.answer("heard " + str(content))
"""
KINDS = {"fine": {"provider": "echo"}, "failing": {"provider": "script", "options": {"file": "-"}}}


def spawn(stage: Any, parent: AgentPaths, kind: str, turn_id: str | None) -> Any:
    """Make a subagent that will answer, or one that will fail."""
    task = [{"type": "text", "text": f"task of {kind}"}]
    wanted = SpawnRequest(task, name=kind, **KINDS[kind])
    return create_child(stage.services, parent, wanted, turn_id=turn_id, sync=turn_id is not None)


def in_a_turn(stage: Any, parent: AgentPaths) -> None:
    """Have the parent's turn ask for two subagents."""

    def ask(_prompt: str) -> None:
        turn = stage.state(parent).open_turn
        for kind in KINDS:
            spawn(stage, parent, kind, turn["turnId"])

    Told.on_prompt = staticmethod(ask)
    stage.send(parent, "go")


def outside(stage: Any, parent: AgentPaths) -> None:
    """Spawn two subagents from a shell, one after the other."""
    for kind in KINDS:
        child = spawn(stage, parent, kind, None)
        with suppress(AgentsdirError):
            run_until(stage.services, child.paths, child.message_id, QUIET)


def killed_at(number: int, work: Callable[[], None]) -> bool:
    """Do something in a process that dies before its n-th record; tell whether it got there."""
    process = os.fork()
    if process == 0:
        left = number
        append = AgentWriter.append

        def die(writer: AgentWriter, *arguments: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os._exit(9)
            return append(writer, *arguments)

        AgentWriter.append = die  # type: ignore[method-assign]
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 9


def settle(stage: Any) -> None:
    """Restore all agents, and run what waits until nothing does."""
    layout = Layout(stage.root)
    agents = [layout.agent(agent) for agent in layout.agent_ids()]
    assert [one.error for one in restore_all(stage.services, agents) if one.error] == []
    for _ in range(50):
        waiting = [paths for paths in agents if stage.state(paths).pending]
        if waiting:
            with suppress(AgentsdirError):
                run_inbox(stage.services, waiting[0], QUIET)
    assert waiting == []
    assert [one.actions for one in restore_all(stage.services, agents, dry_run=True)] == [
        ("suspended",) if stage.state(paths).session.state.value == "active" else ()
        for paths in agents
    ]


def heard(stage: Any, parent: AgentPaths, child: str) -> tuple[list[str], list[str], list[str]]:
    """Return how a subagent ended in its parent's log: last words, block, and messages."""
    ends, blocks, messages = [], [], []
    for record in stage.log(parent):
        event, data = record["event"], record["data"]
        if event == "spawn.dropped" and data["child"] == child:
            ends.append("dropped")
        elif event == "agent.spawned" and data["child"] == child and data["status"] != "running":
            ends.append(data["status"])
        elif event == "block" and data["block"].get("subagentId") == child:
            blocks.append(data["block"]["status"])
        elif event == "message.enqueued" and data["sender"] == child:
            messages.append("notice" if data.get("notice") else "answer")
    return ends, blocks[-1:], messages


@pytest.mark.feature("T-10", "S-09")
@pytest.mark.parametrize("work", [in_a_turn, outside])
def test_a_spawner_killed_at_any_record_leaves_no_agent_in_doubt(
    stage: Any,
    plugin: Callable[..., str],
    memory_path: Path,
    work: Callable[[Any, AgentPaths], None],
) -> None:
    """After a boot, and once what waits has run, each subagent has ended in its parent's log once.

    A message comes with an end that the parent did not know of by itself: one.
    """
    provider = plugin("asker", body=ASKS)
    right = {
        "dropped": ("error", []),
        "success": ("success", ["answer"] if work is in_a_turn else []),
        "error": ("error", ["notice"]),
    }
    ends: set[str] = set()
    number = 0
    reached = True
    while reached:
        number += 1
        stage = type(stage)(memory_path / str(number))
        parent = stage.new(provider=provider)
        reached = killed_at(number, lambda: work(stage, parent))  # noqa: B023, done in the loop
        stage.ids.made += 1000  # the process that died has used some
        settle(stage)
        for child in Layout(stage.root).agent_ids():
            if child == parent.id:
                continue
            (end,), (block,), messages = heard(stage, parent, child)
            assert (block, messages) == right[end], (number, end)
            ends.add(end)
        assert stage.state(parent).children == {}
        delivered = [r for r in stage.log(parent) if r["event"] == "message.delivered"]
        enqueued = [r for r in stage.log(parent) if r["event"] == "message.enqueued"]
        assert len(delivered) == len(enqueued), number
    assert number > 20
    assert ends == ({*right} if work is in_a_turn else {"success", "error"})


@pytest.mark.feature("T-10")
def test_a_parent_that_went_on_with_a_notice_before_the_boot_has_it_once(stage: Any) -> None:
    """Killed between telling it and its own last record, the child's process left that to do."""
    parent = stage.new()
    child = spawn(stage, parent, "failing", None)
    with pytest.raises(AgentsdirError):
        run_until(stage.services, child.paths, child.message_id, QUIET)
    *before, last = child.paths.log.read_bytes().splitlines(keepends=True)
    assert b"message.delivered" in last
    child.paths.log.write_bytes(b"".join(before))
    for derived in (child.paths.state, child.paths.session):
        derived.unlink()
    assert (stage.state(parent).pending, stage.state(parent).counters["turns"]) == ([], 1)

    settle(stage)

    assert heard(stage, parent, child.paths.id) == (["error"], ["error"], ["notice"])
    assert stage.state(parent).counters["turns"] == 1
    assert stage.events(child.paths)[-2:] == ["message.delivered", "session.state"]
