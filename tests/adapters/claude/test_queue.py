"""A prompt is shown once, by whatever way it came in."""

from typing import Any, Literal

import pytest
from claude_support import (
    SESSION,
    balanced,
    call,
    lines,
    of_type,
    parse,
    prompts,
    result,
    row,
    said,
    user,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsdir.adapters.claude.sessions import SessionParser
from agentsdir.formats.block_lines import BlockStore
from agentsdir.formats.blocks import Reducer
from agentsdir.formats.diff import EmittedDiff
from agentsdir.formats.rows import LineFeed
from agentsdir.formats.sink import LiveSink, ParseSink

pytestmark = pytest.mark.feature("B-01")


def _time(at: int) -> str:
    return f"2026-01-02T03:04:{at:02}.000Z"


def _at(at: int, value: dict[str, Any]) -> dict[str, Any]:
    return {**value, "timestamp": _time(at)}


def _queue(operation: str, content: Any = None, at: int | None = None) -> dict[str, Any]:
    made = {"type": "queue-operation", "operation": operation, "sessionId": SESSION}
    made = made if content is None else {**made, "content": content}
    return made if at is None else _at(at, made)


def _texts(sink: ParseSink, view: Literal["live", "all"] = "live") -> list[str]:
    """Return what each block says, in order."""
    return [
        str(block.get("content") or block.get("message") or block.get("output") or "call")
        for block in sink.blocks(view)
    ]


def test_a_prompt_through_the_queue_is_not_doubled() -> None:
    """Every prompt of a `-p` run is enqueued and dequeued first."""
    sink = parse(lines(_queue("enqueue", "hi"), _queue("dequeue"), user("u1", None, "hi")))
    assert prompts(sink) == ["hi"]
    assert (sink.tally.parsed, sink.tally.folded) == (1, 2)


def test_a_prompt_that_never_left_the_queue_is_shown() -> None:
    """A kill before the turn leaves nothing but the enqueue row."""
    sink = parse(lines(user("u1", None, "one"), _queue("enqueue", "two")))
    assert prompts(sink) == ["one", "two"]
    assert sink.tally.parsed == 2


def test_a_prompt_typed_mid_turn_is_shown_once() -> None:
    """It stands in an attachment only, and was enqueued and removed before."""
    queued = row(
        "attachment", "x1", "a1",
        attachment={"type": "queued_command", "prompt": "also this", "commandMode": "prompt"},
    )  # fmt: skip
    for queue in (
        [_queue("enqueue", "also this"), _queue("remove")],
        [_queue("enqueue", "also this")],
        [],
    ):
        sink = parse(lines(user("u1", None, "go"), said("a1", "u1", "x"), *queue, queued))
        assert prompts(sink) == ["go", "also this"]
        assert balanced(sink)


def test_a_prompt_taken_back_is_not_shown() -> None:
    """It is in the input box again; some clients say so twice."""
    back = _queue("popAll", "never mind")
    sink = parse(lines(_queue("enqueue", "never mind"), back, back))
    assert prompts(sink) == []
    assert sink.tally.hidden == 3
    assert sink.tally.hidden_by == {"taken-back": 3}


def test_what_is_taken_back_leaves_what_else_waits() -> None:
    """Each row of the client's names one entry."""
    sink = parse(
        lines(
            _queue("enqueue", "keep"), _queue("enqueue", "back"), _queue("popAll", "back"),
            _queue("dequeue"), user("u1", None, "keep"), _queue("enqueue", "a"), _queue("popAll"),
        )
    )  # fmt: skip
    assert prompts(sink) == ["keep"]


def test_a_prompt_that_the_turn_took_in_stands_where_it_did() -> None:
    """Clients 2.0.76 to 2.1.87 write no more than `remove`, in 2.1.76 before the call's result."""
    order = ["prompt", "call", "result", "one", "two", "answer"]
    for removed_first in (True, False):
        rows = [
            user("u1", None, "prompt"),
            said("a1", "u1", call("t1")),
            _queue("enqueue", "one"),
            _queue("enqueue", "two"),
            _at(4, user("u2", "a1", [result("t1", "result")])),
            _queue("remove", at=5),
            _queue("remove", at=6),
            _at(7, said("a2", "u2", "answer")),
        ]
        if removed_first:
            rows.insert(6, rows.pop(4))
        sink = parse(lines(*rows))
        assert _texts(sink) == order
        assert balanced(sink)


def test_a_removed_prompt_is_the_one_that_no_later_row_delivers() -> None:
    """A command waits for the turn's end, and so does a prompt that a later row has."""
    for first, later in (
        ("/cost", "<command-name>/cost</command-name>\n<command-message>cost</command-message>"),
        ("next", "next"),
    ):
        sink = parse(
            lines(
                user("u1", None, "go"), _queue("enqueue", first), _queue("enqueue", "taken in"),
                _queue("remove"), said("a1", "u1", "answer"), _queue("dequeue"),
                user("u2", "a1", later), said("a2", "u2", "done"),
            )
        )  # fmt: skip
        assert _texts(sink) == ["go", "taken in", "answer", first, "done"]


def test_of_removed_prompts_that_nothing_tells_apart_the_oldest_is_shown_there() -> None:
    """The other one waits still, and stands where it was typed. A command is not taken in."""
    for texts, shown in (
        (["a", "b"], ["go", "b", "x", "a", "answer"]),
        (["/c", "b"], ["go", "/c", "x", "b", "answer"]),
    ):
        sink = parse(
            lines(
                user("u1", None, "go"), *(_queue("enqueue", text) for text in texts),
                said("a1", "u1", "x", call("t")), _queue("remove"), said("a2", "a1", "answer"),
            )
        )  # fmt: skip
        assert [text for text in _texts(sink) if text != "call"] == shown


def test_a_prompt_that_was_never_sent_stands_where_it_was_typed() -> None:
    """Not behind the turns that came after it."""
    sink = parse(
        lines(
            user("u1", None, "first"), _queue("enqueue", "unsent"), said("a1", "u1", "answer"),
            user("u2", "a1", "second"), _queue("enqueue", "also unsent"), said("a2", "u2", "x"),
        )
    )  # fmt: skip
    assert _texts(sink) == ["first", "unsent", "answer", "second", "also unsent", "x"]


def test_what_a_dequeue_without_text_takes_is_what_comes_next() -> None:
    """Not the oldest entry: that one still waits."""
    sink = parse(
        lines(
            user("u1", None, "go"), _queue("enqueue", "waits"), _queue("enqueue", "sent first"),
            _queue("dequeue"), user("u2", "u1", "sent first"), said("a1", "u2", "ok"),
        )
    )  # fmt: skip
    assert _texts(sink) == ["go", "waits", "sent first", "ok"]


def test_prompts_that_the_client_joins_are_one() -> None:
    """Clients before 2.1 send all that waits in one row."""
    sink = parse(
        lines(
            user("u1", None, "go"), _queue("enqueue", "one", at=1), _queue("enqueue", "two", at=2),
            said("a1", "u1", "x"), _queue("dequeue"), _queue("dequeue"),
            user("u2", "a1", "one\ntwo"),
        )
    )  # fmt: skip
    assert _texts(sink) == ["go", "x", "one\ntwo"]
    assert of_type(sink, "user_message")[1]["timestamp"] == _time(1)
    assert sink.tally.folded == 4


@pytest.mark.parametrize("content", ["typed", [{"type": "text", "text": "typed"}]])
def test_a_queued_prompt_keeps_the_time_of_its_typing(content: Any) -> None:
    """Whether a row of its own delivers it, or an attachment."""
    queued = row(
        "attachment", "x1", "a1",
        attachment={"type": "queued_command", "prompt": content, "commandMode": "prompt"},
    )  # fmt: skip
    for operation, delivered in (("dequeue", user("u2", "a1", content)), ("remove", queued)):
        sink = parse(
            lines(
                user("u1", None, "go"), _queue("enqueue", "typed", at=1), said("a1", "u1", "x"),
                _queue(operation, at=3), _at(4, delivered),
            )
        )  # fmt: skip
        assert [block["timestamp"] for block in of_type(sink, "user_message")][1:] == [_time(1)]


def test_a_prompt_with_an_image_is_enqueued_without_its_text() -> None:
    """It is the one that the next dequeue takes."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x"}}
    sink = parse(
        lines(
            user("u1", None, "go"), _queue("enqueue", at=1), _queue("dequeue"),
            user("u2", "u1", [{"type": "text", "text": "look"}, image]),
        )
    )  # fmt: skip
    assert [block["timestamp"] for block in of_type(sink, "user_message")][1:] == [_time(1)]
    assert balanced(sink)


def test_what_was_taken_in_is_superseded_with_its_turn() -> None:
    """A rewind leaves it, and what was never sent there; the rest stays."""
    sink = parse(
        lines(
            user("u0", None, "start"), said("a0", "u0", "x"),
            user("u1", "a0", "left"), _queue("enqueue", "taken in"), _queue("remove"),
            said("a1", "u1", "left, too"), _queue("enqueue", "unsent"),
            user("u2", "a0", "instead"), said("a2", "u2", "y"),
        )
    )  # fmt: skip
    assert prompts(sink) == ["start", "instead"]
    assert _texts(sink, "all") == ["start", "x", "left", "taken in", "left, too", "unsent",
                                   "instead", "y"]  # fmt: skip


def test_a_command_that_went_into_another_file_is_no_prompt() -> None:
    """`/clear` is dequeued, and its row begins the next session's file; a prompt is not lost."""
    for named in (None, "/clear"):
        out = _queue("dequeue", named)
        sink = parse(
            lines(
                user("u1", None, "go"), _queue("enqueue", "words"), _queue("dequeue"),
                _queue("enqueue", "/clear"), out, out,
            )
        )  # fmt: skip
        assert prompts(sink) == ["go", "words"]
        assert balanced(sink)


def test_a_long_queue_takes_no_longer_for_each_entry() -> None:
    """A file of many entries that nothing delivers is read as one of few."""
    many = [_queue("enqueue", f"p{number}") for number in range(20_000)]
    out = [_queue("dequeue")] * len(many)
    sink = parse(lines(user("u1", None, "go"), *many, *out, user("u2", "u1", "p7")))
    assert len(prompts(sink)) == 20_001


def test_a_message_by_a_channel_is_shown_without_its_wrapping() -> None:
    """Sent at once, taken in, or still waiting: the client marks it as its own each time."""
    words = '<channel source="chat" user="ann">\nhello\n</channel>'
    origin = {"kind": "channel", "server": "chat"}
    queued = row(
        "attachment", "x1", None, attachment={
            "type": "queued_command", "prompt": words, "commandMode": "prompt", "isMeta": True,
            "origin": origin,
        },
    )  # fmt: skip
    for rows in (
        [user("u1", None, words, isMeta=True, origin=origin)],
        [_queue("enqueue", words), _queue("remove"), queued],
        [_queue("enqueue", words), _queue("remove"), said("a1", None, "x")],
        [_queue("enqueue", words)],
    ):
        assert prompts(parse(lines(*rows))) == ["hello"]
    typed = user("u1", None, words, permissionMode="default")
    assert prompts(parse(lines(typed))) == [words]


def test_every_operation_has_a_block_among_the_hidden() -> None:
    """Also those of entries that stand elsewhere; ids stay single."""
    sink = parse(
        lines(
            user("u1", None, "go"), _queue("enqueue", "sent"), _queue("dequeue"),
            user("u2", "u1", "sent"), _queue("enqueue", "unsent"), said("a1", "u2", "x"),
        ),
        hidden=True,
    )  # fmt: skip
    ids = [block["id"] for block in sink.blocks("all")]
    assert len(ids) == len(set(ids)) == 4 + 3
    assert prompts(sink) == ["go", "sent", "unsent"]


def test_a_dequeue_out_of_order_takes_the_prompt_it_names() -> None:
    """Two prompts wait; the second one runs, the first still waits at the end."""
    sink = parse(
        lines(
            _queue("enqueue", "one"), _queue("enqueue", "two"), _queue("dequeue", "two"),
            user("u1", None, "two"),
        )
    )  # fmt: skip
    assert prompts(sink) == ["one", "two"]


_OPERATIONS = st.sampled_from(["enqueue", "dequeue", "remove", "popAll"])
_TEXTS = st.sampled_from(["a", "b", "/c", "<task-notification>t</task-notification>"])
_ROWS = st.one_of(
    st.tuples(_OPERATIONS, st.one_of(st.none(), _TEXTS)),
    st.tuples(st.sampled_from(["user", "attachment", "assistant", "result"]), _TEXTS),
)


@given(st.lists(_ROWS, max_size=14), st.data())
@settings(max_examples=150, deadline=None)
def test_whatever_the_queue_does_no_prompt_is_lost_and_following_equals_parsing(
    drawn: list[tuple[str, str | None]], data: st.DataObject
) -> None:
    """Each entry is delivered, taken back or shown; followed row by row, it stands as parsed."""
    rows: list[dict[str, Any]] = [user("u", None, "go")]
    for number, (kind, text) in enumerate(drawn):
        uuid, parent = f"r{number}", rows[-1].get("uuid") or "u"
        made = {
            "user": user(uuid, parent, text),
            "attachment": row("attachment", uuid, parent, attachment={
                "type": "queued_command", "prompt": text, "commandMode": "prompt",
            }),
            "assistant": said(uuid, parent, text),
            "result": user(uuid, parent, [result("t", text)]),
        }  # fmt: skip
        rows.append(_at(number, made.get(kind) or _queue(kind, text)))
    sink = parse(lines(*rows), hidden=True)
    assert balanced(sink)
    shown = [block for block in sink.blocks("all") if not block.get("hidden")]
    ids = [block["id"] for block in sink.blocks("all")]
    assert len(ids) == len(set(ids))
    taken_back = any(kind == "popAll" for kind, _ in drawn)
    for text in ("a", "b"):
        if not taken_back and any(one == ("enqueue", text) for one in drawn):
            assert any(block.get("content") == text for block in shown)
    for hidden in (True, False):
        live, reducer = LiveSink(hidden=hidden), Reducer()
        parser = SessionParser(live)
        main, feed = parser.open("0.jsonl"), LineFeed("0.jsonl", live.tally, live.finding)
        store = BlockStore()
        diff = EmittedDiff(store)
        for line in lines(*rows).splitlines(keepends=True):
            for one in feed.rows(line):
                main.take(one)
            if data.draw(st.booleans()):
                parser.settle()
            for event in diff.emit(*live.drain_lines()):
                reducer.apply(event)
        parser.finish()
        for event in diff.emit(*live.drain_lines()):
            reducer.apply(event)
        expected = [
            (block["id"], block["timestamp"], block.get("superseded", False))
            for block in sink.blocks("all")
            if hidden or not block.get("hidden")
        ]
        for blocks in (reducer.blocks(), [store[key] for key in diff]):
            assert [
                (block["id"], block["timestamp"], block.get("superseded", False))
                for block in blocks
            ] == expected


@pytest.mark.parametrize("text", ["yes", None])
def test_prompts_of_one_text_that_were_taken_in_are_not_taken_back(text: str | None) -> None:
    """Each `remove` names another of them; `popAll` takes back only what still waits."""
    rows = [user("u1", None, "go"), said("a1", "u1", "x")]
    rows += [_queue("enqueue", "yes"), _queue("enqueue", "yes"), _queue("enqueue", "back")]
    rows += [_queue("remove", text), _queue("remove", text)]
    for more in ([], [user("u2", "a1", "next"), said("a2", "u2", "y")]):
        sink = parse(lines(*rows, *more, _queue("popAll")))
        assert prompts(sink) == ["go", "yes", "yes", "next"][: 4 if more else 3]
        assert sink.tally.hidden_by == {"taken-back": 2}
    named = [_queue("remove", "yes"), _queue("popAll", "yes")]
    assert prompts(parse(lines(*rows[:4], *named))) == ["go", "yes"]


def test_a_notification_left_in_the_queue_is_no_prompt() -> None:
    """The client queues those for itself."""
    text = "<task-notification><task-id>b1</task-id><summary>done</summary></task-notification>"
    sink = parse(lines(_queue("enqueue", text)))
    assert prompts(sink) == []
    assert [block["message"] for block in of_type(sink, "system")] == ["done"]
    text = '{"task_id":"b1","tool_use_id":"t1","description":"Build","task_type":"local_bash"}'
    for rows in ([], [_queue("remove"), said("a1", None, "x")]):  # waiting still, or taken in
        old = {**user("u0", None, "go"), "version": "2.1.38"}
        sink = parse(
            lines(old, _queue("enqueue", text), *({**one, "version": "2.1.38"} for one in rows))
        )
        assert prompts(sink) == ["go"]
        assert [block["message"] for block in of_type(sink, "system")] == ["Build"]
    sink = parse(lines(_queue("enqueue", '{"task_id":"b1","mine":1}')))
    assert prompts(sink) == ['{"task_id":"b1","mine":1}']


def test_other_operations_and_empty_entries_are_accounted_for() -> None:
    """An unknown operation (drift), an enqueue without text, a dequeue of nothing."""
    sink = parse(
        lines(_queue("dequeue"), _queue("shuffle"), _queue("enqueue"), _queue("remove", 3))
    )
    assert balanced(sink)
    assert prompts(sink) == []
    assert sink.tally.hidden_by["unknown"] == 1
    assert "shuffle" in next(sink.drifts.findings()).message
