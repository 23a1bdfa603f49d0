"""One message over all its versions: what it says, and where the best version of each part is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from agentsdir.adapters.gemini.transcripts.shapes import content_id
from agentsdir.adapters.gemini.transcripts.spawns import INVOKE, Spawn

if TYPE_CHECKING:
    from agentsdir.formats.reading.usage import Usage

# A row's number, and the message's index in the row's list (-1: the row is the message).
Place: TypeAlias = tuple[int, int]

# Stands for a mapping that nothing was put into yet; never written to.
NONE: dict[Any, Any] = {}


class Call:
    """One tool call of a message: where its richest record and its richest result stand.

    `spot` and `answer_spot` say where in the message: a field (``toolCalls`` or ``content``) and
    an index in it.
    """

    __slots__ = ("answer", "answer_spot", "answer_weight", "id", "place", "spawn", "spot", "weight")

    def __init__(self, call_id: str, name: str) -> None:
        self.id = call_id
        self.spawn = Spawn(name, None, None) if name == INVOKE else None
        self.place: Place = (0, -1)
        self.spot: tuple[str, int] = ("", 0)
        self.weight = -1
        self.answer: Place | None = None
        self.answer_spot: tuple[str, int] = ("", 0)
        self.answer_weight = -1

    def offer(self, weight: int, place: Place, spot: tuple[str, int]) -> bool:
        """Take a version of the call if it is richer than the best so far; return whether it is."""
        if weight > self.weight:
            self.weight, self.place, self.spot = weight, place, spot
            return True
        return False

    def offer_answer(self, weight: int, place: Place, spot: tuple[str, int]) -> bool:
        """Take a version of the result if it is the richest so far; return whether it is."""
        if weight > self.answer_weight:
            self.answer_weight, self.answer, self.answer_spot = weight, place, spot
            return True
        return False


class Message:
    """One message, over all its versions. Its calls are keyed by the id without a name before it.

    `texts` has every text that ever stood there (by hash) with its length and place, and `text` is
    the last; `thoughts` and `extras` (parts nobody knows) likewise. `orphans` are results whose
    call is not here, by its id. `asks` is set where a person typed something,
    `answers` where results of calls stand, and `continues` where the client goes on with a prompt
    by itself, or answers itself. `number` counts messages from 0.
    """

    __slots__ = ("answers", "asks", "calls", "continues", "extras", "id", "model", "number",
                 "orphans", "place", "role", "text", "texts", "thoughts", "timestamp",
                 "tokens", "usage")  # fmt: skip

    def __init__(self, message_id: str, role: str, place: Place, timestamp: Any) -> None:
        self.id = message_id
        self.number = 0
        self.role = role
        self.place = place
        self.timestamp = timestamp
        # Most messages have few of these, and there may be very many messages.
        self.texts: dict[int, tuple[int, Place]] = NONE
        self.text: int | None = None
        self.thoughts: dict[int, tuple[Place, str, int]] = NONE
        self.calls: dict[str, Call] = NONE
        self.extras: dict[int, tuple[Place, str, int]] = NONE
        self.orphans: dict[str, tuple[Place, int]] | None = None
        # The counts as they stand, so that a restatement of them is not worked out again.
        self.tokens: dict[str, Any] | None = None
        self.usage: Usage | None = None
        self.model: str | None = None
        self.answers = False
        self.asks = False
        self.continues = False

    @property
    def is_empty(self) -> bool:
        """Whether the model said nothing, as far as is known."""
        return self.role == "model" and not (self.texts or self.thoughts or self.calls)

    def says_no_more_than(self, other: Message) -> bool:
        """Tell whether another version of the message, from another file, has all that this has."""
        calls = all(
            (known := other.calls.get(bare)) is not None
            and call.weight <= known.weight
            and call.answer_weight <= known.answer_weight
            for bare, call in self.calls.items()
        )
        return (
            calls
            and self.role == other.role
            and self.texts.keys() <= other.texts.keys()
            and self.thoughts.keys() <= other.thoughts.keys()
            and self.extras.keys() <= other.extras.keys()
            and (self.orphans or {}).keys() <= (other.orphans or {}).keys()
            and (self.tokens is None or self.tokens == other.tokens)
        )

    def add_text(self, sign: int, length: int, place: Place) -> bool:
        """Keep the first place of a text, or a richer one; return whether that is news."""
        before, self.text = self.text, sign
        known = self.texts.get(sign)
        if known is not None and known[0] >= length:
            return before != sign
        if self.texts is NONE:
            self.texts = {}
        self.texts[sign] = (length, place)
        return True

    def add_extra(self, part: Any, place: Place, at: int, field: str = "content") -> bool:
        """Keep the first place of a part that is not read, entry `at` of `field`; return if new."""
        if self.extras is NONE:
            self.extras = {}
        sign = hash(content_id(part))
        if sign in self.extras:
            return False
        self.extras[sign] = (place, field, at)
        return True
