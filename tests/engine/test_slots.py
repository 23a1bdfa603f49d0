"""Slots and the scheduler in this process: who has one, who goes, and in which order (D12, D26)."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentsdir.engine import slots as suspending
from agentsdir.engine.create import NewAgent
from agentsdir.engine.dispatcher import TurnScheduler
from agentsdir.engine.inbox import Message, enqueue, text_message
from agentsdir.engine.restore import restore_agent
from agentsdir.engine.slots import SessionMultiplexer, resume, suspend
from agentsdir.engine.turn import TurnOptions
from agentsdir.engine.turn_lock import hold_turn
from agentsdir.formats.errors import Busy, ProviderError, SessionStateError, SlotsHeld
from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import write_agent
from agentsdir.formats.store.settings import Settings
from agentsdir.formats.store.slots import Slots

QUIET = TurnOptions(lambda _event: None)


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


def reasons(stage: Any, paths: Any) -> list[str]:
    """Return an agent's transitions, by their reasons."""
    return [r["data"]["reason"] for r in stage.log(paths) if r["event"] == "session.state"]


@pytest.mark.feature("S-07", "A-11")
def test_the_session_released_longest_ago_goes_first(stage: Any) -> None:
    """Using one again makes it the last to go; what was never released goes before all."""
    mux = SessionMultiplexer(services_of(stage, 2))
    one, two, three = stage.new(), stage.new(), stage.new()
    for paths in (one, two, one, three):
        take(mux, paths)

    assert [mux.contains(paths) for paths in (one, two, three)] == [True, False, True]
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
    assert [mux.contains(paths) for paths in (one, two, three)] == [True, False, True]


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
    """Suspended, or terminated."""
    services = services_of(stage, 4)
    mux, scheduler = SessionMultiplexer(services), TurnScheduler(services)
    one, two = stage.new(), stage.new()
    take(mux, one)
    take(mux, two)

    suspend(services, one)
    scheduler.terminate_session(two)

    assert Slots(services.layout).entries() == {}
    assert [mux.contains(paths) for paths in (one, two)] == [False, False]
    with pytest.raises(SessionStateError, match=r"is terminated already"):
        scheduler.terminate_session(two)
    with pytest.raises(SessionStateError, match=r"terminated.*active"):
        take(mux, two)


@pytest.mark.feature("S-07", "S-10")
def test_a_created_session_has_a_slot(stage: Any) -> None:
    """`put` is the way in for what was just made."""
    scheduler = TurnScheduler(services_of(stage, 1))

    first = scheduler.create_session(NewAgent(cwd="/", login="me"))
    second = scheduler.create_session(NewAgent(cwd="/", login="me"))

    assert scheduler.mux.contains(second)
    assert not scheduler.mux.contains(first)
    assert reasons(stage, first) == ["create", "evicted"]


@pytest.mark.feature("S-10")
def test_the_order_of_a_turn(stage: Any) -> None:
    """Slot, start, stream, slot again, end, and only then what was deferred."""
    services = services_of(stage, 1)
    scheduler = TurnScheduler(services)
    paths = stage.new()
    seen: list[str] = []
    release = scheduler.mux.release

    def noted(released: Any) -> None:
        seen.append(f"released after {stage.events(paths)[-1]}")
        release(released)

    scheduler.mux.release = noted  # type: ignore[method-assign]
    scheduler.defer(lambda: seen.append(f"deferred after {stage.events(paths)[-1]}"))
    enqueue(services, paths, Message(text_message("hi")))

    scheduler.send_turn(paths, stage.state(paths).pending[0], QUIET)

    assert seen == ["released after transcript.synced", "deferred after message.delivered"]
    assert [e for e in stage.events(paths) if e != "block"] == [
        "session.created", "message.enqueued", "session.state", "turn.start", "transcript.synced",
        "turn.complete", "message.delivered",
    ]  # fmt: skip


@pytest.mark.feature("S-11")
def test_a_failed_turn_frees_its_slot_and_has_nothing_done_after_it(stage: Any) -> None:
    """What was deferred while it ran is forgotten; what was before waits on."""
    services = services_of(stage, 1)
    scheduler = TurnScheduler(services)
    paths = stage.script("fails.jsonl")
    done: list[str] = []
    scheduler.defer(lambda: done.append("before"))
    enqueue(services, paths, Message(text_message("hi")))
    sender = TurnOptions(lambda _event: scheduler.defer(lambda: done.append("in it")))

    with pytest.raises(ProviderError):
        scheduler.send_turn(paths, stage.state(paths).pending[0], sender)

    assert done == []
    scheduler.drain()
    assert done == ["before"]
    take(scheduler.mux, stage.new())  # the only slot is free


@pytest.mark.feature("S-12")
def test_a_session_that_was_put_away_behind_the_schedulers_back_is_taken_up_again(
    stage: Any,
) -> None:
    """By another scheduler's need of the slot, and by a suspension elsewhere."""
    services = services_of(stage, 1)
    ours, theirs = TurnScheduler(services), TurnScheduler(services)
    paths = ours.create_session(NewAgent(cwd="/", login="me"))
    ours.send_turn(paths, None, QUIET)

    theirs.create_session(NewAgent(cwd="/", login="me"))
    assert not ours.mux.contains(paths)
    ours.send_turn(paths, None, QUIET)
    suspend(services, paths)
    ours.send_turn(paths, None, QUIET)

    assert reasons(stage, paths) == ["create", "evicted", "send", "suspend", "send"]
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
def test_idle_sessions_are_put_away_by_whoever_looks_for_a_slot(stage: Any) -> None:
    """Input counts, and nothing else does; a session at work is not idle."""
    services = services_of(stage, 4, idle=0.05)
    scheduler = TurnScheduler(services)
    idle, busy, next_one = stage.new(), stage.new(), stage.new()
    for paths in (idle, busy):
        stage.send(paths)
    stage.ticks += 100

    with hold_turn(busy):
        enqueue(services, next_one, Message(text_message("hi")))
        scheduler.send_turn(next_one, stage.state(next_one).pending[0], QUIET)

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
    enqueue(services, paths, Message(text_message("hi")))
    entry = services.layout.slots / paths.id
    spoilt: list[object] = []

    def hear(_event: Any) -> None:
        if not spoilt:
            spoilt.append(spoil(entry))

    TurnScheduler(services).send_turn(paths, stage.state(paths).pending[0], TurnOptions(hear))

    assert spoilt
    assert "turn.complete" in stage.events(paths)


@pytest.mark.feature("S-07")
def test_fewer_slots_than_there_were_hold_for_sessions_in_use_too(stage: Any) -> None:
    """Whoever wants another turn has to get a slot anew."""
    before = SessionMultiplexer(services_of(stage, 3))
    agents = [stage.new() for _ in range(3)]
    for paths in agents:
        take(before, paths)
    after = SessionMultiplexer(services_of(stage, 1))

    with hold_turn(agents[0]), pytest.raises(SlotsHeld):
        take(after, agents[1])
    take(after, agents[2])

    assert [after.contains(paths) for paths in agents] == [False, False, True]


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
