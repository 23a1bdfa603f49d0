"""Making agents: who they are, written once."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from agentsdir.engine.create import KINDS
from agentsdir.formats.errors import AgentsdirError, NoSuchAgent, UsageError
from agentsdir.formats.store import derived

PARENT = "a" * 24


def descriptor(paths: Any) -> dict[str, Any]:
    """Return descriptor.json."""
    found: dict[str, Any] = json.loads(paths.descriptor.read_bytes())
    return found


@pytest.mark.feature("G-01", "T-01", "C-01")
def test_each_of_the_four_kinds_gets_its_fields(stage: Any) -> None:
    """In descriptor.json and in the first record of the log, the same."""
    user = stage.new(connector="telegram", user="42", channel="7")
    cron = stage.new(kind="cron", cron="nightly")
    heartbeat = stage.new(kind="heartbeat")
    child = stage.new(kind="subagent", parent=user.id, name="reviewer")
    assert [descriptor(paths) for paths in (user, cron, heartbeat, child)] == [
        {"type": "user", "connector": "telegram", "userId": "42", "channelId": "7"},
        {"type": "cron", "id": "nightly"},
        {"type": "heartbeat"},
        {"type": "subagent", "id": child.id, "parentAgentId": user.id, "name": "reviewer"},
    ]
    for paths in (user, cron, heartbeat, child):
        first = stage.log(paths)[0]
        assert (first["seq"], first["event"]) == (1, "session.created")
        assert first["data"]["descriptor"] == descriptor(paths)
        assert paths.state.exists()
    assert stage.log(child)[0]["data"]["parentAgentId"] == user.id


@pytest.mark.feature("T-01")
def test_a_kind_is_not_derived_anew_when_its_file_is_lost(stage: Any) -> None:
    """It comes back from the first record."""
    from agentsdir.engine.restore import restore_agent

    paths = stage.new(kind="cron", cron="nightly")
    who = paths.descriptor.read_bytes()
    paths.descriptor.unlink()
    assert stage.state(paths).descriptor == json.loads(who)
    restore_agent(stage.services, paths)
    assert paths.descriptor.read_bytes() == who


def test_an_agent_without_a_kind_is_the_users_own_conversation(stage: Any) -> None:
    """Of the shell, of the user who is logged in, and of no other agent."""
    paths = stage.new(login="me")
    assert descriptor(paths) == {
        "type": "user",
        "connector": "cli",
        "userId": "me",
        "channelId": paths.id,
    }
    assert stage.new(login="me").id != paths.id


@pytest.mark.feature("G-01", "S-01")
def test_a_new_agent_has_all_its_files_and_is_created(stage: Any) -> None:
    """Nothing has run, nothing is active."""
    paths = stage.new(model="m", system_prompt="Be brief.", profile="p", cwd="/w", name="demo")
    assert sorted(path.name for path in paths.folder.iterdir()) == [
        "descriptor.json",
        "events.jsonl",
        "history.jsonl",
        "session.json",
        "stamps.json",
        "state.json",
    ]
    session = json.loads(paths.session.read_bytes())
    assert re.fullmatch("[0-9a-f]{32}", session["id"])
    assert (session["state"], session["model"]) == ("created", "m")
    document = json.loads(paths.state.read_bytes())
    assert document == derived.state_document(stage.state(paths))
    assert document["descriptor"] == descriptor(paths)
    assert (document["state"], document["lastSeq"], document["pending"]) == ("created", 1, [])
    assert [json.loads(line)["type"] for line in paths.history.read_bytes().splitlines()] == [
        "start"
    ]
    data = stage.log(paths)[0]["data"]
    assert (data["system_prompt"], data["profile"], data["cwd"], data["name"]) == (
        "Be brief.",
        "p",
        "/w",
        "demo",
    )
    h = session["id"]
    assert data["native"]["id"] == f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


def test_a_task_uid_in_the_grammar_is_the_agent_id(stage: Any) -> None:
    """Any other uid gets an id of its own."""
    uid = "c" * 24
    assert stage.new(kind="cron", cron=uid).id == uid
    assert stage.new(kind="cron", cron="every night").id != "every night"


UNIQUE = {
    "a user's conversation": {"connector": "c", "user": "u", "channel": "x"},
    "a cron task": {"kind": "cron", "cron": "nightly"},
    "a cron task that is an id": {"kind": "cron", "cron": "c" * 24},
    "the heartbeat": {"kind": "heartbeat"},
    "a name": {"name": "demo"},
    "a sibling's name": {"kind": "subagent", "parent": PARENT, "name": "child"},
}


@pytest.mark.parametrize("wanted", UNIQUE.values(), ids=UNIQUE)
def test_there_is_only_one_live_agent_of(stage: Any, wanted: dict[str, Any]) -> None:
    """The second is refused, naming the first, and nothing is made."""
    stage.new(kind="cron", cron=PARENT)
    first = stage.new(**wanted)
    before = stage.tree()
    with pytest.raises(AgentsdirError) as refused:
        stage.new(**wanted)
    assert refused.value.kind == "already-exists"
    assert first.id in refused.value.message
    assert stage.tree() == before


@pytest.mark.parametrize(
    "key",
    ["a user's conversation", "a cron task", "the heartbeat", "a name", "a sibling's name"],
)
def test_a_terminated_agent_keeps_no_key(stage: Any, key: str) -> None:
    """Another may take its place."""
    stage.new(kind="cron", cron=PARENT)
    first = stage.new(**UNIQUE[key])
    change = {"from": "created", "to": "terminated", "reason": "close"}
    stage.append(first, "session.state", change)
    assert stage.new(**UNIQUE[key]).id != first.id


@pytest.mark.feature("G-05")
def test_the_ids_of_the_command_line_are_fresh_cuids_and_uuids() -> None:
    """A thousand of them, all different, all in the grammar."""
    from agentsdir.cli.services import FreshIds
    from agentsdir.formats import ids

    fresh = FreshIds()
    made = {fresh.agent() for _ in range(1000)}
    assert len(made) == 1000
    assert all(ids.is_agent_id(one) and one[0].isalpha() for one in made)
    sessions = {fresh.session() for _ in range(100)}
    assert len(sessions) == 100
    assert all(re.fullmatch("[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}", one) for one in sessions)


WRONG = {
    "an unknown kind": {"kind": "oracle"},
    "a cron without a uid": {"kind": "cron"},
    "a subagent without a parent": {"kind": "subagent", "name": "x"},
    "a subagent without a name": {"kind": "subagent", "parent": PARENT},
    "half a conversation": {"connector": "c", "user": "u"},
    "a channel alone": {"channel": "c"},
    "a uid for a user": {"cron": "nightly"},
    "a parent for a user": {"parent": PARENT},
    "a connector for the heartbeat": {"kind": "heartbeat", "connector": "c"},
    "a name like an option": {"name": "--json"},
    "a name like a path": {"name": "a/b"},
    "an unknown provider": {"provider": "nobody"},
    "a provider like a path": {"provider": "../echo"},
    "an unknown option": {"options": {"file": "x"}},
}


@pytest.mark.parametrize("wanted", WRONG.values(), ids=WRONG)
def test_what_contradicts_itself_is_a_usage_error_and_makes_nothing(
    stage: Any, wanted: dict[str, Any]
) -> None:
    """Found before the disk is touched."""
    with pytest.raises(UsageError):
        stage.new(**wanted)
    assert not stage.root.exists()


@pytest.mark.parametrize("parent", ["nobody", "b" * 24])
def test_a_parent_that_does_not_exist_makes_no_child(stage: Any, parent: str) -> None:
    """It is no such agent, and nothing appears in agents/."""
    stage.new()
    before = stage.tree()
    with pytest.raises(NoSuchAgent):
        stage.new(kind="subagent", parent=parent, name="x")
    assert {**stage.tree(), ".lock": b""} == {**before, ".lock": b""}


def test_the_kinds_are_those_of_the_design() -> None:
    """Spelled as in files."""
    assert KINDS == ("user", "cron", "heartbeat", "subagent")
