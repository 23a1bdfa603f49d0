"""Options that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentsdir.formats.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable


# The options that say whom a message is for, declared once for the commands that have them.

NoStdin = Annotated[
    bool,
    typer.Option("--no-stdin", help="Add nothing that is piped in, and do not wait 3 s for it"),
]
To = Annotated[str, typer.Option(metavar="AGENT", help="Whom it is for; then PROMPT comes first")]
From = Annotated[
    str, typer.Option("--from", metavar="AGENT", help="Which agent it is from; in a turn, its own")
]
Connector = Annotated[
    str, typer.Option(metavar="NAME", help="Find or make the agent of a person, who writes here")
]
User = Annotated[str, typer.Option(metavar="ID", help="The person's id there")]
Channel = Annotated[str, typer.Option(metavar="ID", help="The conversation there")]
Cron = Annotated[str, typer.Option(metavar="UID", help="Find or make the agent of a task")]
Heartbeat = Annotated[bool, typer.Option("--heartbeat", help="Find or make the heartbeat's agent")]
Create = Annotated[
    bool, typer.Option("--create", help="AGENT is a name; make the agent if nobody has it")
]
Ephemeral = Annotated[
    bool, typer.Option("--ephemeral", help="Make an agent that is removed when this is done")
]
Provider = Annotated[str, typer.Option(help="If it is made: who answers")]
Model = Annotated[str, typer.Option(help="If it is made: the provider's model")]
System = Annotated[str, typer.Option(help="If it is made: the system prompt")]
Option = Annotated[
    list[str] | None,
    typer.Option(
        "--option", "-o", metavar="NAME=VALUE", help="If it is made: a setting of the provider"
    ),
]


# Options that say NAME=VALUE, and may be given more than once.


def read_pairs(option: str, given: Iterable[str]) -> dict[str, str]:
    """Return what was given as NAME=VALUE; of two values of a name the last.

    Raises `UsageError` for one that is not of this form.
    """
    pairs = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise UsageError(f"{option} {text!r} is not NAME=VALUE")
        pairs[name] = value
    return pairs


# Options that say how long, in seconds.


def check_seconds(given: float) -> float:
    """Return an option as it is. Raises `UsageError` for `nan`, which no time is longer than."""
    if given != given:
        raise UsageError("nan is no number of seconds")
    return given
