"""Which agent is the most recent: one order, complete, for all who look."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsdir.engine.close import close
from agentsdir.engine.lookup import FOREGROUND, STRATEGIES, last_agent, resolve
from agentsdir.formats.errors import NoSuchAgent, UsageError
from agentsdir.formats.store.agent import create_agent_folder, write_agent
from agentsdir.formats.store.files import Disk, Durability
from agentsdir.formats.store.layout import Layout

# Few values, so that ties are common. The last two are the same instant.
TIMES = [
    "2026-01-02T03:04:05.000001Z",
    "2026-01-02T03:04:05.000002Z",
    "2026-01-02T23:59:59.000000Z",
    "2026-01-03T00:59:59+01:00",
]
INSTANTS = [0, 1, 2, 2]
MADE = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["user", "user", "cron", "heartbeat", "subagent"]),
        "state": st.sampled_from(["created", "active", "suspended", "terminated"]),
        "created": st.integers(0, 3),
        "turn": st.none() | st.integers(0, 3),
    }
)
QUICK = Disk(Durability.NEVER)


def agent_id(number: int) -> str:
    """Return the id of an agent of these tests."""
    return f"x{number:023}"


def descriptor(kind: str, own: str) -> dict[str, Any]:
    """Return who an agent is."""
    return {
        "user": {"type": "user", "connector": "c", "userId": "u", "channelId": own},
        "cron": {"type": "cron", "id": own},
        "heartbeat": {"type": "heartbeat"},
        "subagent": {"type": "subagent", "id": own, "parentAgentId": own, "name": "n"},
    }[kind]


def make(layout: Layout, number: int, made: dict[str, Any]) -> None:
    """Make an agent as it is described."""
    own, session = agent_id(number), f"{number:032x}"
    native = {"architecture": "echo", "id": session, "cwd": "/"}
    data = {
        "agent_id": own,
        "descriptor": descriptor(made["kind"], own),
        "provider": "echo",
        "model": "echo-1",
        "system_prompt": "",
        "profile": "",
        "cwd": "/",
        "permission_mode": None,
        "limits": {},
        "options": {},
        "native": native,
    }
    paths = create_agent_folder(layout, own, data, TIMES[made["created"]], session, QUICK)
    with write_agent(paths, disk=QUICK) as writer:
        if made["turn"] is not None:
            turn = {
                "turn_id": agent_id(900),
                "message_ids": [agent_id(901)],
                "provider": "echo",
                "attempt": 1,
            }
            writer.append("turn.start", turn, TIMES[made["turn"]])
        way = {"created": [], "suspended": ["active", "suspended"]}
        for state in way.get(made["state"], [made["state"]]):
            change = {"from": writer.state.session.state.value, "to": state, "reason": "test"}
            writer.append("session.state", change, TIMES[0])


@pytest.mark.feature("T-02", "T-11")
@settings(max_examples=60)
@given(agents=st.lists(MADE, max_size=6), strategy=st.sampled_from(sorted(STRATEGIES)))
def test_a_strategy_names_the_most_recent_live_agent_of_its_kind(
    agents: list[dict[str, Any]], strategy: str
) -> None:
    """By last turn, then by making, then by id; and so neither cron nor heartbeat is foreground."""
    with tempfile.TemporaryDirectory() as folder:
        layout = Layout(Path(folder))
        for number, made in enumerate(agents):
            make(layout, number, made)
        meant = [
            (
                -1 if made["turn"] is None else INSTANTS[made["turn"]],
                INSTANTS[made["created"]],
                -number,
            )
            for number, made in enumerate(agents)
            if made["state"] != "terminated" and made["kind"] == STRATEGIES[strategy]
        ]
        if not meant:
            with pytest.raises(NoSuchAgent):
                resolve(layout, strategy)
        else:
            assert resolve(layout, strategy).paths.id == agent_id(-max(meant)[2])


@pytest.mark.feature("T-02")
def test_reading_restoring_and_a_merely_queued_message_move_no_agent(stage: Any) -> None:
    """Only a turn's start does (the originals scrambled this order at each boot)."""
    from agentsdir.engine.restore import restore_agent

    first, second = stage.new(), stage.new()
    for paths in (first, second):
        stage.send(paths)

    stage.enqueue(first, "later")
    restore_agent(stage.services, first)
    assert resolve(Layout(stage.root), FOREGROUND).paths.id == second.id

    stage.send(first)
    assert resolve(Layout(stage.root), FOREGROUND).paths.id == first.id


def test_an_agent_that_cannot_be_read_is_passed_over_and_named(stage: Any) -> None:
    """It may be the one; the answer says so."""
    kept, broken = stage.new(), stage.new()
    broken.log.write_bytes(b"")
    broken.descriptor.unlink()

    resolved = resolve(Layout(stage.root), FOREGROUND)

    assert resolved.paths.id == kept.id
    assert [listed.paths.id for listed in resolved.unreadable] == [broken.id]


def test_another_strategy_is_a_usage_error_that_names_both(stage: Any) -> None:
    """Only two are supported."""
    with pytest.raises(UsageError, match="no strategy 'oldest'") as refused:
        resolve(Layout(stage.root), "oldest")
    assert refused.value.hint == "one of most-recent-foreground, heartbeat"


def test_the_last_agent_is_the_most_recent_of_its_folder_and_provider(
    stage: Any, tmp_path: Path
) -> None:
    """Neither those of other folders nor tasks, subagents, ephemeral and closed ones."""
    here, elsewhere = str(tmp_path / "here"), str(tmp_path / "elsewhere")
    first, second = stage.new(cwd=here), stage.new(cwd=here)
    stage.new(cwd=elsewhere)
    stage.new(cwd=here, kind="cron", cron="nightly")
    stage.new(cwd=here, ephemeral=True)
    layout = Layout(stage.root)

    assert last_agent(layout, here).paths.id == second.id
    stage.send(first)
    assert last_agent(layout, here).paths.id == first.id
    assert last_agent(layout, here, "echo").paths.id == first.id
    with pytest.raises(NoSuchAgent, match="no live claude agent of"):
        last_agent(layout, here, "claude")
    close(stage.services, first)
    assert last_agent(layout, here).paths.id == second.id
