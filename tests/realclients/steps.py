"""The words in which the plans of a fake model are written; each fake API spells them its own way.

A prompt says ``[[NAME key=value …]]`` anywhere in its text, and each request of its turn gets one
step of the plan of that name; ``{key}`` in the plan's strings is replaced by the value. The prompt
of a subagent names a plan of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

_MARK = re.compile(r"\[\[([a-z-]+)((?: \w+=[^\s\]]+)*)\]\]")


class Fault(NamedTuple):
    """How a step goes wrong, the first `times` times that it is asked for.

    `kind` is ``refuse`` (an HTTP error of `status` and `error`), ``cut`` (the connection closes
    after `after` deltas), ``event`` (an error event of `error` after them) or ``stall`` (nothing
    more comes).
    """

    kind: str
    after: int = 2
    status: int = 0
    error: str = "api_error"
    times: int = 1_000_000


class Step(NamedTuple):
    """One answer of the model: its content blocks, and how it fails."""

    blocks: tuple[dict[str, Any], ...]
    fault: Fault | None = None
    stop: str = ""
    pause: float = 0.0


Plans = dict[str, list[Step]]


class Turn(NamedTuple):
    """One message of a request: who has it, and its texts without results of tools."""

    is_model: bool
    texts: Sequence[str]


def say(text: str) -> dict[str, Any]:
    """Return a text block."""
    return {"type": "text", "text": text}


def think(text: str) -> dict[str, Any]:
    """Return a thinking block; the server signs it where the API does."""
    return {"type": "thinking", "thinking": text}


def call(name: str, **given: Any) -> dict[str, Any]:
    """Return a tool call; the server gives it an id where the API does."""
    return {"type": "tool_use", "name": name, "input": given}


def refusing(status: int, error: str, *, times: int = 1_000_000) -> list[Step]:
    """Return a plan of one step that the API refuses, the first `times` times."""
    fault = Fault("refuse", status=status, error=error, times=times)
    return [Step((say("Said after all."),), fault)]


def choose(plans: Plans, turns: Sequence[Turn]) -> tuple[str, Step]:
    """Return the step that these turns are to be answered with, and its label, ``NAME:NUMBER``.

    The newest turn of the user that names a plan decides, and how many answers came after it.
    """
    for index in range(len(turns) - 1, -1, -1):
        if turns[index].is_model:
            continue
        marks = [mark for text in turns[index].texts for mark in _MARK.finditer(text)]
        if marks:
            name, given = marks[-1][1], dict(re.findall(r"(\w+)=([^\s\]]+)", marks[-1][2]))
            at = sum(turn.is_model for turn in turns[index + 1 :])
            plan = plans.get(name, [])
            if at < len(plan):
                blocks = tuple(_filled(block, given) for block in plan[at].blocks)
                return f"{name}:{at}", plan[at]._replace(blocks=blocks)
            return f"{name}:{at}", Step((say(f"{name} is over."),))
    return "aside:0", Step((say("Fine."),))


def _filled(value: Any, given: dict[str, str]) -> Any:
    if isinstance(value, str):
        for name, word in given.items():
            value = value.replace("{" + name + "}", word)
        return value
    if isinstance(value, dict):
        return {name: _filled(item, given) for name, item in value.items()}
    return value
