"""`queue-operation` rows: prompts on their way in.

A prompt that waits is written when it is enqueued. What becomes of it is told by later rows: a
`user` row or an attachment of the same text delivers it, and `popAll` takes it back into the input
box. A `remove` that no such row follows says that the running turn took the prompt in, which
clients 2.0.76 to 2.1.87 write nowhere else. Most `dequeue` and `remove` rows do not say which
entry they mean, so that is decided by what the rows after them deliver, at last by age.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentsdir.adapters.claude.emit import FOLDED, HIDDEN, LATER
from agentsdir.adapters.claude.shapes import all_text
from agentsdir.adapters.claude.user import say
from agentsdir.formats.reading.sink import DROPPED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentsdir.adapters.claude.emit import Place
    from agentsdir.adapters.claude.reading import Reading
    from agentsdir.formats.reading.rows import Row


@dataclass(frozen=True, slots=True)
class _Spot:
    """A place between blocks: before the block of a handle, the spots there by `rank`.

    `anchor` is the row before it, whose branch is its own.
    """

    position: int
    rank: int
    anchor: int


@dataclass(frozen=True, eq=False, slots=True)
class _Entry:
    """A prompt that waits, and where it was enqueued."""

    row: Row
    place: Place
    text: str
    spot: _Spot

    @property
    def is_command(self) -> bool:
        return self.text.startswith("/")


@dataclass(eq=False, slots=True)
class _Exit:
    """Entries that leave the queue: `count` of those in `entries`.

    `spot` is where a running turn took them in, as soon as that is known.
    """

    entries: list[_Entry]
    timestamp: str | None = None
    count: int = 1
    spot: _Spot | None = None


class Queue:
    """The queue of one session file."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._waiting: list[_Entry] = []
        # Operations whose entries the rows so far have not delivered. The next row of the
        # conversation may say what a `remove` took out.
        self._dequeued: list[_Exit] = []
        self.removed: list[_Exit] = []
        # Entries that were delivered before the row that takes them out was read.
        self._owed = 0
        self._spots = 0
        self._showing = False

    def take(self, row: Row, value: dict[str, Any], place: Place) -> int:
        """Follow one operation; return what became of its row."""
        operation = value.get("operation")
        said = all_text(value.get("content"))
        if operation == "enqueue":
            self._waiting.append(_Entry(row, place, said.strip(), self._here()))
            return LATER
        if operation in ("dequeue", "remove"):
            named = self._named(said)
            leaving = [named] if named else list(self._waiting)
            if named is None and (self._owed or said):
                self._owed -= bool(self._owed)
            elif operation == "dequeue":
                self._dequeued.append(_Exit(leaving))
            else:
                self.removed.append(_Exit(leaving, place.timestamp))
            return FOLDED
        if operation == "popAll":
            # Back in the input box: what is sent from there is enqueued anew.
            back = [entry for entry in self._waiting if entry.text == said.strip()]
            if not said:
                back = back or list(self._waiting)
            for entry in back if not said else back[:1]:
                self._leave(entry)
                self._settle(entry, HIDDEN, "taken-back")
            self._reading.reason = "taken-back"
            return HIDDEN
        return HIDDEN

    def deliver(self, *texts: str, mid_turn: bool) -> str | None:
        """Note that a row has this prompt, in one spelling or another: it waits no longer.

        Returns the time at which it was enqueued, or None if it did not wait. A turn that runs
        (`mid_turn`) takes prompts in by `remove`, all others are dequeued.
        """
        if self._showing or not self._waiting:
            return None
        found = self._matching([text.strip() for text in texts], mid_turn)
        for entry in found:
            self._leave(entry)
            exits = self.removed + self._dequeued if mid_turn else self._dequeued + self.removed
            fitting = [one for one in exits if entry in one.entries]
            if fitting:
                taken = min(fitting, key=lambda one: len(one.entries) > 1)
                taken.count -= 1
            else:
                self._owed += 1
            for one in exits:
                if entry in one.entries:
                    one.entries.remove(entry)
            self._drop_empty()
            self._settle(entry, FOLDED, "queue")
        return found[0].place.timestamp if found else None

    def before(self, kind: str, value: dict[str, Any], place: Place) -> None:
        """Show, before a row of the conversation, what the turn took in without a row for it.

        Rows of the client's memory are written later than the operations, so the results of the
        turn's calls, and attachments, may still stand below the `remove` that came after them.
        """
        if kind == "attachment" or kind == "progress" or _has_result(value):
            return
        for one in self.removed:
            if one.spot is None and _is_later(place.timestamp, one.timestamp):
                self._take_in(one)
        if kind == "user" and self._matching([all_text(_content(value)).strip()], mid_turn=False):
            return  # the row itself delivers one of them
        self._show_taken_in(at_end=False)

    def finish(self) -> None:
        """Show what was not delivered: a person typed it all the same."""
        for one in self.removed:
            if one.spot is None:
                self._take_in(one)
        self._show_taken_in(at_end=True)
        for one in self._dequeued:
            entry = _first_waiting(one.entries, self._waiting)
            if entry is not None and (entry.is_command or not entry.text):
                # Commands that begin another file, as `/clear` does, leave no row in this one.
                self._leave(entry)
                self._settle(entry, HIDDEN if entry.text else FOLDED, "queue")
        self._dequeued.clear()
        for entry in list(self._waiting):
            self._leave(entry)
            self._show(entry, entry.spot)

    def _take_in(self, one: _Exit) -> None:
        here = one.spot = self._here()
        for other in self.removed:
            spot = other.spot
            if other is not one and spot and other.count and spot.position == here.position:
                # Several that leave together are told apart by no row: one exit for all.
                other.count += one.count
                other.entries += [entry for entry in one.entries if entry not in other.entries]
                one.count = 0
                break

    def _show_taken_in(self, *, at_end: bool) -> None:
        for one in self.removed:
            if one.spot is None:
                continue
            left = [entry for entry in one.entries if entry in self._waiting]
            if len(left) > one.count:
                if not at_end:
                    continue  # a later row may deliver the others
                # Commands wait for the end of the turn.
                left = sorted(left, key=lambda entry: entry.is_command)[: one.count]
                left.sort(key=lambda entry: entry.spot.rank)
            one.count = 0
            for entry in left:
                self._leave(entry)
                self._show(entry, one.spot)
        self._drop_empty()

    def _show(self, entry: _Entry, spot: _Spot) -> None:
        """Add the block of an entry, at its place among those that are there already."""
        reading = self._reading
        emitter, sink = reading.emitter, reading.emitter.sink
        kept = emitter.first, emitter.count, reading.mark, reading.reason
        emitter.first, emitter.count, reading.reason = DROPPED, 0, ""
        self._showing = True
        value = entry.row.value
        outcome = say(reading, value, entry.place, value.get("content"))
        self._showing = False
        for handle in range(emitter.first, emitter.first + emitter.count):
            sink.move(handle, spot.position, spot.rank)
        reading.tree.attach(spot.anchor, emitter.first, emitter.count)
        reading.settle(entry.row, outcome)
        emitter.first, emitter.count, reading.mark, reading.reason = kept

    def _settle(self, entry: _Entry, outcome: int, reason: str) -> None:
        reading = self._reading
        kept, reading.reason = reading.reason, reason
        reading.settle(entry.row, outcome)
        reading.reason = kept

    def _here(self) -> _Spot:
        self._spots += 1
        return _Spot(len(self._reading.emitter.sink), self._spots, self._reading.tree.newest)

    def _leave(self, entry: _Entry) -> None:
        self._waiting.remove(entry)

    def _drop_empty(self) -> None:
        self.removed = [one for one in self.removed if one.count]
        self._dequeued = [one for one in self._dequeued if one.count]

    def _named(self, said: str) -> _Entry | None:
        said = said.strip()
        return next((entry for entry in self._waiting if said and entry.text == said), None)

    def _matching(self, texts: list[str], mid_turn: bool) -> list[_Entry]:
        """Return the entries that a row of these texts delivers, several if it joins them."""
        for text in texts:
            for entry in self._waiting:
                if text and entry.text == text:
                    return [entry]
        # Clients before 2.1 send all that waits as one prompt.
        for text in texts:
            joined, several = "", list[_Entry]()
            for entry in self._waiting:
                joined = f"{joined}\n{entry.text}" if several else entry.text
                several.append(entry)
                if not text.startswith(joined):
                    break
                if joined == text:
                    return several
        # A prompt with images is enqueued without its text.
        if not mid_turn and self._dequeued:
            bare = next((entry for entry in self._dequeued[0].entries if not entry.text), None)
            return [bare] if bare is not None and bare in self._waiting else []
        return []


def _first_waiting(entries: list[_Entry], waiting: list[_Entry]) -> _Entry | None:
    return next((entry for entry in entries if entry in waiting), None)


def _content(value: dict[str, Any]) -> Any:
    message = value.get("message")
    return message.get("content") if isinstance(message, dict) else message


def _has_result(value: dict[str, Any]) -> bool:
    content = _content(value)
    return isinstance(content, list) and any(
        isinstance(part, dict) and part.get("type") == "tool_result" for part in content
    )


def _is_later(timestamp: str | None, than: str | None) -> bool:
    return timestamp is None or than is None or timestamp > than
