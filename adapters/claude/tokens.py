"""Token counts of one file: once per model message, from its last row (SPEC.md, "Usage")."""

from __future__ import annotations

from typing import Any, TypeAlias

from agentsdir.adapters.claude.shapes import count
from agentsdir.formats.reading.usage import Usage, add_usage, no_usage, usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentsdir.formats.reading.sink import BlockSink

# Input, output, cache read, cache write, thinking, as the row has them: unchecked.
_Counts: TypeAlias = tuple[Any, Any, Any, Any, Any]


class _Message:
    """What is known of one model message: its latest block and counts."""

    __slots__ = ("conversation", "counts", "final", "handle", "raw")

    def __init__(self, conversation: str) -> None:
        self.conversation = conversation
        self.handle = -1
        self.raw: dict[str, Any] | None = None
        self.counts: _Counts | None = None
        self.final = False

    def count(self) -> None:
        """Take the counts of the latest row, and let the row go."""
        if self.raw is not None:
            self.counts, self.raw = _counts(self.raw), None


class _Sum:
    """Adds up many messages faster than by building a usage object for each."""

    __slots__ = ("final", "got", "read", "sent", "thought", "wrote")

    def __init__(self) -> None:
        self.sent = self.got = self.read = self.wrote = 0
        self.thought: int | None = None
        self.final = True

    def add(self, spent: Usage) -> None:
        """Add one message's usage."""
        self.sent += spent["inputTokens"]
        self.got += spent["outputTokens"]
        self.read += spent["cacheReadTokens"]
        self.wrote += spent["cacheWriteTokens"]
        if "thinkingTokens" in spent:
            self.thought = (self.thought or 0) + spent["thinkingTokens"]
        self.final = self.final and spent["exact"]

    def usage(self) -> Usage:
        """Return the sum."""
        return usage(self.sent, self.got, self.read, self.wrote, self.thought, exact=self.final)


class Ledger:
    """Collects usage while a file is read, and states it at the end.

    Until about 2.1.86 the client often wrote a message before its counts were final: then no
    row of it has a stop reason, and the numbers are lower bounds.
    """

    def __init__(self) -> None:
        self._messages: dict[Any, _Message] = {}
        self._latest: _Message | None = None
        self._results: Usage | None = None

    def note(self, conversation: str, message: dict[str, Any], handle: int) -> None:
        """Take one assistant row; `handle` is its last visible block, or -1."""
        key = message.get("id")
        if type(key) is not str:
            key = len(self._messages)  # a message of its own
        known = self._messages.get(key)
        if known is None:
            known = self._messages[key] = _Message(conversation)
        if known is not self._latest:
            if self._latest is not None:
                self._latest.count()
            self._latest = known
        if handle >= 0:
            known.handle = handle
        raw = message.get("usage")
        if type(raw) is dict:
            known.raw = raw  # every row repeats it, so only the last one is looked into
        if message.get("stop_reason") is not None:
            known.final = True

    def note_result(self, raw: Any, *, final: bool) -> None:
        """Take a `result` line, which counts better than the lines before it.

        `final` is false for a turn that failed: what it spent until then may not be in.
        """
        if isinstance(raw, dict):
            spent = message_usage(raw, final=final)
            self._results = add_usage(self._results or no_usage(), spent)

    def state(self, sink: BlockSink, main: str) -> None:
        """Put each message's usage on its last block, and the sums on the conversations."""
        sums: dict[str, _Sum] = {}
        if self._latest is not None:
            self._latest.count()
        for message in self._messages.values():
            conversation = message.conversation
            if self._results is not None and conversation == main:
                continue
            total = sums.get(conversation)
            if total is None:
                total = sums[conversation] = _Sum()
            if message.counts is None:
                total.final = False  # something was spent, but nobody says how much
            else:
                spent = _usage(message.counts, final=message.final)
                sink.amend(message.handle, usage=spent)
                total.add(spent)
        if self._results is not None:
            sink.use(main, self._results)
        for conversation, total in sums.items():
            sink.use(conversation, total.usage())


class Spent:
    """What the main thread of one run has spent so far: results, and messages since the last."""

    def __init__(self) -> None:
        self._settled = no_usage()
        self._messages: dict[str, Usage] = {}

    @property
    def unsettled(self) -> bool:
        """Whether messages came that no result has counted."""
        return bool(self._messages)

    def note(self, message_id: str, spent: Usage) -> None:
        """Take the counts of a message, as a line gives them; final ones stand."""
        known = self._messages.get(message_id)
        if known is None or not known["exact"]:
            self._messages[message_id] = spent

    def settle(self, spent: Usage | None) -> None:
        """Take the counts of a result.

        After an interrupt, and after a message that came without a stream, it counts nothing,
        and the messages know better.
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
    details = raw.get("output_tokens_details")
    return (
        raw.get("input_tokens"),
        raw.get("output_tokens"),
        raw.get("cache_read_input_tokens"),
        raw.get("cache_creation_input_tokens"),
        details.get("thinking_tokens") if type(details) is dict else None,
    )


def _usage(counts: _Counts, *, final: bool) -> Usage:
    """Translate API counts. The input count already leaves the cache out."""
    sent, got, read, wrote, thinking = counts
    thought = count(thinking) if type(thinking) is int else None
    return usage(count(sent), count(got), count(read), count(wrote), thought, exact=final)
