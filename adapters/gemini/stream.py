"""One turn of Gemini CLI from both its sources: stdout as it comes, and the chat file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters.gemini.follow import GeminiFollower
from agentsdir.adapters.gemini.shapes import dict_of, stream_usage, text_of
from agentsdir.adapters.gemini.speakers import COMMAND
from agentsdir.adapters.gemini.stdout import FAILED, StreamReader
from agentsdir.formats import blocks, jsontext
from agentsdir.formats.block_lines import encodable
from agentsdir.formats.blocks import MAIN, Deltas, add_usage, no_usage
from agentsdir.formats.ids import short_hash
from agentsdir.formats.rows import LineFeed
from agentsdir.formats.sink import StdoutSink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from agentsdir.adapters.protocol import EarlierReading, Follower
    from agentsdir.formats.blocks import Block, StreamEvent, Usage
    from agentsdir.formats.findings import Finding


# Matching: which block of stdout is which block of the chat file, whichever comes first.
#
# Prompts, calls and results are matched by a key; answers, which have none on stdout, by their
# text.

# Characters that differ between stdout and the file: terminal codes, white space (at the ends of
# pieces, so anywhere), invisible and invalid characters.
_UNEVEN = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|[\s\x00-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff\ufffd\ud800-\udfff]"
)
RUNNING = "running"


def _plain(text: str) -> str:
    return _UNEVEN.sub("", text)


class StdoutBlock:
    """A block of stdout. It `is_settled` when the file has it, or when the end completed it."""

    def __init__(self, handle: str, block: Block) -> None:
        self.handle = handle
        self.block = block
        self.is_settled = False

    def whole(self) -> Block:
        """Return the block by stdout alone; a call that has not ended is pending."""
        if self.block.get("status") == RUNNING:
            return {**self.block, "status": "pending"}
        return self.block


class KeyMatcher:
    """Matches blocks that have a key on both sides. A repeated key is another block."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[StdoutBlock]] = {}
        self._early: dict[str, int] = {}

    def say(self, key: str, started: StdoutBlock) -> bool:
        """Take a block of stdout; return whether the file had it already."""
        if self._early.get(key):
            self._early[key] -= 1
            started.is_settled = True
        else:
            self._waiting.setdefault(key, []).append(started)
        return started.is_settled

    def write(self, key: str) -> str | None:
        """Take a block of the file; return the handle under which stdout began it, if it did."""
        if self._waiting.get(key):
            started = self._waiting[key].pop(0)
            started.is_settled = True
            return started.handle
        self._early[key] = self._early.get(key, 0) + 1
        return None


class StreamedAnswer(StdoutBlock):
    """An answer that stdout gives in pieces.

    `written` is its text in the file, in the plain form, None until the file has it; `count` is the
    length of the plain form so far. `before` is the answer before it without a line between.
    """

    def __init__(self, handle: str, block: Block, before: StreamedAnswer | None = None) -> None:
        super().__init__(handle, block)
        self.before = before
        self.pieces: list[str] = []
        self.written: str | None = None
        self.count = 0
        self.is_shown = False

    def whole(self) -> Block:
        """Return the block with the text so far.

        If the file has that text for the answer before, the client asked again after a broken
        stream, and only one of the two answers counts.
        """
        said = "".join(self.pieces)
        whole = {**self.block, "content": said}
        if self.before is not None and self.before.written == _plain(said):
            whole["superseded"] = True
        return whole

    def show(self) -> Iterator[StreamEvent]:
        """Yield the block's start, with the text so far."""
        self.is_shown = True
        yield blocks.block_start(self.handle, {**self.block, "content": ""})
        if said := "".join(self.pieces):
            yield blocks.text_delta(self.handle, said, MAIN)

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


class AnswerMatcher:
    """Matches the answers of a turn: the file has one for each message, stdout only pieces.

    Args:
        started: all blocks of stdout in their order, to which answers are added.
    """

    def __init__(self, started: list[StdoutBlock]) -> None:
        self._started = started
        self._now: StreamedAnswer | None = None
        # Texts of the file that stdout does not have yet, in the plain form.
        self._early: list[str] = []

    def begin(self, handle: str, block: Block) -> None:
        """Note that an answer begins; it is shown with its first piece."""
        self._now = StreamedAnswer(handle, block)
        self._started.append(self._now)

    def more(self, piece: str) -> Iterator[StreamEvent]:
        """Yield a piece, unless the file had the whole answer."""
        answer, plain = self._now, _plain(piece)
        if answer is None:
            return
        if answer.written is not None and answer.count >= len(answer.written) and plain:
            # The message is complete, so this begins the next one.
            yield from self._close(answer)
            answer = self._follow_on(answer, [])
        if not answer.count and plain:
            answer.written = self._expected(plain)
            if answer.written is None:
                yield from answer.show()
        answer.add(piece)
        if answer.is_shown and answer.written is None:
            yield blocks.text_delta(answer.handle, piece, MAIN)

    def close(self) -> Iterator[StreamEvent]:
        """Note that the answer has all its pieces."""
        answer, self._now = self._now, None
        if answer is not None:
            yield from self._close(answer)

    def _close(self, answer: StreamedAnswer) -> Iterator[StreamEvent]:
        if answer.is_shown:
            return
        answer.is_settled = True
        said = _plain("".join(answer.pieces))
        written = answer.written or ""
        if not (written.startswith(said) or said.startswith(written)):
            # Only its beginning equals a message of the file.
            self._early.insert(0, written)
            answer.written, answer.is_settled = None, False
            yield from answer.show()

    def write(self, content: str) -> tuple[str | None, list[StreamEvent]]:
        """Take an answer of the file.

        Returns the handle under which stdout began it, if it did, and events to yield first.
        """
        text = _plain(content)
        for answer in self._started:
            if not isinstance(answer, StreamedAnswer) or answer.is_settled or not answer.is_shown:
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
                # The client asked again after a broken stream, and continues with this one.
                self._settle(answer, text)
                broken = {**answer.block, "content": "".join(answer.pieces[:start])}
                broken["superseded"] = True
                return None, [blocks.block_complete(answer.handle, broken)]
        if text:
            self._early.append(text)
        return None, []

    def _settle(self, answer: StreamedAnswer, text: str) -> None:
        answer.is_settled, answer.written = True, text

    def _follow_on(self, answer: StreamedAnswer, pieces: list[str]) -> StreamedAnswer:
        """Begin the answer that follows another one without a line between them."""
        name = {**answer.block, "id": f"{answer.block['id']}+"}
        rest = StreamedAnswer(f"{answer.handle}+", name, answer)
        for piece in pieces:
            rest.add(piece)
        self._started.insert(self._started.index(answer) + 1, rest)
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


# One turn from both its sources: stdout and the chat file (docs/clients/gemini.md, "Stream and
# file").
#
# The file's blocks are the durable ones, with their ids. Stdout shows them earlier: text as it is
# streamed, calls before they end. A block that the file never has is completed from stdout at the
# end, so that nothing that was shown is lost.

# The turn's own events have the ends of a run.
_LOGGED_ELSEWHERE = ("session_start", "session_end")
_PROMPT = ""
# The metadata in the file of a prompt that is a command of the client.
_COMMAND = {"event": COMMAND}


class JoinedTurn:
    """The events of one turn.

    `follower` follows the session's chat file; its events from before the turn must be consumed
    already. Without one, all events come from stdout.
    """

    def __init__(
        self, translator: GeminiTranslator, follower: Follower | PendingFollower | None = None
    ) -> None:
        self._follower = follower
        self._stdout = translator
        # The prefix of the handles of stdout's blocks, and of ids that the file never has.
        self._mark = ""
        self._started: list[StdoutBlock] = []
        self._answers = AnswerMatcher(self._started)
        self._prompts, self._calls, self._results = KeyMatcher(), KeyMatcher(), KeyMatcher()
        self._open_calls: dict[str, StdoutBlock] = {}
        # Conversation and handle of each block of the file → its handle here, and its message.
        self._handles: dict[tuple[str, str], tuple[str, str]] = {}
        self._spent: dict[tuple[str, str], Usage] = {}

    @property
    def result(self) -> GeminiResult | None:
        """The last `result` line, if there was one."""
        return self._stdout.result

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
            yield from self._stdout_event(event)

    def poll(self) -> Iterator[StreamEvent]:
        """Yield the files' events since the last call."""
        if self._follower is not None:
            for event in self._follower.poll():
                yield from self._file_event(event)

    def end(self) -> Iterator[StreamEvent]:
        """Yield the last events after the client's exit, and blocks that the files never had."""
        for event in self._stdout.end():
            yield from self._stdout_event(event)
        yield from self.poll()
        if self._follower is not None:
            for event in self._follower.end():
                yield from self._file_event(event)
        for started in self._started:
            if not started.is_settled:
                started.is_settled = True
                yield blocks.block_complete(started.handle, started.whole())
        if self._spent and (self.result is None or self.result.usage is None):
            total = no_usage()
            for used in self._spent.values():
                total = add_usage(total, used)
            yield blocks.metadata_update({"usage": {**total, "exact": False}}, MAIN)

    def _stdout_event(self, event: StreamEvent) -> Iterator[StreamEvent]:
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
                yield blocks.block_update(handle, event["updates"], MAIN)
        else:
            block = {**event["block"], "id": self._mark + event["block"]["id"]}
            if kind == "block_start":
                self._answers.begin(handle, block)
            elif block["type"] == "assistant_text":
                yield from self._answers.close()
            else:
                yield from self._block(handle, block)

    def _block(self, handle: str, block: Block) -> Iterator[StreamEvent]:
        """Take a block that stdout gives at once, though the file may have more of it."""
        kind, started = block["type"], StdoutBlock(handle, block)
        if kind == "system":
            if block["subtype"] not in _LOGGED_ELSEWHERE and block["message"] != FAILED:
                yield blocks.block_complete(handle, block)
            return
        self._started.append(started)
        if kind == "tool_result":
            # The file has it at the same time, with more fields.
            self._results.say(block["toolUseId"], started)
        elif kind == "tool_use":
            # Its input is complete, so the call runs.
            started.block = {**block, "status": RUNNING}
            self._open_calls[handle] = started
            if not self._calls.say(block["toolUseId"], started):
                yield blocks.block_start(handle, started.block)
        elif not self._prompts.say(_PROMPT, started):
            yield blocks.block_start(handle, block)

    def _file_event(self, event: StreamEvent) -> Iterator[StreamEvent]:
        """Take an event of the files."""
        conversation = event["conversationId"]
        if event["type"] == "metadata_update":
            yield from _without_sums(event)
            return
        key = conversation, event["blockId"]
        if key not in self._handles:
            if event["type"] != "block_complete":
                return  # of a block from before this turn
            block = event["block"]
            handle, first = self._match(block) if conversation == MAIN else (None, [])
            yield from first
            self._handles[key] = handle or key[1], block.get("messageId", "")
        handle, message = self._handles[key]
        state: dict[str, Any] = event.get("block") or event.get("updates") or {}
        if "usage" in state:
            self._spent[conversation, message] = state["usage"]
        yield {**event, "blockId": handle}

    def _match(self, block: Block) -> tuple[str | None, list[StreamEvent]]:
        """Return the handle under which stdout began a block of the file, and events before it."""
        kind = block["type"]
        if block.get("superseded") and "~" in block["id"].rpartition(":")[2]:
            return None, []  # another version of a message
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
    """Remove the usage of the whole session: the turn has its own."""
    said = event["metadata"]
    if event["conversationId"] == MAIN:
        said = {name: value for name, value in said.items() if name != "usage"}
    if said:
        yield {**event, "metadata": said}


# The `result` line of stdout, which says how a turn ended.


class GeminiResult(NamedTuple):
    """A `result` line.

    `error_type` and `message` are empty if it names no error. For an empty or malformed answer the
    result only says that it failed, and `message` is that of the `error` line before it. `stats` is
    as the client wrote it, `usage` the tokens in it.
    """

    failed: bool
    error_type: str
    message: str
    stats: dict[str, Any]
    usage: Usage | None


def parse_result(value: dict[str, Any], said: str) -> GeminiResult:
    """Read a `result` line.

    Args:
        said: the message of the last `error` line of that severity, empty without one.
    """
    failed = value.get("status") != "success"
    error = dict_of(value.get("error"))
    return GeminiResult(
        failed=failed,
        error_type=text_of(error.get("type")),
        message=text_of(error.get("message")) or (said if failed else ""),
        stats=dict_of(value.get("stats")),
        usage=stream_usage(value.get("stats")),
    )


# Standard output of one run.
#
# `StreamReader` reads the lines as it reads a recording. They lack some blocks of the chat file;
# `JoinedTurn` combines both.

_FILE = "stdout"


class _GeminiStdoutSink(StdoutSink):
    """Events of a run, without usage updates."""

    def use(self, conversation: str, usage: Usage) -> None:
        """Keep the usage, which `GeminiTranslator` emits with the result."""
        self.conversation(conversation).usage = usage


class GeminiTranslator:
    """Translates ``gemini -p --output-format stream-json``.

    `result` is the last `result` line, None until there is one: a client that a signal ended writes
    none.

    Args:
        hidden: also emit lines that are no part of the conversation, as hidden blocks.
    """

    def __init__(self, *, hidden: bool = False) -> None:
        self.result: GeminiResult | None = None
        self._sink = _GeminiStdoutSink(hidden=hidden, begun_as=self._close)
        self._sink.open_main()
        self._reader = StreamReader(_FILE, self._sink, self._on_piece)
        self._feed = LineFeed(_FILE, self._sink.tally, self._sink.finding)
        self._answer = ""
        self._deltas = Deltas()
        self._error = ""

    @property
    def session_id(self) -> str:
        """The session that `init` names; empty before."""
        return self._reader.session

    @property
    def findings(self) -> Sequence[Finding]:
        return [*self._sink.findings, *self._sink.drifts.findings()]

    def line(self, line: bytes) -> Iterator[StreamEvent]:
        for row in self._feed.rows(line):
            value = row.value
            kind = value.get("type")
            self._reader.take(row)
            if kind == "init":
                self._update(model=text_of(value.get("model")))
            elif kind == "error" and value.get("severity") == "error":
                self._error = text_of(value.get("message"))
            elif kind == "result":
                self._result(value)
        return iter(self._sink.drain())

    def end(self) -> Iterator[StreamEvent]:
        """Complete the current answer with the text so far."""
        self._reader.finish()
        return iter(self._sink.drain())

    def _on_piece(self, block: Block, piece: str) -> None:
        """Emit a piece of an answer; the first piece starts its block."""
        block = encodable({**block, "source": None})
        handle = block["id"]
        if handle != self._answer:
            self._answer, self._deltas = handle, Deltas()
            self._sink.emit(blocks.block_start(handle, block))
        if more := self._deltas.more(piece):
            self._sink.emit(blocks.text_delta(handle, more, MAIN))

    def _close(self, block: Block) -> None:
        """Emit the rest of an answer before its block is completed."""
        if block["id"] == self._answer and (rest := self._deltas.rest()):
            self._sink.emit(blocks.text_delta(self._answer, rest, MAIN))

    def _result(self, value: dict[str, Any]) -> None:
        self.result = result = parse_result(value, self._error)
        self._update(usage=result.usage, stopReason="" if result.failed else "end_turn")

    def _update(self, **metadata: Any) -> None:
        said = {name: value for name, value in metadata.items() if value not in (None, "")}
        if said:
            self._sink.emit(blocks.metadata_update(jsontext.clean(said, set()), MAIN))


# Following a session whose chat file does not exist yet, under a name that the client chooses.


def _never(_key: tuple[str, str]) -> bool:
    return False


class PendingFollower:
    """Follows a session once its file is there.

    Args:
        find: returns the session's chat file, None until there is one: only the client may know its
            id at first.
    """

    def __init__(self, find: Callable[[], Path | None]) -> None:
        self._find = find
        self._main: Path | None = None
        self._found: GeminiFollower | None = None
        # Blocks from before, by conversation and handle, and whether an earlier reading had one.
        self._old: set[tuple[str, str]] = set()
        self._was_read: Callable[[tuple[str, str]], bool] = _never

    def pass_over(self, earlier: EarlierReading | None = None) -> None:
        """Skip the events of the files so far; their blocks are never yielded as new ones.

        A client that begins another file for the session writes all messages again, with less
        detail.

        Args:
            earlier: where an earlier reading of the session ended, if it is known.
        """
        if earlier is not None:
            try:
                self._go_on_from(earlier)
            except Exception:  # noqa: BLE001, whatever is wrong with it, the whole file is there
                self._found, self._was_read = None, _never
                self._old.clear()
        self._skip()

    def _go_on_from(self, earlier: EarlierReading) -> None:
        main = self._find()
        if main is not None:
            found = GeminiFollower(main, hidden=False)
            found.go_on_from(earlier.end)
            self._main, self._found, self._was_read = main, found, earlier.has
            self._skip()  # a second look shows that the file is not being written

    def _skip(self) -> None:
        for event in self.poll():
            if event["type"] == "block_complete":
                self._old.add((event["conversationId"], event["blockId"]))
        if self._found is not None:
            self._old.update(self._found.unsettled())

    def look_again(self) -> None:
        """Find the session's file again if the client copied it to another folder."""
        now = self._find()
        if self._main and now and now.parent != self._main.parent:
            self._found = None

    def poll(self) -> Iterator[StreamEvent]:
        if self._found is None:
            self._main = self._find()
            if self._main is None:
                return
            self._found = GeminiFollower(self._main, hidden=False)
        yield from filter(self._is_new, self._found.poll())

    def end(self) -> Iterator[StreamEvent]:
        yield from self.poll()
        if self._found is not None:
            yield from filter(self._is_new, self._found.end())

    def _is_new(self, event: StreamEvent) -> bool:
        return event["type"] != "block_complete" or not self._is_old(
            (event["conversationId"], event["blockId"])
        )

    def _is_old(self, key: tuple[str, str]) -> bool:
        return key in self._old or self._was_read(key)

    @property
    def findings(self) -> Sequence[Finding]:
        return () if self._found is None else self._found.findings
