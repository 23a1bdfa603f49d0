"""Rows of any shape for the property tests: a client's own words under its own keys, and noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from agentsdir.adapters.protocol import SessionFiles, Transcript
from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source

if TYPE_CHECKING:
    from agentsdir.adapters.protocol import TranscriptReader

SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8)
)


class AnyRows:
    """Strategies for rows.

    Args:
        words: what stands in rows of the client as a value.
        keys: what it calls its fields.
        size: how large a value gets.
    """

    def __init__(self, words: list[str], keys: list[str], size: int) -> None:
        self.words = st.sampled_from(words)
        self.keys = st.sampled_from(keys)
        self.values: st.SearchStrategy[Any] = st.recursive(
            SCALARS | self.words,
            lambda inner: (
                st.lists(inner, max_size=4) | st.dictionaries(self.keys, inner, max_size=6)
            ),
            max_leaves=size,
        )
        self.loose = st.dictionaries(self.keys, self.values, max_size=9)
        self.rows = self.loose

    def with_fields(self, required: str, *optional: str) -> AnyRows:
        """Make rows likelier that have these fields, with the client's words in them."""
        value = self.words | self.values
        fields = dict.fromkeys(optional, value)
        self.rows = self.loose | st.fixed_dictionaries({required: value}, optional=fields)
        return self


def hold(
    reader: TranscriptReader, data: bytes, name: str = "made.jsonl", role: str = "main"
) -> ParseSink:
    """Parse directly, whatever `detect` would say, and check what must always hold.

    Every line is counted once, ids are unique, the bytes alone decide what is read, and hidden
    blocks change nothing about the others.
    """
    sinks = []
    for hidden in (True, True, False):
        sink = ParseSink(hidden=hidden)
        session = SessionFiles((Transcript(Source(name, data=data), role),))
        reader.parse_transcripts(session, sink)
        tally = sink.tally
        assert tally.parsed + tally.hidden + tally.folded + tally.damaged == tally.lines
        ids = [(block["conversationId"], block["id"]) for block in sink.blocks("all")]
        assert len(ids) == len(set(ids))
        live = [(block["conversationId"], block["id"]) for block in sink.blocks("live")]
        assert set(live) <= set(ids)
        sinks.append(sink)
    full, again, plain = sinks
    assert list(full.lines("all")) == list(again.lines("all"))
    visible = [block for block in full.blocks("all") if not block.get("hidden")]
    assert list(plain.blocks("all")) == visible
    assert plain.tally.as_json() == full.tally.as_json()
    return full
