"""Printing a conversation: a recorded one as text, a turn that runs, a session that grows."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import orjson

from agentsdir.cli.cells import encoding_of
from agentsdir.cli.colour import ALWAYS, style_of
from agentsdir.cli.exits import Exit
from agentsdir.cli.output import (
    SCREEN_WIDTH,
    escape_controls,
    note,
    note_drifts,
    one_line,
    print_json,
    print_lines,
    screen_width,
)
from agentsdir.cli.turn_view import INTERRUPTED, Part, TurnLine, TurnView
from agentsdir.engine.inbox import unframed
from agentsdir.formats import blocks, times
from agentsdir.formats.blocks import MAIN, block_key
from agentsdir.formats.errors import AgentsdirError
from agentsdir.formats.store.agent import read_agent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from agentsdir.cli.colour import Style
    from agentsdir.cli.environment import Environment
    from agentsdir.engine.conversation import TurnStart
    from agentsdir.formats.block_lines import BlockStore, Key
    from agentsdir.formats.blocks import StreamEvent
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


class Marks(NamedTuple):
    """The characters of a page that are no text."""

    call: str = "●"
    thought: str = "∴"
    rule: str = "──"
    between: str = " · "
    cut: str = "…"


_MARKS = {"utf-8": Marks(), "ascii": Marks("*", "~", "--", ", ", "...")}


class Pages:
    """Turns events of a conversation into pages for people, piece by piece.

    All that it returns may be written to a terminal as it is: control characters of content are
    escapes, and the only codes are those of our styles.

    Args:
        style: of a terminal, or the plain one.
        encoding: of the terminal: utf-8 or ascii.
        width: columns, where `as_markdown`.
        as_markdown: lay out answers as Markdown; else they stand as they were written.
        in_full: show calls, their results and thoughts whole; else each is a line.
        folder: the working directory; paths in it are shown as they are seen from there.
        title_of: returns how to call an agent by its id, such as "subagent fox".
    """

    def __init__(
        self,
        style: Style,
        encoding: str,
        *,
        width: int = SCREEN_WIDTH,
        as_markdown: bool = False,
        in_full: bool = False,
        folder: str = "",
        title_of: Callable[[str], str] = "agent {}".format,
    ) -> None:
        self._style = style
        self._marks = _MARKS[encoding]
        self._encoding = encoding
        self._width = width
        self._as_markdown = as_markdown
        self._in_full = in_full
        self._view = TurnView(width, encoding, 0, folder)
        self._folder = folder
        self._names: dict[str, str] = {}
        self._title_of = title_of
        self._children: set[tuple[str, str]] = set()
        self._thread = MAIN
        self._began: datetime | None = None
        # Whether anything was shown, and whether that was a line to which others may be added.
        self._shown = self._tight = False

    @classmethod
    def of(cls, env: Environment, when: str, *, in_full: bool = False, folder: str = "") -> Pages:
        """Return the pages for standard output.

        Args:
            when: the value of `--color`.
        """
        capable = env.variables.get("TERM", "dumb") not in ("", "dumb")
        return cls(
            style_of(env, when),
            encoding_of(env),
            width=screen_width(env),
            as_markdown=when == ALWAYS or (capable and env.stdout.isatty()),
            in_full=in_full,
            folder=folder,
            title_of=partial(_title_of, env),
        )

    def about(self, text: str) -> str:
        """Return a line about the conversation."""
        return self._piece(one_line(text), "faint")

    def turn(self, turn: TurnStart) -> str:
        """Return the heading of a turn, with its time by the user's clock."""
        self._began = _moment(turn.at)
        self._thread = MAIN
        self._view = TurnView(self._width, self._encoding, 0, self._folder)
        at = f"{self._marks.between}{_clock(self._began)}" if self._began else ""
        rule = self._marks.rule
        return self._piece(f"{rule} turn {turn.number}{at} {rule}", "faint")

    def event(self, event: dict[str, Any]) -> str:
        """Return what an event shows; empty for nothing."""
        if "block" in event:
            return self.block(event["block"])
        metadata = event.get("metadata", {})
        if "error" in metadata:
            why = one_line(str(metadata["error"].get("message")))
            return self._piece(f"{self._marks.rule} the turn failed: {why}", "failure")
        if "aborted" in metadata:
            why = one_line(str(metadata["aborted"]))
            return self._piece(f"{self._marks.rule} the turn was aborted: {why}", "warning")
        spent = self._spent(metadata, event.get("timestamp"))
        return self._piece(spent, "faint") if spent else ""

    def _spent(self, metadata: dict[str, Any], timestamp: Any) -> str:
        usage, cost = metadata.get("usage"), metadata.get("costUSD")
        ended = _moment(timestamp)
        took = (ended - self._began).total_seconds() if ended and self._began else -1
        said = self._view.spent(
            took if took >= 0 else None,
            usage if isinstance(usage, dict) and usage.get("totalTokens") else None,
            cost if isinstance(cost, int | float) and cost else None,
        )
        return self._marks.between.join(said)

    def block(self, block: dict[str, Any]) -> str:
        """Return what a block shows; empty for a hidden or superseded one."""
        kind, thread = block.get("type"), str(block.get("conversationId"))
        if block.get("hidden") or block.get("superseded") or not isinstance(kind, str):
            return ""
        tight = kind in _CALLS and not self._in_full
        try:
            if tight:
                lines = self._lines_of_call(block)
            else:
                writer = _PAGE_WRITERS.get(kind)
                lines = self._indented(writer(self, block), thread) if writer else ""
        except (KeyError, TypeError, ValueError, AttributeError):
            lines = self._style(f"-- a {kind} block that lacks its parts", "warning")
        if not lines.strip():
            return ""
        heading = ""
        if thread != self._thread:
            self._thread = thread
            if thread != MAIN:
                heading = self._indented(self._style(f"[{one_line(thread)}]", "faint"), thread)
                heading = self._spaced(heading, tight=True) + "\n"
        return heading + self._spaced(lines, tight=tight) + "\n"

    def _lines_of_call(self, block: dict[str, Any]) -> str:
        """Return a call, or its outcome, as a turn shows it that runs."""
        moment = _moment(block.get("timestamp"))
        is_new = block["type"] == "tool_use"
        failed = False
        if block["type"] == "subagent":
            is_new = block_key(block) not in self._children
            failed = is_new and block["status"] == "error"
            self._children.add(block_key(block))
        if is_new:  # the outcome of a call is shown where its result stands, or its end
            block = {**block, "status": "running"}
        elif block["type"] == "tool_result" and block["output"] is None:
            block = {**block, "output": ""}  # none is no output that is still to come
        event = blocks.block_complete(str(block["id"]), block)
        lines = self._view.take(event, moment.timestamp() if moment else 0)
        parts = [line.parts for line in lines if isinstance(line, TurnLine)]
        if parts and failed:
            parts[-1] = (*parts[-1], Part(" failed", "failure"))
        return "\n".join(
            "".join(self._style(text, name) if name else text for text, name in line)
            for line in parts
        )

    def _piece(self, text: str, name: str) -> str:
        return self._spaced(self._style(text, name), tight=False) + "\n"

    def _spaced(self, lines: str, *, tight: bool) -> str:
        """Put an empty line before a piece, unless it and the last one are single lines."""
        before = "\n" if self._shown and not (tight and self._tight) else ""
        self._shown, self._tight = True, tight
        return before + lines

    @staticmethod
    def _indented(lines: str, thread: str) -> str:
        if thread == MAIN:
            return lines
        return "\n".join(INDENT + line if line else "" for line in lines.split("\n"))

    def _prompt(self, block: dict[str, Any]) -> str:
        text = _plain(block["content"])
        if message := unframed(text):
            sender, text = message
            title = self._title_of(sender)
            text = f"{title} {'answered' if title.startswith('subagent') else 'said'}: {text}"
        return self._style("> " + text.replace("\n", "\n> "), "prompt")

    def answer(self, text: str, *, indent: int = 0) -> str:
        """Return the text of an answer, without the last LF.

        Args:
            indent: columns of the terminal that something else takes.
        """
        if not self._as_markdown:
            return escape_controls(text)
        from agentsdir.cli.markdown import markdown

        return markdown(text, self._width - indent, self._style)

    def _answer(self, block: dict[str, Any]) -> str:
        indent = 0 if block["conversationId"] == MAIN else len(INDENT)
        return self.answer(str(block["content"]), indent=indent)

    def _thought(self, block: dict[str, Any]) -> str:
        said = str(block.get("summary") or block["content"])
        if not said:
            return ""
        if self._in_full:
            return self._style(f"{self._marks.thought} {said}", "faint")
        return self._style(f"{self._marks.thought} thought: {self._brief(said, 11)}", "faint")

    def _call(self, block: dict[str, Any]) -> str:
        name = one_line(str(block["toolName"]))
        self._names[str(block["toolUseId"])] = name
        name = self._style(name, "tool")
        return f"{self._marks.call} {name}\n{self._listed(block['input'])}".rstrip("\n")

    def _outcome(self, block: dict[str, Any]) -> str:
        kind, style = ("error", "failure") if block["isError"] else ("result", "faint")
        text = INDENT + _plain(block["output"]).replace("\n", "\n" + INDENT)
        named = str(block["toolUseId"])
        name = self._names.get(named) or one_line(named)
        return f"  {kind} of {name}:\n{self._style(text, style)}"

    def _notice(self, block: dict[str, Any]) -> str:
        text = str(block["message"])
        if not text or (self._view.has_interrupted and text.startswith(INTERRUPTED)):
            return ""
        style = "failure" if block["subtype"] == "error" else "faint"
        return self._style(f"{self._marks.rule} {text if self._in_full else _cut(text)}", style)

    def _child(self, block: dict[str, Any]) -> str:
        name = str(block.get("name") or block.get("subagentId") or "")
        title = self._style(one_line(f"subagent {name}".strip()), "tool")
        parts = {"input": block["input"], "output": block.get("output")}
        given = {part: text for part, text in parts.items() if text}
        status = one_line(str(block["status"]))
        return f"{self._marks.call} {title} [{status}]\n{self._listed(given)}".rstrip("\n")

    def _brief(self, text: str, used: int) -> str:
        """Return the beginning of a text on one line of the screen, of which some is used."""
        line = one_line(" ".join(text[: 4 * self._width].split()))
        room = max(self._width - used, 20)
        return line if len(line) <= room else line[: room - 1] + self._marks.cut

    @staticmethod
    def _listed(given: Any) -> str:
        """Return the input of a call, a line for each argument, long texts indented below."""
        if not isinstance(given, dict):
            given = {"input": given}
        lines: list[str] = []
        for name, value in given.items():
            text = value if isinstance(value, str) else orjson.dumps(value).decode()
            if "\n" in text:
                lines.append(f"{INDENT}{name}:")
                lines += [INDENT * 2 + line for line in text.split("\n")]
            else:
                lines.append(f"{INDENT}{name}: {text}")
        return escape_controls("\n".join(lines))


_PAGE_WRITERS: dict[str, Callable[[Pages, dict[str, Any]], str]] = {
    "user_message": Pages._prompt,
    "assistant_text": Pages._answer,
    "thinking": Pages._thought,
    "tool_use": Pages._call,
    "tool_result": Pages._outcome,
    "system": Pages._notice,
    "subagent": Pages._child,
}
_CALLS = frozenset({"tool_use", "tool_result", "subagent"})


def _title_of(env: Environment, agent_id: str) -> str:
    """Return what an agent is, and its name, or its id where it is gone or has none."""
    try:
        state = read_agent(env.layout.agent(agent_id)).state
    except (AgentsdirError, OSError):
        return f"agent {agent_id}"
    kind = "subagent" if state.descriptor.get("type") == "subagent" else "agent"
    return f"{kind} {state.name or agent_id}"


def _moment(timestamp: Any) -> datetime | None:
    try:
        return times.from_text(timestamp)
    except (TypeError, ValueError, OverflowError):
        return None


def _clock(moment: datetime) -> str:
    try:
        return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):  # a year that no clock of this system has
        return moment.isoformat()


# Changes of these fields alone are not printed: they say nothing of a block's content.
_UNPRINTED = frozenset({"source", "usage"})


class SessionPrinter:
    """Prints a session while it grows: for each batch of events, every changed block once.

    Args:
        events: print each event as a line of JSON instead, at once.
        pages: print text for people with them; without, a line of JSON for each block.
    """

    def __init__(
        self, env: Environment, session: Growing, *, events: bool, pages: Pages | None
    ) -> None:
        self._env = env
        self._session = session
        self._events = events
        self._pages = pages
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
        if self._pages is not None and not self._events:
            self._print_pages(self._pages, blocks, changes)
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

    def _print_pages(
        self, pages: Pages, blocks: BlockStore, changes: dict[Key, frozenset[str]]
    ) -> None:
        replaced = 0
        for key, fields in changes.items():
            block = blocks[key]
            known = key in self._printed
            # What was printed before is not again, unless it is a subagent's end.
            again = block["type"] == "subagent" and "status" in fields
            page = pages.block(block) if again or not known else ""
            if page:
                self._env.stdout.write(page)
                self._printed.add(key)
            else:
                replaced += bool(known and block.get("superseded") and "superseded" in fields)
        if replaced:
            self._env.stdout.write(pages.about(f"{replaced} of the blocks above were replaced"))
