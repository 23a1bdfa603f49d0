"""Token counts of a session, once per model message, and the `result` lines of stdout."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from agentsdir.adapters.claude.shapes import count, mapping, text
from agentsdir.formats.blocks import add_usage, is_beyond, no_usage, usage
from agentsdir.formats.findings import Finding
from agentsdir.formats.ids import stand_in
from agentsdir.formats.jsontext import packed, unpacked
from agentsdir.formats.sink import DROPPED, total_usage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from agentsdir.formats.blocks import Usage
    from agentsdir.formats.sink import BlockSink, ParseSink


# Token counts of one file: once per model message, from its last row (SPEC.md, "Usage").

# Input, output, cache read, cache write, thinking. The last is `_UNKNOWN` where a row has none.
_Counts: TypeAlias = "tuple[int, int, int, int, int]"
_UNKNOWN = -1
_UNCOUNTED: _Counts = (_UNKNOWN, 0, 0, 0, _UNKNOWN)  # of a message that has no counts
_OWN_NAMES = (
    "inputTokens",
    "outputTokens",
    "cacheReadInputTokens",
    "cacheCreationInputTokens",
    "thinkingTokens",
)
_WORDS = {
    "inputTokens": "input",
    "outputTokens": "output",
    "cacheReadTokens": "cache read",
    "cacheWriteTokens": "cache write",
}
# The first version whose rows have final counts, and that no longer asks a model for titles.
_TELLS_ALL = [2, 1, 87]


# What is kept of a model message, numbers only, since sessions have thousands of them: the number
# of its conversation, its last block, its lineage, whether its counts are final, whether its block
# has them, and the counts.
_RECORD = Struct("=iqq??5q")


class _Message:
    """The model message whose rows are read: its latest block and counts."""

    __slots__ = ("conversation", "counts", "final", "handle", "lineage", "name", "number", "raw")

    def __init__(self, name: Any, number: int, conversation: int, lineage: int) -> None:
        self.name = name
        self.number = number
        self.conversation = conversation
        self.lineage = lineage
        self.handle = DROPPED
        self.raw: dict[str, Any] | None = None
        self.counts = _UNCOUNTED
        self.final = False


class _Sum:
    """Adds up the usage of many messages, faster than with a usage object for each."""

    __slots__ = ("final", "got", "read", "sent", "thought", "wrote")

    def __init__(self) -> None:
        self.sent = self.got = self.read = self.wrote = 0
        self.thought: int | None = None
        self.final = True

    def add(self, sent: int, got: int, read: int, wrote: int, thought: int, *, final: bool) -> None:
        """Add one message's counts."""
        self.sent += sent
        self.got += got
        self.read += read
        self.wrote += wrote
        if thought != _UNKNOWN:
            self.thought = (self.thought or 0) + thought
        self.final = self.final and final

    def usage(self) -> Usage:
        """Return the sum."""
        return usage(self.sent, self.got, self.read, self.wrote, self.thought, exact=self.final)


class FileUsage:
    """Collects the usage of one file, and states it at the end.

    Until about 2.1.86 the client often wrote a message before its counts were final. Then no row
    of it has a stop reason, and the numbers are lower bounds. These versions also made requests
    that no row shows, as all versions do for the summary of a compaction.

    Args:
        stand_in: returns the number that stands for a message's id.
    """

    def __init__(self, stand_in: Callable[[str], int] = stand_in) -> None:
        self._stand_in = stand_in
        # Of the messages by number, each as `_RECORD`; the number of each id, by its stand-in;
        # and the numbers of the conversations, by name.
        self._records = bytearray()
        self._numbers: dict[int, int] = {}
        self._conversations: dict[str, int] = {}
        self._latest: _Message | None = None
        self._messages = 0
        # Where to state what a message used as soon as the next one begins, and the blocks that
        # wait for another fact, which is to stand before it.
        self._early: ParseSink | None = None
        self._unsettled: Collection[int] = ()
        self._results: Usage | None = None
        # The client's own count, and the number of messages in it.
        self._own: Usage | None = None
        self._counted = 0
        # Whether a prompt waits for its answer, and whether an earlier one never got it, so that
        # its tokens were not counted.
        self._waiting = False
        self._lost = False
        # Whether the client made requests that only its own count includes.
        self._aside = False

    def state_early(self, sink: ParseSink, unsettled: Collection[int]) -> None:
        """State a message's usage when the next one begins, and so while its block is at hand.

        Args:
            sink: has the blocks.
            unsettled: the handles of calls without a result so far; they wait for `state`.
        """
        self._early, self._unsettled = sink, unsettled

    def note(
        self,
        conversation: str,
        value: dict[str, Any],
        message: dict[str, Any],
        handle: int,
        *,
        visible: bool,
    ) -> None:
        """Take one assistant row; `handle` is its last visible block, else a hidden one, or -1."""
        self._waiting = False
        name = message.get("id")
        known = self._latest
        if known is None or known.name != name or type(name) is not str:
            known = self._turn_to(name, conversation, value)
        if handle >= 0 and (visible or known.handle < 0):
            known.handle = handle
        raw = message.get("usage")
        if type(raw) is dict:
            known.raw = raw  # every row repeats it, so only the last one is decoded
        if message.get("stop_reason") is not None:
            known.final = True

    def _turn_to(self, name: Any, conversation: str, value: dict[str, Any]) -> _Message:
        """Keep the latest message as a record, and return the one of this id."""
        self._keep_latest()
        key = self._stand_in(name) if type(name) is str else None
        number = None if key is None else self._numbers.get(key)
        if number is None:
            number = self._messages
            self._messages += 1
            if key is not None:
                self._numbers[key] = number
            place = self._conversations.setdefault(conversation, len(self._conversations))
            lineage = _lineage(value, number if key is None else name)
            known = _Message(name, number, place, lineage)
        else:
            known = self._reopen(name, number)
        self._latest = known
        return known

    def _keep_latest(self) -> None:
        known = self._latest
        if known is None:
            return
        counts = known.counts if known.raw is None else _counts(known.raw)
        stated = False
        if (
            self._early is not None
            and self._results is None
            and counts is not _UNCOUNTED
            and known.handle not in self._unsettled
        ):
            self._early.amend(known.handle, usage=_usage(counts, final=known.final))
            stated = True
        record = _RECORD.pack(
            known.conversation, known.handle, known.lineage, known.final, stated, *counts
        )
        at = known.number * _RECORD.size
        if at == len(self._records):
            self._records += record
        else:
            self._records[at : at + _RECORD.size] = record
        self._latest = None

    def _reopen(self, name: str, number: int) -> _Message:
        """Return a message that has another row although others came after it."""
        if number == _UNKNOWN:
            raise ValueError(f"the message {name} is not in the snapshot")
        kept = _RECORD.unpack_from(self._records, number * _RECORD.size)
        conversation, handle, lineage, final, stated, *counts = kept
        if stated and self._early is not None:
            self._early.retract(handle, "usage")
        known = _Message(name, number, conversation, lineage)
        known.handle, known.final = handle, final
        if counts[0] != _UNKNOWN:
            known.counts = kept[-5:]
        return known

    def snapshot(self) -> dict[str, Any] | None:
        """Return as JSON what later rows need: the latest message, and the ids of the others.

        None where results were counted, which settle what earlier messages used.
        """
        known = self._latest
        if self._results is not None:
            return None
        latest = None
        if known is not None:
            counts = known.counts if known.raw is None else _counts(known.raw)
            conversation = list(self._conversations)[known.conversation]
            latest = [known.name, conversation, counts, known.final]
        return {"messages": packed("q", self._numbers), "latest": latest}

    def resume(self, snapshot: dict[str, Any]) -> None:
        """Take the messages of a snapshot, whose blocks are not here.

        Raises `ValueError`, `TypeError` or `KeyError` for what is none; and later, `ValueError` for
        a row of a message before the latest.
        """
        self._numbers = dict.fromkeys(unpacked("q", snapshot["messages"]), _UNKNOWN)
        if snapshot["latest"] is None:
            return
        name, conversation, (sent, got, read, wrote, thought), final = snapshot["latest"]
        self._conversations = {str(conversation): 0}
        self._latest = _Message(name, 0, 0, 0)
        if sent != _UNKNOWN:
            self._latest.counts = int(sent), int(got), int(read), int(wrote), int(thought)
        self._latest.final = bool(final)
        self._messages = 1
        if type(name) is str:
            self._numbers[self._stand_in(name)] = 0

    def note_prompt(self) -> None:
        """Note a prompt."""
        self._lost = self._lost or self._waiting
        self._waiting = True

    def note_turn(self) -> None:
        """Note that a turn begins on stdout, which has no prompts."""
        self._waiting = True

    def note_error(self) -> None:
        """Note that the answer is an error, for which the client counted nothing."""
        self._waiting = False

    def note_unseen_request(self) -> None:
        """Note that the client makes a request that no row shows."""
        self._aside = True

    def note_version(self, version: str) -> None:
        """Note the client's version for the rows from here on."""
        numbers = version.split(".", 3)[:3]
        if all(number.isdecimal() for number in numbers):
            self._aside = self._aside or [int(number) for number in numbers] < _TELLS_ALL

    def note_cost(self, models: Any) -> None:
        """Take the client's own count of the whole session, by model."""
        if isinstance(models, dict):
            self._own = _by_model(models, final=True)
            self._covered()

    def note_result(self, value: dict[str, Any], *, final: bool) -> None:
        """Take a `result` line, whose counts are better than those of the lines before it.

        `final` is false for a turn that failed, whose counts may lack some tokens. Newer clients
        continue the count of the session's last process, and give the difference separately;
        older ones start at zero with each process.
        """
        self._waiting = False
        raw = value.get("usage")
        if isinstance(raw, dict):
            spent = message_usage(raw, final=final)
            self._results = add_usage(self._results or no_usage(), spent)
        news, models = value.get("model_usage_since_last_result"), value.get("modelUsage")
        if isinstance(news, dict):
            self._own = add_usage(self._own or no_usage(), _by_model(news, final=final))
        elif isinstance(models, dict):
            self._own = _by_model(models, final=final and (self._own or no_usage())["exact"])
        self._covered()

    def _covered(self) -> None:
        self._counted = self._messages
        self._aside = False

    def state(self, sink: BlockSink, main: str) -> None:
        """Put each message's usage on its last block, and the sums on the conversations."""
        sums: dict[str, _Sum] = {}
        later = _Sum()
        self._keep_latest()
        names = list(self._conversations)
        # From this message on, only the rows say what was used.
        uncovered = self._messages if self._own is None else self._counted
        for number, record in enumerate(_RECORD.iter_unpack(self._records)):
            place, handle, lineage, final, stated, *counts = record
            conversation = names[place]
            if self._results is not None and conversation == main:
                if stated and self._early is not None:
                    self._early.retract(handle, "usage")
                continue
            total = sums.get(conversation)
            if total is None:
                total = sums[conversation] = _Sum()
            if counts[0] == _UNKNOWN:
                total.final = later.final = False  # tokens were used, but not counted
                continue
            if not stated:
                sink.amend(handle, usage=_usage(record[-5:], final=final))
            total.add(*counts, final=final)
            if number >= uncovered:
                later.add(*counts, final=final)
            if sink.messages is not None and lineage:
                sink.messages.add(lineage, _usage(record[-5:], final=final))
        if self._results is not None:
            sink.use(main, self._results)
        for conversation, total in sums.items():
            sink.use(conversation, total.usage())
        if self._own is not None:
            sink.own_count = add_usage(self._own, later.usage())
        sink.uncounted = sink.uncounted or self._lost or self._waiting or self._aside


def compare(sink: BlockSink, file: str) -> None:
    """Report tokens that the client counted and no row shows, when all files were read."""
    own, rows = sink.own_count, total_usage(sink.conversations)
    if own is not None and is_beyond(own, rows):
        more = ", ".join(f"{own[name] - rows[name]} {what}" for name, what in _WORDS.items())
        message = f"the client counted more than the rows show: {more}"
        sink.finding(Finding("unrecorded-usage", file, message))


def _lineage(value: dict[str, Any], message: Any) -> int:
    """Return a key for a model message that its copy in a fork shares, and no other message has.

    Gateways repeat the ids of messages, so the request, or else the row, is a part of the key. It
    is 0 where the row names neither: then no copy could be recognised.
    """
    request = value.get("requestId")
    if not isinstance(request, str):
        request = mapping(value.get("forkedFrom")).get("messageUuid") or value.get("uuid")
    return hash((message, request)) if isinstance(request, str) else 0


def _by_model(models: dict[str, Any], *, final: bool) -> Usage:
    """Add up the client's counts for each model."""
    total = _Sum()
    for spent in map(mapping, models.values()):
        *counts, thought = map(spent.get, _OWN_NAMES)
        sent, got, read, wrote = map(count, counts)
        total.add(sent, got, read, wrote, _thinking(thought), final=final)
    total.final = final
    return total.usage()


class RunUsage:
    """The usage of a run's main thread so far: of its results, and of messages since the last."""

    def __init__(self) -> None:
        self._settled = no_usage()
        self._messages: dict[str, Usage] = {}

    @property
    def unsettled(self) -> bool:
        """Whether messages came since the last result."""
        return bool(self._messages)

    def note(self, message_id: str, spent: Usage) -> None:
        """Take the counts of a message from a line; final counts are not replaced."""
        known = self._messages.get(message_id)
        if known is None or not known["exact"]:
            self._messages[message_id] = spent

    def settle(self, spent: Usage | None) -> None:
        """Take the counts of a result.

        After an interrupt, and after a message without a stream, it has no counts, and those of the
        messages are used.
        """
        if spent is None or (self._messages and not spent["totalTokens"]):
            spent = self._since()
        self._settled = add_usage(self._settled, spent)
        self._messages.clear()

    def so_far(self) -> Usage:
        """Return the sum."""
        return add_usage(self._settled, self._since())

    def _since(self) -> Usage:
        total = no_usage()
        for spent in self._messages.values():
            total = add_usage(total, spent)
        return total


def message_usage(raw: dict[str, Any], *, final: bool) -> Usage:
    """Translate the counts of the API; they are lower bounds where they are not `final`."""
    return _usage(_counts(raw), final=final)


def _counts(raw: dict[str, Any]) -> _Counts:
    """Return the counts of the API as whole numbers."""
    details = raw.get("output_tokens_details")
    return (
        count(raw.get("input_tokens")),
        count(raw.get("output_tokens")),
        count(raw.get("cache_read_input_tokens")),
        count(raw.get("cache_creation_input_tokens")),
        _UNKNOWN if type(details) is not dict else _thinking(details.get("thinking_tokens")),
    )


def _thinking(value: Any) -> int:
    return count(value) if type(value) is int else _UNKNOWN


def _usage(counts: _Counts, *, final: bool) -> Usage:
    """Translate API counts. The input count does not include the cache."""
    sent, got, read, wrote, thought = counts
    return usage(sent, got, read, wrote, None if thought == _UNKNOWN else thought, exact=final)


# The `result` line of stdout, which says how a turn ended.

LIMITS = {"error_max_turns": "max_turns", "error_max_budget_usd": "max_budget"}
"""Subtypes of results that a limit of the user caused, and their stop reasons."""


class ClaudeResult(NamedTuple):
    """A `result` line.

    `failed` is the client's `is_error`, or an error's subtype: it calls an API error a success
    with `is_error`. `cost` is in US dollars and `usage` is the main thread's, both since the result
    before. `queued` is whether more turns wait for their run.
    """

    failed: bool
    subtype: str
    terminal_reason: str
    api_error_status: int | None
    stop_reason: str
    errors: tuple[str, ...]
    text: str
    usage: Usage | None
    cost: float | None
    queued: bool

    @property
    def reason(self) -> str:
        """Why the turn failed, or its result, in the client's words."""
        return "\n".join(self.errors) or (self.text if self.failed else "") or self.subtype


def parse_result(value: dict[str, Any], spent: float = 0.0) -> ClaudeResult:
    """Read a `result` line.

    Args:
        spent: the `total_cost_usd` of the result before it in the same process.
    """
    subtype = text(value.get("subtype"))
    failed = value.get("is_error") is True or subtype.startswith("error")
    errors = value.get("errors")
    status = value.get("api_error_status")
    raw = value.get("usage")
    return ClaudeResult(
        failed=failed,
        subtype=subtype,
        terminal_reason=text(value.get("terminal_reason")),
        api_error_status=status if type(status) is int else None,
        stop_reason=LIMITS.get(subtype) or text(value.get("stop_reason")),
        errors=tuple(error for error in errors if isinstance(error, str))
        if type(errors) is list
        else (),
        text=text(value.get("result")),
        usage=message_usage(raw, final=not failed) if isinstance(raw, dict) else None,
        cost=_cost(value, spent),
        queued=bool(value.get("queued_turn_count")),
    )


def context_window(value: dict[str, Any], model: str) -> int | None:
    """Return how many tokens a model's context has, as a result says it; None if it does not.

    Args:
        model: its name; without one of that name, the only model of the result counts.
    """
    models = mapping(value.get("modelUsage"))
    only = next(iter(models.values())) if len(models) == 1 else None
    window = mapping(models.get(model, only)).get("contextWindow")
    return window if type(window) is int and window > 0 else None


def total_cost(value: dict[str, Any]) -> float | None:
    """Return the total cost of a `result` line, in US dollars."""
    return _dollars(value.get("total_cost_usd"))


def _cost(value: dict[str, Any], spent: float) -> float | None:
    """Return the cost of one result, in US dollars.

    The total is of the process, or of the whole session in some versions; the newest versions give
    the difference from the last result.
    """
    since = value.get("model_usage_since_last_result")
    if isinstance(since, dict):
        return sum(_dollars(mapping(used).get("costUSD")) or 0.0 for used in since.values())
    total = total_cost(value)
    return None if total is None else max(0.0, total - spent)


def _dollars(value: Any) -> float | None:
    if type(value) in (int, float) and 0 <= value < 1e9:
        return float(value)
    return None
