"""A turn as a person sees it on a terminal: a line for each tool call, and what runs now.

`TurnView` turns stream events into finished lines and pieces of the answer, and says in one line
what happens now. It writes nothing and reads no clock, so that every terminal can show it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from agentsdir.cli.answer_text import AnswerPiece, AnswerText
from agentsdir.cli.cells import cut, on_one_line, width_of, within
from agentsdir.cli.output import escape_controls, one_line
from agentsdir.cli.questions import call_lines
from agentsdir.formats import jsontext
from agentsdir.formats.blocks import COUNTED, MAIN

if TYPE_CHECKING:
    from agentsdir.formats.blocks import Block, StreamEvent, Usage


class Part(NamedTuple):
    """A piece of a line, with the name of a style of `cli/colour`, or none."""

    text: str
    style: str = ""


class TurnLine(NamedTuple):
    """A finished line. `call` is the key in `TurnView.calls` of the call that it is about."""

    parts: tuple[Part, ...]
    call: str = ""

    @property
    def text(self) -> str:
        """The line without styles."""
        return "".join(part.text for part in self.parts)


class ShownCall:
    """One call of a tool, or of a subagent, with its input and its result.

    Attributes:
        key: its key in `TurnView.calls`.
        conversation: who called: `main` or the id of a subagent.
        input: as the model gave it; None until it is known.
        output: what it gave; None until it is known.
        thread: the conversation of the subagent that it began; empty for a tool.
        began: the clock when it was first seen.
        ended: the clock when it ended; None while it runs.
        seconds: how long it took, where the client says it; else by the clock.
        left_out: seconds of that in which a question waited for the user's answer.
    """

    def __init__(self, key: str, conversation: str, began: float) -> None:
        self.key = key
        self.conversation = conversation
        self.name = ""
        self.input: Any = None
        self.output: Any = None
        self.is_error = False
        self.is_subagent = False
        self.thread = ""
        self.description = ""
        self.began = began
        self.ended: float | None = None
        self.seconds: float | None = None
        self.left_out = 0.0
        self.is_shown = False
        self.has_output_shown = False


# The most telling arguments of tools, in the order in which they are looked for.
_TELLING = (
    "command", "file_path", "absolute_path", "notebook_path", "path", "dir_path", "pattern",
    "query", "url", "skill", "agent_name", "description", "prompt",
)  # fmt: skip
_PATHS = frozenset(("file_path", "absolute_path", "notebook_path", "path", "dir_path"))
# What clients tell the model in the result of a call that did not run to its end.
_ERROR_TAGS = re.compile(r"</?tool_use_error>")
_REFUSAL = re.compile(r"The user doesn't want to |(the user said no)\b")
_REASON = re.compile(r"the user said(?: no)?:\s*(.+)", re.DOTALL)
INTERRUPTED = "Request interrupted by user"
"""How the client's notice of an interrupted turn begins; the outcome of its call says it, too."""
_NARROWEST = 20
_DEEPEST = 6
_LONGEST = 4000
"""Characters of a line that is shown in full."""
_SHORT = 40
"""Columns of a call that is named again beside its outcome."""


class Glyphs(NamedTuple):
    """The characters that are no text."""

    call: str = "●"
    outcome: str = "└"
    thought: str = "∴"
    cut: str = "…"
    between: str = " · "
    at_least: str = "≥"
    frames: str = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


_PLAIN = Glyphs("*", "->", "~", "...", ", ", ">=", "|/-\\")


def _glyphs(encoding: str) -> Glyphs:
    fine = Glyphs()
    try:
        "".join(fine).encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return _PLAIN
    return fine


class TurnView:
    """Turns the stream events of a turn into what a person sees.

    `calls` has each call that was seen, by its key, in order. `has_interrupted` is whether a line
    said of a call that it was interrupted. The clock is any that counts seconds.

    Args:
        width: columns of the terminal; it may change between two calls.
        encoding: of the terminal; characters that it lacks are replaced.
        now: the clock when the turn begins.
        folder: the agent's working directory; paths in it are shown as they are seen from there.
    """

    def __init__(self, width: int, encoding: str, now: float, folder: str = "") -> None:
        self.width = width
        self._folder = folder
        self.calls: dict[str, ShownCall] = {}
        self._glyphs = _glyphs(encoding)
        self._began = now
        self._answer = AnswerText()
        # Conversation and handle, or durable id, of each call, text and thought.
        self._by_block: dict[tuple[str, str], ShownCall] = {}
        self._by_use: dict[tuple[str, str], ShownCall] = {}
        self._twins: dict[str, int] = {}  # calls of one id
        self._texts: dict[tuple[str, str], bool] = {}
        self._thinking: dict[tuple[str, str], float] = {}
        self._said: set[tuple[str, str]] = set()
        # Calls that have no result yet, and the subagents that have ended.
        self._running: dict[str, ShownCall] = {}
        self._unsaid: dict[str, ShownCall] = {}  # calls that have ended, whose outcome is not shown
        self._over: set[str] = set()
        self._parents: dict[str, str] = {}
        self._open_text: tuple[str, str] | None = None
        # Whether a line of the answer is not complete, and the lines that wait until it is.
        self._in_line = False
        self._held: list[TurnLine] = []
        # The conversations in which a thought that comes as a whole is not late.
        self._may_think = {MAIN}
        self._last: TurnLine | None = None
        self.has_interrupted = False
        self._usage: Usage | None = None
        self._cost: float | None = None

    def take(self, event: StreamEvent, now: float) -> list[TurnLine | AnswerPiece]:
        """Return what an event shows: finished lines, and pieces of the answer, escaped.

        A line does not come amid one of the answer, unless a call begins, which ends the answer.
        """
        before = self._last
        found = self._shown(event, now)
        if self._unsaid and any(map(self._is_news, found)):
            after, self._last = self._last, before
            found = [*self._said_so_far(), *found]
            self._last = after
        shown: list[TurnLine | AnswerPiece] = []
        for one in found:
            if isinstance(one, AnswerPiece):
                shown.append(one)
                if one.text or one.ends:
                    self._in_line = not (one.ends or one.text.endswith("\n"))
            elif self._in_line and not self._begins_call(one):
                self._held.append(one)
            else:
                self._in_line = False
                self._held.append(one)
            if not self._in_line:
                shown += self._held
                self._held.clear()
        return shown

    def leave_out(self, use: str, seconds: float) -> None:
        """Leave out of the times a wait for the user's answer to a question about a call.

        Args:
            use: the id of the call, as the model gave it.
        """
        self._began += seconds
        for (_, one), call in self._by_use.items():
            if one == use and call.ended is None:
                call.left_out += seconds

    def _is_news(self, one: TurnLine | AnswerPiece) -> bool:
        """Tell whether something is shown that is no outcome of a call."""
        if isinstance(one, AnswerPiece):
            return bool(one.text)
        call = self.calls.get(one.call)
        return call is None or call.ended is None

    def _said_so_far(self) -> list[TurnLine]:
        """Return the outcomes of calls whose results did not come in time."""
        unsaid, self._unsaid = self._unsaid, {}
        return [self._ending(call) for call in unsaid.values()]

    def _begins_call(self, line: TurnLine) -> bool:
        call = self.calls.get(line.call)
        return call is not None and call.conversation == MAIN and call.ended is None

    def _shown(self, event: StreamEvent, now: float) -> list[TurnLine | AnswerPiece]:
        kind, conversation = event["type"], event.get("conversationId", MAIN)
        if kind == "metadata_update":
            self._metadata(conversation, event["metadata"])
            return []
        key = conversation, str(event["blockId"])
        if kind == "block_update":
            return self._update(key, event["updates"], now)
        if kind == "text_delta":
            return self._text(event)
        block = event["block"]
        named = conversation, f"id:{block.get('id')}"
        # A block that is there already may come again under its durable id.
        known = key if key in self._by_block or named not in self._by_block else named
        taker = {
            "tool_use": self._take_call,
            "subagent": self._take_call,
            "tool_result": self._take_result,
            "thinking": self._take_thought,
            "system": self._take_notice,
        }.get(str(block.get("type")))
        if block.get("hidden"):
            return []
        if taker is not None:
            return taker(known, block, now, is_whole=kind == "block_complete")
        return self._take_text(key, event)

    def _metadata(self, conversation: str, said: dict[str, Any]) -> None:
        if conversation != MAIN:
            if isinstance(said.get("parent"), str):
                self._parents.setdefault(conversation, said["parent"])
            return
        if isinstance(said.get("usage"), dict):
            self._usage = said["usage"]
        cost = said.get("costUSD")
        if isinstance(cost, int | float):
            self._cost = cost

    # The answer.

    def _take_text(self, key: tuple[str, str], event: StreamEvent) -> list[TurnLine | AnswerPiece]:
        block = event["block"]
        if block.get("type") != "assistant_text" or key[0] != MAIN:
            return []
        named = MAIN, f"id:{block.get('id')}"
        if key not in self._texts and named in self._texts:
            key = named
        shown = self._texts.setdefault(key, False)
        if block.get("superseded"):
            return self._given_up(key) if shown else []
        if key == named:
            return []  # it was shown under its handle
        if event["type"] == "block_complete":
            self._texts[named] = True
        if event["type"] == "block_start":
            self._open_text = key
        elif self._open_text == key:
            self._open_text = None
        return self._text(event)

    def _text(self, event: StreamEvent) -> list[TurnLine | AnswerPiece]:
        piece = self._answer.take(event)
        if piece is None:
            return []
        if piece.text:
            self._texts[MAIN, str(event["blockId"])] = True
            self._last = None
            self._may_think.discard(MAIN)
        return [piece._replace(text=escape_controls(piece.text))]

    def _given_up(self, key: tuple[str, str]) -> list[TurnLine | AnswerPiece]:
        self._texts[key] = False
        text = "the text above was begun again, and does not count"
        return [self._line(MAIN, Part(text, "faint"))]

    # Calls.

    def _take_call(
        self, key: tuple[str, str], block: Block, now: float, *, is_whole: bool
    ) -> list[TurnLine | AnswerPiece]:
        call = self._by_block.get(key)
        if call is None:
            if block.get("superseded"):
                return []
            call = self._new_call(key[0], str(block.get("toolUseId") or block.get("id")), now)
            self._by_block[key] = call
        self._by_block[key[0], f"id:{block.get('id')}"] = call
        call.is_subagent = call.is_subagent or block.get("type") == "subagent"
        call.name = str(block.get("name" if call.is_subagent else "toolName") or call.name)
        return self._change(call, block, now, is_whole=is_whole)

    def _new_call(self, conversation: str, use: str, now: float) -> ShownCall:
        key = use
        while key in self.calls:  # some models count their calls from 1 in each answer
            self._twins[use] = self._twins.get(use, 1) + 1
            key = f"{use}'{self._twins[use]}"
        call = ShownCall(key, conversation, now)
        self.calls[key] = self._running[key] = self._by_use[conversation, use] = call
        return call

    def _update(
        self, key: tuple[str, str], updates: dict[str, Any], now: float
    ) -> list[TurnLine | AnswerPiece]:
        if updates.get("superseded") and self._texts.get(key):
            return self._given_up(key)
        if updates.get("superseded"):
            self._thinking.pop(key, None)
        call = self._by_block.get(key) or self._by_block.get((key[0], f"id:{key[1]}"))
        return [] if call is None else self._change(call, updates, now, is_whole=False)

    def _change(
        self, call: ShownCall, fields: dict[str, Any], now: float, *, is_whole: bool
    ) -> list[TurnLine | AnswerPiece]:
        """Take fields of a call's block; return its line, and its outcome, if they are due."""
        status = str(fields.get("status") or "")
        if is_whole or status == "running" or fields.get("input"):
            call.input = fields.get("input", call.input)
        call.description = str(fields.get("description") or call.description)
        if fields.get("subagentId"):
            call.thread = str(fields["subagentId"])
            self._parents.setdefault(call.thread, call.conversation)
            if call.ended is not None:
                self._over.add(call.thread)
        if isinstance(fields.get("durationMs"), int):
            call.seconds = fields["durationMs"] / 1000
        if call.is_subagent and fields.get("output"):
            call.output = fields["output"]
        lines: list[TurnLine | AnswerPiece] = []
        if fields.get("superseded"):
            self._stop(call, now)
            if call.is_shown and not call.has_output_shown:
                lines.append(self._outcome(call, Part("does not count", "faint")))
            return lines
        if call.input is not None and not call.is_shown and call.conversation not in self._over:
            lines += self._begin(call)
        if status in ("success", "error") and call.ended is None:
            lines += self._end(call, now, is_error=status == "error")
        return lines

    def _stop(self, call: ShownCall, now: float) -> None:
        """Note that a call has ended. What is only read afterwards of a subagent is not shown."""
        if call.ended is None:
            call.ended = now
        self._running.pop(call.key, None)
        if call.thread:
            self._over.add(call.thread)

    def _begin(self, call: ShownCall) -> list[TurnLine | AnswerPiece]:
        call.is_shown = True
        self._may_think.discard(call.conversation)
        lines: list[TurnLine | AnswerPiece] = [*self._heading(call.conversation)]
        begins = f"{self._glyphs.call} "
        room = self._room(call.conversation) - width_of(begins)
        name, argument = self._named(call, room)
        parts = Part(begins, "tool"), Part(name, "strong"), Part(argument)
        lines.append(self._line(call.conversation, *parts, call=call))
        return lines

    def _named(self, call: ShownCall, room: int) -> tuple[str, str]:
        """Return a call's name, and its most telling argument, that together fit into `room`."""
        if call.is_subagent:
            name = one_line(on_one_line(f"subagent {call.name}".strip(), room))
            told = call.description or _telling(call.input)[0]
            before, after, keep_end = ": ", "", False
        else:
            name = one_line(on_one_line(call.name or "tool", room))
            told, keep_end = _telling(call.input)
            told = within(told, self._folder) if keep_end else told
            before, after = "(", ")"
        name = cut(name, max(room, 0), self._glyphs.cut)
        told = one_line(on_one_line(told[-4 * room :] if keep_end else told, room))
        left = room - width_of(name) - len(before) - len(after)
        if not told or left < 4:
            return name, ""
        return name, before + cut(told, left, self._glyphs.cut, keep_end=keep_end) + after

    def _take_result(
        self, key: tuple[str, str], block: Block, now: float, *, is_whole: bool
    ) -> list[TurnLine | AnswerPiece]:
        call = self._by_use.get((key[0], str(block.get("toolUseId"))))
        if call is None or not is_whole:
            return []
        call.output = block.get("output")
        if isinstance(block.get("durationMs"), int):
            call.seconds = block["durationMs"] / 1000
        is_error = bool(block.get("isError"))
        if call.ended is None:
            return self._end(call, now, is_error=is_error)
        if call.key in self._unsaid:
            del self._unsaid[call.key]
            call.is_error = is_error
            return [self._ending(call)]
        if is_error and call.is_shown and not call.has_output_shown:
            return [self._ending(call)]
        return []

    def _end(self, call: ShownCall, now: float, *, is_error: bool) -> list[TurnLine | AnswerPiece]:
        self._stop(call, now)
        call.is_error = is_error
        self._may_think.add(call.conversation)
        if not call.is_shown:
            return []
        if call.output is None and not call.is_subagent:
            # Some clients say first that a call has ended, and its result a moment later.
            self._unsaid[call.key] = call
            return []
        return [self._ending(call)]

    def _ending(self, call: ShownCall) -> TurnLine:
        """Return the line of a call that has ended."""
        call.has_output_shown = call.output is not None
        if call.is_error:
            return self._outcome(call, self._error_part(call))
        took = call.seconds
        if took is None or call.left_out:  # the client may count the wait
            took = (call.ended or 0) - call.began - call.left_out
        text = "done" if call.output is None or call.is_subagent else _brief(call.output)
        time = _seconds(took) if took >= 0.05 else ""
        between = self._glyphs.between if time else ""
        return self._outcome(call, Part(text), Part(between + time, "faint"))

    def _error_part(self, call: ShownCall) -> Part:
        given = "" if call.output is None else _ERROR_TAGS.sub("", _plain_text(call.output))
        outcome = "failed"
        if refusal := _REFUSAL.match(given):
            # Claude Code says the same of a denied call without a reason as of an interrupted one.
            reason = _REASON.search(given)
            given = reason[1] if reason else ""
            outcome = "denied" if reason or refusal[1] else "interrupted"
            self.has_interrupted |= outcome == "interrupted"
        said = one_line(on_one_line(given, self.width))
        style = "warning" if outcome == "interrupted" else "failure"
        return Part(f"{outcome}: {said}" if said else outcome, style)

    def _outcome(self, call: ShownCall, *parts: Part) -> TurnLine:
        """Return the line of a call's outcome, which names it if its own line is not just above."""
        begins = f"  {self._glyphs.outcome} "
        named = ""
        if self._last is None or self._last.call != call.key:
            named = "".join(self._named(call, min(_SHORT, self._room(call.conversation) // 2)))
            named += ": "
        before = Part(begins + named, "faint")
        # Of a long result, the beginning is enough.
        others = sum(width_of(part.text) for part in (before, *parts[1:]))
        room = max(self._room(call.conversation) - others, _NARROWEST // 2)
        first = parts[0]._replace(text=cut(parts[0].text, room, self._glyphs.cut))
        return self._line(call.conversation, before, first, *parts[1:], call=call)

    # Thoughts, notices, subagents.

    def _take_thought(
        self, key: tuple[str, str], block: Block, now: float, *, is_whole: bool
    ) -> list[TurnLine | AnswerPiece]:
        if not is_whole:
            self._thinking.setdefault(key, now)
            return []
        named = key[0], f"id:{block.get('id')}"
        began = self._thinking.pop(key, None)
        if named in self._said or block.get("superseded"):
            return []
        self._said.add(named)
        if began is not None:
            took = now - began
            time = _seconds(took) if took < 0.95 else _whole_seconds(took + 0.5)
            return [self._thought(key[0], f"thought for {time}" if took >= 0.05 else "thought")]
        if key[0] in self._may_think and key[0] not in self._over:
            return [self._thought(key[0], "thought")]
        return []  # what came after it is shown already

    def _thought(self, conversation: str, text: str) -> TurnLine:
        return self._line(conversation, Part(f"{self._glyphs.thought} {text}", "faint"))

    def _take_notice(
        self, key: tuple[str, str], block: Block, now: float, *, is_whole: bool
    ) -> list[TurnLine | AnswerPiece]:
        del now
        named = key[0], str(block.get("id"))
        text, subtype = str(block.get("message") or ""), block.get("subtype")
        if not (is_whole and text) or subtype not in ("error", "status") or named in self._said:
            return []
        if block.get("superseded") or key[0] in self._over:
            return []
        if self.has_interrupted and text.startswith(INTERRUPTED):
            return []
        self._said.add(named)
        style = "failure" if subtype == "error" else "faint"
        return [self._line(key[0], Part(one_line(on_one_line(text, self.width)), style))]

    def _heading(self, conversation: str) -> list[TurnLine]:
        """Return a line that says which subagent goes on, where several take turns."""
        running = [call for call in self._running.values() if call.is_subagent]
        begun = next((call for call in running if call.thread == conversation), None)
        if begun is None or len(running) < 2 or self._last is None:
            return []
        of = self.calls.get(self._last.call)
        if of is begun or (of is not None and of.conversation == conversation):
            return []
        room = self._room(begun.conversation)
        text = cut("".join(self._named(begun, room)), room, self._glyphs.cut)
        return [self._line(begun.conversation, Part(text, "faint"))]

    def _line(self, conversation: str, *parts: Part, call: ShownCall | None = None) -> TurnLine:
        """Return a line, indented by the depth of its conversation and cut to the width."""
        indent = self._indent(conversation)
        left = self._columns - len(indent)
        fitting = [Part(indent)] if indent else []
        for text, style in parts:
            fits = cut(text, left, self._glyphs.cut)
            left -= width_of(fits)
            if fits:
                fitting.append(Part(fits, style))
            if fits != text:
                break
        self._last = TurnLine(tuple(fitting), call.key if call else "")
        return self._last

    @property
    def _columns(self) -> int:
        return max(self.width, _NARROWEST)

    def _room(self, conversation: str) -> int:
        return self._columns - len(self._indent(conversation))

    def _indent(self, conversation: str) -> str:
        depth = 0
        while conversation != MAIN and depth < _DEEPEST:
            depth += 1
            conversation = self._parents.get(conversation, MAIN)
        return " " * min(4 * depth, self._columns // 4)

    # What happens now, and the end.

    def status(self, now: float) -> str:
        """Return what happens now in one line that is at least 2 columns narrower than `width`.

        It is empty for a terminal that is too narrow for lines of a turn: a line that is folded
        cannot be drawn over.
        """
        said = [self._spinner(now)]
        if self._usage is not None:
            said += self._tokens(self._usage)
        said.append(self._doing())
        return self._as_status(said)

    def waiting(self, now: float, text: str) -> str:
        """Return such a line for a turn that has not begun, or has ended: what is waited for."""
        return self._as_status([self._spinner(now), text])

    def _spinner(self, now: float) -> str:
        took, frames = max(now - self._began, 0), self._glyphs.frames
        return f"{frames[int(took * 10) % len(frames)]} {_whole_seconds(took)}"

    def _as_status(self, said: list[str]) -> str:
        if self.width < _NARROWEST:
            return ""
        text = self._glyphs.between.join(said)
        return cut(text, min(self._columns, 80) - 2, self._glyphs.cut)

    def _doing(self) -> str:
        running = self._running.values()
        if running:
            shown = [call for call in running if call.is_shown] or list(running)
            more = f" +{len(running) - 1}" if len(running) > 1 else ""
            return "".join(self._named(shown[-1], 2 * _SHORT)) + more
        if self._thinking:
            return "thinking"
        return "answering" if self._open_text else "waiting for the model"

    def finish(
        self, now: float, usage: Usage | None = None, cost: float | None = None
    ) -> list[TurnLine]:
        """Return the last lines: calls without a result, and what the turn took.

        Args:
            usage: of the turn, if it is known better than by its events.
            cost: in US dollars, in the same way.
        """
        lines, self._held = [*self._held, *self._said_so_far()], []
        for call in list(self._running.values()):
            self._stop(call, now)
            if call.is_shown:
                lines.append(self._outcome(call, Part("no result", "faint")))
        usage, cost = usage or self._usage, self._cost if cost is None else cost
        tools = sum(call.is_shown and not call.is_subagent for call in self.calls.values())
        said = [f"{tools} tool call{'s' if tools > 1 else ''}"] if tools else []
        said += self.spent(max(now - self._began, 0), usage, cost)
        lines += [self._line(MAIN, Part(text, "faint")) for text in self._folded(said)]
        return lines

    def spent(self, seconds: float | None, usage: Usage | None, cost: float | None) -> list[str]:
        """Return in words what a turn took, as far as it is known; `cost` is in US dollars."""
        said = [] if seconds is None else [_seconds(seconds)]
        if usage is not None:
            said += self._tokens(usage)
        if cost is not None:
            said.append(_dollars(cost))
        return said

    def _folded(self, said: list[str]) -> list[str]:
        """Return texts on as few lines as they need."""
        lines = said[:1]
        for text in said[1:]:
            longer = lines[-1] + self._glyphs.between + text
            if width_of(longer) <= self._columns:
                lines[-1] = longer
            else:
                lines.append(text)
        return lines

    def _tokens(self, usage: Usage) -> list[str]:
        counts = {name: _number(usage.get(name)) for name in COUNTED}
        out = counts.pop("outputTokens")
        least = "" if usage.get("exact", True) else self._glyphs.at_least
        return [f"{least}{_count(sum(counts.values()))} tokens in", f"{least}{_count(out)} out"]

    def unfold(self, key: str, *, most: int = 200) -> list[TurnLine]:
        """Return a call's input and its result in full, for one who asks for them.

        Args:
            key: of `calls`.
            most: lines of each; of more, only the beginning is returned, and of a very long line.
        """
        call = self.calls[key]
        given = call_lines(call.input) if isinstance(call.input, dict) else _pretty(call.input)
        parts = [("input", given if isinstance(given, list) else given.split("\n"))]
        if call.output is not None:
            title = "error" if call.is_error else "result"
            parts.append((title, _plain_text(call.output).split("\n")))
        lines = []
        for title, said in parts:
            lines.append(TurnLine((Part(f"{title}:", "strong"),), key))
            shown = (self._long(one) for one in said[:most])
            lines += [TurnLine((Part("  " + one),), key) for one in shown]
            if len(said) > most:
                more = f"  {self._glyphs.cut} {len(said) - most} more lines"
                lines.append(TurnLine((Part(more, "faint"),), key))
        return lines

    def _long(self, line: str) -> str:
        return one_line(line[:_LONGEST]) + (self._glyphs.cut if len(line) > _LONGEST else "")


def _telling(given: Any) -> tuple[str, bool]:
    """Return the most telling argument of a call, and whether it is a path."""
    if isinstance(given, str):
        return given, False
    if not isinstance(given, dict):
        return "", False
    for name in _TELLING:
        if isinstance(given.get(name), str) and given[name]:
            return given[name], name in _PATHS
    return next((value for value in given.values() if isinstance(value, str)), ""), False


def _brief(output: Any) -> str:
    """Return a result as a short text: its only line, or how many lines it has."""
    text = _plain_text(output).strip()
    first, more, rest = text.partition("\n")
    if not text:
        return "no output"
    if more:
        return _count(rest.count("\n") + 2) + " lines"
    return one_line(on_one_line(first, 200))


def _plain_text(output: Any) -> str:
    if isinstance(output, str):
        return output
    return "\n".join(map(_part_text, output)) if isinstance(output, list) else _pretty(output)


def _part_text(part: Any) -> str:
    if isinstance(part, dict):
        if isinstance(part.get("text"), str):
            return str(part["text"])
        if isinstance(part.get("type"), str):
            return f"[{part['type']}]"
    return _pretty(part)


def _pretty(value: Any) -> str:
    if isinstance(value, str):
        return value
    return orjson.dumps(jsontext.clean(value, set()), option=orjson.OPT_INDENT_2).decode()


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _count(number: int) -> str:
    """Return a count in at most four characters and a letter."""
    if number < 1000:
        return str(number)
    size, letter = next(one for one in _SIZES if number >= one[0])
    return f"{number / size:.1f}{letter}" if number < 100 * size else f"{number // size}{letter}"


_SIZES = ((1_000_000_000, "G"), (1_000_000, "M"), (1000, "k"))


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 9.95 else _whole_seconds(seconds)


def _whole_seconds(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, whole = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {whole} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def _dollars(cost: float) -> str:
    return f"${cost:.2f}" if cost >= 0.095 or not cost else f"${cost:.2g}"
