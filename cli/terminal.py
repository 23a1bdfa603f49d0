"""Text made safe for a terminal: what an agent printed must not drive the reader's screen."""

from __future__ import annotations

import re

# C0 but LF and TAB, DEL, C1, bidirectional controls, line and paragraph separators, tags.
# Compiled when it is first used, which takes longer than any other pattern of a start.
_CONTROL = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f"
    "\u2028-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]"
)


def inert(text: str) -> str:
    """Return `text` with each control character shown as its escape, such as ``\\x1b``."""
    return re.sub(_CONTROL, _escape, text)


def one_line(text: str) -> str:
    """Return `text` as one inert line, so that no text can say what looks like a line of ours."""
    return inert(text).replace("\n", " ")


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
