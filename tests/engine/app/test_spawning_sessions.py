"""Children of a session: the three forms, how they end, and what their parent has of them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from commands import Done, run_here
from gates import ECHO, GATED, LONG, Gate, endings, kind_of, logged, wait_for
from looping import model

from agentsdir import AgentConfig, App, Session, element
from agentsdir.formats.errors import ProviderError, SessionStateError, UsageError


def agentsdir(root: Path, *arguments: str) -> Done:
    """Run a command on a root."""
    return run_here("--root", str(root), *arguments, variables=os.environ, cwd=root)


def agents(root: Path) -> int:
    """Return how many agents a root has."""
    return len(list((root / "agents").iterdir()))


def becomes(events: Any) -> list[str]:
    """Return what becomes of spawned agents, of a parent's events."""
    found = []
    for event in events:
        if str(event.get("blockId")).startswith("spawn:"):
            status = event.get("block", event.get("updates", {})).get("status")
            found.append(f"{event['type']} {status}")
    return found


def Child(query: str = "", tone: str = "plain") -> AgentConfig:  # noqa: N802, a component
    """Return a configuration that says what its props were."""
    return AgentConfig(provider="echo", system=f"{query} {tone}")


def test_a_child_is_a_component_a_configuration_or_an_element(tmp_path: Path) -> None:
    """Each runs to its end and is gone: from the children, and from the disk."""
    with App(ECHO, root=tmp_path) as app:
        session = app.session("parent")
        by_component = session.spawn(Child, "one")
        by_config = session.spawn(AgentConfig(provider="echo", system="Sum up."), ["two"])
        by_element = session.spawn(
            element(Child, query="quantum"), {"messages": [{"content": "3"}]}
        )

        executions = [by_component, by_config, by_element]
        assert [one.result.response for one in executions] == ["one", "two", "3"]
        assert all(one.child is not None and one.child.parent is session for one in executions)
        assert session.children == ()
        assert list(app.sessions) == [session]
        assert agents(tmp_path) == 1
        assert by_element.child is not None
        assert by_element.child.status == "closed"
    assert endings(session.paths) == []


def test_a_child_that_is_no_agent_or_gets_wrong_props_is_an_error_of_its_execution(
    tmp_path: Path,
) -> None:
    """Nothing is made then."""
    with App(ECHO, root=tmp_path) as app:
        session = app.session()
        wrong: Any = "no agent"
        assert kind_of(session.spawn(wrong, "x")) == "bad-component"
        assert kind_of(session.spawn(element(Child, nothing=1), "x")) == "bad-props"
        assert kind_of(session.spawn(Child, [])) == "bad-prompt"
        assert kind_of(session.spawn(AgentConfig(provider="none-such"), "x")) == "no-such-adapter"
        assert session.children == ()
        assert agents(tmp_path) == 1


def test_children_run_side_by_side_and_are_there_while_they_run(
    app: App, gate: Gate, tmp_path: Path
) -> None:
    """Also of a parent that runs no turn."""
    session = app.session()
    executions = [session.spawn(GATED, f"task {number}", name=f"n{number}") for number in range(3)]
    for number in range(3):
        gate.wait_for(f"task {number}")

    assert sorted(child.name or "" for child in session.children) == ["n0", "n1", "n2"]
    assert [child.status for child in session.children] == ["running"] * 3
    assert session.status == "idle"
    assert list(app.sessions) == [session]
    gate.go()
    assert [one.result.response for one in executions] == [f"task {n}" for n in range(3)]
    wait_for(lambda: session.children == ())
    assert agents(tmp_path) == 1


def test_a_name_that_a_live_child_has_is_refused(app: App, gate: Gate) -> None:
    """It is free again when that one has ended."""
    session = app.session()
    first = session.spawn(GATED, "one", name="helper")
    gate.wait_for("one")
    assert kind_of(session.spawn(GATED, "two", name="helper")) == "already-exists"
    gate.go()
    assert first.result.response == "one"
    assert session.spawn(GATED, "three", name="helper").result.response == "three"


def test_a_child_inherits_the_model_of_its_provider_the_limit_and_the_runner(
    tmp_path: Path,
) -> None:
    """And nothing else, but what the options of the spawn say instead."""
    with App(ECHO, root=tmp_path, model="large", max_ticks=7) as app:
        session = app.session()
        config = AgentConfig(provider="echo")
        same = session.spawn(config, "one", ephemeral=False)
        other = session.spawn(config, "two", model="small", max_ticks=3, ephemeral=False)
        assert [same.result.response, other.result.response] == ["one", "two"]
        children = [same.child, other.child]
        states = [child._state() for child in children if child is not None]

    assert [state.session.model for state in states] == ["large", "small"]
    assert [state.limits.get("max_ticks") for state in states] == [7, 3]


def test_a_child_that_fails_is_an_error_of_its_execution_alone(app: App, gate: Gate) -> None:
    """The parent goes on, and its log says how the child ended."""

    def fails(_request: Any) -> str:
        raise ValueError("no")

    gate.go()
    session = app.session()
    with model(fails, "failing"):
        execution = session.spawn(AgentConfig(provider="failing"), "x")
        with pytest.raises(ProviderError):
            execution.wait(LONG)
    assert session.send("goes on").result.response == "goes on"
    assert session.children == ()
    assert session.queued_messages == []
    assert gate.prompts == ["goes on"]  # the failure is no message: the caller has it


def test_an_abort_of_a_turn_ends_the_children_that_run(
    app: App, gate: Gate, tmp_path: Path
) -> None:
    """Those of the session, whichever call spawned them."""
    session = app.session()
    turn = session.send("turn")
    gate.wait_for("turn")
    children = [session.spawn(GATED, text) for text in ("one", "two")]
    gate.wait_for("one")
    gate.wait_for("two")
    turn.abort("enough")

    assert [kind_of(one) for one in (turn, *children)] == ["turn-aborted"] * 3
    wait_for(lambda: session.children == ())
    assert agents(tmp_path) == 1
    assert session._state().children == {}
    assert session.queued_messages == []


def test_an_interrupt_ends_also_a_child_that_waits_for_a_slot(tmp_path: Path, gate: Gate) -> None:
    """It is removed, and never begins."""
    (tmp_path / "settings.toml").write_text("max_slots = 1\n")
    with App(GATED, root=tmp_path) as app:
        busy = app.session("busy").send("busy")
        gate.wait_for("busy")
        session = app.session()
        child = session.spawn(GATED, "late")
        wait_for(lambda: child.message_id)
        assert session.interrupt()

        assert kind_of(child) == "turn-aborted"
        wait_for(lambda: agents(tmp_path) == 2)
        assert (session._state().children, session.queued_messages) == ({}, [])
        gate.go()
        assert busy.result.response == "busy"
    assert gate.prompts == ["busy"]


def test_another_process_interrupts_a_parent_and_its_children(
    app: App, gate: Gate, tmp_path: Path
) -> None:
    """`agentsdir interrupt` asks all of them."""
    session = app.session("parent")
    turn = session.send("turn")
    gate.wait_for("turn")
    child = session.spawn(GATED, "child")
    gate.wait_for("child")
    done = agentsdir(tmp_path, "interrupt", "parent")

    assert done.code == 0, done.err
    assert [kind_of(turn), kind_of(child)] == ["turn-aborted", "turn-aborted"]
    wait_for(lambda: agents(tmp_path) == 1)


def test_a_parent_that_is_closed_ends_its_children_and_has_no_more(
    app: App, gate: Gate, tmp_path: Path
) -> None:
    """Their turns have ended when `close` returns."""
    session = app.session()
    child = session.spawn(GATED, "child")
    gate.wait_for("child")
    session.close()

    assert child.is_done
    assert kind_of(child) == "turn-aborted"
    assert session.children == ()
    assert kind_of(session.spawn(GATED, "late")) == "closed"
    assert agents(tmp_path) == 1


def test_a_child_that_is_aborted_before_it_is_made_is_never_there(
    app: App, gate: Gate, tmp_path: Path
) -> None:
    """Its middleware still waits."""
    may_go = threading.Event()

    def slow(call: Any, next_: Any) -> Any:
        assert may_go.wait(LONG)
        return next_(call)

    session = app.session()
    execution = session.spawn.use(slow)(GATED, "never", ephemeral=False)
    execution.abort()
    assert kind_of(execution) == "turn-aborted"
    may_go.set()
    app.close()
    assert (gate.prompts, agents(tmp_path)) == ([], 1)


def test_ten_levels_of_children_may_wait_for_each_other_in_one_slot(tmp_path: Path) -> None:
    """The eleventh is refused."""
    (tmp_path / "settings.toml").write_text("max_slots = 1\n")
    config = AgentConfig(provider="nesting")
    sessions: dict[str, Session] = {}

    def nests(request: Any) -> str:
        level = int(request.content)
        session = wait_for(lambda: sessions.get(str(level)))
        execution = session.spawn(config, str(level + 1))
        try:
            wait_for(lambda: execution.child or execution.is_done)
            if execution.child is not None:
                sessions[str(level + 1)] = execution.child
            return f"{level} {execution.wait(LONG).response}"
        except SessionStateError as error:
            return error.kind

    with model(nests, "nesting"), App(config, root=tmp_path) as app:
        sessions["0"] = app.session()
        said = sessions["0"].send("0").wait(LONG).response
    assert said == " ".join([*map(str, range(10)), "spawn-depth"])
    assert agents(tmp_path) == 1


@contextmanager
def delegating(child: AgentConfig) -> Iterator[list[Session]]:
    """Have a provider `delegating` whose turns wait for a child; the session is to be given."""
    sessions: list[Session] = []

    def delegates(request: Any) -> str:
        execution = sessions[0].spawn(child, "task", ephemeral=False)
        return f"{request.content}: {execution.wait(LONG).response}"

    with model(delegates, "delegating"):
        yield sessions


def test_what_becomes_of_a_child_is_in_the_live_stream_of_its_parents_turn(tmp_path: Path) -> None:
    """And in `inspect --runtime`, as a subagent with its blocks."""
    config = AgentConfig(provider="delegating")
    with delegating(ECHO) as sessions, App(config, root=tmp_path) as app:
        session = app.session("parent")
        sessions.append(session)
        turn = session.send("turn")
        assert turn.wait(LONG).response == "turn: task"
        done = agentsdir(tmp_path, "inspect", "parent", "--runtime")

    assert becomes(turn) == [
        "block_start pending",
        "block_update running",
        "block_complete success",
    ]
    assert {event["conversationId"] for event in turn} == {"main"}
    (subagent,) = done.json["subagents"]
    assert len({block["conversationId"] for block in subagent["blocks"]} - {"main"}) == 1
    texts = [b["content"] for b in subagent["blocks"] if b["type"] == "assistant_text"]
    assert texts == ["task"]


def test_with_children_a_parents_stream_has_what_its_children_say(tmp_path: Path) -> None:
    """In the conversation of the child's id, between the system blocks that bound it."""
    config = AgentConfig(provider="delegating")
    with delegating(ECHO) as sessions, App(config, root=tmp_path) as app:
        session = app.session("parent")
        sessions.append(session)
        turn = session.send("turn", children=True)
        assert turn.wait(LONG).response == "turn: task"

    of_child = [event for event in turn if event["conversationId"] != "main"]
    kinds = [event["block"]["type"] for event in of_child if "block" in event]
    assert kinds == ["system", "user_message", "assistant_text", "system"]
    assert len({event["conversationId"] for event in of_child}) == 1
    assert becomes(turn)[-1] == "block_complete success"
    assert turn.events_from(len(list(turn))) == []


def test_a_child_that_another_process_spawns_is_in_a_turn_that_asks_for_children(
    app: App, gate: Gate, tmp_path: Path
) -> None:
    """`agentsdir spawn` runs it while the turn runs."""
    session = app.session("parent")
    turn = session.send("turn", children=True)
    gate.wait_for("turn")
    done = agentsdir(tmp_path, "spawn", "task", "--parent", "parent", "--provider", "echo")
    assert done.code == 0, done.err
    gate.go()
    assert turn.result.response == "turn"
    assert becomes(turn) == [
        "block_start pending",
        "block_update running",
        "block_complete success",
    ]


def test_a_turn_that_ends_leaves_a_child_that_has_not_begun_to_who_spawned_it(
    app: App, gate: Gate
) -> None:
    """It neither waits for the child, nor runs it without the child's own events and tools."""
    calls: list[threading.Event] = []
    may_go = threading.Event()

    def slow() -> AgentConfig:
        calls.append(threading.Event())
        assert len(calls) < 2 or may_go.wait(LONG)
        return ECHO

    session = app.session()
    turn = session.send("turn")
    gate.wait_for("turn")
    child = session.spawn(slow, "child")
    wait_for(lambda: len(calls) == 2)  # the child is made, and has its message
    gate.go()
    assert turn.wait(LONG).response == "turn"
    assert not child.is_done
    may_go.set()
    assert child.wait(LONG).response == "child"
    assert "text_delta" in [event["type"] for event in child]


def test_a_turn_without_children_reads_no_log_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing follows the log of a turn that spawns nothing."""
    from agentsdir.engine.app import execution as module

    def refuses(*_: Any, **__: Any) -> Any:
        raise AssertionError("it follows")

    monkeypatch.setattr(module, "SpawnedEvents", refuses)
    with App(ECHO, root=tmp_path) as app:
        assert app.session().send("alone").result.response == "alone"


def test_a_spawn_outlives_no_app_that_is_closed(tmp_path: Path, gate: Gate) -> None:
    """The block waits for it, too."""
    with App(GATED, root=tmp_path) as app:
        session = app.session()
        execution = session.spawn(GATED, "child")
        gate.wait_for("child")
        gate.go()
    assert execution.is_done
    with pytest.raises(UsageError, match="closed"):
        session.spawn(GATED, "late")
    assert [r["event"] for r in logged(session.paths)].count("agent.spawned") >= 1
