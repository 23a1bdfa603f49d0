"""What an agent or a file says never drives the reader's terminal."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from agentsdir.cli.output import escape_controls

FORBIDDEN = {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))} - {"\n", "\t"}
FORBIDDEN |= set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u061c\u200e\u200f")
FORBIDDEN |= set("\u2028\u2029\ufeff")


def clean(text: str) -> bool:
    """Tell whether nothing in `text` drives a terminal."""
    return not set(text) & FORBIDDEN and not any("\U000e0000" <= c <= "\U000e007f" for c in text)


@given(st.text(st.characters() | st.sampled_from(sorted(FORBIDDEN))))
def test_inert_text_holds_no_control_character_but_line_feed_and_tab(text: str) -> None:
    """Each is shown as its escape; all other text is untouched."""
    shown = escape_controls(text)
    assert clean(shown)
    assert not [c for c in shown if unicodedata.category(c) == "Cc" and c not in "\n\t"]
    if clean(text):
        assert shown == text
    assert escape_controls(shown) == shown


def test_escapes_are_shown_and_not_dropped() -> None:
    """A reader sees that something was there."""
    assert escape_controls("a\x1b[0m\u202eb") == "a\\x1b[0m\\u202eb"
