"""Ending a turn from outside, and what a dead holder's program leaves (decisions D14 and D15)."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from gates import LONG, wait_for

from agentsdir.adapters import processes
from agentsdir.adapters.protocol import Process
from agentsdir.engine.cancel import WAKE_SIGNAL, TurnCancelled, interrupt, wait_for_turns
from agentsdir.engine.restore import restore_agent
from agentsdir.engine.slots import suspend
from agentsdir.engine.turn_lock import has_leftovers, turn_marks
from agentsdir.formats.errors import SessionStateError
from agentsdir.formats.store import locks
from agentsdir.formats.store.locks import Started, TurnNote, read_note, write_note

CALLS = """
yield from self.begun("answer", "half of an ans")
yield self.streamed("tool_use", "c1", toolName="T", toolUseId="c1", input={}, status="running")
yield self.streamed("tool_use", "c2", toolName="T", toolUseId="c2", input={}, status="running")
raise KeyboardInterrupt
"""
WINDS_DOWN = """
yield self.on_disk("tool_use", "c1", toolName="T", toolUseId="c1", input={}, status="error")
yield self.on_disk("tool_result", "r1", toolUseId="c1", output="stopped", isError=True)
self.on_disk("assistant_text", "kept", content="half of an answer, kept")
"""


def logged(stage: Any, paths: Any) -> dict[str, dict[str, Any]]:
    """Return the last logged block of each id, without the ids' prefix."""
    found = {}
    for record in stage.log(paths):
        if record["event"] == "block":
            block = record["data"]["block"]
            found[block["id"].split(":", 2)[-1]] = block
    return found


def test_an_interrupted_program_is_asked_to_end_and_what_comes_of_it_is_kept(
    stage: Any, program: Any
) -> None:
    """Calls end as the transcript says, else they are answered; kept text is not logged twice."""
    paths = stage.new(provider=program(body=CALLS, interrupt=WINDS_DOWN))
    with pytest.raises(KeyboardInterrupt):
        stage.send(paths, "go")
    found = logged(stage, paths)
    assert found["kept"]["content"] == "half of an answer, kept"
    assert "answer" not in found
    assert (found["c1"]["status"], found["r1"]["output"]) == ("error", "stopped")
    assert (found["c2"]["status"], found["c2:crash"]["synthetic"]) == ("error", True)
    assert stage.events(paths)[-2:] == ["turn.aborted", "message.delivered"]
    assert stage.log(paths)[-2]["data"]["reason"] == "interrupt"
    assert list(paths.transcripts.rglob("*.stream")) == []
    program()
    assert stage.send(paths).outcome == "completed"


def test_text_that_the_transcript_does_not_keep_is_logged_as_far_as_it_came(
    stage: Any, program: Any
) -> None:
    """Whatever ends the turn."""
    paths = stage.new(provider=program(body=CALLS))
    with pytest.raises(KeyboardInterrupt):
        stage.send(paths, "go")
    assert logged(stage, paths)["answer"]["content"] == "half of an ans"
    program(body='yield from self.begun("a", "so far")\nraise ProviderError("no", kind="cut")')
    with pytest.raises(Exception, match="no"):
        stage.send(paths, "go")
    assert logged(stage, paths)["a"]["content"] == "so far"


def test_a_person_is_sent_nothing_of_a_turn_that_was_interrupted(stage: Any, program: Any) -> None:
    """The user who stopped it knows; the answer to the next message goes out as ever (D25)."""
    person = {"connector": "irc", "user": "ada", "channel": "#c"}
    paths = stage.new(provider=program(body=CALLS), **person)
    with pytest.raises(KeyboardInterrupt):
        stage.send(paths, "go")
    assert stage.events(paths)[-2:] == ["turn.aborted", "message.delivered"]
    assert "outgoing" not in stage.events(paths)
    program()
    stage.send(paths, "go on")
    assert stage.events(paths).count("outgoing") == 1


def test_a_second_interrupt_stops_the_program_at_once(stage: Any, program: Any) -> None:
    """It is stopped, not asked again; the turn is recorded all the same."""
    name = program(
        body="self.main.with_suffix('.stops').touch()\nraise KeyboardInterrupt",
        interrupt="raise KeyboardInterrupt",
        stop="""
        stops = self.main.with_suffix(".stops")
        stops.write_text(stops.read_text() + "x")
        """,
    )
    paths = stage.new(provider=name)
    with pytest.raises(KeyboardInterrupt):
        stage.send(paths, "go")
    (stops,) = (stage.home / "store").glob("*.stops")
    assert stops.read_text() == "xx"
    assert stage.events(paths)[-2:] == ["turn.aborted", "message.delivered"]


def test_an_idle_agent_is_not_asked_to_end_anything(stage: Any) -> None:
    """It exits 13, and nothing is recorded."""
    paths = stage.new()
    stage.send(paths)
    before = stage.tree()
    with pytest.raises(SessionStateError) as refused:
        interrupt(stage.services, paths)
    assert refused.value.kind == "not-running"
    with (
        locks.hold(paths.turn),  # another process suspends it, say
        pytest.raises(SessionStateError),
    ):
        interrupt(stage.services, paths)
    assert stage.tree() == before


class Asking:
    """Asks a turn to end from another thread, as another process would."""

    def __init__(self, stage: Any, paths: Any) -> None:
        self.result: Any = None
        self._stage = stage
        self._paths = paths
        self._thread = threading.Thread(target=self._ask)

    def _ask(self) -> None:
        services = self._stage.services._replace(sleep=time.sleep)
        wait_for(lambda: self._stage.state(self._paths).open_turn)
        asked = interrupt(services, self._paths, "wrong branch").asked
        wait_for_turns(services, asked)
        self.result = [one.as_json() for one in asked]

    def __enter__(self) -> Asking:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(LONG)


def test_a_request_in_the_log_ends_a_turn_whose_holder_cannot_be_signalled(
    stage: Any, plugin: Any
) -> None:
    """The holder looks into its log by itself; the request names the turn and the words."""
    plugin("slow", body="import time\nwhile True:\n    time.sleep(0.01)\n    yield from ()")
    paths = stage.new(provider="slow")
    with Asking(stage, paths) as asking, pytest.raises(KeyboardInterrupt):
        stage.send(paths)
    (request,) = [e["data"] for e in stage.log(paths) if e["event"] == "abort.requested"]
    assert request["message"] == "wrong branch"
    assert asking.result == [{"agentId": paths.id, "turnId": request["turn_id"], "ended": True}]
    assert stage.events(paths)[-2:] == ["turn.aborted", "message.delivered"]
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_nudge_that_comes_too_late_ends_nothing(stage: Any) -> None:
    """The holder looks into its log, which asks nothing of the turn that runs now."""
    paths = stage.new()
    over = stage.send(paths).turn_id

    def nudge(_event: Any) -> None:
        # What was meant for the turn before does not end this one.
        stage.append(paths, "abort.requested", {"turn_id": over, "reason": "interrupt"})
        os.kill(os.getpid(), WAKE_SIGNAL)

    assert stage.send(paths, on_event=nudge).outcome == "completed"
    os.kill(os.getpid(), WAKE_SIGNAL)
    assert "turn.aborted" not in stage.events(paths)


def test_a_second_request_stops_a_program_that_takes_its_time(stage: Any, program: Any) -> None:
    """As a second signal does; what was heard once is not heard again."""
    for_ever = "import time\nwhile True:\n    time.sleep(0.01)\n    yield from ()"
    name = program(
        body=for_ever,
        interrupt=f"self.main.with_suffix('.asked').touch()\n{for_ever}",
        stop="self.main.with_suffix('.stopped').touch()",
    )
    paths = stage.new(provider=name)

    def ask_twice() -> None:
        wait_for(lambda: stage.state(paths).open_turn)
        interrupt(stage.services, paths)
        wait_for(lambda: list((stage.home / "store").glob("*.asked")))
        interrupt(stage.services, paths)

    thread = threading.Thread(target=ask_twice)
    thread.start()
    with pytest.raises(TurnCancelled):
        stage.send(paths)
    thread.join(LONG)
    assert list((stage.home / "store").glob("*.stopped"))
    assert stage.events(paths).count("abort.requested") == 2
    assert stage.events(paths)[-2:] == ["turn.aborted", "message.delivered"]


def test_a_turn_of_another_senders_message_is_interrupted_and_the_own_one_is_run(
    stage: Any, plugin: Any
) -> None:
    """A request ends the turn that runs, and not the command that runs it."""
    plugin(
        "first_slow",
        body="""
        import time
        while "slow" in str(content):
            time.sleep(0.01)
            yield from ()
        yield self.answer("done")
        """,
    )
    paths = stage.new(provider="first_slow")
    stage.enqueue(paths, "slow")
    with Asking(stage, paths):
        assert stage.send(paths, "fast").response == "done"
    ends = [event for event in stage.events(paths) if event.startswith("turn.")]
    assert ends == ["turn.start", "turn.aborted", "turn.start", "turn.complete"]


def test_a_holder_that_the_turn_file_names_is_signalled(stage: Any, program: Any) -> None:
    """With its start time; while the program runs, `.turn` says whose it is, and then nothing."""
    paths = stage.new(provider=program(body='self.start("sleep", "60").wait()'))
    notes = []

    class Noting(Asking):
        def _ask(self) -> None:
            notes.append(wait_for(lambda: read_note(paths)))
            super()._ask()

    with Noting(stage, paths), pytest.raises(KeyboardInterrupt):
        stage.send(paths)
    assert notes[0].holder == processes.find(os.getpid())
    assert read_note(paths) is None
    assert paths.turn.read_bytes() == b""


def test_what_still_runs_after_a_turn_stays_noted(
    stage: Any, program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who was interrupted while he ended it leaves the rest to the next holder."""
    paths = stage.new(provider=program(body='self.start("sleep", "600")'))
    monkeypatch.setattr("agentsdir.engine.turn.has_leftovers", lambda _paths: True)

    turn = stage.send(paths).turn_id

    assert read_note(paths).turn_id == turn
    monkeypatch.setattr("agentsdir.engine.turn.has_leftovers", has_leftovers)
    stage.send(paths)
    assert paths.turn.read_bytes() == b""


def unharmed(process: subprocess.Popen[bytes]) -> bool:
    """Tell whether no signal came to a process before this one, which ends it."""
    process.terminate()
    return process.wait(LONG) == -signal.SIGTERM


@pytest.fixture
def sleeper() -> Iterator[Callable[[dict[str, str]], subprocess.Popen[bytes]]]:
    """Return a function that starts a process with some variables; what is left is ended."""
    started: list[subprocess.Popen[bytes]] = []

    def start(marks: dict[str, str]) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(["sleep", "600"], env={**os.environ, **marks}))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def crashed_turn(stage: Any, paths: Any, note: bytes) -> str:
    """Leave what a killed `send` leaves: an open turn, and what stands in `.turn`."""
    turn: str = stage.begin_turn(paths)
    paths.turn.write_bytes(note.replace(b"TURN", turn.encode()))
    return turn


def note_of(process: Process | None, holder: Process | None = None) -> bytes:
    """Return what `.turn` says of a process."""
    process = process or Process(2**30, 1)
    holder = holder or Process(2**30, 1)
    note = {"turn_id": "TURN", "holder": holder._asdict(), "process": process._asdict()}
    return orjson.dumps(note)


@pytest.mark.parametrize("who", ["send", "restore", "suspend"])
def test_the_next_command_ends_what_a_dead_turn_left_running(
    stage: Any, sleeper: Any, who: str
) -> None:
    """Everything that carries the marks of that turn, in whatever process group."""
    paths = stage.new()
    turn = crashed_turn(stage, paths, note_of(None))
    first, second = sleeper(turn_marks(paths, turn)), sleeper(turn_marks(paths, turn))
    other = sleeper({**turn_marks(paths, turn), "AGENTSDIR_TURN": "another"})
    if who == "send":
        assert stage.send(paths).outcome == "completed"
    elif who == "suspend":
        suspend(stage.services, paths)
    else:
        planned = restore_agent(stage.services, paths, dry_run=True).actions
        assert first.poll() is None
        assert restore_agent(stage.services, paths).actions == planned
        assert "ended what a dead turn's program left running" in planned
        assert restore_agent(stage.services, paths).actions == ()
    assert max(first.wait(LONG), second.wait(LONG)) < 0  # by a signal
    assert unharmed(other)
    assert read_note(paths) is None


def test_a_process_that_a_hostile_turn_file_names_is_never_signalled(
    stage: Any, sleeper: Any
) -> None:
    """Not as a program, though id and start time are right, nor as a holder without the lock."""
    innocent = sleeper({})
    named = processes.find(innocent.pid)
    paths = stage.new()
    crashed_turn(stage, paths, note_of(named, named))
    with pytest.raises(SessionStateError):
        interrupt(stage.services, paths)
    assert restore_agent(stage.services, paths).error is None
    assert stage.send(paths).outcome == "completed"
    assert unharmed(innocent)


def test_a_holder_of_another_start_time_is_never_signalled(stage: Any, sleeper: Any) -> None:
    """Its number was given to another process; the request stays in the log."""
    innocent = sleeper({})
    named = processes.find(innocent.pid)
    assert named is not None
    paths = stage.new()
    turn = crashed_turn(stage, paths, b"")
    with locks.hold(paths.turn) as held:
        late = Started(named.pid, named.started + 1)
        write_note(held, TurnNote(turn, late, Started(2**30, 1)))
        (asked,) = interrupt(stage.services, paths).asked
        assert (asked.turn_id, asked.runs) == (turn, True)
    assert stage.events(paths)[-1] == "abort.requested"
    assert unharmed(innocent)


GARBAGE = {
    "nothing": b"",
    "no JSON": b"\xff\x00{",
    "no object": b"[1, 2]",
    "no turn": b'{"holder": {"pid": 2, "started": 1}, "process": {"pid": 2, "started": 1}}',
    "everybody": b'{"turn_id": "t", "holder": {"pid": -1, "started": 0}, "process": null}',
    "init": b'{"turn_id":"t","holder":{"pid":1,"started":0},"process":{"pid":1,"started":0}}',
    "too long": b"[" * 100_000,
    "words": b'{"turn_id":"t","holder":{"pid":"7","started":0},"process":{"pid":7.0,"started":0}}',
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE)
def test_garbage_in_a_turn_file_is_no_note(stage: Any, data: bytes) -> None:
    """Readers see nothing in it, and writers go on."""
    paths = stage.new()
    paths.turn.write_bytes(data)
    assert read_note(paths) is None
    assert restore_agent(stage.services, paths).actions == ()
    assert stage.send(paths).outcome == "completed"


def test_a_turn_file_that_cannot_be_written_starts_no_turn(stage: Any, program: Any) -> None:
    """A program whose number no file names would outlive its turn."""
    paths = stage.new(provider=program(body='self.start("sleep", "60").wait()'))
    hard = Path(stage.root) / "second name"

    def link(_event: Any) -> None:
        paths.turn.rename(hard)  # another process takes the lock file away

    with pytest.raises(Exception, match="removed or replaced"):
        stage.send(paths, on_event=link)
    assert stage.events(paths)[-1] == "block"  # the prompt; nothing more is written
