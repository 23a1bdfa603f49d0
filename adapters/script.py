"""`script`: plays a file of recorded stream events, tool calls and timings.

A line of the file is a stream event or a control line (docs/behaviour.md, "Scripts"):
``{"type":"turn"}`` begins a turn, ``{"type":"sleep","seconds":S}`` pauses, and
``{"type":"error","kind":K,"message":M}`` fails the turn. A prompt in the file begins a turn too,
and metadata with `error` or `aborted` fails it, so the output of `agentsdir replay --events` is a
script. A file without marks of turns is one turn, played for every prompt.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentsdir.adapters.protocol import Architecture, ToolCall
from agentsdir.adapters.recorded import (
    RecordedProvider,
    RecordedReader,
    RecordedSession,
    event_flaw,
    is_prompt,
    saved_transcript,
)
from agentsdir.formats import jsontext
from agentsdir.formats.blocks import EVENT_TYPES, MAIN
from agentsdir.formats.errors import AgentsdirError, Invalid, ProviderError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeAlias

    from agentsdir.adapters.protocol import ModelRequest, SessionSpec
    from agentsdir.formats.blocks import StreamEvent
    from agentsdir.formats.source import Source

    Piece: TypeAlias = str | ToolCall | Sequence[ToolCall] | AgentsdirError | dict[str, Any]

MAX_SCRIPT = 64 * 1024 * 1024
CONTROL = ("turn", "sleep", "error")


class Script:
    """The turns of a script; `turn(n)` counts from 1."""

    def __init__(self, turns: list[list[dict[str, Any]]], *, repeats: bool, name: str) -> None:
        self._turns = turns
        self._repeats = repeats
        self._name = name

    def turn(self, number: int) -> list[dict[str, Any]]:
        """Return the lines of one turn. Raises `ProviderError` past the last one."""
        if self._repeats:
            return self._turns[0]
        if number > len(self._turns):
            message = f"the script {self._name} ends with turn {len(self._turns)}; this is {number}"
            raise ProviderError(message, kind="script-ended")
        return self._turns[number - 1]


def write_script(path: str | os.PathLike[str], *turns: Sequence[Piece]) -> str:
    """Write a script, a turn for each prompt, and return its path for the option ``file``.

    Args:
        path: of the file, which is written anew.
        turns: each is a list of what the model does: a text, a `ToolCall`, a list of `ToolCall`s
            that it makes at once, an `AgentsdirError` that fails the turn, or a line of a script.

    Raises `UsageError` (kind ``bad-script``) for a turn that is no list.
    """
    for turn in turns:
        if isinstance(turn, str | bytes | ToolCall | Mapping):  # their parts would be pieces
            raise UsageError(f"a turn is a list, and not {turn!r}", kind="bad-script")
    lines = [line for turn in turns for line in ({"type": "turn"}, *_lines_of(turn))]
    Path(path).write_bytes(b"".join(jsontext.encode(line) + b"\n" for line in lines))
    return os.fspath(path)


def _lines_of(turn: Sequence[Piece]) -> Iterator[dict[str, Any]]:
    message = 1
    for number, piece in enumerate(turn, 1):
        if isinstance(piece, AgentsdirError):
            yield {"type": "error", "kind": piece.kind, "message": piece.message}
        elif isinstance(piece, dict):
            yield piece
        elif isinstance(piece, str):
            said = {"type": "assistant_text", "content": piece, "messageId": f"message-{message}"}
            yield _line(f"text-{number}", said)
        else:
            calls = [piece] if isinstance(piece, ToolCall) else piece
            for place, call in enumerate(calls, 1):
                name = call.id or f"call-{number}-{place}"
                yield _line(name, {**_call_block(call, name), "messageId": f"message-{message}"})
            message += 1  # what follows is the next answer of the model


def _call_block(call: ToolCall, name: str) -> dict[str, Any]:
    called = {"toolName": call.name, "toolUseId": name, "input": call.input}
    return {"type": "tool_use", **called, "status": "pending"}


def _line(name: str, block: dict[str, Any]) -> dict[str, Any]:
    return {"type": "block_complete", "blockId": name, "block": {**block, "id": name}}


def load_script(path: Path) -> Script:
    """Read a script. Raises `ProviderError` (kind ``bad-script``) naming file, line and reason."""
    try:
        data = _read(path)
    except OSError as error:
        raise ProviderError(
            f"cannot read the script {path}: {error.strerror}", kind="bad-script"
        ) from error
    turns: list[list[dict[str, Any]]] = [[]]
    marked = over = False
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        event = _event(line, path, number)
        failure = _failure(event)
        if event["type"] == "turn" or is_prompt(event) or (failure and over):
            turns = [*turns, []] if marked or turns[0] else turns
            marked, over = True, False
        if failure:
            turns[-1].append(failure)
        elif event["type"] != "turn" and not is_prompt(event):
            turns[-1].append(event)
        over = over or _ends_turn(event)
    return Script(turns, repeats=not marked, name=str(path))


def _read(path: Path) -> bytes:
    """Read a regular file; a FIFO would block."""
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as stream:  # noqa: PTH123
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ProviderError(f"the script {path} is no regular file", kind="bad-script")
        if status.st_size > MAX_SCRIPT:
            size = f"{status.st_size} bytes, more than {MAX_SCRIPT}"
            raise ProviderError(f"the script {path} has {size}", kind="bad-script")
        return stream.read(MAX_SCRIPT)


def _ends_turn(event: dict[str, Any]) -> bool:
    """Tell whether a recorded turn ended with this event."""
    return event["type"] == "metadata_update" and "turnId" in event["metadata"]


def _failure(event: dict[str, Any]) -> dict[str, Any] | None:
    """Return the control line that fails a turn as the recorded one did; None for other events."""
    if event["type"] != "metadata_update" or event.get("conversationId", MAIN) != MAIN:
        return None
    error, aborted = event["metadata"].get("error"), event["metadata"].get("aborted")
    if isinstance(error, dict):
        return {**error, "type": "error"}
    if isinstance(aborted, str):
        return {"type": "error", "kind": "aborted", "message": f"the turn was aborted: {aborted}"}
    return None


def _event(line: bytes, path: Path, number: int) -> dict[str, Any]:
    reason = "no JSON object"
    try:
        event = jsontext.decode_exactly(line)
    except jsontext.JSONDecodeError as error:
        event, reason = None, str(error)
    except Invalid as error:
        event, reason = None, error.message
    if isinstance(event, dict):
        kind = event.get("type")
        reason = f"{kind!r} is no stream event, nor turn, sleep or error"
        if kind in CONTROL:
            return event
        if kind in EVENT_TYPES:
            flaw = event_flaw(event)
            if flaw is None:
                return event
            reason = flaw
    raise ProviderError(f"{path}:{number}: {reason}", kind="bad-script")


class ScriptProvider(RecordedProvider):
    """Opens sessions that play the file named by ``--option file=PATH``, a turn for each prompt."""

    option_names: tuple[str, ...] = ("file",)
    path_options: tuple[str, ...] = ("file",)
    default_model = "script"

    def create(self, spec: SessionSpec) -> ScriptSession:
        return self.restore(spec, b"")

    def restore(self, spec: SessionSpec, state: bytes) -> ScriptSession:
        """Reopen a session; the transcript has the number of turns played.

        Raises `ProviderError` (kind ``bad-script``) for a missing or unusable script.
        """
        del state
        if "file" not in spec.options:
            raise ProviderError(
                "the script provider needs the option file, with the path of a script",
                hint='--option file=PATH, or options={"file": PATH} in a program',
                kind="bad-script",
            )
        script = load_script(Path(spec.cwd) / spec.options["file"])
        return ScriptSession(spec, script, saved_transcript(spec))


class ScriptSession(RecordedSession):
    """One session that plays its script.

    A call without a result in the script that the engine carries out ends a model call: with those
    beside it, the play stops before the next line that is of none of them.
    """

    def __init__(self, spec: SessionSpec, script: Script, saved: Source | None) -> None:
        super().__init__(spec, saved)
        self._script = script
        self._lines: deque[dict[str, Any]] = deque()
        self._results: set[str] = set()

    def call_model(self, request: ModelRequest) -> Iterator[StreamEvent]:
        """Play on. Raises `ProviderError` where the script says so, or is over."""
        if request.tick == 1:
            self._lines = deque(self._script.turn(self._transcript.prompts))
            self._results = {result for line in self._lines if (result := _answered(line))}
        taken = {result["toolUseId"] for result in request.results}
        called: dict[str, Any] | None = None
        while self._lines and not (called and _is_of_next_call(self._lines[0], called)):
            line = self._lines.popleft()
            if line["type"] == "sleep":
                self._spec.sleep(float(line.get("seconds", 0)))
            elif line["type"] == "error":
                raise ProviderError(
                    str(line.get("message") or "the script fails here"),
                    kind=str(line.get("kind") or "provider-failed"),
                )
            elif _answered(line) not in taken:
                yield self._transcript.record(self.as_own(line))
                if self._is_carried_out(line, request):
                    called = line["block"]

    def _is_carried_out(self, line: dict[str, Any], request: ModelRequest) -> bool:
        if line["type"] != "block_complete" or line["block"]["type"] != "tool_use":
            return False
        block = line["block"]
        is_open = block["toolUseId"] not in self._results and not block.get("superseded")
        return is_open and _is_main(line) and request.carries_out(block["toolName"])


def _is_main(line: dict[str, Any]) -> bool:
    return bool(line.get("conversationId", MAIN) == MAIN)


def _answered(line: dict[str, Any]) -> str | None:
    """Return the call that a line has the result of; None for none."""
    block: dict[str, Any] = line.get("block") or {}
    is_result = block.get("type") == "tool_result" and _is_main(line)
    return block["toolUseId"] if is_result else None


def _is_of_next_call(line: dict[str, Any], called: dict[str, Any]) -> bool:
    """Tell whether a line begins something other than a call, or result, of the same model call."""
    if line["type"] in ("sleep", "error"):
        return True
    block: dict[str, Any] | None = line.get("block")
    if block is None or block["type"] == "tool_result":
        return False
    messages = block.get("messageId"), called.get("messageId")
    return block["type"] != "tool_use" or (None not in messages and messages[0] != messages[1])


ARCHITECTURE = Architecture(
    name="script",
    architecture="script",
    summary="plays a file of stream events: the fake provider for tests and CI",
    reader=RecordedReader(),
    provider=ScriptProvider(),
)
