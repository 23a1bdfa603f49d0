"""What stdout and the chat file both tell, whichever of them tells it first.

Prompts, calls and results meet by a key; answers, which have none on stdout, by what they say.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agentsdir.formats.reading import stream
from agentsdir.formats.reading.blocks import MAIN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.formats.reading.blocks import Block
    from agentsdir.formats.reading.stream import StreamEvent

# What stdout and the file spell differently: terminal codes, white space at the ends (which a cut
# between pieces puts anywhere), what is not seen, what is no text.
_UNEVEN = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|[\s\x00-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff\ufffd\ud800-\udfff]"
)
RUNNING = "running"


def _plain(text: str) -> str:
    return _UNEVEN.sub("", text)


class Begun:
    """A block of stdout. It `is_settled` when the file has it, or the end gave it as it was."""

    def __init__(self, handle: str, block: Block) -> None:
        self.handle = handle
        self.block = block
        self.is_settled = False

    def whole(self) -> Block:
        """Return the block as far as stdout told it; of a call that has not ended no more comes."""
        if self.block.get("status") == RUNNING:
            return {**self.block, "status": "pending"}
        return self.block


class Pairs:
    """Blocks that have a key on both sides. A key that comes again is another block."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Begun]] = {}
        self._early: dict[str, int] = {}

    def say(self, key: str, begun: Begun) -> bool:
        """Take a block of stdout; return whether the file had it already."""
        if self._early.get(key):
            self._early[key] -= 1
            begun.is_settled = True
        else:
            self._waiting.setdefault(key, []).append(begun)
        return begun.is_settled

    def write(self, key: str) -> str | None:
        """Take a block of the file; return the handle under which stdout began it, if it did."""
        if self._waiting.get(key):
            begun = self._waiting[key].pop(0)
            begun.is_settled = True
            return begun.handle
        self._early[key] = self._early.get(key, 0) + 1
        return None


class Answer(Begun):
    """An answer that stdout gives piece by piece.

    `written` is what the file has of it, in the plain form, None as long as it has nothing;
    `count` is how much of that form was said. `before` is the one that it came after without a line
    between them.
    """

    def __init__(self, handle: str, block: Block, before: Answer | None = None) -> None:
        super().__init__(handle, block)
        self.before = before
        self.pieces: list[str] = []
        self.written: str | None = None
        self.count = 0
        self.is_shown = False

    def whole(self) -> Block:
        """Return the block with what was said so far.

        If that is what the file has of the one before, the model was asked again after a stream
        that broke off, and only one of the two is gone on with.
        """
        said = "".join(self.pieces)
        whole = {**self.block, "content": said}
        if self.before is not None and self.before.written == _plain(said):
            whole["superseded"] = True
        return whole

    def show(self) -> Iterator[StreamEvent]:
        """Begin the block, with what was said so far."""
        self.is_shown = True
        yield stream.block_start(self.handle, {**self.block, "content": ""})
        if said := "".join(self.pieces):
            yield stream.text_delta(self.handle, said, MAIN)

    def add(self, piece: str) -> None:
        """Take one more piece."""
        self.pieces.append(piece)
        self.count += len(_plain(piece))

    def boundary(self, length: int) -> int | None:
        """Return how many pieces make up the first `length` characters of the plain form."""
        for number, piece in enumerate(self.pieces):
            if length <= 0:
                return number if length == 0 else None
            length -= len(_plain(piece))
        return None


class Answers:
    """The answers of a turn: the file has one for each message, stdout only their pieces.

    Args:
        begun: all blocks of stdout in their order, which answers are put among.
    """

    def __init__(self, begun: list[Begun]) -> None:
        self._begun = begun
        self._now: Answer | None = None
        # What the file has and stdout has not said yet, in the plain form.
        self._early: list[str] = []

    def begin(self, handle: str, block: Block) -> None:
        """Note that an answer begins; it is shown with its first piece."""
        self._now = Answer(handle, block)
        self._begun.append(self._now)

    def more(self, piece: str) -> Iterator[StreamEvent]:
        """Tell a piece, unless the file told the whole."""
        answer, plain = self._now, _plain(piece)
        if answer is None:
            return
        if answer.written is not None and answer.count >= len(answer.written) and plain:
            # The message is told whole, so this begins the next one.
            yield from self._close(answer)
            answer = self._follow_on(answer, [])
        if not answer.count and plain:
            answer.written = self._expected(plain)
            if answer.written is None:
                yield from answer.show()
        answer.add(piece)
        if answer.is_shown and answer.written is None:
            yield stream.text_delta(answer.handle, piece, MAIN)

    def close(self) -> Iterator[StreamEvent]:
        """Note that the answer has all its pieces."""
        answer, self._now = self._now, None
        if answer is not None:
            yield from self._close(answer)

    def _close(self, answer: Answer) -> Iterator[StreamEvent]:
        if answer.is_shown:
            return
        answer.is_settled = True
        said = _plain("".join(answer.pieces))
        written = answer.written or ""
        if not (written.startswith(said) or said.startswith(written)):
            # It only began like a message of the file.
            self._early.insert(0, written)
            answer.written, answer.is_settled = None, False
            yield from answer.show()

    def write(self, content: str) -> tuple[str | None, list[StreamEvent]]:
        """Take an answer of the file.

        Returns the handle under which stdout began it, if it did, and what is to be told first.
        """
        text = _plain(content)
        for answer in self._begun:
            if not isinstance(answer, Answer) or answer.is_settled or not answer.is_shown:
                continue
            said = _plain("".join(answer.pieces))
            if said == text or (said and text.startswith(said)):
                self._settle(answer, text)
                return answer.handle, []
            if not text:
                continue
            if said.startswith(text) and (end := answer.boundary(len(text))) is not None:
                self._settle(answer, text)
                rest, answer.pieces = answer.pieces[end:], answer.pieces[:end]
                return answer.handle, list(self._follow_on(answer, rest).show())
            start = answer.boundary(len(said) - len(text)) if said.endswith(text) else None
            if start is not None:
                # The client asked again after a stream that broke off, and goes on with this one.
                self._settle(answer, text)
                broken = {**answer.block, "content": "".join(answer.pieces[:start])}
                broken["superseded"] = True
                return None, [stream.block_complete(answer.handle, broken)]
        if text:
            self._early.append(text)
        return None, []

    def _settle(self, answer: Answer, text: str) -> None:
        answer.is_settled, answer.written = True, text

    def _follow_on(self, answer: Answer, pieces: list[str]) -> Answer:
        """Begin the answer that follows another one without a line between them."""
        name = {**answer.block, "id": f"{answer.block['id']}+"}
        rest = Answer(f"{answer.handle}+", name, answer)
        for piece in pieces:
            rest.add(piece)
        self._begun.insert(self._begun.index(answer) + 1, rest)
        if self._now is answer:
            self._now = rest
        return rest

    def _expected(self, plain: str) -> str | None:
        """Return the text of the file that an answer beginning so is, if there is one."""
        for number, text in enumerate(self._early if plain else ()):
            if text.startswith(plain):
                del self._early[: number + 1]
                return text
        return None
