"""Where an adapter puts what it reads: a whole session, or one that grows."""

from __future__ import annotations

import io
from array import array
from bisect import bisect_left, insort
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

import orjson

from agentsdir.formats import blocks, jsontext
from agentsdir.formats.block_lines import NESTED, encodable, is_too_deep, line_of
from agentsdir.formats.blocks import (
    BLOCKS,
    COUNTED,
    MAIN,
    add_usage,
    is_beyond,
    larger_usage,
    less_usage,
    no_usage,
    usage,
)
from agentsdir.formats.findings import Drifts
from agentsdir.formats.rows import Tally
from agentsdir.formats.source import LineSpool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from agentsdir.formats.block_lines import Key
    from agentsdir.formats.blocks import Block, StreamEvent, Usage
    from agentsdir.formats.findings import Finding

    View: TypeAlias = Literal["live", "all"]


class BlockSink(Protocol):
    """What an adapter writes into: a `ParseSink` for a whole session, a `LiveSink` as it grows."""

    wants_hidden: bool
    tally: Tally
    drifts: Drifts
    conversations: dict[str, Conversation]
    client_version: str | None
    messages: MessageTokens | None
    own_count: Usage | None
    uncounted: bool

    def add(self, block: Block) -> int:
        """Append a block; return its handle, `DROPPED` for an unwanted hidden one.

        The caller does not change the block from then on.
        """

    def __len__(self) -> int:
        """Return how many blocks were added, which is the handle of the next one."""

    def move(self, handle: int, position: int, rank: int) -> None:
        """Show the block that was added last before the one whose handle is `position`.

        Blocks that were moved to one position stand there by `rank`, and those of one rank as they
        came. Where no block of that handle or a higher one was added, they stand last.
        """

    def amend(self, handle: int, **late: Any) -> None:
        """State fields of a block that were unknown when it was added."""

    def supersede(self, handle: int, reason: str) -> None:
        """Mark a block as replaced, for a reason in kebab-case."""

    def reword(self, handle: int, kind: str, content: str) -> bool:
        """Give a block of type `kind` other words; return False if it is none or has them."""

    def finding(self, finding: Finding) -> None:
        """Record a remark about the input."""

    def conversation(
        self, name: str, *, parent: str | None = None, link: Link | None = None
    ) -> Conversation:
        """Return (and if need be open) a conversation, setting what is given."""

    def use(self, conversation: str, usage: Usage) -> None:
        """Count one model message's tokens."""

    def open_main(self) -> Conversation:
        """Return the main conversation, so that even an empty session has one."""


# The sink of a whole session.
#
# A transcript says some things about a block only later (a call's outcome, that a rewind replaced
# it, the final token count). So blocks are written once, as they come, into a spool; what becomes
# known afterwards is kept apart as a suffix and joined on the way out. One decode of the input,
# memory independent of its size, and no second look at a file that a client may be writing. Most of
# it becomes known within some rows: so the last blocks are held back, and are written whole.

DROPPED = -1
# Where foreign values of any depth can stand in what comes late.
_LATE = frozenset(name for names in NESTED.values() for name in names)
# What a live block says from the start although a reader learns it later.
_UNTIL_KNOWN = {kind: row.until_known for kind, row in BLOCKS.items() if row.until_known}
# What comes late for each call and each message, soon after its block. Any encoder takes it.
_SOON = frozenset({"status", "usage"})
# How many blocks are held back, and how long a row may be of which they are.
HELD = 16
HELD_ROW = 128 * 1024


class Link(NamedTuple):
    """How a subagent's thread was tied to its call, and how sure that is."""

    method: str
    confidence: Literal["exact", "likely", "guess", "none"]


class Conversation:
    """One thread: its parent conversation, its link to it, and its tokens."""

    __slots__ = ("link", "parent", "usage")

    def __init__(self) -> None:
        self.parent: str | None = None
        self.link: Link | None = None
        self.usage: Usage = no_usage()


class MessageTokens:
    """The tokens of single model messages, each under a key that its copies share.

    Args:
        numbers: what `numbers` of another one has, which a process may hand to another.
    """

    _WIDTH = 6

    def __init__(self, numbers: bytes = b"") -> None:
        self._numbers = array("q", numbers)

    def add(self, key: int, used: Usage) -> None:
        """Note one message."""
        thinking = used.get("thinkingTokens", -1)
        self._numbers.extend((key, *(used[name] for name in COUNTED), thinking))

    def repeated(self, counted: set[int]) -> Usage:
        """Return the tokens of the messages whose keys are in `counted`, and add the other keys."""
        total = no_usage()
        keys = self._numbers[:: self._WIDTH]
        if counted.isdisjoint(keys) and len(set(keys)) == len(keys):  # as in most sessions
            counted.update(keys)
            return total
        for at, key in enumerate(keys):
            if key in counted:
                begin = at * self._WIDTH
                _, sent, got, read, wrote, thinking = self._numbers[begin : begin + self._WIDTH]
                known = None if thinking < 0 else thinking
                total = add_usage(total, usage(sent, got, read, wrote, known, exact=True))
            counted.add(key)
        return total

    @property
    def numbers(self) -> bytes:
        """All of them as bytes, in the order of this machine."""
        return self._numbers.tobytes()


class SessionUsage(NamedTuple):
    """The tokens of one session: all that is known, those of its rows, and those by message."""

    total: Usage
    rows: Usage
    messages: MessageTokens | None

    def added(self, counted: set[int]) -> Usage:
        """Return what the session adds to a sum: copies of messages count where they came first.

        Args:
            counted: the keys of the messages in the sum; those of this session are added.
        """
        repeated = self.messages.repeated(counted) if self.messages else no_usage()
        if not repeated["totalTokens"]:
            return self.total
        rest = less_usage(self.rows, repeated)
        return {**rest, "exact": rest["exact"] and self.total["exact"]}


class ParseSink:
    """Collects one session (a main transcript and its children).

    Args:
        hidden: keep blocks marked `hidden`; otherwise `add` drops them.
        apart: keep the tokens of each model message, for a sum over several sessions.
    """

    def __init__(self, *, hidden: bool = False, apart: bool = False) -> None:
        self.wants_hidden = hidden
        self.messages = MessageTokens() if apart else None
        # The client's own count, and whether it spent more than any row says.
        self.own_count: Usage | None = None
        self.uncounted = False
        self.tally = Tally()
        self.findings: list[Finding] = []
        self.drifts = Drifts()
        self.conversations: dict[str, Conversation] = {}
        self.client_version: str | None = None
        self._spool = LineSpool()
        # How many blocks are in the spool, and the blocks after them.
        self._spooled = 0
        self._held: list[Block] = []
        self._late: dict[int, bytes] = {}
        self._superseded: dict[int, str] = {}
        self._rewritten: dict[int, bytes] = {}
        # What was arranged: runs of handles, in the order in which they are shown.
        self._runs: list[range] | None = None
        # By position: the ranks and handles of the blocks that were moved there, in order.
        self._moved: dict[int, list[tuple[int, int]]] = {}
        # For each block, an index into `_kinds`: its (conversation, type), for the counts.
        self._kind_of = array("I")
        self._kinds: dict[tuple[str, str], int] = {}

    def add(self, block: Block) -> int:
        """Append a block; return its handle for `amend`, `DROPPED` for an unwanted hidden one."""
        if "hidden" in block and block["hidden"] and not self.wants_hidden:
            return DROPPED
        key = block["conversationId"], block["type"]
        number = self._kinds.get(key)
        if number is None:
            self.conversation(key[0])
            number = self._kinds[key] = len(self._kinds)
        handles = self._kind_of
        handles.append(number)
        held = self._held
        held.append(block)
        source = block.get("source")
        if source is not None and (source["length"] or 0) > HELD_ROW:
            self._write(len(held))
        elif len(held) >= HELD:
            self._write(len(held) - HELD // 2)
        return len(handles) - 1

    def _write(self, count: int) -> None:
        """Encode the first blocks that are held back."""
        held = self._held
        self._spool.add(*[line_of(block) or _encode_lossy(block) for block in held[:count]])
        self._spooled += count
        del held[:count]

    def amend(self, handle: int, **late: Any) -> None:
        """State fields of a block that were unknown when it was added, each at most once."""
        if handle == DROPPED or not late:
            return
        if handle >= self._spooled and _SOON.issuperset(late):
            self._held[handle - self._spooled].update(late)
            return
        self._write(len(self._held))
        self._late[handle] = self._late.get(handle, b"") + _as_fields(late)

    def retract(self, handle: int, name: str) -> None:
        """Take back a field that `amend` stated."""
        if handle == DROPPED:
            return
        if handle >= self._spooled:
            del self._held[handle - self._spooled][name]
            return
        block = orjson.loads(self._line(handle))
        del block[name]
        self._late.pop(handle, None)
        self._rewritten[handle] = orjson.dumps(block, None, orjson.OPT_APPEND_NEWLINE)

    def supersede(self, handle: int, reason: str) -> None:
        """Mark a block as replaced, for a reason in kebab-case; the first reason counts."""
        if handle != DROPPED:
            self._superseded.setdefault(handle, reason)

    def reword(self, handle: int, kind: str, content: str) -> bool:
        """Give a block of type `kind` other words; return False if it is none or has them."""
        self._write(len(self._held))
        block = orjson.loads(self._rewritten.get(handle) or self._spool.line(handle))
        if block["type"] != kind or block["content"] == content:
            return False
        block["content"] = content
        try:
            line = orjson.dumps(block, None, orjson.OPT_APPEND_NEWLINE)
        except TypeError:
            line = _encode_lossy(block)
        self._rewritten[handle] = line
        return True

    def arrange(self, runs: Iterable[range]) -> None:
        """Show these runs of blocks next; what no call names was replaced, and is not shown.

        A reader calls it that adds blocks before their order is known. Without a call all blocks
        are shown as they were added.
        """
        self._runs = [*(self._runs or ()), *runs]

    def move(self, handle: int, position: int, rank: int) -> None:
        """Show a block before the one whose handle is `position`, among others there by rank."""
        if handle != DROPPED:
            insort(self._moved.setdefault(position, []), (rank, handle))

    def __len__(self) -> int:
        """Return how many blocks were added, which is the handle of the next one."""
        return len(self._kind_of)

    def shown(self) -> list[range]:
        """Return the runs of handles that are shown, in their order."""
        runs = [range(len(self))] if self._runs is None else self._runs
        if not self._moved:
            return runs
        elsewhere = {handle for moved in self._moved.values() for _, handle in moved}
        cuts = sorted(elsewhere | self._moved.keys())
        shown: list[range] = []
        for run in runs:
            start = run.start
            for cut in cuts[bisect_left(cuts, start) : bisect_left(cuts, run.stop)]:
                shown.append(range(start, cut))
                shown.extend(range(handle, handle + 1) for _, handle in self._moved.get(cut, ()))
                start = cut + 1 if cut in elsewhere else cut
            shown.append(range(start, run.stop))
        return [run for run in shown if run]

    def finding(self, finding: Finding) -> None:
        """Record a remark about the input."""
        self.findings.append(finding)

    def conversation(
        self, name: str, *, parent: str | None = None, link: Link | None = None
    ) -> Conversation:
        """Return (and if need be open) a conversation, setting what is given."""
        thread = self.conversations.setdefault(name, Conversation())
        if parent is not None:
            thread.parent = parent
        if link is not None:
            thread.link = link
        return thread

    def use(self, conversation: str, usage: Usage) -> None:
        """Count one model message's tokens."""
        thread = self.conversation(conversation)
        thread.usage = add_usage(thread.usage, usage)

    def pieces(self, view: View = "live", runs: Iterable[range] | None = None) -> Iterator[bytes]:
        """Yield each block of the view as a line of JSON, LF included; some lines at a time.

        Args:
            runs: of handles; all blocks by default.
        """
        self._write(len(self._held))
        pieces = self._spool.pieces
        changed = sorted({*self._late, *self._superseded, *self._rewritten})
        for run in self.shown() if runs is None else runs:
            start = run.start
            for handle in changed[bisect_left(changed, start) : bisect_left(changed, run.stop)]:
                if start < handle:
                    yield from pieces(start, handle)
                if handle not in self._superseded:
                    yield self._line(handle)
                elif view == "all":
                    yield _lengthened(self._line(handle), {"superseded": True})
                start = handle + 1
            yield from pieces(start, run.stop)

    def block(self, handle: int) -> Block:
        """Return one block as `blocks("all")` yields it."""
        self._write(len(self._held))
        block: Block = orjson.loads(self._line(handle))
        if handle in self._superseded:
            block["superseded"] = True
        return block

    def _line(self, handle: int) -> bytes:
        line = self._rewritten.get(handle) or self._spool.line(handle)
        fields = self._late.get(handle)
        return line if fields is None else _joined(line, fields)

    def lines(self, view: View = "live") -> Iterator[bytes]:
        """Yield each block of the view as one line of JSON, LF included."""
        for piece in self.pieces(view):
            yield from io.BytesIO(piece)

    def blocks(self, view: View = "live") -> Iterator[Block]:
        """Yield each block of the view as a dict."""
        for line in self.lines(view):
            yield orjson.loads(line)

    def threads(self) -> dict[str, list[range]]:
        """Return the runs of live blocks of each conversation that has any, in their order."""
        names = [conversation for conversation, _ in self._kinds]
        found: dict[str, list[range]] = {}
        for handle in chain.from_iterable(self.shown()):
            if handle in self._superseded:
                continue
            runs = found.setdefault(names[self._kind_of[handle]], [])
            if runs and runs[-1].stop == handle:
                runs[-1] = range(runs[-1].start, handle + 1)
            else:
                runs.append(range(handle, handle + 1))
        return found

    def counts(self, view: View = "live") -> dict[tuple[str, str], int]:
        """Return how many blocks of the view each (conversation, type) has."""
        totals: Counter[int] = Counter()
        for run in self.shown():
            totals.update(self._kind_of[run.start : run.stop])
        if view == "live":
            totals.subtract(self._kind_of[handle] for handle in self._shown_superseded())
        keys = list(self._kinds)
        return {keys[kind]: total for kind, total in totals.items() if total}

    def superseded_by(self) -> dict[str, int]:
        """Return how many blocks are superseded, by reason."""
        return dict(Counter(self._superseded[handle] for handle in self._shown_superseded()))

    def _shown_superseded(self) -> Iterator[int]:
        superseded = sorted(self._superseded)
        for run in self.shown() if superseded else ():
            yield from superseded[
                bisect_left(superseded, run.start) : bisect_left(superseded, run.stop)
            ]

    @property
    def damaged(self) -> bool:
        """Whether any finding is damage, so that the command exits 3."""
        return any(finding.is_damage for finding in self.findings)

    def usage(self) -> Usage:
        """Return the tokens of the session: of all conversations, and what is known beyond."""
        total = total_usage(self.conversations)
        own = self.own_count
        if own is not None and not is_beyond(total, own):
            total = own
        elif own is not None and is_beyond(own, total):
            total = larger_usage(own, total)
        return {**total, "exact": False} if self.uncounted else total

    def session_usage(self) -> SessionUsage:
        """Return the tokens of the session for a sum over several ones."""
        return SessionUsage(self.usage(), total_usage(self.conversations), self.messages)

    def open_main(self) -> Conversation:
        """Return the main conversation, so that even an empty session has one."""
        return self.conversation(MAIN)


def total_usage(conversations: dict[str, Conversation]) -> Usage:
    """Return the tokens of all conversations together."""
    total = no_usage()
    for thread in conversations.values():
        total = add_usage(total, thread.usage)
    return total


def _lengthened(line: bytes, late: dict[str, Any]) -> bytes:
    """Return a line whose object has further fields at its end."""
    return _joined(line, _as_fields(late))


def _joined(line: bytes, fields: bytes) -> bytes:
    # Joined, so that a line of any length is copied once.
    return b"".join((memoryview(line)[:-2], fields, b"}\n"))


def _as_fields(late: dict[str, Any]) -> bytes:
    return b"," + _encode_late(late)[1:-1]


def _encode_late(late: dict[str, Any]) -> bytes:
    try:
        line = orjson.dumps(late)
    except TypeError:
        return _encode_lossy(late)[:-1]
    if _LATE.isdisjoint(late) or not is_too_deep(late, _LATE):
        return line
    return _encode_lossy(late)[:-1]


def _encode_lossy(block: Block) -> bytes:
    made = jsontext.cleaned(block)
    is_late = False
    for name in block:
        if name == "usage" or (is_late and name in _SOON):  # stands last, as where it comes late
            made[name] = made.pop(name)
        is_late = is_late or name == "source"
    return orjson.dumps(made, option=orjson.OPT_APPEND_NEWLINE)


# A session as it grows: what a reader adds and amends becomes stream events, at once. Of each block
# only its place and the late facts about it are kept.

_NEVER = object()
_WORDLESS = -1  # which is the hash of no text


class LiveSink:
    """Turns what a reader adds of one session into events, in the same order.

    A fact is emitted once, so a reader may state all it knows as often as it likes. The handle of a
    block in events is its durable id, unless it began as another.

    Args:
        hidden: emit blocks marked `hidden`; otherwise `add` drops them.
        begun_as: returns the handle under which a block that is now complete began, if it did.
    """

    def __init__(
        self, *, hidden: bool = False, begun_as: Callable[[Block], str | None] | None = None
    ) -> None:
        self.wants_hidden = hidden
        self.tally = Tally()
        self.findings: list[Finding] = []
        self.drifts = Drifts()
        self.conversations: dict[str, Conversation] = {}
        self.client_version: str | None = None
        self._begun_as = begun_as
        # What a `ParseSink` makes its sums of; a stream has the usage of each conversation.
        self.messages: MessageTokens | None = None
        self.own_count: Usage | None = None
        self.uncounted = False
        # What `drain` returns, and the blocks that these events complete.
        self._events: list[StreamEvent] = []
        self._lines: list[tuple[Key, bytes]] = []
        # By the reader's handle: the conversation and the stream's handle, and what came late.
        self._keys: list[Key] = []
        self._late: dict[int, dict[str, Any]] = {}
        # The type of each block, and the hash of its words, `_WORDLESS` if it has none.
        self._types: list[str] = []
        self._words = array("q")
        # By conversation: the blocks in order, without those that were moved, which follow by
        # position and rank.
        self._unmoved: dict[str, array[int]] = {}
        self._moved: dict[str, list[tuple[int, int, int]]] = {}

    def __len__(self) -> int:
        """Return how many blocks were added, which is the handle of the next one."""
        return len(self._keys)

    def drain(self) -> list[StreamEvent]:
        """Return the events since the last call, in order."""
        return self.drain_lines()[0]

    def drain_lines(self) -> tuple[list[StreamEvent], list[tuple[Key, bytes]]]:
        """Return the events since the last call, and the key and line of each completed block."""
        drained = self._events, self._lines
        self._events, self._lines = [], []
        return drained

    def emit(self, event: StreamEvent) -> None:
        """Add an event that is not a reader's."""
        self._events.append(event)

    def add(self, block: Block) -> int:
        """Complete a block; return its handle for `amend`, `DROPPED` for an unwanted hidden one."""
        if "hidden" in block and block["hidden"] and not self.wants_hidden:
            return DROPPED
        number = len(self._keys)
        kind, conversation = block["type"], block["conversationId"]
        late: dict[str, Any] = {}
        if kind in _UNTIL_KNOWN:
            for name, value in _UNTIL_KNOWN[kind].items():
                if name not in block:
                    block[name] = late[name] = value
            self._late[number] = late
        line = line_of(block)
        if line is None:
            for name in late:
                del block[name]
            block = {**jsontext.cleaned(block), **late}
            line = orjson.dumps(block, None, orjson.OPT_APPEND_NEWLINE)
        content = block.get("content")
        self._types.append(kind)
        self._words.append(hash(content) if type(content) is str else _WORDLESS)
        unmoved = self._unmoved.get(conversation)
        if unmoved is None:
            self.conversation(conversation)
            unmoved = self._unmoved[conversation] = array("l")
        unmoved.append(number)
        begun = None if self._begun_as is None else self._begun_as(block)
        key = conversation, begun or block["id"]
        self._keys.append(key)
        self._lines.append((key, line))
        self._events.append(blocks.block_complete(key[1], block))
        return number

    def amend(self, handle: int, **late: Any) -> None:
        """Update what is new among the fields of a block that was added before."""
        if handle == DROPPED:
            return
        known = self._late.get(handle)
        if known is None:
            known = self._late[handle] = {}
        news = late
        if not known.keys().isdisjoint(late):
            news = {name: value for name, value in late.items() if known.get(name, _NEVER) != value}
        if news:
            known.update(news)
            if not _SOON.issuperset(news):
                news = encodable({"type": "system", **news})
                del news["type"]
            conversation, name = self._keys[handle]
            self._events.append(blocks.block_update(name, news, conversation))

    def move(self, handle: int, position: int, rank: int) -> None:
        """Show the block that was added last before the one whose handle is `position`."""
        if handle == DROPPED:
            return
        conversation, name = self._keys[handle]
        moved = self._moved.setdefault(conversation, [])
        unmoved = self._unmoved[conversation]
        del unmoved[bisect_left(unmoved, handle)]
        here = bisect_left(moved, (position, rank, handle))
        at = bisect_left(unmoved, position)
        following = unmoved[at] if at < len(unmoved) else None
        if here < len(moved) and (following is None or moved[here][0] <= following):
            following = moved[here][2]
        moved.insert(here, (position, rank, handle))
        if following is not None:
            event = next(e for e in reversed(self._events) if e.get("blockId") == name)
            event["before"] = self._keys[following][1]

    def supersede(self, handle: int, reason: str) -> None:
        """Mark a block as replaced. A stream does not say why."""
        self.amend(handle, superseded=True)

    def reword(self, handle: int, kind: str, content: str) -> bool:
        """Give a block of type `kind` other words; return False if it is none or has them."""
        if handle == DROPPED or self._types[handle] != kind:
            return False
        if self._words[handle] in (hash(content), _WORDLESS):
            return False
        self._words[handle] = hash(content)
        self.amend(handle, content=content)
        return True

    def finding(self, finding: Finding) -> None:
        """Record a remark about the input."""
        self.findings.append(finding)

    def conversation(
        self, name: str, *, parent: str | None = None, link: Link | None = None
    ) -> Conversation:
        """Return (and if need be open) a conversation, emitting what is new about it."""
        thread = self.conversations.setdefault(name, Conversation())
        news: dict[str, Any] = {}
        if parent is not None and parent != thread.parent:
            news["parent"] = thread.parent = parent
        if link is not None and link != thread.link:
            thread.link = link
            news["link"] = link._asdict()
        if news:
            self._events.append(blocks.metadata_update(news, name))
        return thread

    def use(self, conversation: str, usage: Usage) -> None:
        """Emit the tokens of a conversation, if they changed."""
        thread = self.conversation(conversation)
        if usage != thread.usage:
            thread.usage = usage
            self._events.append(blocks.metadata_update({"usage": usage}, conversation))

    def open_main(self) -> Conversation:
        """Return the main conversation, so that even an empty session has one."""
        return self.conversation(MAIN)


class StdoutSink(LiveSink):
    """Events of lines that stand in no file."""

    def add(self, block: Block) -> int:
        """Complete a block."""
        return super().add({**block, "source": None})
