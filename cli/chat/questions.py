"""A question whether a tool may run, as it stands above the line, and the keys that answer it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.cli.cells import cut, wrapped
from agentsdir.cli.output import one_line
from agentsdir.cli.questions import Answer, Question, call_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentsdir.cli.questions import Keep

_KEPT: dict[str, Keep] = {"t": "turn", "a": "agent", "f": "folder"}
_WORDS = {"turn": "this turn", "agent": "this agent", "folder": "this folder"}


class AskedQuestion:
    """A question that waits for its answer.

    Args:
        said: the object of the protocol.
        request: the number of the request that asks.
    """

    REASON = "r"
    VIEW = "v"

    def __init__(self, said: Mapping[str, Any], request: Any) -> None:
        self.id = str(said["questionId"])
        self.request = request
        self.question = Question.from_json(said)
        self._lines = call_lines(self.question.input)
        has_rule = bool(self.question.rule)
        self._kept = {k: v for k, v in _KEPT.items() if has_rule and v in self.question.keeps}

    def lines(self, columns: int, rows: int, count: int) -> list[str]:
        """Return the rows of the question: who asks, what for, and which keys answer.

        Args:
            rows: how many there may be.
            count: how many questions wait, with this one.
        """
        head = wrapped_words(self.question.headline, columns - 1, 3)
        keys = wrapped_words(self._keys(count), columns - 1, 3)
        keys += wrapped_words(self._always(), columns - 1, 3) if self._kept else []
        room = max(1, rows - len(head) - len(keys))
        call = [row for line in self._lines for row in wrapped(line, columns - 3)]
        if len(call) > room:
            more = len(call) - room + 1
            call = [*call[: room - 1], f"… {more} more rows: v shows all"]
        return [*head, *(cut(f"  {row}", columns - 1) for row in call), *keys]

    def _keys(self, count: int) -> str:
        said = ["y yes", "n no", "r no, with a reason"]
        said.append("v view all")
        more = f" ({count - 1} more wait)" if count > 1 else ""
        return " · ".join(said) + more

    def _always(self) -> str:
        said = " · ".join(f"{key} {_WORDS[kept]}" for key, kept in self._kept.items())
        return f"always {self.question.always}: {said}"

    def answer_of(self, key: str) -> Answer | None:
        """Return the answer that a key gives; None for a key that is none."""
        if key == "y":
            return Answer(allowed=True)
        if key == "n":
            return Answer(allowed=False)
        if kept := self._kept.get(key):
            return Answer(allowed=True, keep=kept)
        return None

    def whole(self) -> list[str]:
        """Return all lines of the question."""
        rule = [f"  kept: {one_line(self.question.rule)}"] if self.question.rule else []
        return [self.question.headline, *(f"  {line}" for line in self._lines), *rule]

    def said(self, answer: Answer) -> str:
        """Return in one line what was asked and answered."""
        what = one_line(f"{self.question.tool}: {self._lines[0] if self._lines else ''}"[:200])
        if not answer.allowed:
            return f"no · {what}" + (f" · {answer.reason}" if answer.reason else "")
        kept = _WORDS.get(answer.keep)
        always = f", always {self.question.always} for {kept}" if kept else ""
        return f"yes{always} · {what}"


def wrapped_words(text: str, columns: int, rows: int) -> list[str]:
    """Return a text on at most some rows, broken between words; the last row is cut."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if len(longer) <= columns or not lines[-1] or len(lines) == rows:
            lines[-1] = longer
        else:
            lines.append(word)
    return [cut(line, columns) for line in lines]
