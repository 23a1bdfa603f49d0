"""A turn as a person sees it: lines of recorded and of made-up streams, at several widths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from agentsdir.cli.answer_text import AnswerPiece
from agentsdir.cli.cells import cut, width_of
from agentsdir.cli.colour import STYLES
from agentsdir.cli.output import escape_controls
from agentsdir.cli.questions import call_lines
from agentsdir.cli.turn_view import TurnLine, TurnView
from agentsdir.formats import blocks

TURNS = sorted((Path(__file__).parent / "turns").glob("*.jsonl"))
"""Stream events of turns that real clients ran against a fake API."""


def block(kind: str, block_id: str, conversation: str = "main", **fields: Any) -> dict[str, Any]:
    """Return a block."""
    return blocks.make_block(kind, block_id, conversation, "s", None, None, **fields)


def call(name: str, tool: str, given: Any, conversation: str = "main") -> dict[str, Any]:
    """Return the event of a call that begins."""
    made = block("tool_use", name, conversation, toolName=tool, toolUseId=name, input=given,
                 status="pending")  # fmt: skip
    return blocks.block_complete(name, made)


def result(name: str, output: Any, conversation: str = "main", *, failed: bool = False) -> Any:
    """Return the event of a call's result."""
    made = block("tool_result", f"{name}-r", conversation, toolUseId=name, output=output,
                 isError=failed)  # fmt: skip
    return blocks.block_complete(f"{name}-r", made)


def subagent(name: str, thread: str, status: str = "running") -> dict[str, Any]:
    """Return the event of a call that begins a subagent, or ends it."""
    made = block("subagent", name, toolUseId=name, name="helper", input="x", status=status,
                 description=f"task {thread}", subagentId=thread)  # fmt: skip
    return blocks.block_complete(name, made)


def seen(events: list[Any], width: int = 80, encoding: str = "utf-8") -> list[str]:
    """Return what a view shows of events, one a second, with its status after each."""
    view, shown = TurnView(width, encoding, 0), []
    for now, event in enumerate(events, 1):
        shown += [_text(one) for one in view.take(event, now)]
    return shown + [line.text for line in view.finish(len(events))]


def _text(one: TurnLine | AnswerPiece) -> str:
    if isinstance(one, TurnLine):
        return one.text
    return f"{'[' if one.begins else ''}{one.text}{']' if one.ends else ''}"


def recorded(path: Path) -> list[Any]:
    """Return a stream of a real client."""
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


@pytest.mark.feature("C-12")
@pytest.mark.parametrize("width", [80, 20])
@pytest.mark.parametrize("path", TURNS, ids=lambda path: path.stem)
def test_a_real_clients_turn_is_shown_call_by_call(
    path: Path, width: int, snapshot: SnapshotAssertion
) -> None:
    """Each call as it begins, its outcome when it ends, thoughts folded, subagents indented."""
    assert "\n".join(seen(recorded(path), width)) == snapshot


@pytest.mark.parametrize("path", TURNS, ids=lambda path: path.stem)
@pytest.mark.parametrize("width", [80, 20, 0, 7])
def test_no_line_and_no_status_is_wider_than_the_terminal(path: Path, width: int) -> None:
    """The status is 2 columns narrower, so that no terminal folds it.

    Lines have 20 columns at least; a narrower terminal has no status.
    """
    most, view = max(width, 20), TurnView(width, "utf-8", 0)
    for now, event in enumerate(recorded(path)):
        for one in view.take(event, now):
            assert isinstance(one, AnswerPiece) or width_of(one.text) <= most
        assert width_of(view.status(now)) <= (most - 2 if width >= 20 else 0)
    assert all(width_of(line.text) <= most for line in view.finish(99))


def test_a_terminal_without_unicode_gets_none_of_ours() -> None:
    """ASCII says the same."""
    events = [call("a", "Bash", {"command": "x" * 99}), result("a", "1\n2")]
    shown = seen([*events, call("b", "Read", {"file_path": "/" + "y" * 99})], encoding="ascii")
    assert all(line.isascii() for line in shown)
    assert shown[1] == "  -> 2 lines, 1.0 s"


def test_an_encoding_that_does_not_exist_is_one_without_unicode() -> None:
    """It comes from a variable of the environment."""
    assert seen([call("a", "Bash", {"command": "ls"})], encoding="nonsense")[0] == "* Bash(ls)"


TELLING = [
    ("Bash", {"description": "List", "command": "ls -l"}, "Bash(ls -l)"),
    ("Read", {"offset": 3, "file_path": "/a/b"}, "Read(/a/b)"),
    ("Grep", {"output_mode": "content", "pattern": "x.y", "path": ""}, "Grep(x.y)"),
    ("mine", {"number": 3, "other": "first", "last": "no"}, "mine(first)"),
    ("nothing", {}, "nothing"),
    ("numbers", {"number": 3}, "numbers"),
    ("text", "as it is", "text(as it is)"),
    ("lines", {"command": "one\n\n  two\t3"}, "lines(one two 3)"),
]


@pytest.mark.parametrize(("tool", "given", "shown"), TELLING, ids=[row[0] for row in TELLING])
def test_the_most_telling_argument_of_a_call_is_shown(tool: str, given: Any, shown: str) -> None:
    """A command, a path, a pattern; else the first text; all on one line."""
    assert seen([call("a", tool, given)])[0] == f"● {shown}"


PATHS_SEEN = {
    "/home/me/calc/app.py": "app.py",
    "/home/me/calculator/app.py": "/home/me/calculator/app.py",
    "/home/me/calc": "/home/me/calc",
    "/home/me/calc/../.ssh/id": "/home/me/calc/../.ssh/id",
}


@pytest.mark.parametrize(("path", "shown"), PATHS_SEEN.items())
def test_a_path_in_the_agents_folder_is_shown_as_seen_from_there(path: str, shown: str) -> None:
    """In the line of a call, and in a question; any other stands whole."""
    given = {"file_path": path, "content": "x"}
    view = TurnView(80, "utf-8", 0, "/home/me/calc")
    assert _text(view.take(call("a", "Write", given), 0)[0]) == f"● Write({shown})"
    assert call_lines(given, "/home/me/calc")[:2] == [shown, "+x"]


def test_a_long_command_keeps_its_beginning_and_a_long_path_its_end() -> None:
    """That is what tells them apart."""
    shown = seen(
        [
            call("a", "Bash", {"command": "git log " + "x" * 99}),
            call("b", "Read", {"file_path": "/x" * 99 + "/last.py"}),
        ],
        40,
    )
    assert shown[0].startswith("● Bash(git log x")
    assert shown[1].startswith("● Read(…")
    assert shown[1].endswith("/last.py)")


def test_an_outcome_names_its_call_where_other_lines_stand_between() -> None:
    """Right below its call it need not."""
    events = [
        call("a", "Bash", {"command": "late"}),
        call("b", "Bash", {"command": "early"}),
        result("b", "one line"),
        result("a", ["x", {"type": "image"}], failed=True),
    ]
    assert seen(events)[:4] == [
        "● Bash(late)",
        "● Bash(early)",
        "  └ one line · 1.0 s",
        "  └ Bash(late): failed: x [image]",
    ]


def test_a_result_that_comes_a_moment_after_the_end_is_the_outcome() -> None:
    """Gemini CLI says first that a call has ended. What comes too late adds only an error."""
    ended = [blocks.block_update(name, {"status": "success"}, "main") for name in "abc"]
    calls = [call(name, "Bash", {"command": name}) for name in "abc"]
    events = [calls[0], ended[0], result("a", "in time"), calls[1], ended[1], calls[2]]
    late = [result("b", "late"), blocks.block_update("c", {"status": "error"}, "main")]
    assert seen([*events, *late, result("c", "why", failed=True)])[:-1] == [
        "● Bash(a)",
        "  └ in time · 1.0 s",
        "● Bash(b)",
        "  └ done · 1.0 s",
        "● Bash(c)",
        "  └ failed: why",
    ]


REFUSED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was"
    " a file edit, the new_string was NOT written to the file). "
)
REFUSALS = {
    "an interruption": (f"{REFUSED}STOP what you are doing and wait.", "interrupted"),
    "a no in the client": (
        f"{REFUSED}To tell you how to proceed, the user said:\nuse git mv",
        "denied: use git mv",
    ),
    "a no": ("the user said no", "denied"),
    "a no with a reason": ("the user said no: not now", "denied: not now"),
    "an error": ("<tool_use_error>String not found.</tool_use_error>", "failed: String not found."),
}


@pytest.mark.parametrize(("said", "shown"), REFUSALS.values(), ids=REFUSALS)
def test_what_a_client_tells_the_model_of_a_failed_call_is_said_for_people(
    said: str, shown: str
) -> None:
    """Why it did not run, or its error without the client's tags."""
    outcome = seen([call("a", "Bash", {"command": "ls"}), result("a", said, failed=True)])[1]
    assert outcome == f"  └ {shown}"


def test_an_interruption_is_said_once() -> None:
    """The notice says it alone where no call was interrupted."""
    text = "Request interrupted by user for tool use"
    made = block("system", "n", subtype="status", message=text)
    notice = blocks.block_complete("n", made)
    began = call("a", "Bash", {"command": "ls"})
    assert seen([began, result("a", f"{REFUSED}STOP", failed=True), notice])[1:-1] == [
        "  └ interrupted"
    ]
    assert seen([began, result("a", "x"), notice])[-2] == text


def test_the_time_that_a_question_waited_is_left_out() -> None:
    """Of its call, and of the turn; another call that ran meanwhile took its time."""
    view = TurnView(80, "utf-8", 0)
    for name in "ab":
        view.take(call(name, "Bash", {"command": name}), 1)
    view.leave_out("a", 10)
    made = block("tool_result", "r", toolUseId="a", output="x", isError=False, durationMs=11_500)
    shown = [*view.take(blocks.block_complete("r", made), 13), *view.take(result("b", "y"), 13)]
    assert [_text(line) for line in shown] == [
        "  └ Bash(a): x · 2.0 s",
        "  └ Bash(b): y · 12 s",
    ]
    assert view.finish(14)[-1].text == "2 tool calls · 4.0 s"


def test_what_a_subagent_did_is_not_shown_after_its_end() -> None:
    """Clients write it down late, and below the answer it would mislead."""
    events = [subagent("s", "t"), subagent("s", "t", "success"), call("a", "Read", {}, "t")]
    assert seen(events)[:-1] == ["● subagent helper: task t", "  └ done · 1.0 s"]


def test_subagents_that_take_turns_are_named_again() -> None:
    """Each line below a name is of that one."""
    events = [
        subagent("s1", "t1"),
        subagent("s2", "t2"),
        call("a", "Read", {"path": "1"}, "t1"),
        call("b", "Read", {"path": "2"}, "t2"),
        result("b", "x", "t2"),
        call("c", "Read", {"path": "3"}, "t1"),
    ]
    assert seen(events)[:9] == [
        "● subagent helper: task t1",
        "● subagent helper: task t2",
        "subagent helper: task t1",
        "    ● Read(1)",
        "subagent helper: task t2",
        "    ● Read(2)",
        "      └ x · 1.0 s",
        "subagent helper: task t1",
        "    ● Read(3)",
    ]


def test_a_subagent_of_a_subagent_is_indented_further_but_not_for_ever() -> None:
    """A quarter of the width is the most."""
    view = TurnView(40, "utf-8", 0)
    for depth in range(1, 20):
        above = {"parent": f"t{depth - 1}" if depth > 1 else "main"}
        view.take(blocks.metadata_update(above, f"t{depth}"), 0)
    shown = [view.take(call(name, "Read", {}, name), 0)[0] for name in ("t1", "t2", "t19")]
    assert [len(_text(one)) - len(_text(one).lstrip()) for one in shown] == [4, 8, 10]


def test_conversations_that_are_each_others_parents_end_nothing() -> None:
    """A damaged stream may say so."""
    view = TurnView(80, "utf-8", 0)
    view.take(blocks.metadata_update({"parent": "b"}, "a"), 0)
    view.take(blocks.metadata_update({"parent": "a"}, "b"), 0)
    assert _text(view.take(call("x", "Read", {}, "a"), 0)[0]).endswith("● Read")


def test_thinking_is_one_line_with_its_time() -> None:
    """What was thought is not shown."""
    thought = block("thinking", "k", content="")
    events = [blocks.block_start("k", thought), blocks.text_delta("k", "secret", "main")]
    whole = blocks.block_complete("k", {**thought, "content": "secret"})
    assert seen([*events, whole])[:1] == ["∴ thought for 2 s"]
    assert seen([whole, whole])[:-1] == ["∴ thought"]


def test_a_line_waits_until_the_line_of_the_answer_is_complete() -> None:
    """A background subagent must not cut a sentence in two."""
    text = block("assistant_text", "t", content="")
    events = [
        call("a", "Read", {}, "child"),
        blocks.block_start("t", text),
        blocks.text_delta("t", "One ", "main"),
        result("a", "x", "child"),
        blocks.text_delta("t", "line.\n", "main"),
        blocks.block_complete("t", {**text, "content": "One line.\nNo more."}),
    ]
    assert seen(events)[:-1] == [
        "    ● Read",
        "[One ",
        "line.\n",
        "      └ Read: x · 3.0 s",
        "No more.]",
    ]


def test_what_is_begun_again_is_said_to_count_no_more() -> None:
    """A client that asks its model once more has shown text that is not in the answer."""
    text = block("assistant_text", "t", content="")
    events = [
        blocks.block_start("t", text),
        blocks.text_delta("t", "Half", "main"),
        blocks.block_update("t", {"superseded": True}, "main"),
    ]
    assert seen(events)[:-1] == ["[Half", "the text above was begun again, and does not count"]


def test_the_status_says_what_runs_now() -> None:
    """Seconds, tokens, and the call that runs, or that the model thinks or answers."""
    view, usage = TurnView(80, "utf-8", 0), blocks.usage(1200, 7, 30)
    assert view.status(0.25) == "⠹ 0 s · waiting for the model"
    view.take(blocks.metadata_update({"usage": usage, "costUSD": 0.02}, "main"), 1)
    view.take(blocks.block_start("k", block("thinking", "k", content="")), 1)
    assert view.status(3).endswith("3 s · 1.2k tokens in · 7 out · thinking")
    view.take(blocks.block_complete("k", block("thinking", "k", content="hm")), 2)
    view.take(call("a", "Bash", {"command": "make"}), 3)
    view.take(call("b", "Read", {"path": "x"}), 3)
    assert view.status(75).endswith("1 min 15 s · 1.2k tokens in · 7 out · Read(x) +1")
    view.take(result("a", "x"), 4)
    view.take(result("b", "x"), 4)
    view.take(blocks.block_start("t", block("assistant_text", "t", content="")), 5)
    assert view.status(5).endswith(" · answering")
    assert view.finish(5)[-1].text == "2 tool calls · 5.0 s · 1.2k tokens in · 7 out · $0.02"


def test_the_end_names_calls_without_a_result_and_believes_the_result_of_the_turn() -> None:
    """Its counts are better than those of the stream; a count that is a lower bound says so."""
    view = TurnView(80, "utf-8", 0)
    view.take(call("a", "Bash", {"command": "make"}), 0)
    usage = blocks.usage(2_500_000, 10, exact=False)
    assert [line.text for line in view.finish(3700, usage, 0.0042)] == [
        "  └ no result",
        "1 tool call · 1 h 1 min · ≥2.5M tokens in · ≥10 out · $0.0042",
    ]


def test_a_call_is_unfolded_with_its_input_and_its_result() -> None:
    """A command as text, as a question shows it; of what is long the beginning, and how much."""
    view = TurnView(80, "utf-8", 0)
    view.take(call("a", "Bash", {"command": "seq 9\nls", "timeout": 5}), 0)
    (line,) = view.take(result("a", "1\n2\n3\x1b[2J", failed=True), 0)
    assert isinstance(line, TurnLine)
    assert [one.text for one in view.unfold(line.call, most=2)] == [
        "input:",
        "  seq 9",
        "  ls",
        "  … 2 more lines",
        "error:",
        "  1",
        "  2",
        "  … 1 more lines",
    ]
    assert view.unfold("a")[-1].text == "  3\\x1b[2J"


def test_calls_that_have_the_same_id_are_kept_apart() -> None:
    """Some models count from 1 in each answer."""
    events = [call("a", "Bash", {"command": "1"}), result("a", "x")]
    again = call("a", "Bash", {"command": "2"})
    again["blockId"] = again["block"]["id"] = "b"
    view = TurnView(80, "utf-8", 0)
    shown = [
        _text(one) for event in [*events, again, result("a", "y")] for one in view.take(event, 0)
    ]
    assert shown == ["● Bash(1)", "  └ x", "● Bash(2)", "  └ y"]
    assert [one.output for one in view.calls.values()] == ["x", "y"]


def test_keys_of_calls_that_have_the_same_id_stay_short() -> None:
    """Thousands of them take no more time and memory each than a few."""
    view = TurnView(80, "utf-8", 0)
    for at in range(5000):
        again = call("a" if at % 10 else f"a'{at}", "Bash", {"command": "1"})
        again["blockId"] = again["block"]["id"] = f"b{at}"
        view.take(again, 0)
    assert len(view.calls) == 5000
    assert max(map(len, view.calls)) < 10


texts = st.text(max_size=60) | st.sampled_from(["\x1b[2J", "\u202e", "\x9b31m", "a\rb", "\ud800"])
names = st.sampled_from(["a", "b", "c", "main"])
values = st.recursive(
    texts | st.none() | st.integers() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
made_blocks = st.fixed_dictionaries(
    {"type": st.sampled_from(list(blocks.BLOCKS)), "id": names, "content": texts, "message": texts},
    optional={
        "toolName": texts, "toolUseId": names, "input": values, "name": texts, "output": values,
        "status": st.sampled_from(blocks.TOOL_STATUSES), "isError": st.booleans(),
        "subtype": st.sampled_from(blocks.SYSTEM_SUBTYPES), "superseded": st.booleans(),
        "durationMs": st.integers(0, 10**15), "subagentId": names, "description": texts,
    },
)  # fmt: skip
made_events = st.builds(
    lambda kind, handle, conversation, made, delta, metadata: {
        "type": kind, "blockId": handle, "conversationId": conversation, "block": made,
        "delta": delta, "updates": made, "metadata": metadata,
    },
    st.sampled_from(blocks.EVENT_TYPES), names, names, made_blocks, texts,
    st.fixed_dictionaries(
        {}, optional={"parent": names, "usage": values, "costUSD": st.floats(0, 1e9)}
    ),
)  # fmt: skip


@given(st.lists(made_events, max_size=12), st.integers(-1, 200))
def test_nothing_in_a_stream_acts_on_the_terminal_or_breaks_the_view(
    events: list[Any], width: int
) -> None:
    """No control character, no line wider than the terminal, no error, for any stream."""
    view = TurnView(width, "utf-8", 0)
    for now, event in enumerate(events):
        for one in view.take(event, now):
            assert escape_controls(one.text) == one.text
            assert isinstance(one, AnswerPiece) or "\n" not in one.text
            assert isinstance(one, AnswerPiece) or width_of(one.text) <= max(width, 20)
            assert isinstance(one, AnswerPiece) or {p.style for p in one.parts} <= {"", *STYLES}
        status = view.status(now)
        assert escape_controls(status) == status
        assert width_of(status) < max(width, 20)
    for line in [*view.finish(99), *(one for key in view.calls for one in view.unfold(key))]:
        assert escape_controls(line.text) == line.text
        assert "\n" not in line.text


@given(st.text(), st.integers(0, 40), st.booleans())
def test_a_text_that_is_cut_fits(text: str, columns: int, keep_end: bool) -> None:
    """And one that fits is not cut."""
    shown = cut(text, columns, keep_end=keep_end)
    assert width_of(shown) <= columns
    assert shown == text or width_of(text) > columns or len(text) > 64


def test_wide_characters_count_as_two_columns_and_marks_as_none() -> None:
    """As terminals show them."""
    assert width_of("漢字") == 4
    assert width_of("e\u0301") == 1
    assert cut("漢字漢字", 5) == "漢字…"


@pytest.mark.parametrize("keep_end", [False, True])
def test_thousands_of_marks_upon_a_character_are_cut(keep_end: bool) -> None:
    """They have no width, but a terminal gets slow with them."""
    shown = cut("/" + "\u0301" * 20_000, 40, keep_end=keep_end)
    assert len(shown) < 200
    assert "…" in shown
    thai = "ที่นี่" * 5
    assert cut(thai, width_of(thai)) == thai
