"""Closing agents for good, whatever they are doing (docs/behaviour.md, "Closing"; decision D15)."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import until

from agentsdir.engine.cancel import TurnCancelled
from agentsdir.engine.close import close, end_closed_turns, reset
from agentsdir.engine.create import NewAgent, make_agent
from agentsdir.engine.inbox import Message, enqueue
from agentsdir.engine.notices import abort_pending_steps, apply_steps
from agentsdir.engine.restore import restore_agent
from agentsdir.engine.slots import suspend
from agentsdir.engine.spawn import SpawnRequest, create_child
from agentsdir.engine.validate.files import validate
from agentsdir.formats.errors import SessionStateError
from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import read_agent, write_agent
from agentsdir.formats.store.index import IndexWriter

LONG = 60.0

pytestmark = pytest.mark.feature("A-04", "A-06")


def child(stage: Any, parent: Any, name: str) -> Any:
    """Create a subagent."""
    return stage.new(kind="subagent", parent=parent.id, name=name)


def is_sound(stage: Any) -> bool:
    """Tell whether `validate` finds nothing."""
    return [str(problem) for problem in validate([Path(stage.root)])] == []


def ending(stage: Any, paths: Any) -> list[str]:
    """Return what happened from the first request or the termination on, with its reason."""
    log = stage.log(paths)
    said = ("abort.requested", "session.state", "turn.aborted", "message.delivered")
    at = min(
        number
        for number, record in enumerate(log)
        if record["event"] == "abort.requested" or record["data"].get("to") == "terminated"
    )
    return [
        f"{one['event']} {one['data'].get('reason') or one['data'].get('outcome')}"
        for one in log[at:]
        if one["event"] in said
    ]


def test_an_idle_agent_is_closed_and_its_messages_are_given_up(stage: Any) -> None:
    """In order, and without a turn; a second close changes nothing."""
    paths = stage.new()
    stage.send(paths)
    waiting = [stage.enqueue(paths, "one"), stage.enqueue(paths, "two")]

    (done,) = close(stage.services, paths).closed

    assert (done.before, done.turn, done.messages) == (False, None, waiting)
    assert ending(stage, paths) == ["session.state close", *["message.delivered aborted"] * 2]
    before = stage.tree()
    (again,) = close(stage.services, paths).closed
    assert (again.before, again.messages) == (True, [])
    assert stage.tree() == before
    assert is_sound(stage)


@pytest.mark.feature("S-01")
@pytest.mark.parametrize("state", ["created", "active", "suspended"])
def test_a_session_is_closed_from_every_state_and_stays_closed(stage: Any, state: str) -> None:
    """No verb takes it up again, and no message is left in it."""
    paths = stage.new()
    if state != "created":
        stage.send(paths)
    if state == "suspended":
        suspend(stage.services, paths)

    close(stage.services, paths)

    before = stage.log(paths)
    verbs: list[Callable[[], Any]] = [
        lambda: stage.send(paths),
        lambda: suspend(stage.services, paths),
        lambda: reset(stage.services, paths),
        lambda: stage.enqueue(paths, "late"),
        lambda: child(stage, paths, "late"),
    ]
    for verb in verbs:
        with pytest.raises(SessionStateError):
            verb()
    assert restore_agent(stage.services, paths).actions == ()
    assert stage.log(paths) == before


def test_all_below_are_closed_from_above_to_below_and_none_above(stage: Any) -> None:
    """Nor beside."""
    top = stage.new()
    middle, beside = child(stage, top, "middle"), child(stage, top, "beside")
    low, lower = child(stage, middle, "low"), child(stage, middle, "lower")
    lowest = child(stage, low, "lowest")

    done = close(stage.services, middle)

    assert [one.paths.id for one in done.closed[:1]] == [middle.id]
    assert {one.paths.id for one in done.closed[1:3]} == {low.id, lower.id}
    assert [one.paths.id for one in done.closed[3:]] == [lowest.id]
    assert [stage.state(one).session.state for one in (top, beside)] == ["created"] * 2
    assert is_sound(stage)


def test_one_that_cannot_be_closed_keeps_no_other_open(stage: Any) -> None:
    """It is named with the reason."""
    top = stage.new()
    bad, good = child(stage, top, "bad"), child(stage, top, "good")
    bad.lock.unlink(missing_ok=True)
    bad.lock.symlink_to("elsewhere")

    done = close(stage.services, top)

    assert [paths.id for paths, _ in done.refused] == [bad.id]
    assert stage.state(good).session.state == "terminated"


class Beside:
    """Does something from another thread, as another process would, while a turn runs."""

    def __init__(self, stage: Any, paths: Any, act: Callable[[Any], Any]) -> None:
        self._stage = stage
        self._paths = paths
        self._act = act
        self.result: Any = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        until(lambda: self._stage.state(self._paths).open_turn, "a turn is open")
        self.result = self._act(self._stage.services._replace(sleep=time.sleep))

    def __enter__(self) -> Beside:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(LONG)


FOR_EVER = "import time\nwhile True:\n    time.sleep(0.01)\n    yield from ()"


def test_a_turn_that_runs_is_asked_to_end_and_unwinds_into_a_closed_session(
    stage: Any, plugin: Any
) -> None:
    """What it said is kept; the session is closed before the turn is over, and after it."""
    plugin("slow", body=f"yield self.answer('so far')\n{FOR_EVER}")
    paths = stage.new(provider="slow")
    waiting: list[str] = []

    def act(services: Any) -> Any:
        waiting.append(stage.enqueue(paths, "later"))
        done = close(services, paths)
        end_closed_turns(services, [done.closed[0].turn])
        return done.closed[0].as_json()

    with Beside(stage, paths, act) as beside, pytest.raises(TurnCancelled):
        stage.send(paths)
    assert beside.result["turn"]["ended"] is True
    assert beside.result["messages"] == waiting
    assert ending(stage, paths) == [
        "abort.requested close",
        "session.state close",
        "message.delivered aborted",
        "turn.aborted close",
        "message.delivered aborted",
    ]
    assert stage.state(paths).session.state == "terminated"
    assert is_sound(stage)


def test_a_turn_that_ends_by_itself_meanwhile_ends_in_a_closed_session(stage: Any) -> None:
    """It is complete, and nothing makes the session active again."""
    paths = stage.new()

    def act(event: Any) -> None:
        if event["type"] == "block_complete":
            close(stage.services, paths)

    assert stage.send(paths, on_event=act).outcome == "completed"
    assert stage.events(paths)[-2:] == ["turn.complete", "message.delivered"]
    assert stage.state(paths).session.state == "terminated"
    assert is_sound(stage)


def test_an_agent_that_is_closed_before_its_turn_begins_runs_none(stage: Any) -> None:
    """Its sender gets that error, and not that the provider failed; the message was given up."""
    paths = stage.new()
    stage.send(paths)
    ids, made = stage.ids.agent, []

    def close_first() -> str:
        made.append(ids())
        # The first id is the message's: it is on disk when the turn gets the second one.
        if len(made) == 2:
            close(stage.services, paths)
        return str(made[-1])

    stage.ids.agent = close_first
    with pytest.raises(SessionStateError):
        stage.send(paths)
    assert stage.events(paths).count("turn.start") == 1
    assert ending(stage, paths)[0] == "session.state close"
    assert stage.state(paths).pending == []
    assert is_sound(stage)


def test_a_send_that_waits_for_a_turn_ends_when_the_agent_is_closed(stage: Any) -> None:
    """It says that the agent was closed, not that the end of the message is unknown."""
    paths = stage.new()
    refused: list[BaseException] = []

    def wait() -> None:
        try:
            stage.send(paths, "later")
        except SessionStateError as error:
            refused.append(error)

    with locks.hold(paths.turn):
        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: stage.state(paths).pending, "the message waits")
        close(stage.services, paths)
    thread.join(LONG)
    assert [getattr(error, "kind", "") for error in refused] == ["closed"]
    assert stage.events(paths) == [
        "session.created",
        "message.enqueued",
        "session.state",
        "message.delivered",
    ]


def test_no_agent_is_missed_that_is_being_made_while_the_parent_is_closed(stage: Any) -> None:
    """A process makes agents under the create lock: before the parent's end, or not at all."""
    parent = stage.new()
    wanted = NewAgent(provider="echo", kind="subagent", parent=parent.id, cwd="/", name="early")
    thread = threading.Thread(target=lambda: close(stage.services, parent))
    with locks.hold(stage.services.layout.create_lock):
        index = IndexWriter(stage.services.layout)
        early = stage.services.layout.agent(make_agent(stage.services, wanted, index))
        thread.start()
        until(lambda: stage.state(parent).session.state == "terminated", "the parent is closed")
        with pytest.raises(SessionStateError) as refused:
            make_agent(stage.services, wanted._replace(name="late"), index)
        assert stage.state(early).session.state == "created"
    thread.join(LONG)
    assert refused.value.kind == "closed"
    assert stage.state(early).session.state == "terminated"
    assert is_sound(stage)


def test_an_agent_whose_holder_is_dead_has_its_turn_ended_and_is_closed(stage: Any) -> None:
    """As a crash would be, with the notice, and then it is closed."""
    paths = stage.new(connector="telegram", user="42", channel="c")
    stage.begin_turn(paths)

    (done,) = close(stage.services, paths).closed

    assert done.turn is None
    assert stage.events(paths)[-4:] == [
        "turn.aborted",
        "outgoing",
        "message.delivered",
        "session.state",
    ]
    assert restore_agent(stage.services, paths).actions == ()
    assert is_sound(stage)


@pytest.mark.parametrize("who", ["restore", "close", "the first close"])
def test_a_holder_that_dies_after_the_close_is_survived(stage: Any, who: str) -> None:
    """Its turn is ended as a crash; a closed agent answers no message, and it stays closed."""
    paths = stage.new()
    with locks.hold(paths.turn):
        stage.begin_turn(paths)
        done = close(stage.services, paths)
    if who == "restore":
        restore_agent(stage.services, paths)
    elif who == "close":
        close(stage.services, paths)
    else:
        end_closed_turns(stage.services, [done.closed[0].turn])
    assert ending(stage, paths) == [
        "abort.requested close",
        "session.state close",
        "turn.aborted crash",
        "message.delivered failed",
    ]
    assert restore_agent(stage.services, paths).actions == ()
    assert is_sound(stage)


def test_a_close_that_died_half_way_is_finished_by_restore(stage: Any) -> None:
    """Messages of the closed agent are given up, and those below it are closed, however deep."""
    top = stage.new()
    middle = child(stage, top, "middle")
    low = child(stage, middle, "low")
    messages = [stage.enqueue(top, "one"), stage.enqueue(low, "two")]
    with write_agent(top) as writer:
        change = {"from": "created", "to": "terminated", "reason": "close"}
        writer.append("session.state", change, stage.now())

    for paths in (low, middle, top):
        planned = restore_agent(stage.services, paths, dry_run=True).actions
        assert planned
        assert restore_agent(stage.services, paths).actions == planned

    assert {stage.state(one).session.state for one in (top, middle, low)} == {"terminated"}
    assert ending(stage, top) == ["session.state close", "message.delivered aborted"]
    assert ending(stage, low) == ["session.state close", "message.delivered aborted"]
    assert [stage.log(one)[-1]["data"]["message_id"] for one in (top, low)] == messages
    for paths in (top, middle, low):
        assert restore_agent(stage.services, paths).actions == ()
    assert is_sound(stage)


def test_a_session_that_is_closed_while_it_is_suspended_stays_closed(
    stage: Any, plugin_site: Any, plugin: Any
) -> None:
    """The suspension holds `.turn`, asks the provider, and finds out under the lock."""
    command = [sys.executable, "-m", "agentsdir.cli.main", "--root", str(stage.root), "close"]
    plugin(
        "closing",
        suspend=f"""
        import subprocess
        subprocess.run([*{command!r}, "slowly"], check=True)
        return b"blob"
        """,
    )
    paths = stage.new(provider="closing", name="slowly")
    stage.send(paths)
    with pytest.raises(SessionStateError):
        suspend(stage.services, paths)
    assert stage.state(paths).session.state == "terminated"
    assert is_sound(stage)


def test_two_who_close_at_once_close_it_once(stage: Any) -> None:
    """The second process finds nothing to do; each message is settled once."""
    top = stage.new()
    below = [child(stage, top, f"n{number}") for number in range(3)]
    for paths in (top, *below):
        stage.enqueue(paths, "waits")
    command = [sys.executable, "-m", "agentsdir.cli.main", "--root", str(stage.root), "close"]

    both = [subprocess.Popen([*command, top.id]) for _ in range(2)]

    assert [process.wait(LONG) for process in both] == [0, 0]
    for paths in (top, *below):
        assert ending(stage, paths) == ["session.state close", "message.delivered aborted"]
    assert is_sound(stage)


def test_spawned_agents_that_have_not_ended_are_ended_in_their_parents_log(stage: Any) -> None:
    """Before it is closed: what a turn asked for is dropped, what runs has failed."""
    parent = stage.new()
    turn = stage.begin_turn(parent)
    waits, runs = child(stage, parent, "waits"), child(stage, parent, "runs")
    stage.append(parent, "spawn.requested", {"child": waits.id, "name": "waits", "turn_id": turn})
    stage.append(parent, "agent.spawned", {"child": runs.id, "name": "runs", "status": "running"})
    block = {
        "type": "subagent",
        "id": f"spawn:{runs.id}",
        "conversationId": "main",
        "sessionId": stage.state(parent).native["id"],
        "timestamp": stage.now(),
        "subagentId": runs.id,
        "name": "runs",
        "input": "go",
        "status": "running",
        "source": None,
    }
    stage.append(parent, "block", {"turn_id": None, "block": block})

    with locks.hold(parent.turn):
        close(stage.services, parent)

    state = stage.state(parent)
    assert (state.children, state.session.state) == ({}, "terminated")
    told = {
        record["event"]: record["data"]
        for record in stage.log(parent)
        if record["event"] in ("spawn.dropped", "agent.spawned", "block")
    }
    assert told["spawn.dropped"]["child"] == waits.id
    assert told["agent.spawned"]["status"] == "error"
    assert (told["block"]["block"]["status"], told["block"]["block"]["input"]) == ("error", "go")
    assert [stage.state(one).session.state for one in (waits, runs)] == ["terminated"] * 2
    restore_agent(stage.services, parent)
    assert is_sound(stage)


def test_a_close_that_restore_finishes_says_each_thing_that_it_does(stage: Any) -> None:
    """Also what it writes of spawned agents that had not ended."""
    top = stage.new()
    middle = child(stage, top, "middle")
    content = [{"type": "text", "text": "work"}]
    create_child(
        stage.services, middle, SpawnRequest(content, name="kid"), turn_id=None, sync=False
    )
    change = {"from": "created", "to": "terminated", "reason": "close"}
    stage.append(top, "session.state", change)
    done = restore_agent(stage.services, middle).actions
    assert [says.split()[0] for says in done[-3:]] == ["marked", "left", "closed"]


def told(stage: Any, paths: Any) -> list[tuple[str, str, bool]]:
    """Return what other agents told one: text, what it answers, whether it is a notice."""
    return [
        (
            record["data"]["content"][0]["text"],
            record["data"].get("reply_to", ""),
            record["data"].get("notice", False),
        )
        for record in stage.log(paths)
        if record["event"] == "message.enqueued" and record["data"]["kind"] == "system"
    ]


def ask(stage: Any, sender: Any, target: Any) -> str:
    """Have one agent ask another, whose answer it wants in its inbox."""
    content = [{"type": "text", "text": "how much?"}]
    return enqueue(stage.services, target, Message(content, sender.id, sync=True))


def test_an_agent_that_waits_for_an_answer_of_a_closed_one_gets_one_notice(stage: Any) -> None:
    """The notice answers the message; an agent that was closed too gets none."""
    asker, other, target = stage.new(), stage.new(), stage.new(name="target")
    question = ask(stage, asker, target)
    ask(stage, other, target)
    close(stage.services, other)

    close(stage.services, target)
    close(stage.services, target)
    restore_agent(stage.services, target)

    text = f"Agent target ({target.id}) failed: Closed."
    assert told(stage, asker) == [(text, question, True)]
    assert told(stage, other) == []
    assert is_sound(stage)


def test_a_close_that_died_before_it_told_anybody_is_finished_by_restore(stage: Any) -> None:
    """The answer comes once, however often that is done."""
    asker, target = stage.new(), stage.new(name="target")
    question = ask(stage, asker, target)
    change = {"from": "created", "to": "terminated", "reason": "close"}
    stage.append(target, "session.state", change)
    for _ in range(2):
        restore_agent(stage.services, target)
    assert [answers for _, answers, _ in told(stage, asker)] == [question]
    assert is_sound(stage)


@pytest.mark.parametrize("below", [False, True], ids=["itself", "with its parent"])
def test_a_spawned_agent_that_is_closed_before_it_began_has_failed(stage: Any, below: bool) -> None:
    """Its parent learns of it, unless that was closed: then its log says so before its end."""
    parent = stage.new()
    content = [{"type": "text", "text": "work"}]
    made = create_child(
        stage.services, parent, SpawnRequest(content, name="kid"), turn_id=None, sync=True
    )

    close(stage.services, parent if below else made.paths)

    assert ending(stage, made.paths) == ["session.state close", "message.delivered aborted"]
    said = [r["data"] for r in stage.log(parent) if r["event"] in ("agent.spawned", "block")]
    assert said[-2]["block"]["status"] == "error"
    assert said[-2]["block"]["input"] == "work"
    assert (said[-1]["status"], stage.state(parent).children) == ("error", {})
    text = f"Subagent kid ({made.paths.id}) failed: Closed."
    assert told(stage, parent) == ([] if below else [(text, made.message_id, True)])
    assert is_sound(stage)


def test_an_ephemeral_agent_goes_when_it_is_closed(stage: Any) -> None:
    """Its work is over."""
    parent = stage.new()
    content = [{"type": "text", "text": "work"}]
    wanted = SpawnRequest(content, name="kid", ephemeral=True)
    made = create_child(stage.services, parent, wanted, turn_id=None, sync=True)
    close(stage.services, parent)
    assert not made.paths.folder.exists()
    assert is_sound(stage)


def test_a_subagent_that_two_close_at_once_ends_once_in_the_log_of_its_parent(stage: Any) -> None:
    """Each has looked before the other wrote, as two threads of one program do."""
    parent = stage.new()
    request = SpawnRequest([{"type": "text", "text": "look"}])
    one = create_child(stage.services, parent, request, turn_id=None, sync=True).paths
    state = read_agent(one).state
    steps = abort_pending_steps(stage.services.layout, state)
    assert steps
    close(stage.services, one)

    apply_steps(stage.services, one, state, steps)

    told = [r["data"]["status"] for r in stage.log(parent) if r["event"] == "agent.spawned"]
    assert told == ["running", "error"]
    assert is_sound(stage)
