"""Lines of Gemini's standard output, and what events leave, shared by the tests that stream."""

from __future__ import annotations

import json
from typing import Any

import orjson
from hypothesis import settings
from hypothesis import strategies as st

from agentsdir.formats.blocks import Reducer

UNHURRIED = settings(max_examples=150, deadline=None, derandomize=True)


def row(kind: str, **fields: Any) -> bytes:
    """Return one line of stdout."""
    return json.dumps({"type": kind, "timestamp": "2026-01-01T00:00:00.000Z", **fields}).encode()


def said(piece: Any) -> bytes:
    """Return the line that says a piece of an answer."""
    return row("message", role="assistant", content=piece, delta=True)


def used(call: Any, name: str = "ls") -> bytes:
    """Return the line of a call."""
    return row("tool_use", tool_name=name, tool_id=call, parameters={"dir_path": "."})


def returned(call: Any, **fields: Any) -> bytes:
    """Return the line of a call's result."""
    return row("tool_result", tool_id=call, **{"status": "success", **fields})


def reduced(events: list[dict[str, Any]]) -> Reducer:
    """Fold events, each of which must be one that can be written."""
    reducer = Reducer()
    for event in events:
        orjson.dumps(event)
        reducer.apply(event)
    return reducer


_TEXTS = st.one_of(st.text(max_size=6), st.sampled_from(["\ud83d", "\ude80", "", None, 1]))
_IDS = st.sampled_from(["c1", "c2", "", None, "\ud800", "a:b"])
LINES = st.one_of(
    st.builds(said, _TEXTS),
    st.builds(used, _IDS, st.sampled_from(["ls", "invoke_agent"])),
    st.builds(
        lambda call, status, output: returned(call, status=status, output=output),
        _IDS, st.sampled_from(["success", "error", None]), _TEXTS,
    ),
    st.builds(lambda text: row("message", role="user", content=text), _TEXTS),
    st.builds(lambda text: row("init", session_id=text, model=text), _TEXTS),
    st.builds(lambda text: row("error", severity="error", message=text), _TEXTS),
    st.builds(
        lambda status, stats: row("result", status=status, stats=stats),
        st.sampled_from(["success", "error", 1]), st.sampled_from([None, {"total_tokens": 2**60}]),
    ),
    st.sampled_from([b"", b"YOLO mode is enabled.", b"[]", b"{}", b"\xff", b'{"type":"init"}{}']),
    st.binary(max_size=8),
)  # fmt: skip
