"""One turn from both its sources: stdout as it comes, and the chat file.

docs/clients/gemini.md, "Stream and file". The file's blocks are the ones that stay, with
their ids. Stdout gives them an early life: text as it is said, calls before they are over. What the
file never shows is completed from stdout at the end, so that nothing that was seen is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.adapters.gemini.running.pairing import RUNNING, Answers, Begun, Pairs
from agentsdir.adapters.gemini.transcripts.speakers import COMMAND
from agentsdir.adapters.gemini.transcripts.stdout import FAILED
from agentsdir.formats.digest import short_hash
from agentsdir.formats.reading import stream
from agentsdir.formats.reading.blocks import MAIN
from agentsdir.formats.reading.usage import add_usage, no_usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agentsdir.adapters.gemini.running.outcomes import Outcome
    from agentsdir.adapters.gemini.running.translate import StdoutTranslator
    from agentsdir.adapters.sides import Follower
    from agentsdir.formats.reading.blocks import Block
    from agentsdir.formats.reading.findings import Finding
    from agentsdir.formats.reading.stream import StreamEvent
    from agentsdir.formats.reading.usage import Usage

# The ends of a run are told by the turn's own events.
_SAID_ELSEWHERE = ("session_start", "session_end")
_PROMPT = ""
# What a prompt that is a command of the client's has in the file.
_COMMAND = {"event": COMMAND}


class JoinedTurn:
    """The events of one turn.

    `follower` follows the session's chat file; what it told before the turn must have been taken
    from it. Without one, all comes from stdout.
    """

    def __init__(self, translator: StdoutTranslator, follower: Follower | None = None) -> None:
        self._follower = follower
        self._stdout = translator
        # Begins the handles of stdout's blocks, and the ids of those that the file never has.
        self._mark = ""
        self._begun: list[Begun] = []
        self._answers = Answers(self._begun)
        self._prompts, self._calls, self._results = Pairs(), Pairs(), Pairs()
        self._open_calls: dict[str, Begun] = {}
        # Conversation and handle of each block of the file → its handle here, and its message.
        self._told: dict[tuple[str, str], tuple[str, str]] = {}
        self._spent: dict[tuple[str, str], Usage] = {}

    @property
    def outcome(self) -> Outcome | None:
        """What the last `result` said, if there was one."""
        return self._stdout.outcome

    @property
    def session_id(self) -> str:
        """The session that `init` names; empty before."""
        return self._stdout.session_id

    @property
    def findings(self) -> Sequence[Finding]:
        """What was wrong with the lines and the files so far."""
        found = () if self._follower is None else self._follower.findings
        return [*self._stdout.findings, *found]

    def line(self, line: bytes) -> Iterator[StreamEvent]:
        """Take one line of stdout. Never raises for what the bytes hold."""
        for event in self._stdout.line(line):
            # The line has the time, so no other run has one like it.
            self._mark = self._mark or f"#{short_hash(line)}:"
            yield from self._said(event)

    def poll(self) -> Iterator[StreamEvent]:
        """Yield what the files show since the last look."""
        if self._follower is not None:
            for event in self._follower.poll():
                yield from self._written(event)

    def end(self) -> Iterator[StreamEvent]:
        """Yield what is left when the client is gone, and what the files never had."""
        for event in self._stdout.end():
            yield from self._said(event)
        yield from self.poll()
        if self._follower is not None:
            for event in self._follower.end():
                yield from self._written(event)
        for begun in self._begun:
            if not begun.is_settled:
                begun.is_settled = True
                yield stream.block_complete(begun.handle, begun.whole())
        if self._spent and (self.outcome is None or self.outcome.usage is None):
            total = no_usage()
            for used in self._spent.values():
                total = add_usage(total, used)
            yield stream.metadata_update({"usage": {**total, "exact": False}}, MAIN)

    def _said(self, event: StreamEvent) -> Iterator[StreamEvent]:
        """Take an event of stdout."""
        kind = event["type"]
        if kind == "metadata_update":
            yield event
            return
        handle = self._mark + event["blockId"]
        if kind == "text_delta":
            yield from self._answers.more(event["delta"])
        elif kind == "block_update":
            call = self._open_calls[handle]
            if not call.is_settled:
                call.block = {**call.block, **event["updates"]}
                yield stream.block_update(handle, event["updates"], MAIN)
        else:
            block = {**event["block"], "id": self._mark + event["block"]["id"]}
            if kind == "block_start":
                self._answers.begin(handle, block)
            elif block["type"] == "assistant_text":
                yield from self._answers.close()
            else:
                yield from self._block(handle, block)

    def _block(self, handle: str, block: Block) -> Iterator[StreamEvent]:
        """Take a block that stdout tells whole, though the file may know more of it."""
        kind, begun = block["type"], Begun(handle, block)
        if kind == "system":
            if block["subtype"] not in _SAID_ELSEWHERE and block["message"] != FAILED:
                yield stream.block_complete(handle, block)
            return
        self._begun.append(begun)
        if kind == "tool_result":
            # The file has it in the same moment, and more of it.
            self._results.say(block["toolUseId"], begun)
        elif kind == "tool_use":
            # Its input is whole, so it is made, whatever becomes of those who watch it.
            begun.block = {**block, "status": RUNNING}
            self._open_calls[handle] = begun
            if not self._calls.say(block["toolUseId"], begun):
                yield stream.block_start(handle, begun.block)
        elif not self._prompts.say(_PROMPT, begun):
            yield stream.block_start(handle, block)

    def _written(self, event: StreamEvent) -> Iterator[StreamEvent]:
        """Take an event of the files."""
        conversation = event["conversationId"]
        if event["type"] == "metadata_update":
            yield from _without_sums(event)
            return
        key = conversation, event["blockId"]
        if key not in self._told:
            if event["type"] != "block_complete":
                return  # of a block that was told before this turn
            block = event["block"]
            handle, first = self._meet(block) if conversation == MAIN else (None, [])
            yield from first
            self._told[key] = handle or key[1], block.get("messageId", "")
        handle, message = self._told[key]
        told: dict[str, Any] = event.get("block") or event.get("updates") or {}
        if "usage" in told:
            self._spent[conversation, message] = told["usage"]
        yield {**event, "blockId": handle}

    def _meet(self, block: Block) -> tuple[str | None, list[StreamEvent]]:
        """Return the handle under which stdout began a block of the file, and what goes before."""
        kind = block["type"]
        if block.get("superseded") and "~" in block["id"].rpartition(":")[2]:
            return None, []  # another wording of a message that is told as well
        if kind == "assistant_text":
            return self._answers.write(block["content"])
        if kind == "user_message" or block.get("metadata") == _COMMAND:
            return self._prompts.write(_PROMPT), []
        if kind in ("tool_use", "subagent"):
            call = block["toolUseId"]
            if kind == "subagent":
                self._results.write(call)  # it has its result itself
            return self._calls.write(call), []
        if kind == "tool_result":
            self._results.write(block["toolUseId"])
        return None, []


def _without_sums(event: StreamEvent) -> Iterator[StreamEvent]:
    """Leave out what the whole session spent: the turn's own count is told."""
    said = event["metadata"]
    if event["conversationId"] == MAIN:
        said = {name: value for name, value in said.items() if name != "usage"}
    if said:
        yield {**event, "metadata": said}
