"""Callbacks of a program: when each is called, with what, and what it changes (docs/library.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from looping import MODEL, called, model, write_script

from agentsdir.adapters.protocol import Decision, ToolCall
from agentsdir.engine.callbacks import Callbacks, Cancel
from agentsdir.engine.dispatcher import run_inbox, run_until, send_message
from agentsdir.engine.extensions import Extensions
from agentsdir.engine.inbox import Message
from agentsdir.engine.spawn import SpawnRequest, create_child
from agentsdir.engine.tools import create_tool, settled
from agentsdir.engine.turn import TurnOptions
from agentsdir.formats.errors import HookFailed, ProviderError, SessionStateError, UsageError
from agentsdir.schemas import check

HI = [{"type": "text", "text": "hi"}]
NAMES = sorted(Callbacks.__dataclass_fields__)
ENGINE = (  # called in a send
    "on_before_send", "on_event", "on_tick_start", "on_tick_end", "on_tool_confirmation",
    "on_complete", "on_error", "on_after_send",
)  # fmt: skip
ADD = create_tool(
    "add", {"type": "object"}, lambda given: given["a"] + given["b"], requires_confirmation=True
)


class Heard:
    """Callbacks that keep what they were called with."""

    def __init__(self, **answers: Any) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self._answers = answers

    @property
    def callbacks(self) -> Callbacks:
        """Return one of each."""
        return Callbacks(**{name: self._callback(name) for name in NAMES})

    def _callback(self, name: str) -> Callable[..., Any]:
        def callback(*given: Any) -> Any:
            self.calls.append((name, given))
            answer = self._answers.get(name)
            if isinstance(answer, BaseException):
                raise answer
            return answer

        return callback

    def names(self, *, events: bool = False) -> list[str]:
        """Return what was called, in order."""
        return [name for name, _ in self.calls if events or name != "on_event"]

    def of(self, name: str) -> list[tuple[Any, ...]]:
        """Return what one was called with."""
        return [given for called_name, given in self.calls if called_name == name]


def options(heard: Heard | Callbacks, *tools: Any) -> TurnOptions:
    """Return options of a turn with callbacks."""
    callbacks = heard.callbacks if isinstance(heard, Heard) else heard
    added = Extensions(callbacks, {tool.name: tool for tool in tools})
    return TurnOptions(lambda _event: None, extensions=added)


def send(stage: Any, paths: Any, heard: Heard | Callbacks, *tools: Any) -> Any:
    """Send a text with callbacks."""
    return send_message(stage.services, paths, Message(HI), options(heard, *tools))


def two_calls(request: Any) -> Any:
    """Add, and say the sum."""
    if request.tick == 1:
        return ["well", ToolCall("add", {"a": 1, "b": 2})]
    return f"it is {request.results[0]['output']}"


def failing(stage: Any, tmp_path: Path) -> Any:
    """Make an agent whose turns fail."""
    return stage.script(
        write_script(tmp_path / "fails.jsonl", {"type": "error", "kind": "boom", "message": "no"})
    )


def failed_hooks(stage: Any, paths: Any) -> list[str]:
    """Return whose failure a log has."""
    return [r["data"]["hook"] for r in stage.log(paths) if r["event"] == "hook.failed"]


@pytest.mark.feature("A-07")
def test_each_callback_of_a_turn_is_called_once_for_each_occasion(stage: Any) -> None:
    """Two model calls with a tool between them; each gets what the seed says."""
    heard = Heard()
    with model(two_calls):
        paths = stage.new(provider=MODEL)
        result = send(stage, paths, heard, ADD)

    assert heard.names() == [
        "on_before_send",
        "on_tick_start",
        "on_tool_confirmation",
        "on_tick_end",
        "on_tick_start",
        "on_tick_end",
        "on_complete",
        "on_after_send",
    ]
    turn = result.turn_id
    assert heard.of("on_tick_start") == [(1, turn), (2, turn)]
    assert [number for number, _ in heard.of("on_tick_end")] == [1, 2]
    ((session, content),) = heard.of("on_before_send")
    assert (session.id, session.status, content) == (paths.id, "idle", HI)
    ((request,),) = heard.of("on_tool_confirmation")
    assert (request.tool_name, request.input) == ("add", {"a": 1, "b": 2})
    ((complete,),) = heard.of("on_complete")
    ((_, after),) = heard.of("on_after_send")
    assert complete == after == result
    assert failed_hooks(stage, paths) == []


def test_events_are_the_stream_events_in_their_order(stage: Any) -> None:
    """As `on_event` of the options gets them, and in step with the ticks."""
    heard, shown = Heard(), []
    paths = stage.new()
    given = options(heard)._replace(on_event=shown.append)

    send_message(stage.services, paths, Message(HI), given)

    assert [event for (event,) in heard.of("on_event")] == shown
    assert all(check("stream-event", event) == [] for event in shown)
    names = heard.names(events=True)
    assert names.index("on_tick_start") < len(names) - 1 - names[::-1].index("on_event")
    assert names[-3:] == ["on_tick_end", "on_complete", "on_after_send"]


def test_a_tick_has_the_tokens_that_were_reported_in_it(stage: Any) -> None:
    """What echo counts is that of its one call."""
    heard = Heard()
    result = send(stage, stage.new(), heard)

    assert heard.of("on_tick_end") == [(1, result.usage)]


def test_a_turn_that_fails_has_its_error_and_the_send_its_result(
    stage: Any, tmp_path: Path
) -> None:
    """And no `on_complete`."""
    heard = Heard()

    with pytest.raises(ProviderError, match="no"):
        send(stage, failing(stage, tmp_path), heard)

    assert heard.of("on_complete") == []
    ((error,),) = heard.of("on_error")
    assert (error.kind, error.message) == ("boom", "no")
    ((_, result),) = heard.of("on_after_send")
    assert (result.outcome, result.error) == ("failed", error)


def test_a_turn_that_is_aborted_has_its_error_once(stage: Any) -> None:
    """However it is ended."""
    heard = Heard()

    def interrupted(_request: Any) -> Any:
        raise KeyboardInterrupt

    with model(interrupted):
        paths = stage.new(provider=MODEL)
        with pytest.raises(KeyboardInterrupt):
            send(stage, paths, heard)

    ((error,),) = heard.of("on_error")
    assert (error.kind, heard.of("on_complete")) == ("turn-aborted", [])


@pytest.mark.feature("A-07")
def test_a_turn_that_another_process_ran_calls_each_from_the_log(stage: Any) -> None:
    """As if it had run here."""
    here, elsewhere = Heard(), Heard()
    with model(lambda _request: ["one ", "two"]):
        paths = stage.new(provider=MODEL)
        send(stage, paths, here)
        message = stage.enqueue(paths, "hi")
        stage.run = run_inbox(stage.services, paths, TurnOptions(lambda _event: None))

        result = run_until(stage.services, paths, message, options(elsewhere))

    expected = ["on_tick_start", "on_tick_end", "on_complete"]
    assert elsewhere.names() == expected
    assert [name for name in here.names() if name in expected] == expected
    assert elsewhere.of("on_tick_start") == [(1, result.turn_id)]
    assert elsewhere.of("on_complete") == [(result,)]
    assert elsewhere.of("on_event")


def test_a_turn_that_died_with_another_process_has_its_error(stage: Any) -> None:
    """This process ends it, as it holds `.turn`."""
    heard = Heard()
    paths = stage.new()
    stage.begin_turn(paths)
    message = stage.log(paths)[1]["data"]["message_id"]

    with pytest.raises(ProviderError, match="crash"):
        run_until(stage.services, paths, message, options(heard))

    ((error,),) = heard.of("on_error")
    assert error.kind == "turn-aborted"
    assert heard.of("on_complete") == []


@pytest.mark.feature("A-06", "A-07")
def test_no_callback_is_called_for_a_child(stage: Any) -> None:
    """Nor for messages that others wait for; but for the turn with the child's answer."""
    heard = Heard()
    paths = stage.new()
    stage.enqueue(paths, "of another sender")
    create_child(stage.services, paths, SpawnRequest(HI), turn_id=None, sync=True)

    send(stage, paths, heard)

    turns = [r["data"]["turn_id"] for r in stage.log(paths) if r["event"] == "turn.start"]
    assert len(turns) == 3
    assert [turn for _, turn in heard.of("on_tick_start")] == turns[1:]
    assert {result.turn_id for (result,) in heard.of("on_complete")} == set(turns[1:])
    assert len(heard.of("on_after_send")) == 1


def test_a_message_that_the_program_has_queued_has_the_callbacks(stage: Any) -> None:
    """Nothing else would call them."""
    heard = Heard()
    paths = stage.new()
    queued = stage.enqueue(paths, "of this program")
    stage.enqueue(paths, "of another one")
    given = options(heard)
    given = given._replace(extensions=given.extensions._replace(queued={queued}))

    result = send_message(stage.services, paths, Message(HI), given)

    ended = [(one.message_id) for (one,) in heard.of("on_complete")]
    assert ended == [queued, result.message_id]


class Asked(NamedTuple):
    """What `on_before_send` returns, and what is sent then."""

    answer: Any
    sent: Any


@pytest.mark.parametrize(
    "asked",
    [
        Asked(None, HI),
        Asked("ho", [{"type": "text", "text": "ho"}]),
        Asked([{"type": "text", "text": "he"}], [{"type": "text", "text": "he"}]),
    ],
)
@pytest.mark.feature("A-07")
def test_before_send_changes_what_is_sent(stage: Any, asked: Asked) -> None:
    """A text, or parts."""
    paths = stage.new()
    send(stage, paths, Heard(on_before_send=asked.answer))

    (message,) = [r for r in stage.log(paths) if r["event"] == "message.enqueued"]
    assert message["data"]["content"] == asked.sent


@pytest.mark.feature("A-07")
def test_before_send_cancels_and_leaves_the_log_as_it_is(stage: Any) -> None:
    """By raising `Cancel`, with a reason."""
    paths = stage.new()
    before = paths.log.read_bytes()
    heard = Heard(on_before_send=Cancel("not on a Sunday"))

    with pytest.raises(SessionStateError, match="not on a Sunday") as refused:
        send(stage, paths, heard)

    assert refused.value.kind == "cancelled"
    assert paths.log.read_bytes() == before
    assert heard.names() == ["on_before_send"]


class Mute(Exception):
    """An error that cannot say what it is."""

    def __str__(self) -> str:
        raise ZeroDivisionError


@pytest.mark.parametrize("answer", [ValueError("bug"), Mute(), [], [{"type": "video"}], 7])
def test_before_send_that_fails_sends_nothing_and_is_recorded(stage: Any, answer: Any) -> None:
    """It may be what keeps secrets out of prompts."""
    paths = stage.new()

    with pytest.raises(HookFailed, match="on_before_send"):
        send(stage, paths, Heard(on_before_send=answer))

    assert stage.events(paths) == ["session.created", "hook.failed"]
    assert failed_hooks(stage, paths) == ["on_before_send"]


LISTENING = [
    "on_event", "on_tick_start", "on_tick_end", "on_complete", "on_after_send",
]  # fmt: skip


@pytest.mark.parametrize("name", LISTENING)
@pytest.mark.parametrize("error", [ValueError("bug"), Mute(), SystemExit(3)])
@pytest.mark.feature("A-07")
def test_a_callback_that_listens_and_raises_is_recorded_once_and_changes_nothing(
    stage: Any, name: str, error: BaseException
) -> None:
    """Not even a `sys.exit` does."""
    paths = stage.new()
    send(stage, paths, Heard())
    expected = stage.events(paths)[1:]

    other = stage.new()
    send(stage, other, Heard(**{name: error}))

    found = stage.events(other)[1:]
    assert [event for event in found if event != "hook.failed"] == expected
    assert failed_hooks(stage, other) == [name]


def test_an_error_callback_that_raises_leaves_the_error(stage: Any, tmp_path: Path) -> None:
    """The sender gets that of the turn."""
    paths = failing(stage, tmp_path)

    with pytest.raises(ProviderError, match="no"):
        send(stage, paths, Heard(on_error=ValueError("bug")))

    assert failed_hooks(stage, paths) == ["on_error"]


@pytest.mark.parametrize(
    ("answer", "output"),
    [
        (True, 3),
        (Decision(allowed=True), 3),
        (Decision(allowed=True, input={"a": 2, "b": 2}), 4),
        (False, "a callback said no"),
        (Decision(allowed=False, reason="no sums"), "no sums"),
        (Cancel("no sums"), "no sums"),
        (ValueError("bug"), "the callback on_tool_confirmation failed: ValueError: bug"),
        ("yes", "the callback on_tool_confirmation failed: TypeError: it returned no decision"),
        (None, "no person can be asked"),
    ],
)
@pytest.mark.feature("A-07")
def test_tool_confirmation_allows_changes_or_denies_a_call(
    stage: Any, answer: Any, output: Any
) -> None:
    """None leaves it to the user's hook and rules; what fails denies, and is recorded."""
    heard = Heard(on_tool_confirmation=answer)
    client = stage.client
    denies = client.host._replace(confirm=lambda _: Decision(False, "no person can be asked"))
    stage.client = client._replace(host=denies)
    with model(two_calls):
        paths = stage.new(provider=MODEL)
        send(stage, paths, heard, ADD)

    blocks = [r["data"]["block"] for r in stage.log(paths) if r["event"] == "block"]
    (result,) = [block for block in blocks if block["type"] == "tool_result"]
    assert result["output"] == output
    assert len(heard.of("on_tool_confirmation")) == 1
    failed = "failed" in str(output)
    assert failed_hooks(stage, paths) == (["on_tool_confirmation"] if failed else [])


def test_a_tool_that_needs_no_confirmation_asks_for_none(stage: Any, tmp_path: Path) -> None:
    """The callback is for tools with `requires_confirmation`."""
    free = create_tool("add", {"type": "object"}, lambda given: given["a"])
    heard = Heard()
    script = write_script(tmp_path / "calls.jsonl", called("add", "c1", {"a": 1}))

    send(stage, stage.script(script), heard, free)

    assert heard.of("on_tool_confirmation") == []


def session_callbacks(stage: Any, paths: Any, heard: Heard) -> Any:
    """Return the callbacks of a session, as an app calls them."""
    return Extensions(heard.callbacks).session_callbacks(stage.services, paths)


SNAPSHOT = {"version": 1, "sessionId": "s"}


@pytest.mark.parametrize(
    ("answer", "saved", "failed"),
    [
        (None, SNAPSHOT, []),
        (True, SNAPSHOT, []),
        ({**SNAPSHOT, "more": 1}, {**SNAPSHOT, "more": 1}, []),
        (False, None, []),
        (Cancel("no"), None, []),
        (ValueError("bug"), None, ["on_before_persist"]),
        (7, None, ["on_before_persist"]),
    ],
)
@pytest.mark.feature("A-07")
def test_before_persist_changes_or_cancels_the_snapshot_only(
    stage: Any, answer: Any, saved: Any, failed: list[str]
) -> None:
    """The log is not asked about; a failure saves nothing, and is recorded."""
    paths = stage.new()
    calls = session_callbacks(stage, paths, heard := Heard(on_before_persist=answer))

    assert calls.before_persist(SNAPSHOT) == saved

    ((session, snapshot),) = heard.of("on_before_persist")
    assert (session.id, snapshot) == (paths.id, SNAPSHOT)
    assert failed_hooks(stage, paths) == failed


@pytest.mark.parametrize(
    ("answer", "restored"),
    [(None, SNAPSHOT), (True, SNAPSHOT), ({**SNAPSHOT, "version": 2}, {**SNAPSHOT, "version": 2})],
)
@pytest.mark.feature("A-07")
def test_before_restore_may_migrate_a_snapshot(stage: Any, answer: Any, restored: Any) -> None:
    """It gets the session's id: the session is not there yet."""
    paths = stage.new()
    calls = session_callbacks(stage, paths, heard := Heard(on_before_restore=answer))

    assert calls.before_restore(SNAPSHOT) == restored
    assert heard.of("on_before_restore") == [(paths.id, SNAPSHOT)]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (False, SessionStateError),
        (Cancel("no"), SessionStateError),
        (ValueError("bug"), HookFailed),
        (7, HookFailed),
    ],
)
@pytest.mark.feature("A-07")
def test_before_restore_that_cancels_or_fails_leaves_the_agent_untouched(
    stage: Any, answer: Any, error: type[Exception]
) -> None:
    """Its log, too: not even a failure is recorded."""
    paths = stage.new()
    before = stage.tree()

    with pytest.raises(error):
        session_callbacks(stage, paths, Heard(on_before_restore=answer)).before_restore(SNAPSHOT)

    assert stage.tree() == before


@pytest.mark.parametrize(
    ("name", "call", "given"),
    [
        ("on_session_create", lambda calls: calls.session_created(), ()),
        ("on_session_close", lambda calls: calls.session_closed(), ()),
        ("on_after_persist", lambda calls: calls.after_persist(SNAPSHOT), (SNAPSHOT,)),
        ("on_after_restore", lambda calls: calls.after_restore(SNAPSHOT), (SNAPSHOT,)),
    ],
)
@pytest.mark.parametrize("error", [None, ValueError("bug")])
@pytest.mark.feature("A-07")
def test_what_an_app_tells_reaches_the_callback_and_blocks_nothing(
    stage: Any, name: str, call: Callable[[Any], None], given: tuple[Any, ...], error: Any
) -> None:
    """With the session first."""
    paths = stage.new()
    heard = Heard(**{name: error})

    call(session_callbacks(stage, paths, heard))

    ((session, *rest),) = heard.of(name)
    assert (session.id, tuple(rest)) == (paths.id, given)
    assert failed_hooks(stage, paths) == ([name] if error else [])


@pytest.mark.parametrize("name", NAMES)
def test_merged_callbacks_are_called_in_their_order(name: str) -> None:
    """Those of the app first."""
    order: list[str] = []

    def note(who: str) -> Callbacks:
        return Callbacks(**{name: lambda *_given: order.append(who)})

    merged = note("app").merged(note("session"))
    count = getattr(merged, name).func.__code__.co_argcount
    getattr(merged, name)(*[{}] * (1 if name == "on_tool_confirmation" else 2))

    assert order == ["app", "session"]
    assert count >= 2
    others = [one for one in NAMES if one != name]
    assert all(getattr(merged, one) is None for one in others)


def test_of_merged_callbacks_the_second_gets_what_the_first_made() -> None:
    """And is not asked after a no."""
    seen: list[Any] = []

    def app(_session: Any, value: Any) -> Any:
        return value + 1 if value else False

    def session(_session: Any, value: Any) -> Any:
        seen.append(value)
        return None if value == 2 else value * 10

    for name in ("on_before_send", "on_before_persist", "on_before_restore"):
        merged = getattr(Callbacks(**{name: app}).merged(Callbacks(**{name: session})), name)
        assert [merged(None, value) for value in (1, 2, 0)] == [2, 30, False]
    assert seen == [2, 3] * 3


def test_the_second_gets_a_prompt_as_parts_whatever_the_first_returned(stage: Any) -> None:
    """A text of the first is content for the second."""
    paths, seen = stage.new(), []
    app = Callbacks(on_before_send=lambda _session, content: content[0]["text"] + "!")
    session = Callbacks(on_before_send=lambda _session, content: seen.append(content))

    send(stage, paths, app.merged(session))

    assert seen == [[{"type": "text", "text": "hi!"}]]
    (message,) = [r for r in stage.log(paths) if r["event"] == "message.enqueued"]
    assert message["data"]["content"] == seen[0]


def test_the_first_that_answers_decides_about_a_tool_call() -> None:
    """The session is asked where the app has no answer."""
    yes, no, pass_on = (
        Callbacks(on_tool_confirmation=lambda _request, said=said: said)
        for said in (True, False, None)
    )
    pairs = [(yes, no), (no, yes), (pass_on, no), (pass_on, pass_on)]

    answers = [one.merged(two).on_tool_confirmation for one, two in pairs]

    assert [answer and answer(None) for answer in answers] == [True, False, False, None]


def test_both_of_merged_callbacks_are_called_where_the_first_raises(stage: Any) -> None:
    """Its failure is recorded."""
    paths, heard = stage.new(), Heard()
    broken = Callbacks(on_complete=lambda _result: 1 / 0)

    send(stage, paths, broken.merged(heard.callbacks))

    assert len(heard.of("on_complete")) == 1
    assert failed_hooks(stage, paths) == ["on_complete"]


def test_a_callback_may_be_a_coroutine(stage: Any) -> None:
    """It has ended before the turn goes on."""
    done = []

    async def complete(result: Any) -> None:
        done.append(result.response)

    async def before(_session: Any, _content: Any) -> str:
        return "ho"

    result = send(stage, stage.new(), Callbacks(on_before_send=before, on_complete=complete))

    assert done == [result.response]
    assert "ho" in result.response


def test_a_callback_that_is_a_coroutine_fails_where_its_call_blocks_an_event_loop() -> None:
    """It could not go on before the call returns; the error says what to do."""

    async def before(_session: Any, _content: Any) -> None:
        raise AssertionError("never awaited")

    async def settles() -> None:
        settled(before(None, None))

    with pytest.raises(UsageError) as raised:
        asyncio.run(settles())
    assert raised.value.kind == "in-event-loop"
    assert "AsyncApp" in raised.value.hint


def test_a_message_that_is_sent_again_by_its_id_is_not_asked_about_again(stage: Any) -> None:
    """Its content is what was queued; the result comes from the log."""
    paths, message = stage.new(), "m" * 24
    heard = Heard(on_before_send="ho")

    for _ in range(2):
        given = Message(HI, id=message)
        send_message(stage.services, paths, given, options(heard))

    assert len(heard.of("on_before_send")) == 1
    assert len(heard.of("on_complete")) == len(heard.of("on_after_send")) == 2
    assert stage.events(paths).count("message.enqueued") == 1
