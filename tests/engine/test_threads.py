"""Turns in the threads of one process: how they end, wait and stay apart (docs/behaviour.md)."""

from __future__ import annotations

import logging
import os
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from gates import LONG, wait_for

from agentsdir import AgentConfig, App
from agentsdir.adapters import processes
from agentsdir.engine import workers
from agentsdir.engine.cancel import CancelToken, TurnCancelled, interrupt
from agentsdir.engine.dispatcher import WaitLimits, send_message
from agentsdir.engine.inbox import Message, text_message
from agentsdir.engine.result import TurnResult
from agentsdir.engine.services import Services
from agentsdir.engine.slots import SessionMultiplexer, suspend
from agentsdir.engine.turn import TurnOptions
from agentsdir.engine.turn_lock import hold_turn
from agentsdir.formats import signals, times
from agentsdir.formats.errors import Busy, SlotsHeld, TurnTimeout
from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.files import Disk
from agentsdir.formats.store.layout import AgentPaths, Layout
from agentsdir.formats.store.settings import Settings


class Random:
    """New ids, for any number of threads."""

    def agent(self) -> str:
        """Return a new agent, message or turn id."""
        return f"x{secrets.token_hex(16)[:23]}"

    def session(self) -> str:
        """Return a new session id."""
        return secrets.token_hex(16)


def own_services(stage: Any, slots: int = 8) -> Services:
    """Return the services of one thread: a disk of its own, real time, and sleeps that wake."""
    return Services(
        Layout(stage.root),
        lambda: times.to_text(datetime.now(UTC)),
        signals.sleep,
        Random(),
        Disk(),
        lambda: None,
        lambda _state: stage.client,
        settings=Settings(max_slots=slots),
    )


def in_thread(work: Callable[[], Any]) -> Future[Any]:
    """Do `work` in a new thread; whatever it raises is the future's error."""
    done: Future[Any] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001, KeyboardInterrupt, too
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done


@contextmanager
def heeded(stop: threading.Event) -> Iterator[None]:
    """Raise in this thread what Ctrl-C raises in the main one, once each time that it is set."""

    def look() -> None:
        if stop.is_set():
            stop.clear()
            raise KeyboardInterrupt

    with signals.looking(look):
        yield


def say(
    stage: Any,
    paths: AgentPaths,
    text: str = "hi",
    stop: threading.Event | None = None,
    slots: int = 8,
    limits: WaitLimits | None = None,
    **options: Any,
) -> Future[TurnResult]:
    """Send a text in a thread of its own."""
    options.setdefault("on_event", lambda _event: None)

    def run() -> TurnResult:
        with heeded(stop or threading.Event()):
            services = own_services(stage, slots)
            how = TurnOptions(**options)
            message = Message(text_message(text))
            return send_message(services, paths, message, how, limits or WaitLimits())

    return in_thread(run)


def runs(paths: AgentPaths) -> bool:
    """Tell whether the log has a turn that is open."""
    return read_agent(paths).state.open_turn is not None


def endings(stage: Any, paths: AgentPaths) -> list[tuple[str, str]]:
    """Return how an agent's turns ended, and why."""
    return [
        (record["event"], record["data"].get("reason", ""))
        for record in stage.log(paths)
        if record["event"] in ("turn.complete", "turn.aborted", "turn.error")
    ]


# A turn ends.


def test_a_request_in_the_log_ends_a_turn_that_sleeps_in_a_thread(stage: Any) -> None:
    """As in the main thread, but that the sleep itself looks into the log."""
    paths = stage.script("sleeps.jsonl")
    sent = say(stage, paths)
    wait_for(lambda: runs(paths))
    interrupt(own_services(stage), paths)
    with pytest.raises(TurnCancelled):
        sent.result(LONG)
    assert endings(stage, paths) == [("turn.aborted", "interrupt")]
    assert say(stage, paths).result(LONG).response == "awake"


def test_a_request_in_the_log_ends_a_turn_in_a_thread_before_the_next_event(
    stage: Any, tmp_path: Path
) -> None:
    """Of a provider that does not wait at all: no later block is asked for."""
    lines = (
        {"type": "block_complete", "blockId": text, "block": _text(text)} for text in "0123456789"
    )
    script = tmp_path / "ten.jsonl"
    script.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    paths = stage.script(str(script))
    blocks: list[str] = []

    def ask(event: Any) -> None:
        if event["block"]["type"] == "assistant_text":
            blocks.append(event["block"]["content"])
            if event["block"]["content"] == "3":
                interrupt(own_services(stage), paths)

    with pytest.raises(TurnCancelled):
        say(stage, paths, on_event=ask).result(LONG)
    assert blocks == ["0", "1", "2", "3"]


def _text(text: str) -> dict[str, str]:
    return {"type": "assistant_text", "id": text, "content": text}


def test_a_turn_in_a_thread_ends_when_its_time_is_over(stage: Any) -> None:
    """It is recorded as such."""
    paths = stage.script("sleeps.jsonl")
    with pytest.raises(TurnTimeout):
        say(stage, paths, timeout=0.2).result(LONG)
    assert endings(stage, paths) == [("turn.aborted", "timeout")]


def test_ticks_come_in_a_thread_while_the_turn_waits(stage: Any) -> None:
    """In the thread of the turn."""
    paths = stage.script("sleeps.jsonl")
    told = threading.Event()
    where: list[threading.Thread] = []

    def tick() -> None:
        where.append(threading.current_thread())
        if len(where) > 2:
            told.set()

    sent = say(stage, paths, on_tick=tick)
    assert told.wait(LONG)
    interrupt(own_services(stage), paths)
    with pytest.raises(TurnCancelled):
        sent.result(LONG)
    assert len(set(where)) == 1
    assert where[0] is not threading.current_thread()


def test_another_thread_stops_a_turn_as_ctrl_c_would(stage: Any) -> None:
    """Later turns of the thread's agent are not stopped by the same request."""
    paths = stage.script("sleeps.jsonl")
    stop = threading.Event()
    sent = say(stage, paths, stop=stop)
    wait_for(lambda: runs(paths))
    stop.set()
    with pytest.raises(KeyboardInterrupt) as raised:
        sent.result(LONG)
    assert type(raised.value) is KeyboardInterrupt
    assert endings(stage, paths) == [("turn.aborted", "interrupt")]
    assert say(stage, paths, stop=stop).result(LONG).response == "awake"


def test_a_stop_ends_the_wait_for_a_turn_and_the_message_stays_queued(stage: Any) -> None:
    """The turn that is waited for goes on."""
    paths = stage.script("sleeps.jsonl")
    first, stop = say(stage, paths), threading.Event()
    wait_for(lambda: runs(paths))
    second = say(stage, paths, "second", stop=stop)
    wait_for(lambda: read_agent(paths).state.pending)
    stop.set()
    with pytest.raises(KeyboardInterrupt):
        second.result(LONG)
    assert runs(paths)
    interrupt(own_services(stage), paths)
    with pytest.raises(TurnCancelled):
        first.result(LONG)
    assert [one["content"][0]["text"] for one in read_agent(paths).state.pending] == ["second"]


def test_a_stop_ends_the_wait_for_a_slot_and_the_message_stays_queued(stage: Any) -> None:
    """Nothing of the turn has begun."""
    busy, paths, stop = stage.script("sleeps.jsonl"), stage.new(), threading.Event()
    first = say(stage, busy, slots=1)
    wait_for(lambda: runs(busy))
    second = say(stage, paths, stop=stop, slots=1)
    wait_for(lambda: locks.is_held(paths.turn))
    stop.set()
    with pytest.raises(KeyboardInterrupt):
        second.result(LONG)
    assert not locks.is_held(paths.turn)
    assert len(read_agent(paths).state.pending) == 1
    interrupt(own_services(stage), busy)
    with pytest.raises(TurnCancelled):
        first.result(LONG)


def test_nothing_is_raised_in_a_block_that_is_to_be_undisturbed() -> None:
    """Outside it, the waits of this thread look, and no other thread's."""
    looked: list[threading.Thread] = []
    with signals.looking(lambda: looked.append(threading.current_thread())):
        with signals.undisturbed():
            signals.check()
            signals.sleep(0)
        assert looked == []
        in_thread(signals.check).result(LONG)
        assert looked == []
        signals.check()
    assert looked == [threading.current_thread()]
    signals.check()
    assert len(looked) == 1


def test_a_program_that_says_nothing_is_left_when_its_reader_is_to_stop() -> None:
    """The reader waits on its pipes, in a thread."""
    stop = threading.Event()
    program = processes.Program(["sleep", "600"], cwd="/", environment={"PATH": os.defpath})
    try:

        def read() -> None:
            with heeded(stop):
                list(program.lines())

        reading = in_thread(read)
        stop.set()
        with pytest.raises(KeyboardInterrupt):
            reading.result(LONG)

        def wait() -> None:
            with heeded(stop):
                program.wait(600)

        waiting = in_thread(wait)
        stop.set()
        with pytest.raises(KeyboardInterrupt):
            waiting.result(LONG)
    finally:
        program.end({})


def test_a_cancel_token_may_be_asked_by_any_thread(stage: Any) -> None:
    """Asking takes no request away, and what was raised once stays so."""
    paths = stage.new()
    turn = stage.begin_turn(paths)
    token = CancelToken(paths, read_agent(paths).state.position, turn)
    assert not token.is_cancelled()
    stage.append(paths, "abort.requested", {"turn_id": turn, "reason": "interrupt"})
    assert in_thread(token.is_cancelled).result(LONG)
    assert token.is_cancelled()
    with pytest.raises(TurnCancelled):
        token.raise_if_cancelled()
    token.raise_if_cancelled()
    assert token.is_cancelled()


def test_a_provider_that_takes_long_over_its_blob_is_left_in_a_thread(
    stage: Any, plugin: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it waits as the engine tells it to."""
    from agentsdir.engine import slots

    monkeypatch.setattr(slots, "BLOB_PATIENCE", 0.1)
    monkeypatch.setattr(locks, "LEAST", 0.1)
    paths = stage.new(provider=plugin("slow", suspend="self.spec.sleep(600)"))
    say(stage, paths).result(LONG)
    in_thread(lambda: suspend(own_services(stage), paths)).result(LONG)
    assert read_agent(paths).state.session.state == "suspended"


# Threads stay apart.


def test_each_thread_counts_its_own_waits() -> None:
    """The time that one command may wait is nothing to another one."""
    locks.waits().limit = 1.0
    locks.waits().add(0.9)
    assert in_thread(lambda: locks.waits().limit).result(LONG) == locks.FOREVER
    assert in_thread(lambda: locks.waits().left(5, brief=False)).result(LONG) == 5
    mine = locks.waits()
    in_thread(lambda: locks.count_on(locks.Waits())).result(LONG)
    assert locks.waits() is mine


def test_a_program_is_as_patient_in_its_hundredth_call_as_in_its_first(tmp_path: Path) -> None:
    """Waits in vain of one call do not count in the next one of the same thread."""
    with App(AgentConfig(provider="echo"), root=tmp_path / "root") as app:
        app.services()
        locks.waits().add(locks.PATIENCE, in_vain=True)
        assert locks.waits().left(-1, brief=True) == 0
        app.services()
        assert locks.waits().left(-1, brief=True) == locks.PATIENCE


def test_a_program_is_not_warned_that_a_turn_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where there are more sessions than slots, most do; the log has it as information."""
    with App(AgentConfig(provider="echo"), root=tmp_path / "root") as app:
        app.services()
        with caplog.at_level(logging.INFO, "agentsdir"):
            locks.waits().tell("waiting: 100 % of the slots run turns")
    assert [(one.levelname, one.getMessage()) for one in caplog.records] == [
        ("INFO", "waiting: 100 % of the slots run turns")
    ]


def test_two_threads_exclude_each_other(tmp_path: Path) -> None:
    """The one that waits says that it waits for this very process."""
    path = tmp_path / ".turn"
    with locks.hold(path):

        def take() -> None:
            with locks.hold(path, wait=0):
                pass

        with pytest.raises(Busy) as raised:
            in_thread(take).result(LONG)
    if sys.platform == "linux":
        assert "by another thread of this process" in raised.value.message
    in_thread(take).result(LONG)


def test_a_lock_is_free_when_it_is_released_whatever_has_a_copy_of_its_descriptor(
    tmp_path: Path,
) -> None:
    """A program that another thread starts has one, for the instant until it is itself."""
    path = tmp_path / ".turn"
    with locks.hold(path) as held:
        copy = os.dup(held.descriptor)
    try:
        assert not locks.is_held(path)
    finally:
        os.close(copy)


def test_a_process_with_threads_neither_forks_nor_runs_code_between_fork_and_exec() -> None:
    """What is dealt to processes elsewhere is done in this one."""
    rest = threading.Event()
    thread = threading.Thread(target=rest.wait)
    thread.start()
    try:
        assert processes.dying_with_parent() is None
        items = [1, 2, 3]
        dealt = workers.deal(items, _whose, size=lambda _: workers.WORTH, jobs=2)
        assert {bytes(result.note) for result in dealt} == {str(os.getpid()).encode()}
    finally:
        rest.set()
        thread.join()


def _whose(_item: int) -> tuple[bytes, list[bytes]]:
    return str(os.getpid()).encode(), []


def test_an_aborted_turn_ends_its_own_programs_and_not_those_of_its_neighbour(
    stage: Any, program: Any
) -> None:
    """Two turns of one process have the same holder; the marks of their programs differ."""
    body = "self.start('sleep', '600')\nself.spec.sleep(600)"
    name = program(body=body)
    one, two = stage.new(provider=name), stage.new(provider=name)
    first, second = say(stage, one), say(stage, two)
    notes = [wait_for(lambda paths=paths: locks.read_note(paths)) for paths in (one, two)]
    assert notes[0].holder == notes[1].holder
    interrupt(own_services(stage), one)
    with pytest.raises(TurnCancelled):
        first.result(LONG)
    assert [_is_alive(note) for note in notes] == [False, True]
    assert runs(two)
    interrupt(own_services(stage), two)
    with pytest.raises(TurnCancelled):
        second.result(LONG)
    assert not _is_alive(notes[1])


def _is_alive(note: locks.TurnNote) -> bool:
    return processes.is_alive(processes.Process(*note.process))


# Slots.


def test_threads_get_slots_in_the_order_in_which_they_came(stage: Any) -> None:
    """None is passed over, however many there are."""
    busy = stage.script("sleeps.jsonl")
    waiting = [stage.new() for _ in range(6)]
    first = say(stage, busy, slots=1)
    wait_for(lambda: runs(busy))
    sent = []
    for paths in waiting:
        sent.append(say(stage, paths, slots=1))
        wait_for(lambda paths=paths: locks.is_held(paths.turn))
        wait_for(lambda: len(_line(stage)) == len(sent))
    interrupt(own_services(stage), busy)
    with pytest.raises(TurnCancelled):
        first.result(LONG)
    assert all(one.result(LONG).outcome == "completed" for one in sent)
    began = [next(r["ts"] for r in stage.log(p) if r["event"] == "turn.start") for p in waiting]
    assert began == sorted(began)
    assert not _line(stage)


def _line(stage: Any) -> Any:
    from agentsdir.engine import slots

    return slots._lines.get(str(Layout(stage.root).slots), ())


def test_a_thread_that_does_not_wait_looks_for_a_slot_although_others_wait(stage: Any) -> None:
    """It is refused only because there is none."""
    busy, patient, hasty = stage.script("sleeps.jsonl"), stage.new(), stage.new()
    first = say(stage, busy, slots=1)
    wait_for(lambda: runs(busy))
    second = say(stage, patient, slots=1)
    wait_for(lambda: _line(stage))
    with pytest.raises(SlotsHeld):
        say(stage, hasty, slots=1, limits=WaitLimits(slot=0)).result(LONG)

    def take() -> None:
        services = own_services(stage, slots=2)
        with hold_turn(hasty) as held:
            SessionMultiplexer(services).acquire(hasty, read_agent(hasty).state, held)

    in_thread(take).result(LONG)
    interrupt(own_services(stage), busy)
    with pytest.raises(TurnCancelled):
        first.result(LONG)
    assert second.result(LONG).outcome == "completed"
