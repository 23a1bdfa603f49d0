"""A prompt is shown once, by whatever way it came in."""

from typing import Any

import pytest
from claude_support import SESSION, balanced, lines, of_type, parse, prompts, row, said, user

pytestmark = pytest.mark.feature("B-01")


def _queue(operation: str, content: Any = None) -> dict[str, Any]:
    made = {"type": "queue-operation", "operation": operation, "sessionId": SESSION}
    return made if content is None else {**made, "content": content}


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


@pytest.mark.parametrize("operation", ["remove", "popAll"])
def test_a_prompt_taken_back_is_not_shown(operation: str) -> None:
    """What left the queue unsent was not said."""
    sink = parse(lines(_queue("enqueue", "never mind"), _queue(operation)))
    assert prompts(sink) == []
    assert sink.tally.folded == 2


def test_a_dequeue_out_of_order_takes_the_prompt_it_names() -> None:
    """Two prompts wait; the second one runs, the first still waits at the end."""
    sink = parse(
        lines(
            _queue("enqueue", "one"), _queue("enqueue", "two"), _queue("dequeue", "two"),
            user("u1", None, "two"),
        )
    )  # fmt: skip
    assert prompts(sink) == ["two", "one"]


def test_a_notification_left_in_the_queue_is_no_prompt() -> None:
    """The client queues those for itself."""
    text = "<task-notification><task-id>b1</task-id><summary>done</summary></task-notification>"
    sink = parse(lines(_queue("enqueue", text)))
    assert prompts(sink) == []
    assert [block["message"] for block in of_type(sink, "system")] == ["done"]


def test_other_operations_and_empty_entries_are_accounted_for() -> None:
    """An unknown operation, an enqueue without text, a dequeue of nothing: no line is lost."""
    sink = parse(
        lines(_queue("dequeue"), _queue("shuffle"), _queue("enqueue"), _queue("remove", 3))
    )
    assert balanced(sink)
    assert prompts(sink) == []
