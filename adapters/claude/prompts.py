"""`user` and `queue-operation` rows: prompts, tool results, and prompts that wait."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any
from weakref import proxy

from agentsdir.adapters.claude.emit import FOLDED, HIDDEN, LATER, PARSED
from agentsdir.adapters.claude.shapes import all_text, mapping, part_text, parts, text
from agentsdir.adapters.claude.speakers import (
    COMMAND,
    FEEDBACK_ON_A_PLAN,
    HOOK,
    INTERRUPT,
    META,
    NOTIFICATION,
    OUTPUT,
    PEER,
    PLAN,
    command_text,
    divide_speech,
    is_caveat,
    read_notice,
    teammate_notices,
)
from agentsdir.adapters.claude.tree import COMMAND as TYPED_COMMAND
from agentsdir.adapters.claude.tree import PROMPT
from agentsdir.formats.findings import Finding
from agentsdir.formats.sink import DROPPED

if TYPE_CHECKING:
    from agentsdir.adapters.claude.emit import RowContext
    from agentsdir.adapters.claude.rows import TranscriptParser
    from agentsdir.adapters.claude.speakers import ClaudeSpeaker
    from agentsdir.formats.rows import Row


# `user` rows: prompts, tool results, and texts of the client.

# How long a tool took, under its several names, and how many milliseconds are in one.
_DURATIONS = {"durationMs": 1, "totalDurationMs": 1, "durationSeconds": 1000}
_DURATION_NAMES = frozenset(_DURATIONS)
_ATTACHED = frozenset({"image", "document", "search_result"})


def read_user(parser: TranscriptParser, value: dict[str, Any], context: RowContext) -> int:
    """Turn a `user` row into blocks; return its outcome."""
    content = mapping(value.get("message")).get("content")
    if content is None:
        message = value.get("message")
        content = message if isinstance(message, str) else None
    if type(content) is list:
        for part in content:
            if type(part) is dict and part.get("type") == "tool_result":
                return _results(parser, value, context, content)
    return add_prompt(parser, value, context, content)


def add_prompt(
    parser: TranscriptParser, value: dict[str, Any], context: RowContext, content: Any
) -> int:
    """Turn prompt content into a `user_message`, or into a system block for a client's text."""
    pieces = parts(content)
    texts = [piece for piece in map(part_text, pieces) if piece is not None]
    is_whole = len(texts) == len(pieces)
    speaker, divided = divide_speech(value, texts, parser.caveat, is_whole=is_whole)
    whole = "\n".join(texts)
    mid_turn = value.get("type") == "attachment"
    if not speaker.is_person:
        spelled = command_text(whole) if speaker is COMMAND else whole
        parser.queue.deliver(whole, spelled, mid_turn=mid_turn)
        return _add_client_text(parser, value, context, speaker, texts)
    if speaker.doubt:
        _doubt(parser, context, speaker.doubt)
    spoken = iter(divided)
    kept: list[tuple[int, Any]] = []
    logged = False
    for index, part in enumerate(pieces):
        if part_text(part) is not None:
            before, typed = next(spoken)
            if before:
                parser.emitter.log_part(context, index + len(pieces), value, before)
                parser.reason = "injected"
                logged = True
            if typed:
                kept.append((index, typed))
        elif isinstance(part, dict) and text(part.get("type")) in _ATTACHED:
            kept.append((index, _attached(part)))
        else:
            parser.hide_part(context, index, value, part)
            logged = True
    if kept:
        said = "\n".join(item for _, item in kept if isinstance(item, str))
        typed_at = parser.queue.deliver(whole, said, mid_turn=mid_turn)
        if typed_at is not None:
            context = context._replace(timestamp=typed_at)
        index = kept[0][0]
        if len(kept) == 1 and isinstance(kept[0][1], str):
            parser.emitter.emit("user_message", context, index, {"content": kept[0][1]})
        else:
            content = [
                {"type": "text", "text": item} if isinstance(item, str) else item
                for _, item in kept
            ]
            parser.emitter.emit("user_message", context, index, {"content": content})
        parser.mark = PROMPT
        return PARSED
    if not logged:
        parser.reason = "empty"
        parser.emitter.log(context, 0, value)
    return HIDDEN


def _doubt(parser: TranscriptParser, context: RowContext, why: str) -> None:
    """Report a prompt that may be the client's. It is shown: a lost prompt would be worse."""
    source = context.source
    finding = Finding(
        "doubtful-prompt",
        source["file"],
        f"shown as a prompt: {why}",
        source["line"],
        source["offset"],
        source["length"],
    )
    parser.emitter.sink.finding(finding)


def _attached(part: dict[str, Any]) -> dict[str, Any]:
    """Return an image or document part in the block format's spelling."""
    source = part.get("source")
    if not isinstance(source, dict) or "media_type" not in source:
        return part
    renamed = {("mediaType" if key == "media_type" else key): v for key, v in source.items()}
    return {**part, "source": renamed}


def _add_client_text(
    parser: TranscriptParser,
    value: dict[str, Any],
    context: RowContext,
    speaker: ClaudeSpeaker,
    texts: list[str],
) -> int:
    whole = "\n".join(texts)
    if not speaker.visible:
        if speaker is META and is_caveat(whole):
            parser.caveat = context.base
        parser.reason = speaker.event
        return parser.emitter.log(context, 0, value)
    metadata: dict[str, Any] = {"event": speaker.event}
    message = whole
    if speaker is NOTIFICATION:
        notice = read_notice(whole)
        parser.subagents.notified(notice)
        message = notice.summary or whole
        metadata.update(taskId=notice.task_id, toolUseId=notice.tool_use_id, status=notice.status)
    elif speaker is COMMAND or speaker is OUTPUT:
        message = command_text(whole)
        if speaker is COMMAND:
            parser.mark = TYPED_COMMAND
    elif speaker is PEER:
        for notice in teammate_notices(whole):
            parser.subagents.notified(notice)
    elif speaker is INTERRUPT:
        message = whole.strip().strip("[]")
    elif speaker is HOOK:
        message = whole.strip()
    elif speaker is PLAN:
        parser.mark = PROMPT
        message, _, words = whole.partition(FEEDBACK_ON_A_PLAN)
        if words:
            parser.emitter.add_system(context, speaker.subtype, message, metadata)
            parser.emitter.emit("user_message", context, 1, {"content": words})
            return PARSED
    if not message:
        parser.reason = "empty"
        return parser.emitter.log(context, 0, value)
    return parser.emitter.add_system(context, speaker.subtype, message, metadata)


def _results(
    parser: TranscriptParser, value: dict[str, Any], context: RowContext, content: list[Any]
) -> int:
    """Turn a row of tool results into blocks, and text that a person typed beside an answer."""
    native = value.get("toolUseResult")
    if len(content) == 1:
        return _result(parser, value, context, 0, content[0], native)
    outcomes: set[int] = set()
    for index, part in enumerate(content):
        if isinstance(part, dict) and part.get("type") == "tool_result":
            became = _result(parser, value, context, index, part, native)
        else:
            became = _add_beside_result(parser, value, context, index, part)
        outcomes.add(became)
    # One visible block makes the row parsed; without any, one folded part makes it folded.
    return next(outcome for outcome in (PARSED, FOLDED, HIDDEN) if outcome in outcomes)


def _add_beside_result(
    parser: TranscriptParser, value: dict[str, Any], context: RowContext, index: int, part: Any
) -> int:
    """Add the text or the image that a person put beside the answer to a permission dialog."""
    said = part_text(part)
    shown: Any = None
    if said is not None:
        speaker, ((_, typed),) = divide_speech(value, [said])
        shown = typed if speaker.is_person else None
        if speaker is INTERRUPT:
            metadata = {"event": speaker.event}
            fields = {"subtype": speaker.subtype, "message": said.strip("[]"), "metadata": metadata}
            parser.emitter.emit("system", context, index, fields)
            return PARSED
        if shown and speaker.doubt:
            _doubt(parser, context, speaker.doubt)
    elif isinstance(part, dict) and text(part.get("type")) in _ATTACHED:
        shown = [_attached(part)]
    if not shown:
        if said is None:
            return parser.hide_part(context, index, value, part)
        parser.reason = "injected" if said else "empty"
        return parser.emitter.log_part(context, index, value, part)
    # It is within a turn, like text typed while a turn runs, so it opens no branch.
    parser.emitter.emit("user_message", context, index, {"content": shown})
    return PARSED


def _result(
    parser: TranscriptParser,
    value: dict[str, Any],
    context: RowContext,
    index: int,
    part: dict[str, Any],
    native: Any,
) -> int:
    tool_use_id = text(part.get("tool_use_id"))
    details = native if type(native) is dict else {}
    error = (
        part.get("is_error") is True
        or details.get("interrupted") is True
        or value.get("toolDenialKind") is not None
    )
    output = part.get("content")
    if parser.subagents.result(context.conversation, tool_use_id, output, error, native):
        parser.reason = "subagent-result"
        return FOLDED
    fields: dict[str, Any] = {
        "toolUseId": tool_use_id,
        "output": "" if output is None else output,
        "isError": error,
    }
    duration = _duration(details)
    if duration is not None:
        fields["durationMs"] = duration
    parser.emitter.emit("tool_result", context, index, fields)
    parser.calls.answered(tool_use_id, "error" if error else "success", context)
    return PARSED


def _duration(details: dict[str, Any]) -> int | None:
    if _DURATION_NAMES.isdisjoint(details):
        return None
    for name, unit in _DURATIONS.items():
        spent = details.get(name)
        if isinstance(spent, (int, float)) and 0 <= spent < 1e12:
            return round(spent * unit)
    return None


# `queue-operation` rows: prompts that wait in the client's queue.
#
# A prompt is written when it is enqueued. Later rows show what happens to it: a `user` row or an
# attachment with the same text delivers it, and `popAll` returns it to the input box. A `remove`
# without such a row means that the running turn took the prompt, which clients 2.0.76 to 2.1.87
# write nowhere else. Most `dequeue` and `remove` rows do not name their entry. The rows after them
# decide which one it is, and failing that its age.


@dataclass(frozen=True, slots=True)
class _InsertionPoint:
    """A place between blocks: before the block of a handle, and by `rank` among several there.

    `anchor` is the row before it, whose branch it shares.
    """

    position: int
    rank: int
    anchor: int


@dataclass(frozen=True, eq=False, slots=True)
class _QueuedPrompt:
    """A prompt that waits, and where it was enqueued."""

    row: Row
    context: RowContext
    text: str
    point: _InsertionPoint

    @property
    def is_command(self) -> bool:
        return self.text.startswith("/")


@dataclass(eq=False, slots=True)
class _QueueExit:
    """An operation that takes out `count` of the entries that waited at `rank`.

    `named` is the one entry that the row names. `point` is where a running turn took them.
    """

    rank: int
    named: _QueuedPrompt | None = None
    timestamp: str | None = None
    count: int = 1
    point: _InsertionPoint | None = None

    @property
    def moment(self) -> int | str | None:
        """What identifies the operation: the position once that is known, else the time."""
        return self.timestamp if self.point is None else self.point.position

    def may_be(self, entry: _QueuedPrompt) -> bool:
        """Tell whether the operation may mean an entry."""
        if self.named is not None:
            return self.named is entry
        return self.count > 0 and entry.point.rank <= self.rank


class Queue:
    """The queue of one session file."""

    def __init__(self, parser: TranscriptParser) -> None:
        # The parser has this queue, and a cycle would keep its session until it is collected.
        self._parser: TranscriptParser = proxy(parser)
        # By rank, which is by age; and the ranks by text, of all entries and of those that no
        # operation has named.
        self._waiting: dict[int, _QueuedPrompt] = {}
        self._ranks: dict[str, list[int]] = {}
        self._unnamed: dict[str, list[int]] = {}
        # Operations without a delivered entry so far. The next row of the conversation may show
        # what a `remove` took out.
        self._dequeued: list[_QueueExit] = []
        self.removed: list[_QueueExit] = []
        # Removals with rows below them that may mean several entries: later rows may deliver the
        # others.
        self.taken_in: list[_QueueExit] = []
        self._owed = 0
        self._points = 0
        self._showing = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits, and no operation waits for its entry."""
        return not (self._waiting or self._exits())

    @property
    def owed(self) -> int:
        """How many entries were delivered before the row that takes them out."""
        return self._owed

    def resume(self, owed: int) -> None:
        """Continue an idle queue.

        Args:
            owed: of that queue.
        """
        self._owed = owed

    def take(self, row: Row, value: dict[str, Any], context: RowContext) -> int:
        """Apply one operation; return the outcome of its row."""
        operation = value.get("operation")
        said = all_text(value.get("content")).strip()
        if operation == "enqueue":
            entry = _QueuedPrompt(row, context, said, self._here())
            self._waiting[entry.point.rank] = entry
            self._ranks.setdefault(said, []).append(entry.point.rank)
            self._unnamed.setdefault(said, []).append(entry.point.rank)
            return LATER
        if operation in ("dequeue", "remove"):
            named = self._oldest(self._unnamed, said) if said else None
            if named is None and (self._owed or said):
                self._owed -= bool(self._owed)
                return FOLDED
            is_removal = operation == "remove"
            leaving = _QueueExit(self._points, named, context.timestamp if is_removal else None)
            if named is not None:
                self._unnamed[said].remove(named.point.rank)
            if named or self._leaving() < len(self._waiting):
                _add(self.removed if is_removal else self._dequeued, leaving)
            return FOLDED
        if operation == "popAll":
            # Back in the input box: a prompt that is sent from there is enqueued again.
            back = self._oldest(self._unnamed, said)
            for entry in [back] if back else [] if said else self._in_queue():
                self._leave(entry)
                self._settle(entry, HIDDEN, "taken-back")
            self._parser.reason = "taken-back"
            return HIDDEN
        return HIDDEN

    def deliver(self, *texts: str, mid_turn: bool) -> str | None:
        """Note that a row has this prompt, in one of the spellings, so that it no longer waits.

        Returns the time at which it was enqueued, or None if it did not wait. A running turn
        (`mid_turn`) takes prompts by `remove`; all others are dequeued.
        """
        if self._showing or not self._waiting:
            return None
        found = self._matching([text.strip() for text in texts], mid_turn)
        for entry in found:
            removed, dequeued = self.removed + self.taken_in, self._dequeued
            exits = removed + dequeued if mid_turn else dequeued + removed
            fitting = [one for one in exits if one.may_be(entry)]
            if fitting:
                min(fitting, key=lambda one: one.named is None).count -= 1
            else:
                self._owed += 1
            self._leave(entry)
            self._settle(entry, FOLDED, "queue")
        return found[0].context.timestamp if found else None

    def before(self, kind: str, value: dict[str, Any], context: RowContext) -> None:
        """Add, before a row of the conversation, the prompts that the turn took without a row.

        The client writes rows later than operations, so results of the turn's calls, and
        attachments, may be below a `remove` that came after them.
        """
        if kind == "attachment" or kind == "progress" or _has_result(value):
            return
        waits = [one for one in self.removed if not _is_later(context.timestamp, one.timestamp)]
        self._place_removed([one for one in self.removed if one not in waits])
        self.removed = waits
        if kind == "user" and self._matching([all_text(_content(value)).strip()], mid_turn=False):
            return  # the row itself delivers one of them
        self._show_taken_in(at_end=False)

    def finish(self) -> None:
        """Add the prompts that were not delivered, since a person typed them."""
        self._place_removed(self.removed)
        self.removed = []
        self._show_taken_in(at_end=True)
        named = {one.named for one in self._dequeued}
        others = iter([entry for entry in self._waiting.values() if entry not in named])
        for one in list(self._dequeued):
            for entry in [one.named] if one.named else islice(others, one.count):
                # Commands that begin another file, as `/clear` does, leave no row in this one.
                if entry.point.rank in self._waiting and (entry.is_command or not entry.text):
                    self._leave(entry)
                    self._settle(entry, HIDDEN if entry.text else FOLDED, "queue")
        for entry in list(self._waiting.values()):
            self._leave(entry)
            self._show(entry, entry.point)

    def _place_removed(self, exits: list[_QueueExit]) -> None:
        for one in exits:
            one.point = self._here()
            _add(self.taken_in, one)

    def _show_taken_in(self, *, at_end: bool) -> None:
        for one in self.taken_in:
            assert one.point is not None
            found = filter(one.may_be, self._waiting.values())
            left = list(found if at_end else islice(found, one.count + 1))
            if len(left) > one.count:
                if not at_end:
                    continue  # a later row may deliver the others
                # Commands wait for the end of the turn.
                left = sorted(left, key=lambda entry: entry.is_command)[: one.count]
                left.sort(key=lambda entry: entry.point.rank)
            one.count = 0
            for entry in left:
                self._leave(entry)
                self._show(entry, one.point)
        self.taken_in = [one for one in self.taken_in if one.count]

    def _show(self, entry: _QueuedPrompt, point: _InsertionPoint) -> None:
        """Add the block of an entry, at its place among earlier blocks."""
        parser = self._parser
        emitter, sink = parser.emitter, parser.emitter.sink
        kept = emitter.first, emitter.count, parser.mark, parser.reason
        emitter.first, emitter.count, parser.reason = DROPPED, 0, ""
        self._showing = True
        value = entry.row.value
        if entry.text:  # forms of texts depend on the version, which the row does not have
            value = {"version": parser.version, **value}
        outcome = add_prompt(parser, value, entry.context, value.get("content"))
        self._showing = False
        for handle in range(emitter.first, emitter.first + emitter.count):
            sink.move(handle, point.position, point.rank)
        parser.tree.attach(point.anchor, emitter.first, emitter.count)
        parser.settle(entry.row, outcome)
        emitter.first, emitter.count, parser.mark, parser.reason = kept

    def _settle(self, entry: _QueuedPrompt, outcome: int, reason: str) -> None:
        parser = self._parser
        kept, parser.reason = parser.reason, reason
        parser.settle(entry.row, outcome)
        parser.reason = kept

    def _here(self) -> _InsertionPoint:
        self._points += 1
        return _InsertionPoint(
            len(self._parser.emitter.sink), self._points, self._parser.tree.newest
        )

    def _leave(self, entry: _QueuedPrompt) -> None:
        rank = entry.point.rank
        del self._waiting[rank]
        self._ranks[entry.text].remove(rank)
        if rank in self._unnamed[entry.text]:
            self._unnamed[entry.text].remove(rank)
        for exits in (self._dequeued, self.removed):
            exits[:] = [one for one in exits if one.count and one.named is not entry]

    def _leaving(self) -> int:
        return sum(one.count for one in self._exits())

    def _oldest(self, among: dict[str, list[int]], text: str) -> _QueuedPrompt | None:
        ranks = among.get(text)
        return self._waiting[ranks[0]] if ranks else None

    def _in_queue(self) -> list[_QueuedPrompt]:
        """Return the entries that no operation has taken out, as far as that is known.

        An operation without a text takes the oldest entries that are no commands.
        """
        ranks = sorted(rank for ranks in self._unnamed.values() for rank in ranks)
        left = {rank: self._waiting[rank] for rank in ranks}
        for one in self._exits():
            if one.named is None:
                fitting = sorted(
                    filter(one.may_be, left.values()), key=lambda entry: entry.is_command
                )
                for entry in fitting[: one.count]:
                    del left[entry.point.rank]
        return list(left.values())

    def _exits(self) -> list[_QueueExit]:
        return [*self._dequeued, *self.removed, *self.taken_in]

    def _matching(self, texts: list[str], mid_turn: bool) -> list[_QueuedPrompt]:
        """Return the entries that a row with these texts delivers; several if it joins them."""
        for said in texts:
            entry = self._oldest(self._ranks, said) if said else None
            if entry is not None:
                return [entry]
        # Clients before 2.1 send all that waits as one prompt.
        for said in texts:
            joined, several = "", list[_QueuedPrompt]()
            for entry in self._waiting.values():
                joined = f"{joined}\n{entry.text}" if several else entry.text
                several.append(entry)
                if not said.startswith(joined):
                    break
                if joined == said:
                    return several
        # A prompt with images is enqueued without its text.
        bare = None if mid_turn or not self._dequeued else self._oldest(self._ranks, "")
        return [bare] if bare is not None and self._dequeued[0].may_be(bare) else []


def _add(exits: list[_QueueExit], one: _QueueExit) -> None:
    """Add an operation; several at one moment are one, since no row distinguishes them."""
    last = exits[-1] if exits else None
    if last is None or last.named or one.named or last.moment != one.moment:
        exits.append(one)
    else:
        last.count += one.count
        last.rank = one.rank


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
