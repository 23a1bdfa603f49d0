"""A turn is read from stdout and the chat file at once; either may be first, each block is once."""

from __future__ import annotations

from typing import Any

import pytest
from gemini_streaming import LINES, UNHURRIED, reduced, returned, row, said, used
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.adapters.gemini.stream import GeminiTranslator, JoinedTurn
from agentsdir.formats.blocks import (
    MAIN,
    block_complete,
    block_update,
    make_block,
    metadata_update,
    usage,
)
from agentsdir.schemas.accept import accepts

pytestmark = [pytest.mark.feature("B-05"), pytest.mark.feature("B-06")]

_CALLS = ("tool_use", "subagent")


class _File:
    """Follows a file into which the test writes blocks."""

    def __init__(self) -> None:
        self.findings: list[Any] = []
        self._events: list[dict[str, Any]] = []

    def write(self, *events: dict[str, Any]) -> None:
        self._events += events

    def poll(self) -> Any:
        events, self._events = self._events, []
        return iter(events)

    def end(self) -> Any:
        return iter(())


def _block(kind: str, name: str, /, **fields: Any) -> dict[str, Any]:
    """Return the event by which a follower tells a block."""
    thread = fields.pop("thread", MAIN)
    block = make_block(kind, name, thread, "s", None, None, **fields)
    return block_complete(name, block)


def _prompt(**fields: Any) -> dict[str, Any]:
    return _block("user_message", "u1:p", content="do it", **fields)


def _text(text: str, message: str = "m1") -> dict[str, Any]:
    return _block("assistant_text", f"{message}:x", content=text, messageId=message)


def _use(call: str, message: str = "m1") -> dict[str, Any]:
    fields = {"toolName": "ls", "toolUseId": call, "input": {}, "status": "success"}
    return _block("tool_use", f"{message}:c{call}", messageId=message, **fields)


def _result(call: str, output: str = "all of it", message: str = "m1") -> dict[str, Any]:
    fields = {"toolUseId": call, "output": output, "isError": False}
    return _block("tool_result", f"{message}:r{call}", messageId=message, **fields)


ASKED = row("message", role="user", content="do it")
DONE = row("result", status="success", stats={})


def _play(*steps: Any) -> list[dict[str, Any]]:
    """Return the events of a turn: bytes are lines of stdout, events what the file then shows."""
    file = _File()
    turn = JoinedTurn(GeminiTranslator(), file)
    events: list[dict[str, Any]] = []
    for step in steps:
        if isinstance(step, bytes):
            events += turn.line(step + b"\n")
        else:
            file.write(step)
            events += turn.poll()
    return [*events, *turn.end()]


def _told(*steps: Any) -> list[tuple[str, str]]:
    """Return type and id of each block that a turn leaves, an id of its own as what it is of."""
    events = _play(*steps)
    assert [event for event in events if not accepts("stream-event", event)] == []
    reducer = reduced(events)
    assert reducer.open_blocks == []
    return [
        (b["type"], "stdout's" if b["id"].startswith("#") else b["id"]) for b in reducer.blocks()
    ]


WHOLE = [
    ("user_message", "u1:p"), ("assistant_text", "m1:x"), ("tool_use", "m1:cc1"),
    ("tool_result", "m1:rc1"),
]  # fmt: skip


def test_a_prompt_that_is_a_command_is_reported_once() -> None:
    """The file has a system block for what stdout calls the user's message."""
    fields = {"subtype": "status", "message": "do it", "metadata": {"event": "local_command"}}
    command = _block("system", "u1:p", **fields)
    assert _told(ASKED, command, DONE) == _told(command, ASKED, DONE) == [("system", "u1:p")]


@pytest.mark.parametrize(
    "steps",
    [
        [ASKED, said("Look"), said("ing."), used("c1"), returned("c1"),
         _prompt(), _text("Looking."), _use("c1"), _result("c1"), DONE],
        [_prompt(), _text("Looking."), _use("c1"), _result("c1"),
         ASKED, said("Look"), said("ing."), used("c1"), returned("c1"), DONE],
        [ASKED, _prompt(), said("Look"), _text("Looking."), said("ing."), used("c1"),
         _use("c1"), returned("c1"), _result("c1"), DONE],
        [ASKED, _prompt(), said("Look"), said("ing."), _text("Looking."), used("c1"),
         _use("c1"), _result("c1"), returned("c1"), DONE],
    ],
    ids=["stdout first", "file first", "amid the answer", "between"],
)  # fmt: skip
def test_whichever_source_is_first_the_blocks_are_those_of_the_file(steps: list[Any]) -> None:
    """Each once, in their order, with the file's ids."""
    assert _told(*steps) == WHOLE


def test_text_is_reported_as_it_comes_and_completed_under_its_handle() -> None:
    """By the block of the file, with its id."""
    events = _play(ASKED, said("Look"), said("ing."), _prompt(), _text("Looking."))
    shown = [e for e in events if e["type"] in ("block_start", "text_delta")]
    assert [e.get("delta", e["type"]) for e in shown] == [
        "block_start", "block_start", "Look", "ing.",
    ]  # fmt: skip
    (complete,) = [e for e in events if e.get("block", {}).get("id") == "m1:x"]
    assert complete["blockId"] == shown[1]["blockId"]


def test_updates_of_the_file_go_to_the_handle_that_stdout_began() -> None:
    """And those of blocks that were reported before the turn go nowhere."""
    late = block_update("m1:cc1", {"status": "error"}, MAIN)
    old = block_update("m0:x", {"superseded": True}, MAIN)
    reducer = reduced(_play(used("c1"), _use("c1"), late, old))
    assert [block["status"] for block in reducer.blocks()] == ["error"]


def test_a_subagent_is_one_block_and_its_thread_comes_from_the_file() -> None:
    """Its result on stdout is no block of its own."""
    call = {"toolUseId": "c1", "subagentId": "a1", "name": "generalist", "input": "look"}
    agent = _block("subagent", "m1:cc1", status="success", output="done", messageId="m1", **call)
    thought = _block("thinking", "n1:t0", content="hm", thread="a1", messageId="n1")
    steps = [used("c1", "invoke_agent"), returned("c1"), agent, thought]
    assert _told(*steps) == [("subagent", "m1:cc1")]
    assert _told(*reversed(steps)) == [("subagent", "m1:cc1")]
    assert [b["id"] for b in reduced(_play(*steps)).blocks("a1")] == ["n1:t0"]


def test_what_the_file_never_shows_is_completed_from_stdout() -> None:
    """A call and an answer that were under way, and why the turn failed."""
    lines = [ASKED, said("On"), used("c1"), said("half an ans")]
    shown = [_prompt(), _text("On")]
    failed = row("result", status="error", error={"type": "x", "message": "[API Error: 400]"})
    events = _play(*lines, *shown, failed)
    assert [(b["type"], b["id"].startswith("#")) for b in reduced(events).blocks()] == [
        ("user_message", False), ("assistant_text", False), ("tool_use", True),
        ("assistant_text", True), ("system", True),
    ]  # fmt: skip
    left = reduced(events).blocks()
    assert (left[2]["status"], left[3]["content"]) == ("pending", "half an ans")
    assert left[4]["message"] == "[API Error: 400]"


def test_without_a_file_all_comes_from_stdout() -> None:
    """As for a client that does not write any, or one whose file is not found."""
    turn = JoinedTurn(GeminiTranslator())
    events = [e for line in (ASKED, said("Yes."), DONE) for e in turn.line(line)]
    events += [*turn.poll(), *turn.end()]
    kinds = [(b["type"], b["content"]) for b in reduced(events).blocks()]
    assert kinds == [("user_message", "do it"), ("assistant_text", "Yes.")]


def test_ids_made_of_stdout_are_no_other_runs() -> None:
    """Though a model numbers its calls anew in each."""
    first, second = (
        _play(row("init", session_id="s", model=model), used("c1")) for model in ("a", "b")
    )
    assert len({reduced(events).blocks()[0]["id"] for events in (first, second)}) == 2


def test_a_prompt_that_the_client_takes_out_again_is_reported_once() -> None:
    """Whether or not it was seen before it was taken out."""
    gone = block_update("u1:p", {"superseded": True}, MAIN)
    for steps in ([ASKED, _prompt(), gone], [ASKED, _prompt(superseded=True)]):
        (block,) = reduced(_play(*steps)).blocks()
        assert (block["id"], block["superseded"]) == ("u1:p", True)


def test_an_answer_is_known_though_it_is_spelled_otherwise() -> None:
    """Stdout drops control sequences, the file joiners and byte-order marks."""
    spoken, written = "a\U0001f468\u200d\U0001f469 b\ufeff", "a\U0001f468\U0001f469\x1b[31m b"
    assert _told(said(spoken), _text(written)) == [("assistant_text", "m1:x")]
    assert _told(_text(written), said(spoken)) == [("assistant_text", "m1:x")]


@pytest.mark.parametrize("spoken", ["\nOne, two. \n\n", "One, two. ", "  One,\ttwo."])
def test_an_answer_is_known_though_the_file_has_it_trimmed(spoken: str) -> None:
    """White space at its ends is on stdout alone, and so is a piece that is nothing else."""
    one = [("assistant_text", "m1:x")]
    assert _told(said(spoken), _text("One, two.")) == one
    assert _told(_text("One, two."), said(spoken)) == one
    pieces = [said(piece) for piece in spoken]
    assert _told(*pieces, _text("One, two.")) == one
    assert _told(*pieces[:4], _text("One, two."), *pieces[4:]) == one
    assert _told(_text("One, two."), *pieces) == one


@pytest.mark.parametrize("second", ["Two.", "One."])
def test_answers_without_a_line_between_them_are_kept_apart(second: str) -> None:
    """Even if they say the same, as where a stream had no finish reason."""
    one, two = _text("One."), _text(second, "m2")
    both = [("assistant_text", "m1:x"), ("assistant_text", "m2:x")]
    lines = [said("One."), said(second)]
    for steps in ([*lines, one, two], [one, two, *lines], [lines[0], one, lines[1], two],
                  [one, *lines, two]):  # fmt: skip
        assert _told(*steps) == both


@pytest.mark.parametrize("first", ["One, tw", "One, two."])
def test_a_try_that_broke_off_is_superseded(first: str) -> None:
    """If only the second try is in the file, be the first a part of it or as long."""
    events = _play(said(first), said("One, two."), _text("One, two."))
    blocks = reduced(events).blocks()
    assert [(b["content"], b.get("superseded", False)) for b in blocks if b["id"] != "m1:x"] == [
        (first, True)
    ]
    assert [b["content"] for b in blocks if b["id"] == "m1:x"] == ["One, two."]


def test_an_answer_that_only_begins_like_one_of_the_file_is_another() -> None:
    """It is shown when that is seen."""
    assert _told(_text("One, two."), said("One"), said(", three.")) == [
        ("assistant_text", "m1:x"), ("assistant_text", "stdout's"),
    ]  # fmt: skip


def test_usage_is_the_clients_own_count_of_the_run() -> None:
    """Not the file's of the session; without one, what the messages say, which is at least that."""
    session = metadata_update({"usage": usage(900, 90)}, MAIN)
    spent = _text("Yes.")
    spent["block"]["usage"] = usage(5, 3)
    again = block_update("m1:x", {"usage": usage(5, 4)}, MAIN)
    stats = {"total_tokens": 12, "input_tokens": 8, "output_tokens": 4}
    steps = [said("Yes."), spent, again]
    done = row("result", status="success", stats=stats)
    counted = reduced(_play(*steps, done, session)).metadata[MAIN]
    assert (counted["usage"], counted["stopReason"]) == (usage(8, 4, thinking=0), "end_turn")
    assert reduced(_play(*steps)).metadata[MAIN] == {"usage": usage(5, 4, exact=False)}


_FILE_BLOCKS = st.sampled_from(
    [
        _prompt(), _text("ab"), _text("a", "m2"), _text("", "m3"), _use("c1"), _use("c2", "m2"),
        _result("c1"), _result("c2", "", "m2"), _block("thinking", "m1:t0", content="hm"),
        block_update("m1:x", {"superseded": True}, MAIN),
        metadata_update({"usage": usage(1, 1)}, MAIN),
    ]
)  # fmt: skip


@UNHURRIED
@given(st.lists(st.one_of(LINES, _FILE_BLOCKS), max_size=14))
def test_any_lines_and_blocks_in_any_order_fold(steps: list[Any]) -> None:
    """Nothing raises or stays open, and every block of the file stands once, as the file has it."""
    events = _play(*steps)
    reducer = reduced(events)
    assert reducer.open_blocks == []
    left = {block["id"]: block for block in reducer.blocks()}
    assert len(left) == len(reducer.blocks())
    for step in steps:
        if isinstance(step, dict) and step["type"] == "block_complete":
            assert left[step["blockId"]]["type"] == step["block"]["type"]


@UNHURRIED
@given(st.lists(st.text("ab \n", max_size=4).filter(str.strip), min_size=1, max_size=4), st.data())
def test_answers_are_reported_once_however_they_are_cut_and_interleaved(
    texts: list[str], data: st.DataObject
) -> None:
    """Calls stand between them; each message of the file comes at any time after the one before.

    The client trims what it writes into the file.
    """
    lines: list[Any] = []
    for number, text in enumerate(texts):
        cut = data.draw(st.integers(0, len(text)))
        lines += [said(piece) for piece in (text[:cut], text[cut:]) if piece]
        lines.append(used(f"c{number}"))
    shown = [
        e
        for n, text in enumerate(texts)
        for e in (_text(text.strip(), f"m{n}"), _use(f"c{n}", f"m{n}"))
    ]
    steps: list[Any] = []
    while lines or shown:
        from_lines = not shown or (lines and data.draw(st.booleans()))
        steps.append((lines if from_lines else shown).pop(0))
    told = _told(*steps)
    assert sorted(name for _, name in told) == sorted(
        f"m{n}:{part}" for n in range(len(texts)) for part in ("x", f"cc{n}")
    )
