"""What holds for any bytes of this client's documents and of its output."""

from __future__ import annotations

import json
from typing import Any

from any_json import hold
from gemini_client import Gemini
from gemini_reading import FIXTURES, read_bytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

DOCUMENTS = [path.read_bytes() for path in sorted(FIXTURES.glob("era-*.json"))]
UNHURRIED = settings(
    max_examples=60, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
rows, values = Gemini.any_rows.rows, Gemini.any_rows.values


@UNHURRIED
@given(st.lists(values, max_size=6), rows, st.booleans())
def test_no_shape_of_a_document_raises_or_goes_uncounted(
    messages: list[Any], header: dict[str, Any], indented: bool
):
    """The same for whole-file sessions, indented as the client writes them or not."""
    document = {"sessionId": "s", "projectHash": "h", **header, "messages": messages}
    data = json.dumps(document, indent=2 if indented else None).encode()
    hold(Gemini.read_by(), data, "made.json")


@UNHURRIED
@given(st.lists(rows, max_size=6))
def test_no_shape_of_a_stream_raises_or_goes_uncounted(stream: list[dict[str, Any]]):
    """The same for recorded standard output."""
    start = {"type": "init", "timestamp": "2026-01-01T00:00:00Z", "session_id": "s", "model": "m"}
    types = ("message", "tool_use", "tool_result", "error", "result")
    named = [{**row, "type": types[at % len(types)]} for at, row in enumerate(stream)]
    hold(Gemini.read_by(), b"".join(json.dumps(row).encode() + b"\n" for row in [start, *named]))


@UNHURRIED
@given(st.data())
def test_a_document_cut_anywhere_keeps_its_complete_messages(data: st.DataObject):
    """Every message that ends before the cut is still there, and the damage is named."""
    raw = data.draw(st.sampled_from(DOCUMENTS))
    cut = data.draw(st.integers(raw.index(b"messages") + 20, len(raw.rstrip()) - 1))
    half = read_bytes(raw[:cut], "half.json")
    assert half.findings[0] == "half-document"
    assert half.totals()["damaged"] == 1
    expected = {
        (block["conversationId"], block["id"])
        for block in read_bytes(raw, "whole.json").blocks("all")
        if block["source"]["offset"] + block["source"]["length"] <= cut
    }
    assert expected <= {(block["conversationId"], block["id"]) for block in half.blocks("all")}
