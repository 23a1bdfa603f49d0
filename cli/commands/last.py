"""`agentsdir last`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import typer

from agentsdir.cli import options
from agentsdir.cli.conversation import Pages
from agentsdir.cli.environment import Environment
from agentsdir.cli.exits import Exit
from agentsdir.cli.options import GroupedCommand
from agentsdir.cli.output import note, print_json
from agentsdir.cli.pager import paged
from agentsdir.cli.spoken import Spoken, read_spoken
from agentsdir.formats.blocks import MAIN, StreamEvent
from agentsdir.formats.errors import SessionStateError

Command = GroupedCommand


class LastAnswer(NamedTuple):
    """What a turn answered: its number, its text, and when the last of it was said.

    The number is 0 where no turn has begun.
    """

    turn: int
    text: str
    timestamp: str | None


def run(
    ctx: typer.Context,
    operand: options.Conversation = "",
    color: options.Color = "auto",
    no_pager: options.NoPager = False,
    as_json: options.JsonObject = False,
) -> int:
    """Print the last answer of an agent: its text in a pipe, laid out on a terminal.

    \b
    Examples:
      agentsdir last
      agentsdir last fixer > answer.md
      agentsdir last fixer --json | jq -r .text

    It is all that the last turn which has an answer said to you. Where a later turn failed, stderr
    says so.
    """
    env: Environment = ctx.obj
    spoken = read_spoken(env, operand)
    answer = _answer(spoken)
    if answer is None:
        whose = spoken.paths.id if spoken.paths else operand
        raise SessionStateError(f"{whose} has no answer yet", kind="no-answer")
    if as_json:
        agent_id = spoken.paths.id if spoken.paths else None
        print_json(env, {"type": "answer", "agentId": agent_id, **answer._asdict()})
    elif env.stdout.isatty():
        pages = Pages.of(env, color)
        with paged(env, wanted=not no_pager):
            env.stdout.write(pages.answer(answer.text) + "\n")
    else:
        env.stdout.write(answer.text + "\n")
    if (count := len(spoken.conversation.turns)) > answer.turn:
        first = answer.turn + 1
        later = f"turn {count} has" if first == count else f"turns {first} to {count} have"
        note(env, f"this is the answer of turn {answer.turn}; {later} none")
    for finding in spoken.findings:
        if finding.is_damage:
            note(env, str(finding))
    return Exit.PARTIAL if any(one.is_damage for one in spoken.findings) else Exit.OK


def _answer(spoken: Spoken) -> LastAnswer | None:
    """Return the answer of the last turn that has one, as `send` prints it."""
    conversation = spoken.conversation
    numbers = range(len(conversation.turns), 0, -1)
    found = (_of_turn(number, conversation.events(number, number)) for number in numbers)
    if not conversation.turns:
        return _of_turn(0, conversation.events())
    return next((answer for answer in found if answer is not None), None)


def _of_turn(number: int, events: Iterator[StreamEvent]) -> LastAnswer | None:
    texts: list[str] = []
    at = None
    for event in events:
        block = event.get("block", {})
        is_answer = block.get("type") == "assistant_text" and block["conversationId"] == MAIN
        if is_answer and not (block.get("hidden") or block.get("superseded")):
            texts.append(str(block.get("content", "")))
            at = event.get("timestamp")
    return LastAnswer(number, "\n\n".join(texts), at) if texts else None
