"""Slots in this process: which sessions have one, and the order of eviction (D12, D26)."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentsdir.engine import slots as suspending
from agentsdir.engine.close import close
from agentsdir.engine.dispatcher import send
from agentsdir.engine.in_turn import send_from_turn
from agentsdir.engine.inbox import Message, text_message
from agentsdir.engine.restore import restore_agent
from agentsdir.engine.slots import SessionMultiplexer, resume, suspend
from agentsdir.engine.turn_lock import hold_turn
from agentsdir.formats.errors import (
    AgentsdirError,
    Busy,
    ProviderError,
    SessionStateError,
    SlotsHeld,
)
from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import read_agent, write_agent
from agentsdir.formats.store.settings import Settings
from agentsdir.formats.store.slots import Slots


def services_of(stage: Any, slots: int, idle: float = 0) -> Any:
    """Return the services of a root with so many slots."""
    return stage.services._replace(settings=Settings(max_slots=slots, idle_timeout=idle))


def take(mux: SessionMultiplexer, paths: Any, **options: Any) -> Any:
    """Acquire and release a slot, as a turn does."""
    with hold_turn(paths) as held:
        with write_agent(paths) as writer:
            state = writer.state
        acquired = mux.acquire(paths, state, held, **options)
        mux.release(paths)
    return acquired


def is_in_use(services: Any, paths: Any) -> bool:
    """Tell whether an agent's session is active, with a slot."""
    return (
        Slots(services.layout).has(paths.id) and read_agent(paths).state.session.state == "active"
    )


def say(services: Any, paths: Any, on_event: Callable[[Any], None] = lambda _event: None) -> Any:
    """Send a text with these services."""
    return send(services, paths, text_message("hi"), on_event)


def reasons(stage: Any, paths: Any) -> list[str]:
    """Return an agent's transitions, by their reasons."""
    return [r["data"]["reason"] for r in stage.log(paths) if r["event"] == "session.state"]


@pytest.mark.feature("S-07", "A-11")
def test_the_session_released_longest_ago_goes_first(stage: Any) -> None:
    """Using one again makes it the last to go; what was never released goes before all."""
    services = services_of(stage, 2)
    mux = SessionMultiplexer(services)
    one, two, three = stage.new(), stage.new(), stage.new()
    for paths in (one, two, one, three):
        take(mux, paths)

    assert [is_in_use(services, paths) for paths in (one, two, three)] == [True, False, True]
    assert reasons(stage, two) == ["send", "evicted"]


@pytest.mark.feature("S-07")
def test_a_session_is_suspended_before_another_gets_its_slot(stage: Any) -> None:
    """With the provider's blob, as by `suspend`."""
    mux = SessionMultiplexer(services_of(stage, 1))
    one, two = stage.new(), stage.new()
    stage.send(one)
    take(mux, two)

    assert stage.state(one).session.provider_state == b'{"turns":1}'
    last = stage.log(one)[-1]["ts"]
    assert last < next(r["ts"] for r in stage.log(two) if r["event"] == "session.state")


@pytest.mark.feature("S-07")
def test_a_session_whose_provider_fails_to_suspend_is_put_away_all_the_same(
    stage: Any, plugin: Callable[..., str]
) -> None:
    """Its blob is only a short cut: nothing that was said is lost, and it is taken up again."""
    mux = SessionMultiplexer(services_of(stage, 1))
    one = stage.new(provider=plugin("brittle", suspend="raise ValueError('no')"))
    stage.send(one, "first")
    take(mux, stage.new())

    assert reasons(stage, one) == ["send", "evicted"]
    assert stage.state(one).session.provider_state == b""
    assert stage.send(one, "second").outcome == "completed"
    assert stage.state(one).counters["turns"] == 2


SLOW = """
import time
from pathlib import Path
from agentsdir.formats.store import locks
root = Path(self.spec.cwd)
(root.parent / "slots").write_text(str(locks.is_held(root / "slots" / ".lock")))
while True:
    try:
        time.sleep(3600)
    except Exception:
        pass
"""


@pytest.mark.feature("S-07")
def test_a_provider_that_takes_too_long_to_suspend_keeps_no_other_waiting(
    stage: Any, plugin: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a time limit, and the slots are free meanwhile; its session is put away all the same.

    So it is where a session is suspended by hand.
    """
    monkeypatch.setattr(suspending, "BLOB_PATIENCE", 0.1)
    monkeypatch.setattr(locks, "LEAST", 0.1)
    said: list[str] = []
    mux = SessionMultiplexer(services_of(stage, 1)._replace(notify_user=said.append))
    one = stage.new(provider=plugin("slow", suspend=SLOW), cwd=str(stage.root))
    stage.send(one, "first")

    take(mux, stage.new())

    assert reasons(stage, one) == ["send", "evicted"]
    assert (stage.root.parent / "slots").read_text() == "False"
    assert said == [f"agent {one.id} is suspended without slow's own state: it took too long"]
    assert stage.send(one, "second").outcome == "completed"
    assert suspend(stage.services, one).session.provider_state == b""
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.mark.feature("S-07")
def test_a_session_that_cannot_be_suspended_keeps_its_slot_and_the_next_one_goes(
    stage: Any,
) -> None:
    """It is in use as before: no slot is taken from it before its suspension is on record."""
    services = services_of(stage, 2)
    mux = SessionMultiplexer(services)
    one, two, three = stage.new(), stage.new(), stage.new()
    stage.send(one)
    stage.send(two)
    (transcript,) = one.transcripts.glob("*.jsonl")
    transcript.write_bytes(b"{}\n")
    before = one.log.read_bytes()

    take(mux, three)

    assert one.log.read_bytes() == before
    assert [is_in_use(services, paths) for paths in (one, two, three)] == [True, False, True]


@pytest.mark.feature("S-07")
def test_held_sessions_are_not_evicted_and_all_held_is_an_error(stage: Any) -> None:
    """A RuntimeError, as the seed says, that says how many; nothing is begun."""
    mux = SessionMultiplexer(services_of(stage, 1))
    one, two = stage.new(), stage.new()
    take(mux, one)
    before = two.log.read_bytes()

    with hold_turn(one), pytest.raises(SlotsHeld, match="all 1 slots run turns") as raised:
        take(mux, two, wait=0.1)

    assert isinstance(raised.value, RuntimeError)
    assert isinstance(raised.value, Busy)
    assert raised.value.kind == "slots-full"
    assert two.log.read_bytes() == before
    assert stage.slept


@pytest.mark.feature("S-07")
def test_entries_that_do_not_count_are_swept_and_lost_ones_are_found_again(stage: Any) -> None:
    """The log says who is active; the folder only saves looking for it."""
    services = services_of(stage, 2)
    mux = SessionMultiplexer(services)
    one, two, three = stage.new(), stage.new(), stage.new()
    take(mux, one)
    take(mux, two)
    for path in services.layout.slots.iterdir():
        path.unlink()
    Slots(services.layout).enter("x" * 24)

    take(mux, three)

    active = [p for p in (one, two, three) if stage.state(p).session.state == "active"]
    assert len(active) == 2
    assert three in active
    assert sorted(Slots(services.layout).entries()) == sorted(paths.id for paths in active)


@pytest.mark.feature("S-07")
def test_a_session_that_leaves_leaves_its_slot(stage: Any) -> None:
    """Suspended, or closed."""
    services = services_of(stage, 4)
    mux = SessionMultiplexer(services)
    one, two = stage.new(), stage.new()
    take(mux, one)
    take(mux, two)

    suspend(services, one)
    close(services, two)

    assert Slots(services.layout).entries() == {}
    assert [is_in_use(services, paths) for paths in (one, two)] == [False, False]
    with pytest.raises(SessionStateError, match=r"terminated.*active"):
        take(mux, two)


def _sending(services: Any, paths: Any, target: Any) -> Callable[[Any], None]:
    """Return a callback that sends a message to another agent during the turn, once."""
    sent: list[str] = []

    def on_event(_event: Any) -> None:
        if not sent:
            turn_id = read_agent(paths).state.open_turn["turnId"]  # type: ignore[index]
            message = Message(text_message("from the turn"), paths.id)
            sent.append(send_from_turn(services, paths, turn_id, target, message))

    return on_event


@pytest.mark.feature("S-10")
def test_the_order_of_a_turn(stage: Any) -> None:
    """Slot, start, stream, slot again, end, and only then the message that the turn has sent."""
    services = services_of(stage, 1)
    paths, other = stage.new(), stage.new()

    say(services, paths, _sending(services, paths, other))

    assert [e for e in stage.events(paths) if e != "block"] == [
        "session.created", "message.enqueued", "session.state", "turn.start", "message.sent",
        "transcript.synced", "turn.complete", "message.delivered", "session.state",
    ]  # fmt: skip
    assert reasons(stage, paths) == ["send", "evicted"]
    (delivered,) = [r["ts"] for r in stage.log(paths) if r["event"] == "message.delivered"]
    (started,) = [r["ts"] for r in stage.log(other) if r["event"] == "turn.start"]
    assert delivered < started


@pytest.mark.feature("S-11")
def test_a_failed_turn_frees_its_slot_and_has_nothing_done_after_it(stage: Any) -> None:
    """The message that it has sent waits."""
    services = services_of(stage, 1)
    paths, other = stage.script("fails.jsonl"), stage.new()

    with pytest.raises(ProviderError):
        say(services, paths, _sending(services, paths, other))

    assert stage.events(other) == ["session.created", "message.enqueued"]
    take(SessionMultiplexer(services), stage.new())  # the only slot is free


@pytest.mark.feature("S-12")
def test_a_session_that_another_process_has_suspended_is_taken_up_again(stage: Any) -> None:
    """For its slot, or by hand."""
    services = services_of(stage, 1)
    paths = stage.new()
    say(services, paths)

    say(services, stage.new())
    assert not is_in_use(services, paths)
    say(services, paths)
    suspend(services, paths)
    say(services, paths)

    assert reasons(stage, paths) == ["send", "evicted", "send", "suspend", "send"]
    assert stage.state(paths).counters["turns"] == 3


def _evict(stage: Any, _paths: Any) -> None:
    take(SessionMultiplexer(services_of(stage, 1)), stage.new())


ENDED_BY = {
    "a suspension": lambda stage, paths: suspend(stage.services, paths),
    "an eviction": _evict,
    "a restoration": lambda stage, paths: restore_agent(stage.services, paths),
}


@pytest.mark.feature("S-13")
@pytest.mark.parametrize("script", ["", "tools.jsonl"])
@pytest.mark.parametrize("ended_by", ENDED_BY.values(), ids=ENDED_BY)
def test_a_restored_session_logs_what_a_fresh_one_does(
    stage: Any, ended_by: Callable[..., Any], script: str
) -> None:
    """The turn after a suspension, an eviction or a restoration leaves the records of a first.

    Also what stands in them is the same, but for ids, times, and how the session was before.
    """
    paths = stage.script(script) if script else stage.new()
    stage.send(paths)
    first = [_shape(record) for record in stage.log(paths)[1:]]
    ended_by(stage, paths)
    assert stage.state(paths).session.state == "suspended"
    before = len(stage.events(paths))

    stage.send(paths)

    assert [_shape(record) for record in stage.log(paths)[before:]] == first


def _shape(record: dict[str, Any]) -> tuple[str, Any]:
    """Return a record without what no two turns share."""
    data = {
        key: value for key, value in record["data"].items() if not key.endswith(("_id", "_ids"))
    }
    data.pop("from", None)
    data.pop("files", None)
    if "block" in data:
        data["block"] = {
            key: value for key, value in data["block"].items() if key not in ("id", "timestamp")
        }
    return record["event"], data


@pytest.mark.feature("A-11")
def test_idle_sessions_are_suspended_by_the_next_search_for_a_slot(stage: Any) -> None:
    """Input counts, and nothing else does; a session at work is not idle."""
    services = services_of(stage, 4, idle=0.05)
    idle, busy, next_one = stage.new(), stage.new(), stage.new()
    for paths in (idle, busy):
        stage.send(paths)
    stage.ticks += 100

    with hold_turn(busy):
        say(services, next_one)

    assert reasons(stage, idle) == ["send", "idle"]
    assert reasons(stage, busy) == ["send"]
    assert resume(services, idle).session.state == "active"


ENTRIES_LOST: dict[str, Callable[[Path], object]] = {
    "gone": lambda entry: shutil.rmtree(entry.parent),
    "a folder": lambda entry: (entry.unlink(), entry.mkdir()),
    "a link": lambda entry: (entry.unlink(), entry.symlink_to("/dev/null")),
    "a FIFO": lambda entry: (entry.unlink(), os.mkfifo(entry)),
}


@pytest.mark.parametrize("spoil", ENTRIES_LOST.values(), ids=ENTRIES_LOST)
def test_an_answer_outlives_the_entry_of_its_slot(
    stage: Any, spoil: Callable[[Path], object]
) -> None:
    """The folder is derived: what becomes of it during a turn is no failure of the turn."""
    services = services_of(stage, 4)
    paths = stage.new()
    entry = services.layout.slots / paths.id
    spoilt: list[object] = []

    def hear(_event: Any) -> None:
        if not spoilt:
            spoilt.append(spoil(entry))

    say(services, paths, hear)

    assert spoilt
    assert "turn.complete" in stage.events(paths)


@pytest.mark.feature("S-07")
def test_fewer_slots_than_there_were_hold_for_sessions_in_use_too(stage: Any) -> None:
    """Another turn needs a new slot."""
    before = SessionMultiplexer(services_of(stage, 3))
    agents = [stage.new() for _ in range(3)]
    for paths in agents:
        take(before, paths)
    services = services_of(stage, 1)
    after = SessionMultiplexer(services)

    with hold_turn(agents[0]), pytest.raises(SlotsHeld):
        take(after, agents[1])
    take(after, agents[2])

    assert [is_in_use(services, paths) for paths in agents] == [False, False, True]


@pytest.mark.feature("S-07", "A-04")
def test_who_waits_for_a_slot_hears_that_its_agent_was_closed(stage: Any) -> None:
    """Instead of waiting for what it may not use any more."""
    one, two = stage.new(), stage.new()
    services = services_of(stage, 1)
    take(SessionMultiplexer(services), one)

    def closing(_seconds: float) -> None:
        change = {"from": "created", "to": "terminated", "reason": "close"}
        stage.append(two, "session.state", change)

    mux = SessionMultiplexer(services._replace(sleep=closing))
    with hold_turn(one), pytest.raises(SessionStateError, match=r"terminated.*active"):
        take(mux, two, wait=-1)


@pytest.mark.parametrize("what", ["a file", "a dangling link", "a link", "a folder as its lock"])
def test_nothing_is_recorded_where_the_slots_cannot_be_used(stage: Any, what: str) -> None:
    """So the same command works later, and sends no second message."""
    paths = stage.new()
    folder = stage.services.layout.slots
    if what == "a folder as its lock":
        (folder / ".lock").mkdir(parents=True)
    elif what == "a file":
        folder.write_text("x")
    else:
        folder.symlink_to(stage.root.parent if what == "a link" else "nowhere")
    before = paths.log.read_bytes()

    with pytest.raises(AgentsdirError):
        say(stage.services, paths)

    assert paths.log.read_bytes() == before
