"""How far a session has come: calls of its model, its last output, its last calls of tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.engine.limits import TickCounter
from agentsdir.formats import jsontext
from agentsdir.formats.blocks import MAIN, block_complete, block_key
from agentsdir.formats.store.transcripts import STREAM

if TYPE_CHECKING:
    from agentsdir.formats.blocks import Block
    from agentsdir.formats.store.log import Record
    from agentsdir.formats.store.state import AgentState


_LEVEL = 3  # of a block in a list in a document


class Progress(NamedTuple):
    """How far a session has come.

    Attributes:
        current_tick: how many calls of the model the last turn has made, or the turn that runs.
        tick_count: how many the session has made.
        last_output: the answer of the last turn that was completed; None before the first.
        last_tool_calls: the calls of tools in the last turn, or the turn that runs.
        last_tool_results: their results.
        recording: the transcript that has the recorded stream of the last turn; None without one.
    """

    current_tick: int
    tick_count: int
    last_output: str | None
    last_tool_calls: list[Block]
    last_tool_results: list[Block]
    recording: str | None


class ProgressFold:
    """Folds the records of a log into a `Progress`. Only the main conversation counts."""

    def __init__(self) -> None:
        self._session = TickCounter(None)
        self._output: str | None = None
        self._begin(None)

    def _begin(self, turn: Any) -> None:
        self._turn = turn
        self._ticks = TickCounter(None)
        self._calls: dict[str, dict[tuple[str, str], Block]] = {"tool_use": {}, "tool_result": {}}
        self._recording: str | None = None

    def follow(self, _state: AgentState, record: Record | None) -> None:
        """Take the next line of the log, as `read_agent` gives it."""
        if record is not None:
            self.take(record)

    def take(self, record: Record) -> None:
        """Take the next record of the log."""
        data = record.data
        if record.event == "turn.start":
            self._begin(data.get("turn_id"))
        elif record.event == "block":
            self._add(data.get("turn_id"), data.get("block"))
        elif record.event == "turn.complete" and isinstance(said := data.get("response"), str):
            self._output = said
        elif record.event == "transcript.synced":
            self._synced(data.get("files"))

    def _add(self, turn: Any, block: Any) -> None:
        # Of a foreign writer, it may be anything.
        if not isinstance(block, dict) or block.get("conversationId") != MAIN:
            return
        if not isinstance(name := block.get("id"), str) or not isinstance(block.get("type"), str):
            return
        event = block_complete(name, block)
        self._session.is_beyond(event)
        if turn is None or turn != self._turn:
            return
        self._ticks.is_beyond(event)
        if (found := self._calls.get(block["type"])) is not None:
            found[block_key(block)] = block

    def _synced(self, files: Any) -> None:
        for entry in files if isinstance(files, list) else ():
            if isinstance(entry, dict) and entry.get("role") == STREAM:
                self._recording = str(entry.get("path"))

    def progress(self) -> Progress:
        """Return how far the session has come."""
        calls, results = (
            copies([block for block in found.values() if block.get("superseded") is not True])
            for found in self._calls.values()
        )
        return Progress(
            self._ticks.count, self._session.count, self._output, calls, results, self._recording
        )


def copies(blocks: list[Block]) -> list[Block]:
    """Return copies of blocks for a list in a document; what no document may hold is cleaned."""
    return [jsontext.copied(block, _LEVEL) for block in blocks]
