"""Turns: their order on disk, their ends, and what each leaves behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentsdir.engine.close import reset
from agentsdir.engine.dispatcher import send, send_message
from agentsdir.engine.inbox import Message
from agentsdir.engine.restore import restore_agent
from agentsdir.engine.turn import TurnOptions
from agentsdir.formats.blocks import Reducer
from agentsdir.formats.errors import (
    AgentsdirError,
    Busy,
    NotRecorded,
    ProviderError,
    SessionStateError,
    Terminated,
)
from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.log import open_log, read_log

SILENT = ("block", "transcript.synced")


def shape(stage: Any, paths: Any) -> list[str]:
    """Return the events of a log without those that come in any number."""
    return [event for event in stage.events(paths) if event not in SILENT]


@pytest.mark.parametrize("who", [{}, {"connector": "irc", "user": "ada", "channel": "#c"}])
def test_a_turn_does_not_read_a_long_log_again(stage: Any, who: dict[str, str]) -> None:
    """Also where its answer is for a person behind a connector, which takes it."""

    def read() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    paths = stage.new(**who)
    stage.send(paths)
    block = {"type": "assistant_text", "id": "long", "content": "x" * 10**6, "source": None}
    block |= {"conversationId": "main", "sessionId": "s", "timestamp": None}
    for _ in range(8):
        stage.append(paths, "block", {"turn_id": None, "block": block})
    taken: list[str] = []
    services = stage.services._replace(deliver_text=lambda text: taken.append(text["text"]) or True)
    for text in ("one", "two"):
        before = read()
        send_message(
            services,
            paths,
            Message([{"type": "text", "text": text}]),
            TurnOptions(lambda _event: None),
        )
    assert read() - before < 4 * 10**6
    assert taken == (["hi", "one", "two"] if who else [])


@pytest.mark.feature("S-04", "C-02")
def test_a_turn_is_recorded_in_the_order_of_the_design(stage: Any) -> None:
    """Message, activation, start, blocks, transcript, end, delivery; one message, one turn."""
    paths = stage.new()
    stage.send(paths, "hello there")
    stage.send(paths, "again")
    assert stage.events(paths) == [
        "session.created",
        "message.enqueued",
        "session.state",
        "turn.start",
        "block",
        "block",
        "transcript.synced",
        "turn.complete",
        "message.delivered",
        "message.enqueued",
        "turn.start",
        "block",
        "block",
        "transcript.synced",
        "turn.complete",
        "message.delivered",
    ]
    log = stage.log(paths)
    message = log[1]["data"]["message_id"]
    start, end, delivered = log[3]["data"], log[7]["data"], log[8]["data"]
    assert log[2]["data"] == {"from": "created", "to": "active", "reason": "send"}
    assert start["message_ids"] == [message]
    assert start["attempt"] == 1
    assert end["turn_id"] == start["turn_id"]
    assert (end["response"], end["stop_reason"]) == ("hello there", "end_turn")
    assert delivered == {"message_id": message, "outcome": "completed"}
    assert {entry["data"].get("turn_id") for entry in log[4:6]} == {start["turn_id"]}


@pytest.mark.feature("S-04")
def test_the_prompt_and_turn_start_are_on_disk_before_the_provider_is_called(
    stage: Any, plugin: Any
) -> None:
    """The provider itself looks into the log when it is first asked."""
    plugin(
        "early",
        body="""
        from pathlib import Path
        log = next(Path(self.spec.cwd).glob("agents/*/events.jsonl")).read_text()
        yield self.answer("turn.start" if '"turn.start"' in log else "nothing")
        """,
    )
    paths = stage.new(provider="early", cwd=str(stage.root))
    assert stage.send(paths).response == "turn.start"


@pytest.mark.feature("B-08")
def test_no_log_says_where_in_a_clients_store_a_block_stands(stage: Any, plugin: Any) -> None:
    """A provider that read it there says so; log, history and events have null."""
    place = '{"file": "/home/someone/a.jsonl", "line": 1, "offset": 0, "length": 9}'
    body = f"yield (said := self.answer('hi')) | {{'block': said['block'] | {{'source': {place}}}}}"
    paths = stage.new(provider=plugin("sourced", body=body))

    shown = [event["block"]["source"] for event in stage.streamed(paths) if "block" in event]

    assert shown == [None, None]
    for file in (paths.log, paths.history):
        assert b'"source":null' in file.read_bytes()
        assert b"someone" not in file.read_bytes()


def test_each_block_is_durable_before_the_next_event_is_asked_for(stage: Any, plugin: Any) -> None:
    """From inside the provider: every block yielded so far stands in the log."""
    plugin(
        "looking",
        body="""
        from pathlib import Path
        log = next(Path(self.spec.cwd).glob("agents/*/events.jsonl"))
        for number in range(3):
            seen = log.read_text().count('"event":"block"')
            block = self.transcript.block(
                "assistant_text", f"part{number}", self.spec.now(), content=f"saw {seen}"
            )
            yield self.transcript.record(stream.block_complete(block["id"], block))
        """,
    )
    paths = stage.new(provider="looking", cwd=str(stage.root))
    assert stage.send(paths).response == "saw 1\n\nsaw 2\n\nsaw 3"


@pytest.mark.feature("B-08")
def test_a_block_is_recorded_before_the_caller_hears_that_it_is_complete(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a caller was shown can never be lost: the log was fsynced with the block in it."""
    paths = stage.script("tools.jsonl")
    durable: list[bytes] = []
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        fsync(descriptor)
        if os.path.samestat(os.fstat(descriptor), paths.log.stat()):
            durable.append(paths.log.read_bytes())

    monkeypatch.setattr(os, "fsync", noting)
    told = []

    def check(event: dict[str, Any]) -> None:
        if event["type"] == "block_complete":
            last = orjson.loads(durable[-1].splitlines()[-1])
            assert last["event"] == "block"
            assert last["data"]["block"] == event["block"]
            told.append(event["block"]["type"])

    stage.send(paths, on_event=check)
    assert told == ["user_message", "assistant_text", "tool_use", "tool_result"]


@pytest.mark.feature("B-01", "B-05")
def test_a_tool_turn_streams_and_stores_the_blocks_of_the_design(stage: Any) -> None:
    """The seed's example played by a script: ten events, four blocks with the prompt."""
    paths = stage.script("tools.jsonl")
    events = stage.streamed(paths, "What's in config.json?")
    assert [event["type"] for event in events] == [
        "block_complete",
        "block_start",
        "text_delta",
        "text_delta",
        "text_delta",
        "block_complete",
        "block_start",
        "block_update",
        "block_complete",
        "block_complete",
        "metadata_update",
    ]
    assert {event["conversationId"] for event in events} == {"main"}
    stored = [entry["data"]["block"] for entry in stage.log(paths) if entry["event"] == "block"]
    assert [block["type"] for block in stored] == [
        "user_message",
        "assistant_text",
        "tool_use",
        "tool_result",
    ]
    assert stored[2]["toolUseId"] == stored[3]["toolUseId"]
    reducer = Reducer()
    for event in events:
        reducer.apply(event)
    assert reducer.blocks() == stored


def test_a_partial_usage_in_a_script_is_counted_and_not_exact(stage: Any) -> None:
    """The seed's own example names two counts only."""
    paths = stage.script("tools.jsonl")
    result = stage.send(paths)
    assert result.usage["totalTokens"] == 120
    assert result.usage["exact"] is False
    assert stage.state(paths).usage["totalTokens"] == 120


@pytest.mark.feature("S-04")
def test_a_failed_turn_is_recorded_with_what_it_said_so_far(stage: Any) -> None:
    """turn.error, delivered as failed, and the provider's own kind to the caller."""
    paths = stage.script("fails.jsonl")
    with pytest.raises(ProviderError) as failed:
        stage.send(paths)
    assert (failed.value.kind, failed.value.message) == ("rate-limited", "try later")
    assert shape(stage, paths)[-3:] == ["turn.start", "turn.error", "message.delivered"]
    error, delivered = (entry["data"] for entry in stage.log(paths)[-2:])
    assert (error["kind"], error["message"]) == ("rate-limited", "try later")
    assert delivered["outcome"] == "failed"
    blocks = [e["data"]["block"] for e in stage.log(paths) if e["event"] == "block"]
    assert blocks[-1]["content"] == "so far so good"
    state = stage.state(paths)
    assert (state.open_turn, state.pending) == (None, [])
    assert state.counters["failedTurns"] == 1


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, Terminated])
def test_an_interrupted_turn_is_recorded_as_aborted(
    stage: Any, interrupt: type[BaseException]
) -> None:
    """At any event; the transcript so far is kept, and the next send works."""
    paths = stage.script("tools.jsonl")

    def stop(event: dict[str, Any]) -> None:
        if event["type"] == "text_delta":
            raise interrupt

    with pytest.raises(interrupt):
        stage.send(paths, on_event=stop)
    assert stage.events(paths)[-3:] == ["transcript.synced", "turn.aborted", "message.delivered"]
    aborted, delivered = (entry["data"] for entry in stage.log(paths)[-2:])
    assert aborted["reason"] == "interrupt"
    assert delivered["outcome"] == "aborted"
    assert not locks.is_held(paths.turn)
    assert stage.send(paths).outcome == "completed"


@pytest.mark.parametrize("where", ["body", "restore", "stop"])
def test_a_provider_that_raises_anything_fails_its_turn_and_no_more(
    stage: Any, plugin: Any, where: str
) -> None:
    """The error names what was raised; the turn has an end in the log."""
    code = "raise ZeroDivisionError('by zero')"
    if where == "stop":
        code = "yield self.answer('x')\nself.stop = lambda: 1 / 0"
    plugin("broken", **{"body" if where == "stop" else where: code})
    paths = stage.new(provider="broken")
    with pytest.raises(ProviderError, match="ZeroDivisionError"):
        stage.send(paths)
    assert shape(stage, paths)[-2:] == ["turn.error", "message.delivered"]
    assert stage.state(paths).open_turn is None


BAD_EVENTS = {
    "an unknown type": "yield {'type': 'block_end', 'blockId': 'x', 'conversationId': 'main'}",
    "a delta before its block": "yield stream.text_delta('x', 'y', 'main')",
    "a block without content": """
        block = self.transcript.block("assistant_text", "answer", self.spec.now())
        yield stream.block_complete("x", block)
        """,
    "a block of an unknown type": """
        block = self.transcript.block("poem", "answer", self.spec.now(), content="x")
        yield stream.block_complete("x", block)
        """,
    "no event at all": "yield None",
    "an event without its block": "yield {'type': 'block_complete', 'conversationId': 'main'}",
}


@pytest.mark.parametrize("body", BAD_EVENTS.values(), ids=BAD_EVENTS)
def test_a_stream_that_breaks_the_contract_fails_its_turn(
    stage: Any, plugin: Any, body: str
) -> None:
    """As an error of ours, recorded; the log stays sound."""
    plugin("odd", body=body)
    paths = stage.new(provider="odd")
    with pytest.raises(AgentsdirError):
        stage.send(paths)
    assert shape(stage, paths)[-2:] == ["turn.error", "message.delivered"]
    assert read_agent(paths, whole=True).findings == ()


def test_metadata_of_any_shape_leaves_a_sound_log(stage: Any, plugin: Any) -> None:
    """A usage that is none is not counted."""
    plugin("odd", body="yield stream.metadata_update({'usage': [1], 'stopReason': 5}, 'main')")
    paths = stage.new(provider="odd")
    assert stage.send(paths).outcome == "completed"
    assert read_agent(paths, whole=True).findings == ()


def test_a_provider_that_is_not_installed_any_more_fails_the_turn(
    stage: Any, plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Provider missing is the provider's error, and the message is settled."""
    plugin("gone")
    paths = stage.new(provider="gone")
    monkeypatch.undo()
    with pytest.raises(ProviderError) as missing:
        stage.send(paths)
    assert missing.value.kind == "no-provider"
    assert shape(stage, paths)[-1] == "message.delivered"


@pytest.mark.feature("G-06")
def test_the_queue_is_drained_in_order_before_ones_own_message(stage: Any) -> None:
    """Only the own turn is streamed to the caller; all are recorded, in order."""
    paths = stage.new()
    for text in ("first", "second"):
        stage.enqueue(paths, text)
    events = stage.streamed(paths, "third")
    assert events[0]["block"]["content"] == "third"
    prompts = [
        entry["data"]["block"]["content"]
        for entry in stage.log(paths)
        if entry["event"] == "block" and entry["data"]["block"]["type"] == "user_message"
    ]
    assert prompts == ["first", "second", "third"]
    starts = [e["data"]["message_ids"][0] for e in stage.log(paths) if e["event"] == "turn.start"]
    assert starts == [
        e["data"]["message_id"] for e in stage.log(paths) if e["event"] == "message.enqueued"
    ]
    assert stage.state(paths).pending == []


def test_the_failure_of_an_earlier_message_is_not_ones_own(stage: Any, tmp_path: Any) -> None:
    """It is recorded, and the own message is answered."""
    script = tmp_path / "s.jsonl"
    answer = {"type": "assistant_text", "id": "a", "content": "fine"}
    lines: list[dict[str, Any]] = [
        {"type": "turn"},
        {"type": "error", "message": "the first fails"},
        {"type": "turn"},
        {"type": "block_complete", "blockId": "a", "block": answer},
    ]
    script.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    paths = stage.script(str(script))
    stage.enqueue(paths, "first")
    assert stage.send(paths, "second").response == "fine"
    outcomes = [e["data"]["outcome"] for e in stage.log(paths) if e["event"] == "message.delivered"]
    assert outcomes == ["failed", "completed"]


def test_a_message_that_another_process_ran_gives_the_recorded_result(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer, usage, turn and blocks come from the log."""
    paths = stage.new()
    genuine = locks.hold
    raced = []

    def hold(path: Any, **options: Any) -> Any:
        if path == paths.turn and not raced:
            raced.append(path)
            stage.send(paths, "the other's")  # drains the queue, our message included
        return genuine(path, **options)

    monkeypatch.setattr(locks, "hold", hold)
    events: list[Any] = []
    result = stage.send(paths, "ours", on_event=events.append)
    assert (result.outcome, result.response) == ("completed", "ours")
    assert result.usage["totalTokens"] == 2
    assert [event["type"] for event in events] == ["block_complete"] * 2 + ["metadata_update"]
    assert stage.events(paths).count("turn.start") == 2


def test_a_message_that_failed_in_another_process_fails_here_too(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the recorded kind."""
    paths = stage.script("fails.jsonl")
    genuine = locks.hold
    raced = []

    def hold(path: Any, **options: Any) -> Any:
        if path == paths.turn and not raced:
            raced.append(path)
            with pytest.raises(ProviderError):
                stage.send(paths, "the other's")
        return genuine(path, **options)

    monkeypatch.setattr(locks, "hold", hold)
    with pytest.raises(ProviderError) as failed:
        stage.send(paths, "ours")
    assert failed.value.kind == "rate-limited"


def test_a_busy_agent_keeps_the_message_and_says_so(stage: Any) -> None:
    """The message stays queued, and the next turn takes it first."""
    paths = stage.new()
    with locks.hold(paths.turn), pytest.raises(Busy) as busy:
        stage.send(paths, "waiting", wait=0)
    (message,) = stage.state(paths).pending
    assert message["messageId"] in str(busy.value.hint)
    stage.send(paths, "next")
    assert stage.state(paths).counters["turns"] == 2


def test_a_session_terminated_while_a_message_waited_does_not_run_it(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does the drain of the queue go round and round."""
    paths = stage.new()
    stage.enqueue(paths, "somebody else's")
    genuine = locks.hold

    def hold(path: Any, **options: Any) -> Any:
        if path == paths.turn:
            change = {"from": "created", "to": "terminated", "reason": "close"}
            stage.append(paths, "session.state", change)
        return genuine(path, **options)

    monkeypatch.setattr(locks, "hold", hold)
    with pytest.raises(SessionStateError):
        stage.send(paths, "ours")
    assert "turn.start" not in stage.events(paths)


@pytest.mark.feature("G-02")
def test_history_holds_the_markers_and_each_block_of_user_assistant_and_tool(stage: Any) -> None:
    """In the order of the log, each block as the log has it."""
    paths = stage.script("tools.jsonl")
    stage.send(paths, "one")
    reset(stage.services, paths, "anew")
    stage.send(paths, "two")
    lines = [orjson.loads(line) for line in paths.history.read_bytes().splitlines()]
    turn = ["user_message", "assistant_text", "tool_use", "tool_result"]
    assert [line["type"] for line in lines] == ["start", *turn, "reset", *turn]
    logged = [e["data"]["block"] for e in stage.log(paths) if e["event"] == "block"]
    assert [line for line in lines if line["type"] in turn] == logged


@pytest.mark.feature("G-03")
def test_what_stood_before_a_reset_is_no_context_after_a_restoration_either(stage: Any) -> None:
    """Each derived file is lost, and the turn numbers count from the last of two resets."""
    paths = stage.script("two-turns.jsonl")
    stage.send(paths, "one")
    for text in ("two", "three"):
        reset(stage.services, paths)
        for path in (paths.session, paths.state, paths.history, paths.descriptor):
            path.unlink()
        restore_agent(stage.services, paths)
        assert stage.send(paths, text).response == "first answer"
    restore_agent(stage.services, paths)
    assert stage.send(paths, "four").response == "second answer"


@pytest.mark.feature("S-04")
def test_the_whole_conversation_is_rebuilt_from_the_log_and_the_transcripts(stage: Any) -> None:
    """Every derived file is thrown away; the next turn has its context."""
    paths = stage.script("two-turns.jsonl")
    stage.send(paths, "one")
    for path in (paths.session, paths.state, paths.history, paths.descriptor):
        path.unlink()
    (paths.transcripts / "manifest.json").unlink()
    assert stage.send(paths, "two").response == "second answer"
    with open_log(paths.log) as stream:
        blocks = [
            (line.record.data["block"]["type"], line.record.data["block"]["content"])
            for line in read_log(stream, "log")
            if line.record and line.record.event == "block"
        ]
    assert blocks == [
        ("user_message", "one"),
        ("assistant_text", "first answer"),
        ("user_message", "two"),
        ("assistant_text", "second answer"),
    ]


def test_a_script_sleeps_on_the_worlds_clock(stage: Any) -> None:
    """No time passes in a test."""
    paths = stage.script("two-turns.jsonl")
    stage.send(paths)
    stage.send(paths)
    assert stage.slept == [0.25]


def test_a_script_that_is_over_fails_the_turn(stage: Any) -> None:
    """With a kind of its own."""
    paths = stage.script("two-turns.jsonl")
    stage.send(paths)
    stage.send(paths)
    with pytest.raises(ProviderError) as over:
        stage.send(paths)
    assert over.value.kind == "script-ended"


def test_a_prompt_of_parts_reaches_the_provider_as_parts(stage: Any) -> None:
    """And a single text as a text."""
    paths = stage.new()
    image = {"type": "image", "source": {"type": "base64", "data": "AAAA"}}
    parts = [{"type": "text", "text": "look"}, image]
    result = send(stage.services, paths, parts, lambda event: None)
    assert result.response == "look\n[image]"
    blocks = [e["data"]["block"] for e in stage.log(paths) if e["event"] == "block"]
    assert blocks[0]["content"] == parts
    stage.send(paths, "plain")
    blocks = [e["data"]["block"] for e in stage.log(paths) if e["event"] == "block"]
    assert blocks[2]["content"] == "plain"


def test_a_disk_that_refuses_leaves_the_turn_open_for_restore(stage: Any, plugin: Any) -> None:
    """Nothing more is written; the error is the disk's, and restore ends the turn."""
    plugin(
        "full",
        body="""
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        from pathlib import Path
        size = next(Path(self.spec.cwd).glob("agents/*/events.jsonl")).stat().st_size
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5, before[1]))
        try:
            yield self.answer("no room for this")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        """,
    )
    paths = stage.new(provider="full", cwd=str(stage.root))
    with pytest.raises(NotRecorded):
        stage.send(paths)
    assert stage.events(paths)[-1] not in ("turn.complete", "turn.error", "message.delivered")
    assert read_agent(paths, whole=True).findings == ()
    assert restore_agent(stage.services, paths).error is None
    ended = ["turn.aborted", "message.delivered", "session.state"]
    assert stage.events(paths)[-3:] == ended
