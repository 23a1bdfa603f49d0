"""Printing a conversation: a recorded one as text, a turn that runs, a session that grows."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from agentsdir.cli.exits import Exit
from agentsdir.cli.output import (
    escape_controls,
    note,
    note_drifts,
    print_json,
    print_lines,
    print_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agentsdir.cli.environment import Environment
    from agentsdir.formats.block_lines import BlockStore, Key
    from agentsdir.formats.blocks import Block, StreamEvent
    from agentsdir.formats.findings import Finding

    class Growing(Protocol):
        """A `Follower`, or what `engine.follow.live_translator` returns."""

        @property
        def blocks(self) -> BlockStore:
            """The completed blocks, each as the events so far left it."""

        @property
        def findings(self) -> Sequence[Finding]:
            """What was wrong so far."""


INDENT = "    "
LONG = 2000


def render_event(event: dict[str, Any]) -> str:
    """Return a replayed event as text: a block, or how a turn failed; empty for other events."""
    if event["type"] == "block_complete":
        return render(event["block"])
    metadata = event.get("metadata", {})
    if "error" in metadata:
        return f"-- the turn failed: {metadata['error']['message']}\n\n"
    if "aborted" in metadata:
        return f"-- the turn was aborted: {metadata['aborted']}\n\n"
    return ""


def render(block: dict[str, Any]) -> str:
    """Return a block as a paragraph; empty for a hidden or superseded one."""
    if not isinstance(block.get("type"), str):
        return ""
    if block.get("hidden") or block.get("superseded"):
        return ""
    writer = _WRITERS.get(block["type"])
    try:
        text = writer(block) if writer else ""
    except (KeyError, TypeError):
        text = f"-- a {block['type']} block that lacks its parts"
    thread = block["conversationId"]
    mark = "" if thread == "main" else f"[{thread}] "
    return f"{mark}{text}\n\n" if text else ""


def _user(block: dict[str, Any]) -> str:
    return "> " + _plain(block["content"]).replace("\n", "\n> ")


def _text(block: dict[str, Any]) -> str:
    return str(block["content"])


def _thinking(block: dict[str, Any]) -> str:
    said = block.get("summary") or block["content"]
    return f"(thinking) {_cut(str(said))}" if said else ""


def _tool(block: dict[str, Any]) -> str:
    arguments = _cut(orjson.dumps(block["input"]).decode())
    return f"* {block['toolName']} {arguments} [{block['status']}]"


def _result(block: dict[str, Any]) -> str:
    kind = "error" if block["isError"] else "result"
    text = _cut(_plain(block["output"])).replace("\n", "\n" + INDENT)
    return f"{INDENT}{kind}: {text}"


def _system(block: dict[str, Any]) -> str:
    return f"-- {block['message']}" if block["message"] else ""


def _subagent(block: dict[str, Any]) -> str:
    name = block.get("name") or block.get("subagentId") or "subagent"
    return f"* subagent {name} [{block['status']}]"


_WRITERS = {
    "user_message": _user,
    "assistant_text": _text,
    "thinking": _thinking,
    "tool_use": _tool,
    "tool_result": _result,
    "system": _system,
    "subagent": _subagent,
}


def _plain(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(
            str(part.get("text", f"[{part.get('type')}]")) if isinstance(part, dict) else str(part)
            for part in content
        )
    return orjson.dumps(content).decode()


def _cut(text: str) -> str:
    return text if len(text) <= LONG else f"{text[:LONG]}… ({len(text)} characters)"


class AnswerPrinter:
    """Prints a turn while it runs: the text of the main conversation's answer, or all events.

    A closed pipe or a full disk at stdout does not end the turn. It is recorded to its end, and
    `finish` raises the error.

    Args:
        events: print each event as a line of JSON.
        silent: print nothing.
    """

    def __init__(self, env: Environment, *, events: bool, silent: bool) -> None:
        self._env = env
        self._events = events
        self._silent = silent
        self._written: dict[str, list[str]] = {}
        self._printed = False
        # On a terminal, lines are ended so that a note on stderr begins a new one.
        self._ends_lines = env.stdout.isatty()
        self._in_line = False
        self._failure: OSError | None = None

    def take(self, event: StreamEvent) -> None:
        """Print what an event adds."""
        if self._silent or self._failure:
            return
        try:
            if self._events:
                print_json(self._env, event)
            elif event["conversationId"] == "main" and "blockId" in event:
                self._text(event)
            self._env.stdout.flush()
        except OSError as error:
            self._failure = error

    def _text(self, event: StreamEvent) -> None:
        handle = event["blockId"]
        if event["type"] == "text_delta":
            if handle in self._written:
                self._write(handle, event["delta"])
            return
        block = event.get("block", {})
        if block.get("type") != "assistant_text":
            return
        written = "".join(self._written.setdefault(handle, []))
        # The client's deltas may lack a part of the block.
        if event["type"] == "block_complete" and block["content"].startswith(written):
            self._write(handle, block["content"][len(written) :])
            if self._ends_lines:
                self._end_line()

    def _write(self, handle: str, text: str) -> None:
        if not text:
            return
        if self._printed and not self._written[handle]:
            self._env.stdout.write("\n\n" if self._in_line else "\n")
        self._written[handle].append(text)
        self._printed = self._in_line = True
        self._env.stdout.write(self._for_reader(text))

    def _for_reader(self, text: str) -> str:
        if not self._env.stdout.isatty():
            return text
        return escape_controls(text)

    def break_off(self) -> None:
        """End the line of an answer that was cut off."""
        if not self._failure:
            with suppress(OSError):
                self._end_line()
                self._env.stdout.flush()

    def _end_line(self) -> None:
        if self._in_line:
            self._env.stdout.write("\n")
            self._in_line = False

    def finish(self, response: str) -> None:
        """End the output. Raises the `OSError` of an earlier write, if there was one."""
        if self._failure is not None:
            raise self._failure
        if self._events:
            return
        if not self._printed:
            # If another process ran the turn, the answer comes from the log.
            self._env.stdout.write(self._for_reader(response))
            self._in_line = True
        self._end_line()


# Changes of these fields alone are not printed: they say nothing of a block's content.
_UNPRINTED = frozenset({"source", "usage"})


class SessionPrinter:
    """Prints a session while it grows: for each batch of events, every changed block once.

    Args:
        events: print each event as a line of JSON instead, at once.
        plain: print text for people, else a line of JSON for each block.
    """

    def __init__(self, env: Environment, session: Growing, *, events: bool, plain: bool) -> None:
        self._env = env
        self._session = session
        self._events = events
        self._plain = plain
        self._printed: set[Key] = set()
        self._noted: set[str] = set()

    def run(self, events: Iterable[StreamEvent | None]) -> Exit:
        """Print events, in which None ends a batch; return the exit code."""
        for event in events:
            if event is None:
                self._flush()
            elif self._events:
                print_json(self._env, event)
        note_drifts(self._env, self._session.findings)
        return Exit.PARTIAL if self._noted else Exit.OK

    def _flush(self) -> None:
        blocks = self._session.blocks
        changes = blocks.changes()
        if self._plain and not self._events:
            self._print_pages(blocks, changes)
        elif not self._events:
            due = [
                key
                for key, fields in changes.items()
                if not fields <= _UNPRINTED or key not in self._printed
            ]
            print_lines(self._env, blocks.pieces(due))
            self._printed.update(changes)
        for finding in self._session.findings:
            # A file that is read again has the same findings.
            if finding.is_damage and str(finding) not in self._noted:
                self._noted.add(str(finding))
                note(self._env, str(finding))
        self._env.stdout.flush()

    def _print_pages(self, blocks: BlockStore, changes: dict[Key, frozenset[str]]) -> None:
        replaced = 0
        for key, fields in changes.items():
            block = blocks[key]
            known = key in self._printed
            page = self._page(block, fields, known=known)
            if page:
                print_text(self._env, page)
                self._printed.add(key)
            else:
                replaced += bool(known and block.get("superseded") and "superseded" in fields)
        if replaced:
            print_text(self._env, f"-- {replaced} of the blocks above were replaced\n\n")

    def _page(self, block: Block, fields: frozenset[str], *, known: bool) -> str:
        """Return a block as text; empty if it was printed before, unless it is a subagent's end."""
        if known and not (block["type"] == "subagent" and "status" in fields):
            return ""
        return render(block)
