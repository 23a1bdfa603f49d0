"""A question whether a tool may run, its answer, and how both read (docs/configuration.md).

A question is asked at the terminal (`cli/confirm`), or by what stands in `Environment.ask`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from agentsdir.adapters.protocol import never
from agentsdir.cli.cells import within
from agentsdir.cli.output import one_line
from agentsdir.formats import jsontext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Keep: TypeAlias = Literal["once", "turn", "agent", "folder"]
"""How long an answer holds: for this call, this turn, this agent, or all agents of this folder."""
KEEPS: tuple[Keep, ...] = ("once", "turn", "agent", "folder")


class Question(NamedTuple):
    """Whether an agent may make one call of a tool.

    Attributes:
        name: the agent's, empty for none.
        folder: the agent's working directory.
        conversation: "main", or the id of the client's subagent that makes the call.
        input: of the call, as the model gave it.
        rule: what is kept when the answer is to hold for longer than this call, in the client's own
            form; empty where no rule means this call and no other.
        keeps: how long a yes may hold.
        is_void: returns whether the client has ended, so that no answer is of use to it.
    """

    agent_id: str
    name: str
    provider: str
    root: str
    folder: str
    conversation: str
    tool: str
    tool_use_id: str
    input: Any
    rule: str = ""
    keeps: tuple[Keep, ...] = ("once",)
    is_void: Callable[[], bool] = never

    @property
    def asker(self) -> str:
        """The agent, by its name and id, on one line."""
        return one_line(f"agent {self._agent()}")

    def _agent(self, more: str = "") -> str:
        if self.name:
            return f"{_cut(self.name, _NAME)} ({self.agent_id}{more})"
        return f"{self.agent_id}{f' ({more[2:]})' if more else ''}"

    @property
    def headline(self) -> str:
        """Who asks, for which tool and in which folder, on one line."""
        within = "" if self.conversation == "main" else f", in its {self.conversation},"
        return one_line(
            f"agent {self._agent(f', {_cut(self.provider, _NAME)}')}{_cut(within, _NAME)} wants to"
            f" use {_cut(self.tool, _NAME)} in {_cut(self.folder, _FOLDER)}:"
        )

    @property
    def always(self) -> str:
        """What a yes that is kept is for, in words."""
        return f"any {one_line(self.tool)}" if self.rule == self.tool else "exactly this command"

    def as_json(self) -> dict[str, Any]:
        """Return the question as a JSON object."""
        return {
            "agentId": self.agent_id,
            "name": self.name or None,
            "provider": self.provider,
            "root": self.root,
            "folder": self.folder,
            "conversationId": self.conversation,
            "toolName": self.tool,
            "toolUseId": self.tool_use_id,
            "input": self.input,
            "rule": self.rule or None,
            "keeps": list(self.keeps),
        }

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Question:
        """Return the question of an object that `as_json` made; raises `KeyError` for another."""
        return cls(
            said["agentId"],
            said["name"] or "",
            said["provider"],
            said["root"],
            said["folder"],
            said["conversationId"],
            said["toolName"],
            said["toolUseId"],
            said["input"],
            said["rule"] or "",
            tuple(said["keeps"]),
        )


class Answer(NamedTuple):
    """The answer to a question.

    Attributes:
        reason: of a no, in the user's words; the model reads it.
        keep: how long a yes holds; one of the question's `keeps`.
    """

    allowed: bool
    reason: str = ""
    keep: Keep = "once"


Ask: TypeAlias = "Callable[[Question], Answer | None]"
"""Asks a question. None is no answer, which counts as a no."""

_NAME = 100
_FOLDER = 300


def _cut(text: str, length: int) -> str:
    """Return a text from a log or a model, cut so that the question stays in sight."""
    return text if len(text) <= length else f"{text[:length]}…"


def call_lines(tool_input: Any, folder: str = "") -> list[str]:
    """Return what a call would do, in lines without characters that act or are not seen.

    A command is text, an edit a diff, a file its lines; every other value is JSON. All of the input
    is there.

    Args:
        folder: the agent's working directory; the path of a file in it is shown as seen from there.
    """
    if not isinstance(tool_input, dict):
        return _json_lines(tool_input)
    given = dict(tool_input)
    if isinstance(given.get("file_path"), str):
        given["file_path"] = within(given["file_path"], folder)
    lines: list[str] = []
    for render in (_command, _edit, _edits, _content):
        lines += render(given)
    rest = [line for name, value in given.items() for line in _field(name, value)]
    return [*lines, *([""] if lines and rest else []), *rest] or ["{}"]


def _command(given: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a command; what is shown is taken out of `given`, here and below."""
    if isinstance(given.get("command"), str):
        yield from _lines(given.pop("command"))


def _edit(given: dict[str, Any]) -> Iterator[str]:
    if all(isinstance(given.get(name), str) for name in ("old_string", "new_string")):
        yield from _file(given)
        yield from _diff(given.pop("old_string"), given.pop("new_string"))


def _edits(given: dict[str, Any]) -> Iterator[str]:
    edits = given.get("edits")
    if not isinstance(edits, list) or not all(isinstance(edit, dict) for edit in edits):
        return
    yield from _file(given)
    for edit in given.pop("edits"):
        rest = dict(edit)
        yield "@@"
        yield from _edit(rest)
        for name, value in rest.items():
            yield from _field(name, value)


def _content(given: dict[str, Any]) -> Iterator[str]:
    if isinstance(given.get("content"), str) and isinstance(given.get("file_path"), str):
        yield from _file(given)
        yield from (f"+{line}" for line in _lines(given.pop("content")))


def _file(given: dict[str, Any]) -> Iterator[str]:
    if isinstance(given.get("file_path"), str):
        yield _exact(given.pop("file_path"))


def _diff(old: str, new: str) -> Iterator[str]:
    import difflib  # a question is rare

    # As they are: two texts that differ may look the same with escapes in them.
    before, after = old.split("\n"), new.split("\n")
    lines = len(before) + len(after)
    if lines > _MOST_COMPARED or before == after:  # difflib takes long
        changes = [*(f"-{line}" for line in before), *(f"+{line}" for line in after)]
    else:
        # All of both texts, without the lines of headers.
        changes = list(difflib.unified_diff(before, after, n=lines, lineterm=""))[3:]
    yield from map(_exact, changes)


_MOST_COMPARED = 4000
"""Lines of an edit that are compared; a longer one is shown as what goes and what comes."""


def _field(name: str, value: Any) -> Iterator[str]:
    first, *rest = _lines(value) if isinstance(value, str) else _json_lines(value)
    yield f"{_exact(name)}: {first}"
    yield from (f"  {line}" for line in rest)


def _lines(text: str) -> list[str]:
    return [_exact(line) for line in text.split("\n")]


def _json_lines(value: Any) -> list[str]:
    try:
        text = json.dumps(value, ensure_ascii=False, indent=2)
    except (RecursionError, ValueError):
        text = json.dumps(jsontext.clean(value, set()), ensure_ascii=False, indent=2)
    return [_seen(line) for line in text.split("\n")]  # in which each backslash is two


def _exact(text: str) -> str:
    """Return a text so that two that differ look different: what is not seen as its escape.

    Backslashes are doubled where an escape follows, or what looks like one.
    """
    return _seen(re.sub(_BEFORE_ESCAPE, lambda found: 2 * found[0], text))


_BEFORE_ESCAPE = r"\\+(?=x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|[^ -~\t])"


def _seen(text: str) -> str:
    """Return a text in which each character but TAB that shows nothing is its escape."""
    if text.isascii() and text.isprintable():
        return text
    return text.translate({ord(one): _escape(ord(one)) for one in set(text) if _is_hidden(one)})


def _is_hidden(character: str) -> bool:
    # Blanks other than the common one, joiners, halves of pairs; and letters and marks without ink.
    return not (character.isprintable() or character == "\t") or bool(re.match(_NO_INK, character))


_NO_INK = (
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def _escape(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
