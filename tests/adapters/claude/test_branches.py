"""Rewinds supersede what they replaced, and nothing else ever is."""

import pytest
from claude_support import call, lines, of_type, parse, prompts, result, row, said, user

from agentsdir.formats.sink import ParseSink

pytestmark = pytest.mark.feature("B-01")


def test_a_rewind_supersedes_the_old_prompt_and_its_answer() -> None:
    """Two prompts with one parent are rivals; the later one in the file is live."""
    sink = parse(
        lines(
            user("u1", None, "first"),
            said("a1", "u1", "one"),
            user("u2", "a1", "old"),
            said("a2", "u2", "old answer"),
            user("u3", "a1", "new"),
            said("a3", "u3", "new answer"),
        )
    )
    assert prompts(sink) == ["first", "new"]
    assert [b["content"] for b in of_type(sink, "assistant_text")] == ["one", "new answer"]
    assert [b["id"] for b in sink.blocks("all") if b.get("superseded")] == ["u2:0", "a2:0"]


def test_a_rewind_to_the_start_supersedes_everything_before() -> None:
    """The first prompt has no parent, and neither has the one that replaces it."""
    sink = parse(
        lines(
            user("u1", None, "old"), said("a1", "u1", "x"),
            user("u2", None, "new"), said("a2", "u2", "y"),
        )
    )  # fmt: skip
    assert prompts(sink) == ["new"]


def test_a_writer_that_keeps_no_chain_loses_nothing() -> None:
    """Where no row names a parent, prompts are no rivals."""
    sink = parse(
        lines(
            user("u1", None, "one"), said("a1", None, "x"),
            user("u2", None, "two"), said("a2", None, "y"),
        )
    )  # fmt: skip
    assert prompts(sink) == ["one", "two"]


def test_the_named_leaf_wins_over_the_last_row() -> None:
    """`last-prompt` says on which branch the session stood."""
    rows = lines(
        user("u1", None, "first"),
        said("a1", "u1", "one"),
        user("u2", "a1", "kept"),
        said("a2", "u2", "kept answer"),
        user("u3", "a1", "left"),
    )
    named = {"type": "last-prompt", "leafUuid": "a2", "sessionId": "s"}
    assert prompts(parse(rows + lines(named))) == ["first", "kept"]
    assert prompts(parse(rows + lines({**named, "leafUuid": "gone"}))) == ["first", "left"]


def test_a_prompt_after_the_named_leaf_is_newer() -> None:
    """A session killed after its last note goes on from the prompt in the file."""
    sink = parse(
        lines(
            user("u1", None, "one"),
            said("a1", "u1", "x"),
            {"type": "last-prompt", "leafUuid": "a1", "sessionId": "s"},
            user("u2", "a1", "two"),
        )
    )
    assert prompts(sink) == ["one", "two"]


def test_parallel_calls_are_no_branches() -> None:
    """Results hang from their calls, the next row from the last result; all of it is live."""
    sink = parse(
        lines(
            user("u1", None, "go"),
            said("a1", "u1", call("t1"), id="m"),
            said("a2", "a1", call("t2"), id="m"),
            user("r2", "a2", [result("t2")]),
            user("r1", "a1", [result("t1")]),
            said("a3", "r1", "done"),
            user("u2", "a3", "next"),
        )
    )
    assert not [block for block in sink.blocks("all") if block.get("superseded")]


def test_a_notice_beside_an_answer_is_no_branch() -> None:
    """A stop hook's summary and the answer share a parent; the answer was delivered."""
    sink = parse(
        lines(
            user("u1", None, "go"),
            said("a1", "u1", "the answer"),
            row("system", "s1", "u1", subtype="stop_hook_summary"),
            user("u2", "s1", "next"),
        )
    )
    assert [b["content"] for b in of_type(sink, "assistant_text")] == ["the answer"]


def test_an_unanswered_call_beside_the_next_prompt_stays() -> None:
    """After a kill the client hangs the next prompt above the open call; it happened anyway."""
    sink = parse(
        lines(
            user("u1", None, "go"),
            said("a1", "u1", "starting", id="m"),
            said("a2", "a1", call("t1"), id="m"),
            user("u2", "a1", "go on"),
        )
    )
    assert len(of_type(sink, "tool_use")) == 1


def test_progress_rows_are_transparent() -> None:
    """A chain through a progress row is still one chain."""
    sink = parse(
        lines(
            user("u1", None, "go"),
            said("a1", "u1", call("t1")),
            row("progress", "p1", "a1", data={"type": "bash_progress"}),
            row("progress", "p2", "p1", data={"type": "bash_progress"}),
            user("r1", "a1", [result("t1")]),
            said("a2", "p2", "done"),
            user("u2", "a2", "next"),
        )
    )
    assert prompts(sink) == ["go", "next"]


def test_a_missing_parent_is_bridged_and_reported() -> None:
    """The row goes on after the one before it; nothing is lost."""
    sink = parse(
        lines(
            user("u1", None, "one"), said("a1", "u1", "x"),
            user("u2", "never-written", "two"), said("a2", "u2", "y"),
        )
    )  # fmt: skip
    assert prompts(sink) == ["one", "two"]
    assert [(f.id, f.line, f.severity) for f in sink.findings] == [("missing-parent", 3, "info")]


def test_parents_in_a_circle_are_reported_once_each() -> None:
    """Rows that name each other end no walk, and stay."""
    sink = parse(lines(user("u1", "u2", "one"), user("u2", "u1", "two"), user("u3", "u3", "self")))
    assert prompts(sink) == ["one", "two", "self"]
    assert [f.id for f in sink.findings] == ["parent-cycle", "parent-cycle"]


def test_an_answer_that_a_second_client_did_not_see_is_superseded() -> None:
    """Two resumes at once: the other client filled in for the answer and went on without it."""
    sink = parse(
        lines(
            user("u1", None, "A"),
            said("f1", "u1", "No response requested.", model="<synthetic>"),
            user("u2", "f1", "B"),
            said("a1", "u1", "answer to A"),
            said("a2", "u2", "answer to B"),
            {"type": "last-prompt", "leafUuid": "a2", "sessionId": "s"},
        )
    )
    assert [b["content"] for b in of_type(sink, "assistant_text")] == ["answer to B"]
    assert prompts(sink) == ["A", "B"]


def test_compaction_keeps_the_history_before_it() -> None:
    """Old rows are what was said; only the model no longer sees them."""
    sink = parse(
        lines(
            user("u1", None, "old"),
            said("a1", "u1", "x"),
            row("system", "b1", None, subtype="compact_boundary", logicalParentUuid="a1",
                content="Conversation compacted", compactMetadata={"trigger": "auto"}),
            user("s1", "b1", "the summary", isCompactSummary=True),
            user("u2", "s1", "new"),
            said("a2", "u2", "y"),
        )
    )  # fmt: skip
    assert prompts(sink) == ["old", "new"]
    events = [block["metadata"]["event"] for block in of_type(sink, "system")]
    assert events == ["compaction", "compact_summary"]


def test_order_is_file_order_whatever_the_clock_said() -> None:
    """Timestamps run backwards in real files."""
    early = "2026-01-01T00:00:00.000Z"
    sink = parse(lines(user("u1", None, "one"), user("u2", "u1", "two", timestamp=early)))
    assert prompts(sink) == ["one", "two"]


def test_rows_that_a_compaction_preserved_are_shown_once_in_both_views() -> None:
    """They stay before the boundary, the client goes on with them, and history is no branch."""
    kept = {"anchorUuid": "s1", "uuids": ["u2", "a2"], "allUuids": ["u2", "a2"]}
    segment = {"headUuid": "u2", "anchorUuid": "s1", "tailUuid": "a2"}
    sink = parse(
        lines(
            user("u1", None, "old"), said("a1", "u1", "x"),
            user("u2", "a1", "kept"), said("a2", "u2", "y"),
            row("system", "b1", None, subtype="compact_boundary", logicalParentUuid="a2",
                compactMetadata={"preservedSegment": segment, "preservedMessages": kept}),
            user("s1", "b1", "the summary", isCompactSummary=True, isVisibleInTranscriptOnly=True),
            user("u3", "a2", "new"), said("a3", "u3", "z"),
            {"type": "last-prompt", "leafUuid": "a3", "sessionId": "s"},
        )
    )  # fmt: skip
    for view in ("live", "all"):
        assert prompts(sink, view) == ["old", "kept", "new"]
        texts = [block["content"] for block in of_type(sink, "assistant_text", view)]
        assert texts == ["x", "y", "z"]


@pytest.mark.parametrize("logical", ["never-written", None])
def test_a_boundary_goes_on_after_what_stands_before_it(logical: str | None) -> None:
    """The row before the cut is often missing from the file, and so may the summary be."""
    boundary = row("system", "b1", None, subtype="compact_boundary", logicalParentUuid=logical)
    first = lines(user("u1", None, "old"), said("a1", "u1", "x"), boundary)
    second = lines(user("u2", "b1", "new"), {**boundary, "uuid": "b2"}, user("u3", "b2", "last"))
    sink = parse(first + second)
    assert prompts(sink) == ["old", "new", "last"]
    assert sink.findings == []
    assert prompts(parse(lines(boundary) + second)) == ["new", "last"]


def test_a_snapshot_with_a_prompts_id_is_no_row_of_the_chain() -> None:
    """`messageId` refers to the prompt; it is another space of ids."""
    sink = parse(
        lines(
            user("u1", None, "one"),
            {"type": "file-history-snapshot", "messageId": "u1", "snapshot": {}},
            {"type": "file-history-snapshot", "messageId": "u1", "snapshot": {}},
            said("a1", "u1", "x"),
            user("u2", "a1", "two"),
        )
    )
    assert prompts(sink) == ["one", "two"]
    assert sink.findings == []


def test_a_copied_ancestor_is_shown_once() -> None:
    """A branch of a branch writes the same rows again."""
    copied = lines(user("u1", None, "one"), said("a1", "u1", "x"))
    sink = parse(copied + copied + lines(user("u2", "a1", "two")))
    assert prompts(sink) == ["one", "two"]
    assert sink.tally.folded == 2


def superseded(sink: ParseSink) -> list[str]:
    """Return the rows whose blocks are superseded."""
    return [block["id"].split(":")[0] for block in sink.blocks("all") if block.get("superseded")]


COMMANDS = {
    "a skill": "<command-message>review</command-message>\n<command-name>/review</command-name>",
    "a local command": "<command-name>/cost</command-name>\n<command-args></command-args>",
    "a shell command": "<bash-input>ls</bash-input>",
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_rewind_past_a_command_supersedes_it_and_its_answer(command: str) -> None:
    """A command is a branch point, as a prompt is."""
    sink = parse(
        lines(
            user("u1", None, "one"), said("a1", "u1", "x"),
            user("c1", "a1", command),
            user("m1", "c1", [{"type": "text", "text": "Do it."}], isMeta=True),
            said("a2", "m1", "left"),
            user("u2", "a1", "two"), said("a3", "u2", "y"),
        )
    )  # fmt: skip
    assert superseded(sink) == ["c1", "a2"]


@pytest.mark.parametrize("named", [True, False])
def test_a_rewind_that_a_command_goes_on_from_supersedes_what_was_there(named: bool) -> None:
    """With and without a `last-prompt` row that names the end."""
    rows = lines(
        user("u1", None, "one"), said("a1", "u1", "x"),
        user("u2", "a1", "two"), said("a2", "u2", "y"),
        {"type": "last-prompt", "lastPrompt": "two", "leafUuid": "a2", "sessionId": "s"},
        user("c1", "a1", COMMANDS["a skill"]),
        said("a3", "c1", "z"),
    )  # fmt: skip
    end = {"type": "last-prompt", "lastPrompt": "/x", "leafUuid": "a3", "sessionId": "s"}
    assert superseded(parse(rows + (lines(end) if named else b""))) == ["u2", "a2"]


def test_a_command_that_a_resuming_client_hangs_its_filler_above_stays() -> None:
    """Nothing was rewound: 2.1.98 and 2.1.332 go on from the last `user` row but the command."""
    sink = parse(
        lines(
            user("u1", None, "one"),
            user("c1", "u1", COMMANDS["a local command"]),
            said("f1", "u1", "No response requested.", model="<synthetic>"),
            user("u2", "f1", "two"), said("a2", "u2", "y"),
        )
    )  # fmt: skip
    assert superseded(sink) == []


NEWEST = lines(
    user("u1", None, "one"), said("a1", "u1", "x"),
    user("u2", "a1", "two"), said("a2", "u2", call("t1")), user("r2", "a2", [result("t1")]),
    user("u3", "a1", "still running?"),
    user("i3", "u3", [{"type": "text", "text": "[Request interrupted by user]"}]),
    said("a4", "r2", "Published at last."),
)  # fmt: skip


@pytest.mark.parametrize("named", [True, False])
def test_the_newest_row_is_the_leaf_and_not_the_last_prompt(named: bool) -> None:
    """That is where a client goes on; a `summary` row names it."""
    summary = lines({"type": "summary", "summary": "Two", "leafUuid": "a4"})
    assert superseded(parse(NEWEST + (summary if named else b""))) == ["u3", "i3"]


def test_a_result_that_comes_late_is_no_newer_branch() -> None:
    """It belongs to the turn above the last prompt."""
    sink = parse(
        lines(
            user("u1", None, "one"), said("a1", "u1", call("t1")),
            user("u2", "a1", "left"), said("a2", "u2", "x"),
            user("u3", "a1", "two"), said("a3", "u3", "y"),
            user("r1", "a1", [result("t1")]),
        )
    )  # fmt: skip
    assert superseded(sink) == ["u2", "a2"]


def test_a_row_of_an_unknown_type_is_a_parent_all_the_same() -> None:
    """It is drift, and nothing is missing."""
    sink = parse(
        lines(user("u1", None, "one"), row("agent_note", "n1", "u1"), said("a1", "n1", "x"))
    )
    assert sink.findings == []


def test_what_a_compaction_of_a_part_summarised_is_history() -> None:
    """'Summarize from here' goes on from before the turns that it summarised; they stay live."""
    sink = parse(
        lines(
            user("u1", None, "one"), said("a1", "u1", "x"),
            user("u2", "a1", "left"), said("a2", "u2", "left"),
            user("u3", "a1", "summarised"), said("a3", "u3", "y"),
            row("system", "b1", None, subtype="compact_boundary", logicalParentUuid="a1"),
            user("s1", "b1", "the summary", isCompactSummary=True),
            user("u4", "s1", "new"), said("a4", "u4", "z"),
        )
    )  # fmt: skip
    assert superseded(sink) == ["u2", "a2"]


def test_a_rewind_to_before_a_compaction_supersedes_what_it_made_history() -> None:
    """The compaction itself is left."""
    sink = parse(
        lines(
            user("u1", None, "one"), said("a1", "u1", "x"),
            user("u2", "a1", "two"), said("a2", "u2", "y"),
            row("system", "b1", None, subtype="compact_boundary", logicalParentUuid="a2"),
            user("s1", "b1", "the summary", isCompactSummary=True),
            user("u3", "a1", "instead"), said("a3", "u3", "z"),
        )
    )  # fmt: skip
    assert superseded(sink) == ["u2", "a2", "b1", "s1"]


def test_a_queued_prompt_that_interrupts_a_call_stands_with_its_answer() -> None:
    """Escape sends it; the client hangs the answer from the interruption beside it."""
    text = [{"type": "text", "text": "[Request interrupted by user for tool use]"}]
    sink = parse(
        lines(
            user("u1", None, "go"), said("a1", "u1", call("t1")),
            user("u2", "a1", "rather this"),
            user("r1", "a1", [result("t1", "Exit code 137", is_error=True)]),
            user("i1", "r1", text),
            said("a2", "i1", "hello"),
            user("u3", "a2", "next"), said("a3", "u3", "y"),
        )
    )  # fmt: skip
    assert superseded(sink) == []


def test_a_queued_turn_that_the_client_left_goes_with_its_answer() -> None:
    """Answered before the killed call's result was written, it stands on a dead side branch."""
    sink = parse(
        lines(
            user("u1", None, "go"), said("a1", "u1", call("t1")),
            user("u2", "a1", "rather this"), said("a2", "u2", "hello"),
            user("r1", "a1", [result("t1", "Exit code 137", is_error=True)]),
            user("u3", "r1", "next"), said("a3", "u3", "y"),
        )
    )  # fmt: skip
    assert superseded(sink) == ["u2", "a2"]
