"""Standard output of one run, as stream events (docs/clients/claude.md, "Stream and file").

The lines are read as the transcript is, by the same reading; what they say before a block is whole
comes from the partial messages among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.adapters.claude.growing import Growing
from agentsdir.adapters.claude.outcomes import read_outcome, total_cost
from agentsdir.adapters.claude.partials import Partials
from agentsdir.adapters.claude.shapes import SYNTHETIC, is_row, mapping, text
from agentsdir.adapters.claude.tokens import Spent, message_usage
from agentsdir.formats.reading import stream
from agentsdir.formats.reading.blocks import MAIN
from agentsdir.formats.reading.live import StdoutSink
from agentsdir.formats.reading.rows import LineFeed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agentsdir.adapters.claude.outcomes import Outcome
    from agentsdir.formats.reading.findings import Finding
    from agentsdir.formats.reading.stream import StreamEvent
    from agentsdir.formats.reading.usage import Usage

_FILE = "stdout"


class _Sink(StdoutSink):
    """Events of a run, whose count is told in another way."""

    def use(self, conversation: str, usage: Usage) -> None:
        """Tell what a subagent spent; the main thread's count is told as it runs."""
        if conversation != MAIN:
            super().use(conversation, usage)
        else:
            self.conversation(MAIN).usage = usage


class StdoutTranslator:
    """Translates ``claude -p --output-format stream-json --verbose``, with any of its options.

    `outcomes` hold what each `result` said. `error` is the client's word for what kept the model
    from answering last, and `has_tasks` whether the client says that something runs on in the
    background; `tasks` are those that began and were not told to have ended, which older clients
    tell only.

    Args:
        hidden: tell the lines that are no part of the conversation, too, as hidden blocks.
    """

    def __init__(self, *, hidden: bool = False) -> None:
        self.outcomes: list[Outcome] = []
        self.error = ""
        self.has_tasks = False
        self.tasks: set[str] = set()
        self._partials = Partials()
        self._sink = _Sink(hidden=hidden, begun_as=self._partials.claim)
        self._growing = Growing(self._sink)
        self._reading = self._growing.open(_FILE)
        self._feed = LineFeed(_FILE, self._sink.tally, self._sink.finding, is_record=is_row)
        self._spent = Spent()
        self._cost = 0.0
        self._total = 0.0
        self._takers = {
            "stream_event": self._stream_event,
            "assistant": self._assistant,
            "user": self._user,
            "system": self._system,
        }

    @property
    def findings(self) -> Sequence[Finding]:
        """What was wrong with the lines so far."""
        return [*self._sink.findings, *self._sink.drifts.findings()]

    def line(self, line: bytes) -> Iterator[StreamEvent]:
        """Take one line, with or without its LF. Never raises for what the bytes hold."""
        for row in self._feed.rows(line):
            value = row.value
            kind = text(value.get("type"))
            if kind in self._takers:
                self._takers[kind](value)
            self._reading.take(row)
            if kind == "result":
                self._result(value)
        self._growing.settle()
        return iter(self._sink.drain())

    def end(self) -> Iterator[StreamEvent]:
        """Yield what is left: blocks that began and will not be whole are superseded."""
        self._tell(self._partials.abandon())
        self._growing.finish()
        if self._spent.unsettled:
            self._update(usage=self._spent.so_far())
        return iter(self._sink.drain())

    def _tell(self, events: list[StreamEvent]) -> None:
        for event in events:
            self._sink.tell(event)

    def _update(self, **metadata: Any) -> None:
        said = {name: value for name, value in metadata.items() if value not in (None, "")}
        if said:
            self._sink.tell(stream.metadata_update(said, MAIN))

    def _stream_event(self, value: dict[str, Any]) -> None:
        self._tell(self._partials.take(value))
        event = mapping(value.get("event"))
        raw = event.get("usage")
        if event.get("type") == "message_delta" and isinstance(raw, dict):
            said = {name: count for name, count in raw.items() if count is not None}
            counts = message_usage({**self._partials.usage, **said}, final=True)
            self._spent.note(self._partials.message, counts)
            reason = text(mapping(event.get("delta")).get("stop_reason"))
            self._update(usage=self._spent.so_far(), stopReason=reason)

    def _assistant(self, value: dict[str, Any]) -> None:
        message = mapping(value.get("message"))
        if value.get("parent_tool_use_id") is not None:
            return
        self.error = text(value.get("error"))
        if message.get("model") == SYNTHETIC:
            # The client's own words, which may stand beside what the model said.
            self._tell(self._partials.abandon())
            return
        self._tell(self._partials.line_of(message.get("id")))
        raw = message.get("usage")
        if isinstance(raw, dict):
            final = message.get("stop_reason") is not None
            self._spent.note(text(message.get("id")), message_usage(raw, final=final))
        replaced = value.get("supersedes")
        if isinstance(replaced, list):
            self._reading.tree.replace(uuid for uuid in replaced if isinstance(uuid, str))

    def _user(self, value: dict[str, Any]) -> None:
        if value.get("parent_tool_use_id") is None:
            self._partials.answered()

    def _system(self, value: dict[str, Any]) -> None:
        subtype, task = value.get("subtype"), text(value.get("task_id"))
        if subtype == "init":
            self._update(model=text(value.get("model")))
        elif subtype == "background_tasks_changed":
            self.has_tasks = bool(value.get("tasks"))
        elif subtype == "task_started":
            self.tasks.add(task)
        elif subtype == "task_notification":
            self.tasks.discard(task)

    def _result(self, value: dict[str, Any]) -> None:
        self._tell(self._partials.abandon())
        outcome = read_outcome(value, self._total)
        self.outcomes.append(outcome)
        self._total = total_cost(value) or self._total
        self._cost += outcome.cost or 0.0
        self._spent.settle(outcome.usage)
        self._update(
            usage=self._spent.so_far(),
            costUSD=None if outcome.cost is None else self._cost,
            stopReason=outcome.stop_reason,
            terminalReason=outcome.terminal_reason,
        )
