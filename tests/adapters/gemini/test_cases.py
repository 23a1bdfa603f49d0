"""Small inputs in which a shape was read wrongly once, each with what is right."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from gemini_reading import read_bytes

from agentsdir.adapters import registry
from agentsdir.adapters.gemini.store import read_list_entry
from agentsdir.formats.blocks import add_usage, no_usage

if TYPE_CHECKING:
    from agentsdir.formats.sink import ParseSink

FOLDER = Path(__file__).parents[3] / "fixtures" / "gemini-cases"


class Right(NamedTuple):
    """What is right of a case: its live blocks, findings, list title, and what else is asked."""

    blocks: list[tuple[str, Any]]
    findings: tuple[str, ...] = ()
    title: str | None = None
    exact: bool = True


def _said(*texts: str) -> list[tuple[str, Any]]:
    """Return prompts and answers in turn."""
    kinds = ("user_message", "assistant_text")
    return [(kinds[at % 2], text) for at, text in enumerate(texts)]


def _call(given: Any, output: Any) -> list[tuple[str, Any]]:
    return [("tool_use", given), ("tool_result", output)]


IMAGE = {
    "type": "image",
    "source": {"type": "base64", "data": "iVBORw0K", "mediaType": "image/png"},
}
LAST_RESORT = ("last-resort",)

CASES = {
    # Only the second half restates the first: each call has its own input and result.
    "call-id-reused-new-ids.jsonl": Right(
        [
            *_said("count the apples"), *_call({"n": 1}, "seven apples"),
            ("assistant_text", "Seven."),
            *_said("and the pears"), *_call({"n": 2}, "two"), ("assistant_text", "Two."),
        ],
        title="count the apples",
    ),
    "child-missing.jsonl": Right(
        [*_said("ask somebody"), ("subagent", "a helper said so"), ("assistant_text", "So it is.")],
        title="ask somebody", exact=False,
    ),
    "compress-history.jsonl": Right(
        [
            *_said("what is a fold?", "A bend.", "and a crease?", "A sharp one."),
            ("system", "<state_snapshot>folds</state_snapshot>"),
            *_said("and a pleat?", "A double one."),
        ],
        title="what is a fold?",
    ),
    # Of the equal prompts the last is the one that was kept: its answer is draft 3.
    "compress-same-prompt.jsonl": Right(
        [
            *_said("again", "draft 1", "again", "draft 2", "again", "draft 3"),
            ("system", "<state_snapshot>drafts</state_snapshot>"),
        ],
        title="again",
    ),
    "continue-after-tool.json": Right(
        [*_said("list it"), *_call({"n": 1}, "ok"), ("assistant_text", "Listed.")], title="list it"
    ),
    "continue-display.json": Right(_said("sing a song", "La la."), title="sing a song"),
    "continue-plain.json": Right(
        [*_said("sing a song", "La"), ("assistant_text", "la.")], title="sing a song"
    ),
    "nextspeaker-display.json": Right(
        [*_said("sing a song", "La"), ("assistant_text", "la.")], title="sing a song"
    ),
    "doc-no-ids.json": Right(
        _said("more", "left", "more", "right"), title="more", exact=False
    ),
    "empty-answer.jsonl": Right(_said("say nothing"), title="say nothing"),
    "human-bracket-system.json": Right(
        _said("[SYSTEM CHECK] is the lamp on?", "It is."), title="[SYSTEM CHECK] is the lamp on?"
    ),
    "ide-context.jsonl": Right(
        _said("is the lamp on?", "It is.", "and now?", "Off."), title="is the lamp on?"
    ),
    "list-title-of-image.json": Right(
        [("user_message", [IMAGE]), ("assistant_text", "A lamp.")], title=""
    ),
    "logs-numeric-session.json": Right(_said("good morning"), LAST_RESORT, exact=False),
    "parts-key.json": Right(
        _said("is the lamp on?", "It is."), title="is the lamp on?", exact=False
    ),
    "qwen-call-id-reused.jsonl": Right(
        [
            *_said("count both"), *_call({"n": 1}, "seven"), *_call({"n": 2}, "two"),
            ("assistant_text", "Nine."),
        ],
        exact=False,
    ),
    "qwen-export.jsonl": Right(
        [*_said("list it"), *_call(None, None), ("assistant_text", "listed")], exact=False
    ),
    "qwen-gap.jsonl": Right(
        _said("begin", "begun", "go on", "gone on"), ("missing-parent",), exact=False
    ),
    "qwen-goal.jsonl": Right(
        [
            *_said("tidy up", "half"), ("system", "The goal is not met yet"),
            ("assistant_text", "tidy"),
        ],
        exact=False,
    ),
    "qwen-hook-context.jsonl": Right(_said("tidy up", "tidy"), exact=False),
    "qwen-no-parents.jsonl": Right(_said("begin", "begun", "go on"), exact=False),
    "report-no-session.json": Right([("assistant_text", "good morning"), ("system", "run ended")]),
    "shell-mode.jsonl": Right(
        [("system", "pwd"), ("system", "/srv/made"), *_said("where am I?", "In a folder.")],
        title="where am I?",
    ),
    "subagent-final-warning.json": Right(
        [
            ("system", "Subagent started"), *_said("look it up", "Looking."),
            ("assistant_text", "Found."), ("system", "Subagent ended"),
        ],
        ("orphan-subagent",),
    ),
    "user-hints.json": Right(
        [
            *_said("paint it"), *_call({"n": 1}, "ok"), *_said("in blue", "Blue it is."),
        ],
        title="paint it",
    ),
}  # fmt: skip
LOOK_ALIKES = ("detect-applog.jsonl", "detect-mongo.jsonl", "detect-todo.json")


def test_each_file_is_a_case() -> None:
    """No input lies there without what is right of it."""
    assert sorted([*CASES, *LOOK_ALIKES]) == sorted(path.name for path in FOLDER.iterdir())


@pytest.mark.parametrize("name", CASES)
def test_a_case_is_read_as_is_right(name: str) -> None:
    """Its conversation, remarks, sums, and whether its tokens are all that were spent."""
    right = CASES[name]
    path = FOLDER / name
    owners = [
        one.name
        for one in registry.built_in()
        if one.reader and one.reader.detect(path.read_bytes(), name)
    ]
    assert owners == ["gemini"]
    reading = read_bytes(path.read_bytes(), name)
    [sink] = reading.sinks
    shown = [block for block in sink.blocks("live") if not block.get("hidden")]
    assert [(block["type"], _text(block)) for block in shown] == right.blocks
    assert tuple(reading.findings) == right.findings
    assert list(sink.drifts.findings()) == []
    assert sink.usage()["exact"] is right.exact
    assert _spent(sink) == {**sink.usage(), "exact": True}
    reading.totals()


@pytest.mark.parametrize("name", [name for name, right in CASES.items() if right.title is not None])
def test_a_case_is_listed_with_its_first_prompt(name: str) -> None:
    """Never by what the client or the model said."""
    listed = read_list_entry(FOLDER / name)
    assert listed is not None
    assert listed.title == CASES[name].title


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_a_look_alike_is_refused(name: str) -> None:
    """One row of a common shape is not enough."""
    data = (FOLDER / name).read_bytes()
    assert not [
        one.name for one in registry.built_in() if one.reader and one.reader.detect(data, name)
    ]


def _text(block: dict[str, Any]) -> Any:
    for key in ("content", "output", "input", "message"):
        if key in block:
            return block[key]
    return None


def _spent(sink: ParseSink) -> dict[str, Any]:
    total = no_usage()
    for block in sink.blocks("all"):
        if "usage" in block:
            total = add_usage(total, block["usage"])
    return {**total, "exact": True}
