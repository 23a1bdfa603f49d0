"""Making subagents: what they have of their parent, and what the parent's log says."""

from __future__ import annotations

from typing import Any

import pytest

from agentsdir.engine.spawn import SpawnedChild, SpawnRequest, create_child
from agentsdir.engine.turn_lock import hold_turn
from agentsdir.formats.errors import AgentsdirError, NotRecorded, SessionStateError, Uncertain
from agentsdir.formats.store.agent import AgentWriter
from agentsdir.formats.store.layout import Layout
from agentsdir.formats.store.settings import Settings

TASK = [{"type": "text", "text": "count the foxes"}]


def make(stage: Any, parent: Any, turn_id: str | None = None, **wanted: Any) -> SpawnedChild:
    """Make a subagent, in a turn if one is named."""
    deferred = turn_id is not None
    with hold_turn(parent):
        return create_child(
            stage.services, parent, SpawnRequest(TASK, **wanted), turn_id=turn_id, sync=deferred
        )


def created(stage: Any, paths: Any) -> dict[str, Any]:
    """Return the data of an agent's first record."""
    data: dict[str, Any] = stage.log(paths)[0]["data"]
    return data


def files(stage: Any) -> dict[str, bytes]:
    """Return every file of the agents directory, but for the locks and the index."""
    tree: dict[str, bytes] = stage.tree()
    others = (".lock", ".turn", "index.jsonl")
    return {name: data for name, data in tree.items() if not name.endswith(others)}


def agents(stage: Any) -> list[str]:
    """Return the ids of all agents."""
    return list(Layout(stage.root).agent_ids())


PARENTS: dict[str, dict[str, str]] = {
    "user": {},
    "cron": {"kind": "cron", "cron": "nightly"},
    "heartbeat": {"kind": "heartbeat"},
    "subagent": {"kind": "subagent", "name": "middle"},
}


@pytest.mark.feature("T-04", "G-05")
@pytest.mark.parametrize("kind", PARENTS)
def test_a_subagent_has_a_parent_a_name_an_id_of_its_own_and_its_prompt(
    stage: Any, kind: str
) -> None:
    """From the instant that it appears; the id is new each time, also for the same name."""
    above = {"parent": stage.new().id} if kind == "subagent" else {}
    parent = stage.new(**PARENTS[kind], **above)
    child = make(stage, parent, name="counter")
    assert stage.events(child.paths) == ["session.created", "message.enqueued"]
    assert created(stage, child.paths)["descriptor"] == {
        "type": "subagent",
        "id": child.paths.id,
        "parentAgentId": parent.id,
        "name": "counter",
    }
    assert stage.log(child.paths)[1]["data"] == {
        "message_id": child.message_id,
        "sender": parent.id,
        "kind": "user",
        "content": TASK,
        "spawn": True,
    }
    state = stage.state(child.paths)
    closing = {"from": "created", "to": "terminated", "reason": "close"}
    assert (state.title, state.session.state.value) == ("count the foxes", "created")
    stage.append(child.paths, "session.state", closing)
    assert make(stage, parent, name="counter").paths.id != child.paths.id


@pytest.mark.feature("S-09")
def test_a_subagent_that_a_turn_asks_for_is_named_in_that_turn(stage: Any) -> None:
    """The request comes before its block, so that it is never left unrun; its answer comes back.

    Outside a turn there is nothing to wait for.
    """
    parent = stage.new()
    outside = make(stage, parent, name="outside")
    turn = stage.begin_turn(parent)
    before = len(stage.log(parent))
    inside = make(stage, parent, turn, name="inside")
    requested, block = stage.log(parent)[before:]
    assert (requested["event"], requested["data"]) == (
        "spawn.requested",
        {"child": inside.paths.id, "name": "inside", "turn_id": turn},
    )
    assert block["data"]["turn_id"] == turn
    assert block["data"]["block"] == {
        "type": "subagent",
        "id": f"spawn:{inside.paths.id}",
        "conversationId": "main",
        "sessionId": stage.state(parent).native["id"],
        "timestamp": stage.log(inside.paths)[0]["ts"],
        "subagentId": inside.paths.id,
        "name": "inside",
        "input": "count the foxes",
        "status": "pending",
        "source": None,
    }
    assert stage.log(inside.paths)[1]["data"]["sync"] is True
    state = stage.state(parent)
    assert state.open_turn["deferred"] == [{"child": inside.paths.id, "name": "inside"}]
    assert state.children == {
        outside.paths.id: {"name": "outside", "status": "running"},
        inside.paths.id: {"name": "inside", "status": "pending"},
    }


@pytest.mark.feature("A-05", "A-06")
def test_a_subagent_has_what_its_parent_has_but_not_what_it_is(stage: Any) -> None:
    """Provider, model, options, limits, fallbacks, folder, profile; not the system prompt."""
    root = stage.new(provider="script", fallbacks=("echo",), profile="p", cwd="/w")
    it = {"provider": "script", "model": "m", "options": {"file": "talk.jsonl"}, "max_ticks": 7}
    parent = make(stage, root, system_prompt="You are the parent.", **it).paths
    same = created(stage, make(stage, parent).paths)
    assert {key: same[key] for key in ("provider", "model", "profile", "cwd", "options")} == {
        "provider": "script",
        "model": "m",
        "profile": "p",
        "cwd": "/w",
        "options": {"file": "talk.jsonl"},
    }
    assert (same["system_prompt"], same["limits"]) == ("", {"max_ticks": 7})
    assert (same["native"]["cwd"], same["fallbacks"]) == ("/w", ["echo"])
    own = {
        "provider": "echo",
        "system_prompt": "Count.",
        "profile": "q",
        "cwd": "/v",
        "max_ticks": 2,
    }
    other = created(stage, make(stage, parent, **own).paths)
    # What only the parent's provider would know stays behind with it.
    assert {key: other[key] for key in ("provider", "model", "profile", "cwd", "options")} == {
        "provider": "echo",
        "model": "echo-1",
        "profile": "q",
        "cwd": "/v",
        "options": {},
    }
    assert (other["system_prompt"], other["limits"]) == ("Count.", {"max_ticks": 2})
    assert "fallbacks" not in other
    mixed = created(stage, make(stage, parent, options={"file": "other.jsonl"}, model="n").paths)
    assert (mixed["options"], mixed["model"]) == ({"file": "other.jsonl"}, "n")


def test_the_permission_mode_goes_on_where_a_program_heeds_it(stage: Any, program: Any) -> None:
    """To be a subagent's, it must be one that a log may ask for."""
    parent = stage.new(provider=program(), permission_mode="plan")
    assert created(stage, make(stage, parent).paths)["permission_mode"] == "plan"
    assert created(stage, make(stage, parent, provider="echo").paths)["permission_mode"] is None


@pytest.mark.feature("T-04")
def test_siblings_are_distinguished_by_name(stage: Any) -> None:
    """One that is given must be free; one that is not is made of the id, which is."""
    parent = stage.new()
    make(stage, parent, name="one")
    with pytest.raises(AgentsdirError) as refused:
        make(stage, parent, name="one")
    assert refused.value.kind == "already-exists"
    named = [make(stage, parent, base="fox") for _ in range(3)]
    assert len({child.name for child in named}) == 3
    assert make(stage, parent, base="a/b").name.startswith("subagent-")
    assert make(stage, stage.new(), name="one").name == "one"


@pytest.mark.feature("A-06")
def test_there_are_ten_levels_below_the_root_and_no_eleventh(stage: Any) -> None:
    """An agent on the last one may spawn none, and nothing is left of the attempt."""
    paths = stage.new()
    for _ in range(10):
        paths = make(stage, paths).paths
    before = files(stage)
    with pytest.raises(SessionStateError, match="Maximum spawn depth") as refused:
        make(stage, paths)
    assert refused.value.kind == "spawn-depth"
    assert files(stage) == before


def test_an_agent_has_as_many_subagents_at_work_as_settings_toml_says(stage: Any) -> None:
    """One more is refused, and nothing is left of it; one that has ended makes room."""
    services = stage.services._replace(settings=Settings(max_children=2))
    parent = stage.new()

    def make_one() -> Any:
        with hold_turn(parent):
            return create_child(
                services, parent, SpawnRequest(TASK), turn_id=None, sync=False
            ).paths

    first, _ = make_one(), make_one()
    before = files(stage)

    with pytest.raises(SessionStateError, match=r"children \(2\) exceeded") as refused:
        make_one()

    assert refused.value.kind == "spawn-children"
    assert files(stage) == before
    stage.send(first, "more")
    assert len(stage.state(parent).children) == 1
    make_one()


def test_a_closed_agent_and_a_turn_that_is_over_have_no_subagents(stage: Any) -> None:
    """Neither in the parent's log nor as a folder."""
    parent = stage.new()
    turn = stage.begin_turn(parent)
    stage.append(parent, "turn.aborted", {"turn_id": turn, "reason": "interrupt"})
    before = files(stage)
    for other in (turn, stage.ids.agent()):
        with pytest.raises(SessionStateError) as refused:
            make(stage, parent, other)
        assert refused.value.kind == "turn-over"
    closed = stage.new()
    closing = {"from": "created", "to": "terminated", "reason": "close"}
    stage.append(closed, "session.state", closing)
    with pytest.raises(SessionStateError, match="is closed") as refused:
        make(stage, closed)
    assert refused.value.kind == "closed"
    assert {name: files(stage)[name] for name in before} == before
    assert sorted(agents(stage)) == sorted([parent.id, closed.id])


class Refusing:
    """A parent's log in which the n-th record from now meets an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int, error: BaseException) -> None:
        append = AgentWriter.append
        left = [number]

        def refuse(writer: AgentWriter, *arguments: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise error
            return append(writer, *arguments)

        monkeypatch.setattr(AgentWriter, "append", refuse)


def test_one_that_its_parents_log_does_not_name_is_taken_back(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No caller got its id, so that no caller waits for it."""
    parent = stage.new()
    turn = stage.begin_turn(parent)
    before = files(stage)
    Refusing(monkeypatch, 1, NotRecorded("the disk is full"))
    with pytest.raises(NotRecorded):
        make(stage, parent, turn)
    assert files(stage) == before


@pytest.mark.parametrize(
    ("number", "error"), [(1, Uncertain("it is not known")), (2, NotRecorded("the disk is full"))]
)
def test_one_that_its_parents_log_may_name_stays(
    stage: Any, monkeypatch: pytest.MonkeyPatch, number: int, error: AgentsdirError
) -> None:
    """A log that names an agent which is gone would be worse than one agent too many."""
    parent = stage.new()
    turn = stage.begin_turn(parent)
    Refusing(monkeypatch, number, error)
    with pytest.raises(type(error)):
        make(stage, parent, turn)
    assert len(agents(stage)) == 2


@pytest.mark.feature("A-06")
def test_what_an_ephemeral_agent_spawns_is_ephemeral_too(stage: Any) -> None:
    """No caller would find it once the other is gone."""
    parent = stage.new()
    child = make(stage, parent, ephemeral=True)
    assert "ephemeral" not in created(stage, make(stage, parent).paths)
    assert created(stage, make(stage, child.paths).paths)["ephemeral"] is True
