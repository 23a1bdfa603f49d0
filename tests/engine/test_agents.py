"""Which agent a name means."""

from __future__ import annotations

from typing import Any

import pytest

from agentsdir.engine.lookup import each_agent, find_agent, inspection, list_row
from agentsdir.engine.spawn import SpawnRequest, create_child
from agentsdir.engine.turn_lock import hold_turn
from agentsdir.formats import ids
from agentsdir.formats.errors import AgentsdirError, NoSuchAgent, UnsafePath, UsageError
from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.layout import Layout


def find(stage: Any, reference: str) -> str:
    """Return the id of the agent that `reference` names."""
    return find_agent(Layout(stage.root), reference).id


def test_an_agent_is_found_by_each_of_its_references(stage: Any) -> None:
    """Its id, its session id in both spellings, its name, and the first four characters of each."""
    stage.new()
    wanted = stage.new(kind="cron", cron="dq" + "7" * 22, name="my agent")
    session = stage.state(wanted).session.id
    dashed = ids.dashed(session)
    for reference in (
        wanted.id,
        session,
        dashed,
        dashed.upper(),
        "my agent",
        wanted.id[:4],
        wanted.id[:23],
        session[:31],
        session[:30],
        dashed[:35],
        "my a",
    ):
        assert find(stage, reference) == wanted.id, reference


def test_an_exact_id_comes_before_a_name_and_a_name_before_a_prefix(stage: Any) -> None:
    """Whatever else the text would match."""
    first = stage.new(kind="cron", cron="abcd" + "0" * 20)
    other = stage.new(name=first.id)
    named = stage.new(name="efgh")
    longer = stage.new(kind="cron", cron="efgh" + "0" * 20)
    assert find(stage, first.id) == first.id
    assert find(stage, "efgh") == named.id
    assert find(stage, "efgh0") == longer.id
    session = stage.state(first).session.id
    stage.new(name=session)
    assert find(stage, session) == first.id
    assert other.id != first.id


def test_an_ambiguous_prefix_is_an_error_with_the_candidates(stage: Any) -> None:
    """All of them, and nothing is guessed."""
    one = stage.new(kind="cron", cron="abcd" + "0" * 20)
    two = stage.new(kind="cron", cron="abcd" + "1" * 20)
    with pytest.raises(UsageError) as refused:
        find(stage, "abcd")
    assert refused.value.kind == "ambiguous"
    assert one.id in refused.value.message
    assert two.id in refused.value.message


def test_a_name_of_two_siblings_in_different_families_is_ambiguous(stage: Any) -> None:
    """Names are unique among siblings only."""
    for parent in (stage.new(), stage.new()):
        stage.new(kind="subagent", parent=parent.id, name="child")
    with pytest.raises(UsageError) as refused:
        find(stage, "child")
    assert refused.value.kind == "ambiguous"


@pytest.mark.parametrize("reference", ["abc", "a", "a---", "ab-c", "0-0-0", "...."])
def test_fewer_than_four_characters_of_an_id_are_no_prefix(stage: Any, reference: str) -> None:
    """Dashes do not count."""
    stage.new(kind="cron", cron="abcd" + "0" * 20)
    with pytest.raises(NoSuchAgent):
        find(stage, reference)


def test_a_link_in_place_of_an_agents_folder_is_never_followed(stage: Any) -> None:
    """By its exact id it is unsafe; by anything else it is not there."""
    paths = stage.new(name="demo")
    paths.folder.rename(stage.root.parent / "elsewhere")
    paths.folder.symlink_to(stage.root.parent / "elsewhere")
    with pytest.raises(UnsafePath):
        find(stage, paths.id)
    with pytest.raises(NoSuchAgent):
        find(stage, "demo")


def test_an_agent_that_cannot_be_read_does_not_hide_the_others(stage: Any) -> None:
    """It is listed with its error, and the others are found by name and prefix."""
    good = stage.new(name="good")
    bad = stage.new(name="bad")
    bad.log.unlink()
    bad.log.mkdir()
    bad.state.unlink()
    listed = {one.paths.id: one for one in each_agent(Layout(stage.root))}
    assert listed[good.id].document is not None
    assert listed[bad.id].document is None
    assert isinstance(listed[bad.id].error, AgentsdirError)
    assert find(stage, "good") == good.id


@pytest.mark.feature("B-02")
def test_a_list_row_has_the_fields_of_the_design(stage: Any) -> None:
    """SessionListData, and what a list shows besides."""
    paths = stage.new(profile="code-reviewer")
    stage.send(paths, "hello world")
    row = list_row(paths, stage.state(paths))
    assert row["sessionId"] == stage.state(paths).session.id
    assert row["type"] == "echo"
    assert row["agentProfileReference"] == "code-reviewer"
    assert row["status"] == "idle"
    assert row["createdAt"] < row["lastActivity"]
    assert (row["title"], row["state"], row["pendingCount"]) == ("hello world", "active", 0)
    assert row["counters"] == {"turns": 1, "failedTurns": 0, "messages": 1, "blocks": 2}


def test_status_is_computed_from_the_lock_and_the_state(stage: Any) -> None:
    """Running while a turn is held, closed when terminated, else idle."""
    paths = stage.new()
    assert list_row(paths, stage.state(paths))["status"] == "idle"
    with locks.hold(paths.turn):
        assert list_row(paths, stage.state(paths))["status"] == "running"
    change = {"from": "created", "to": "terminated", "reason": "close"}
    stage.append(paths, "session.state", change)
    assert list_row(paths, stage.state(paths))["status"] == "closed"


def test_a_torn_tail_is_no_finding_while_a_writer_lives(stage: Any) -> None:
    """With no process at work it is."""
    paths = stage.new()
    with paths.log.open("ab") as log:
        log.write(b'{"seq":2,')
    with locks.hold(paths.turn):
        assert inspection(paths, read_agent(paths))["findings"] == []
    findings = inspection(paths, read_agent(paths))["findings"]
    assert [finding["id"] for finding in findings] == ["torn-tail"]


@pytest.mark.feature("A-03", "C-08")
def test_an_inspection_shows_who_stands_above_and_below_and_what_waits(stage: Any) -> None:
    """Its status, its parent, its subagents, the messages that no turn has taken."""
    parent = stage.new()
    turn = stage.begin_turn(parent)
    content = [{"type": "text", "text": "count"}]
    with hold_turn(parent):
        made = create_child(
            stage.services, parent, SpawnRequest(content, name="fox"), turn_id=turn, sync=True
        )
        above = inspection(parent, read_agent(parent))
    below = inspection(made.paths, read_agent(made.paths))
    assert (above["status"], below["status"]) == ("running", "idle")
    assert (above["parent"], above["depth"], below["parent"], below["depth"]) == (
        None, 0, parent.id, 1,
    )  # fmt: skip
    assert above["children"] == [{"agentId": made.paths.id, "name": "fox", "status": "pending"}]
    assert below["children"] == []
    assert [one["messageId"] for one in below["pending"]] == [made.message_id]
    assert (above["pendingCount"], below["pendingCount"]) == (0, 1)
    assert not above["isAborted"]
    asked = {"turn_id": turn, "reason": "interrupt"}
    stage.append(parent, "abort.requested", asked)
    assert inspection(parent, read_agent(parent))["isAborted"]


@pytest.mark.feature("C-08")
def test_an_inspection_shows_the_inbox_the_open_turn_and_the_log(stage: Any) -> None:
    """Everything that is not a block."""
    paths = stage.new()
    message = stage.enqueue(paths, "later")
    seen = inspection(paths, read_agent(paths))
    assert [entry["messageId"] for entry in seen["pending"]] == [message]
    assert seen["openTurn"] is None
    assert seen["log"] == {
        "path": str(paths.log),
        "size": paths.log.stat().st_size,
        "lastSeq": 2,
    }
