"""Standard output becomes stream events as the run goes, and nothing in it raises."""

from __future__ import annotations

from typing import Any

import pytest
from gemini_reading import FIXTURES
from gemini_streaming import LINES, UNHURRIED, reduced, returned, row, said, used
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.adapters.gemini.reader import GeminiReader
from agentsdir.adapters.gemini.stream import GeminiTranslator
from agentsdir.adapters.protocol import SessionFiles, Transcript
from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source
from agentsdir.schemas.accept import accepts

pytestmark = [pytest.mark.feature("B-05"), pytest.mark.feature("B-06")]

_RECORDED = sorted(FIXTURES.glob("stream-*.stdout")) + sorted(
    FIXTURES.parent.glob("gemini-runs/*/*/run-*.stdout")
)


def translate(lines: list[bytes]) -> tuple[GeminiTranslator, list[dict[str, Any]]]:
    """Return a translator that took the lines, and its events."""
    translator = GeminiTranslator()
    events = []
    for line in lines:
        events += translator.line(line + b"\n")
    return translator, [*events, *translator.end()]


def _parsed(data: bytes) -> list[dict[str, Any]]:
    sink = ParseSink()
    session = SessionFiles((Transcript(Source("stdout", data=data), "main"),))
    GeminiReader().parse_transcripts(session, sink)
    return [{**block, "source": None} for block in sink.blocks("all")]


@pytest.mark.parametrize("path", _RECORDED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_recorded_output_gives_the_blocks_that_its_recording_gives(path: Any) -> None:
    """Live or afterwards, the same lines are read alike, and each event is valid."""
    data = path.read_bytes()
    _, events = translate(data.splitlines())
    assert reduced(events).blocks() == _parsed(data)
    assert [event for event in events if not accepts("stream-event", event)] == []


def test_an_answer_begins_grows_and_is_completed_by_the_next_line() -> None:
    """A call is pending until its result comes."""
    translator = GeminiTranslator()
    lines = (said("hel"), said("lo"), used("c1"), returned("c1", output="x"))
    shapes = [[(e["type"], e["blockId"]) for e in translator.line(line)] for line in lines]
    answer = shapes[0][0][1]
    assert shapes == [
        [("block_start", answer), ("text_delta", answer)],
        [("text_delta", answer)],
        [("block_complete", answer), ("block_complete", "cc1")],
        [("block_complete", "rc1"), ("block_update", "cc1")],
    ]


def test_the_ends_of_a_run_say_model_session_usage_and_outcome() -> None:
    """Thoughts are only in the total, and the cache is a part of the input."""
    stats = {"total_tokens": 20, "input_tokens": 12, "output_tokens": 5, "cached": 4}
    done = row("result", status="success", stats=stats)
    translator, events = translate([row("init", session_id="s", model="auto"), done])
    metadata = [event["metadata"] for event in events if event["type"] == "metadata_update"]
    usage = {
        "inputTokens": 8, "outputTokens": 8, "cacheReadTokens": 4, "cacheWriteTokens": 0,
        "thinkingTokens": 3, "totalTokens": 20, "exact": True,
    }  # fmt: skip
    assert metadata == [{"model": "auto"}, {"usage": usage, "stopReason": "end_turn"}]
    assert translator.session_id == "s"
    assert translator.result is not None
    assert (translator.result.failed, translator.result.stats) == (False, stats)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        ({"type": "unknown", "message": "[API Error: 400]"}, "unknown", "[API Error: 400]"),
        (None, "", "The model returned an empty response."),
    ],
)
def test_a_failed_result_says_why_or_the_error_before_it_does(
    error: Any, kind: str, message: str
) -> None:
    """Of an answer that was empty or malformed, the result says only that it failed."""
    before = row("error", severity="error", message="The model returned an empty response.")
    done = row("result", status="error", stats={}, **({"error": error} if error else {}))
    result = translate([before, done])[0].result
    assert result is not None
    assert (result.failed, result.error_type, result.message) == (True, kind, message)


def test_a_run_that_was_ended_has_no_outcome_and_its_answer_is_completed() -> None:
    """As far as it came."""
    translator, events = translate([said("half an ans"), b'{"type":"mess'])
    assert translator.result is None
    assert [block["content"] for block in reduced(events).blocks()] == ["half an ans"]
    assert [finding.id for finding in translator.findings] == ["bad-json"]


def test_a_character_that_was_cut_in_two_is_reported_whole() -> None:
    """Halves that met are one character, and what stands alone is none."""
    _, events = translate([said("a\ud83d"), said("\ude80b"), said("\ud800")])
    deltas = [event["delta"] for event in events if event["type"] == "text_delta"]
    assert deltas == ["a", "\U0001f680b", "\ufffd"]


@UNHURRIED
@given(st.lists(LINES, max_size=12))
def test_lines_in_any_order_fold_and_the_deltas_are_the_text(lines: list[bytes]) -> None:
    """Nothing raises, no block is left open, and what was heard of an answer is what it is."""
    _, events = translate(lines)
    reducer = reduced(events)
    assert reducer.open_blocks == []
    heard: dict[str, str] = {}
    for event in events:
        if event["type"] == "text_delta":
            heard[event["blockId"]] = heard.get(event["blockId"], "") + event["delta"]
    answers = {b["id"]: b["content"] for b in reducer.blocks() if b["type"] == "assistant_text"}
    assert {name: text for name, text in answers.items() if text} == heard


@UNHURRIED
@given(st.lists(LINES, max_size=10), st.floats(0, 1), st.binary(max_size=8))
def test_lines_cut_anywhere_are_read_as_their_recording_is(
    lines: list[bytes], fraction: float, piece: bytes
) -> None:
    """Bytes put in anywhere raise nothing, and give live what they give afterwards."""
    data = b"\n".join(lines)
    at = round(len(data) * fraction)
    data = row("init", session_id="s", model="m") + b"\n" + data[:at] + piece + data[at:]
    _, events = translate(data.split(b"\n"))
    live = {(block["id"], block["type"]) for block in reduced(events).blocks()}
    assert live == {(block["id"], block["type"]) for block in _parsed(data)}
