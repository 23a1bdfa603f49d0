"""What holds for any bytes: nothing raises, every line is settled, nothing said gets lost."""

from __future__ import annotations

import json
from typing import Any

from gemini_reading import FIXTURES, Reading, read_bytes
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agentsdir.adapters.gemini import ARCHITECTURE
from agentsdir.adapters.protocol import SessionFiles, Transcript
from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source

LOGS = sorted(path.name for path in FIXTURES.glob("*.jsonl") if path.name.count(".jsonl") == 1
              and not path.name.endswith((".blocks.jsonl", ".all.jsonl")))  # fmt: skip
DOCUMENTS = sorted(path.name for path in FIXTURES.glob("era-*.json"))
CONTENT = {name: (FIXTURES / name).read_bytes() for name in LOGS + DOCUMENTS}
UNHURRIED = settings(
    max_examples=60, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8),
    st.sampled_from(["user", "gemini", "info", "m1", "m2", "c1", "ls", "ls__c1", "success",
                     "\ud800", "invoke_agent", "2026-01-01T00:00:00Z", "0001-01-01T00:00+23:59"]),
)  # fmt: skip
KEYS = (
    "id", "type", "content", "displayContent", "timestamp", "thoughts", "tokens", "model",
    "toolCalls", "$set", "$rewindTo", "messages", "sessionId", "projectHash", "kind", "text",
    "thought", "functionCall", "functionResponse", "inlineData", "response", "output", "error",
    "name", "args", "result", "status", "resultDisplay", "agentId", "subject", "description",
    "input", "total", "cached", "data", "mimeType", "startTime", "role", "tool_id", "stats",
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(KEYS), inner, max_size=6)
    ),
    max_leaves=25,
)
rows = st.dictionaries(st.sampled_from(KEYS), values, max_size=9)


def _dumps(row: Any) -> bytes:
    return json.dumps(row).encode()


def _ids(reading: Reading, view: Any = "all") -> set[tuple[str, str]]:
    return {(block["conversationId"], block["id"]) for block in reading.blocks(view)}


def _hold(data: bytes, name: str = "made.jsonl", role: str = "main") -> None:
    """Parse directly, whatever `detect` would say, and check what must always hold."""
    reader = ARCHITECTURE.reader
    assert reader is not None
    lines = []
    for hidden in (True, True, False):
        sink = ParseSink(hidden=hidden)
        session = SessionFiles((Transcript(Source(name, data=data), role),))
        reader.parse_transcripts(session, sink)
        tally = sink.tally
        assert tally.parsed + tally.hidden + tally.folded + tally.damaged == tally.lines
        lines.append(list(sink.lines("all")))
        blocks = list(sink.blocks("all"))
        ids = [(block["conversationId"], block["id"]) for block in blocks]
        assert len(ids) == len(set(ids))
        live = [(block["conversationId"], block["id"]) for block in sink.blocks("live")]
        assert set(live) <= set(ids)
    assert lines[0] == lines[1]


@UNHURRIED
@given(st.lists(rows, max_size=8), st.sampled_from(["main", "subagent"]))
@example([{"id": "m1", "content": [{"functionCall": {"id": "x__1", "name": "x"}},
                                   {"functionCall": {"id": "x__1", "name": "y"}}],
           "type": "gemini"}], "main")  # fmt: skip
@example([{"a": 1}, {"$set": {"messages": [{"a": 1}]}}, {"a": 1}], "main")
def test_no_shape_of_a_log_raises_or_goes_uncounted(log: list[dict[str, Any]], role: str):
    """Any JSON under the known keys gives blocks with unique ids, twice the same."""
    _hold(b"".join(_dumps(row) + b"\n" for row in log), role=role)


@UNHURRIED
@given(st.lists(values, max_size=6), rows, st.booleans())
def test_no_shape_of_a_document_raises_or_goes_uncounted(
    messages: list[Any], header: dict[str, Any], indented: bool
):
    """The same for whole-file sessions, indented as the client writes them or not."""
    document = {"sessionId": "s", "projectHash": "h", **header, "messages": messages}
    _hold(json.dumps(document, indent=2 if indented else None).encode(), "made.json")


@UNHURRIED
@given(st.lists(rows, max_size=6))
def test_no_shape_of_a_stream_raises_or_goes_uncounted(stream: list[dict[str, Any]]):
    """The same for recorded standard output."""
    start = {"type": "init", "timestamp": "2026-01-01T00:00:00Z", "session_id": "s", "model": "m"}
    types = ("message", "tool_use", "tool_result", "error", "result")
    named = [{**row, "type": types[at % len(types)]} for at, row in enumerate(stream)]
    _hold(b"".join(_dumps(row) + b"\n" for row in [start, *named]))


@UNHURRIED
@given(st.data())
def test_no_mutation_of_a_real_row_raises_or_goes_uncounted(data: st.DataObject):
    """Real rows with anything put in the place of anything."""
    raw = CONTENT[data.draw(st.sampled_from(LOGS))]
    log = [json.loads(line) for line in raw.split(b"\n") if line.startswith(b"{") and _whole(line)]
    for _ in range(data.draw(st.integers(1, 4))):
        node: Any = log
        for _ in range(data.draw(st.integers(1, 7))):
            keys = list(range(len(node))) if isinstance(node, list) else list(node)
            if not keys:
                break
            key = data.draw(st.sampled_from(keys))
            if not isinstance(node[key], (list, dict)):
                node[key] = data.draw(values)
                break
            parent, node = node, node[key]
        else:
            parent[key] = data.draw(rows if parent is log else values)
    _hold(b"".join(_dumps(row) + b"\n" for row in log))


def _whole(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


@UNHURRIED
@given(st.data())
def test_a_log_cut_anywhere_keeps_what_was_said_before(data: st.DataObject):
    """A cut takes away at most the line it falls into; growth never renames a block."""
    raw = CONTENT[data.draw(st.sampled_from(LOGS))]
    cut = data.draw(st.integers(raw.find(b"\n") + 1, len(raw)))
    whole = raw[: raw.rfind(b"\n", 0, cut) + 1]
    before = read_bytes(whole)
    after = read_bytes(raw[:cut])
    assert _ids(before) <= _ids(after)
    after.totals()
    named = {pair for pair in _ids(before) if "~" not in pair[1]}
    assert named <= _ids(read_bytes(raw))


@UNHURRIED
@given(st.data())
def test_a_document_cut_anywhere_keeps_its_complete_messages(data: st.DataObject):
    """Every message that ends before the cut is still there, and the damage is named."""
    raw = CONTENT[data.draw(st.sampled_from(DOCUMENTS))]
    cut = data.draw(st.integers(raw.index(b"messages") + 20, len(raw.rstrip()) - 1))
    half = read_bytes(raw[:cut], "half.json")
    assert half.findings[0] == "half-document"
    assert half.totals()["damaged"] == 1
    expected = {
        (block["conversationId"], block["id"])
        for block in read_bytes(raw, "whole.json").blocks("all")
        if block["source"]["offset"] + block["source"]["length"] <= cut
    }
    assert expected <= _ids(half)
