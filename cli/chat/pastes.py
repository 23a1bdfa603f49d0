"""Long pastes stand in the line as a few words, so that typing beside them stays quick."""

from __future__ import annotations

import select

from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys

LONG_LINES = 8
LONG_TEXT = 1000
"""A paste of more lines, or of more characters, is folded."""


class Pastes:
    """The pasted texts of this conversation, by the words that stand for them."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def folded(self, text: str) -> str:
        """Return what is put into the line for a pasted text: the text, or words for it."""
        if len(text) <= LONG_TEXT and text.count("\n") < LONG_LINES:
            return text
        number = len(self._texts) + 1
        words = f"[pasted {len(text):,} characters #{number}]"
        self._texts[words] = text
        return words

    def unfolded(self, line: str) -> str:
        """Return a line with the texts in place of the words that stand for them."""
        if "[pasted " not in line:
            return line
        pieces = [line]
        for words, text in self._texts.items():
            # What was pasted is not looked at again: it may hold such words, too.
            pieces = [
                part
                for at, piece in enumerate(pieces)
                for part in (_split(piece, words, text) if at % 2 == 0 else [piece])
            ]
        return "".join(pieces)


def _split(piece: str, words: str, text: str) -> list[str]:
    """Return a piece cut at `words`, with `text` between the cuts: an odd number of pieces."""
    parts = piece.split(words)
    joined = [parts[0]]
    for part in parts[1:]:
        joined += [text, part]
    return joined


_QUIET = 0.05
"""Seconds without a byte after which all of a paste is there."""
_BEGIN, _END = "\x1b[200~", "\x1b[201~"
"""The marks that a terminal sets around a paste."""


class PastingInput(Vt100Input):
    """The keys of a terminal, of which a paste is one.

    A pasted text may itself hold the mark that ends a paste, with keys behind it that a person has
    not pressed. The terminal's own mark is the last one.
    """

    def read_keys(self) -> list[KeyPress]:
        """Return what was pressed."""
        keys = super().read_keys()
        at = next((at for at, key in enumerate(keys) if key.key is Keys.BracketedPaste), None)
        if at is None:
            return keys
        behind = keys[at + 1 :]
        while select.select([self.fileno()], [], [], _QUIET)[0] and not self.closed:
            behind += super().read_keys()
        pasted, mark, typed = "".join(map(_as_received, behind)).rpartition(_END)
        if not mark:
            return [*keys[: at + 1], *behind]
        self.vt100_parser.feed(typed)
        rest, self._buffer = self._buffer, []
        text = (keys[at].data + pasted).replace(_BEGIN, "").replace(_END, "")
        return [*keys[:at], KeyPress(Keys.BracketedPaste, text), *rest]


def _as_received(key: KeyPress) -> str:
    return f"{_BEGIN}{key.data}{_END}" if key.key is Keys.BracketedPaste else key.data
