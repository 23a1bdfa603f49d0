"""An answer that comes in pieces, cut where a piece of Markdown is whole and can be laid out."""

from __future__ import annotations

import re

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


class AnswerBlocks:
    """Takes the pieces of an answer; gives out paragraphs, lists and code that are complete."""

    def __init__(self) -> None:
        self._rest = ""
        self._scanned = 0
        self._fence = ""

    @property
    def rest(self) -> str:
        """What is not complete yet."""
        return self._rest

    def take(self, text: str) -> list[str]:
        """Return the blocks that are complete with a piece of text."""
        self._rest += text
        if "\n" not in text:
            return []
        blocks, begin, at = [], 0, self._scanned
        while (end := self._rest.find("\n", at)) >= 0:
            is_last = self._ends_block(self._rest[at:end])
            at = end + 1
            if is_last:
                blocks.append(self._rest[begin:at])
                begin = at
        self._rest = self._rest[begin:]
        self._scanned = at - begin
        return [block.strip("\n") for block in blocks if block.strip()]

    def _ends_block(self, line: str) -> bool:
        mark = _FENCE.match(line)
        if self._fence:
            if mark and mark[1].startswith(self._fence) and not line[mark.end() :].strip():
                self._fence = ""
                return True
            return False
        if mark:
            self._fence = mark[1]
        return not line.strip()

    def end(self) -> str:
        """Return the rest, which is complete now."""
        rest, self._rest, self._scanned, self._fence = self._rest, "", 0, ""
        return rest.strip("\n")
