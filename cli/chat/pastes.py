"""Long pastes stand in the line as a few words, so that typing beside them stays quick."""

from __future__ import annotations

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
