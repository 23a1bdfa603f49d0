"""Text that comes in pieces, which a client may cut anywhere, even amid a character."""

from __future__ import annotations


class Deltas:
    """Makes pieces of a text into pieces that can be written."""

    def __init__(self) -> None:
        self._half = ""  # the first half of a character whose second comes with the next piece

    def more(self, piece: str) -> str:
        """Return what can be told now that `piece` came; together it is the text, cleaned."""
        if piece.isascii() and not self._half:
            return piece
        piece = self._half + piece
        self._half = piece[-1:] if "\ud800" <= piece[-1:] <= "\udbff" else ""
        return _joined(piece.removesuffix(self._half))

    def rest(self) -> str:
        """Return what the end of the text settles: a half that nothing followed."""
        half, self._half = self._half, ""
        return _joined(half)


def _joined(text: str) -> str:
    """Make one character of halves that met; what still stands alone cannot be written."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
