"""Options and arguments that several commands share, how `--help` groups them, and their values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from agentsdir.cli.colour import WHEN
from agentsdir.formats.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

TARGET = "Target, in place of AGENT"
NEW_AGENT = "New agent"
MESSAGE = "Message"
TURN = "Turn"
WAITING = "Waiting"
OUTPUT = "Output"


class GroupedCommand(TyperCommand):
    """A command whose help lists its options under the headings that they name.

    An option names its heading with `rich_help_panel`, which typer itself shows only with rich.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the options under each heading, in the order they are in."""
        sections: dict[str, list[Any]] = {}
        for param in self.get_params(ctx):
            is_argument = param.param_type_name == "argument"
            named = getattr(param, "rich_help_panel", None)
            heading = "Arguments" if is_argument else named or "Options"
            sections.setdefault(heading, []).append(param.get_help_record(ctx))
        for heading, rows in sections.items():
            with formatter.section(heading):
                formatter.write_dl(rows)


Agent = Annotated[
    str,
    typer.Argument(
        metavar="AGENT",
        help="An id, a session id, a name, or the first 4 characters (or more) of one of them;"
        " @last or @last:PROVIDER: the agent of this folder with the newest turn",
    ),
]
# For what ends an agent: a name's beginning would mean another one when the command is repeated.
WholeAgent = Annotated[
    str,
    typer.Argument(
        metavar="AGENT",
        help="An id, a session id, a whole name, or the first 4 characters (or more) of an id;"
        " @last or @last:PROVIDER: the agent of this folder with the newest turn",
    ),
]

# What a person reads: `log` and `last`.
Conversation = Annotated[
    str,
    typer.Argument(
        metavar="[AGENT|ID|FILE]",
        help="An agent, the id of a client's session, a transcript, or - for stdin",
        show_default="@last",
    ),
]

# What `--json` prints differs from command to command.
JsonObject = Annotated[
    bool,
    typer.Option(
        "--json", rich_help_panel=OUTPUT, help="Print a JSON object, and errors as JSON, too"
    ),
]
JsonRow = Annotated[
    bool, typer.Option("--json", help="Print the agent's row as JSON, and errors as JSON, too")
]
JsonLines = Annotated[
    bool, typer.Option("--json", help="Print JSON Lines, and errors as JSON, too")
]
TerminalJsonLines = Annotated[
    bool, typer.Option("--json", help="Print JSON Lines on a terminal, too, and errors as JSON")
]
JsonErrors = Annotated[bool, typer.Option("--json", help="Print errors as JSON")]


# How text for people is shown.
def check_when(given: str) -> str:
    """Return the value of `--color`. Raises `UsageError` for one that there is not."""
    if given not in WHEN:
        raise UsageError(f"--color is {', '.join(WHEN[:-1])} or {WHEN[-1]}, not {given!r}")
    return given


Color = Annotated[
    str,
    typer.Option(
        "--color",
        metavar="WHEN",
        callback=check_when,
        rich_help_panel=OUTPUT,
        help="Colours: auto, always or never",
    ),
]
NoPager = Annotated[
    bool,
    typer.Option("--no-pager", rich_help_panel=OUTPUT, help="Do not show the text in a pager"),
]

WaitForTurn = Annotated[
    float,
    typer.Option(
        "--wait",
        metavar="SECONDS",
        help="How long to wait until the agent's running turn ends; -1: no limit",
    ),
]

# What a message says.
Messages = Annotated[
    Path | None,
    typer.Option(
        "--messages",
        metavar="FILE",
        rich_help_panel=MESSAGE,
        help="Read the prompt from a JSON file: a string, or text and image parts; - is stdin",
    ),
]
MessageId = Annotated[
    str,
    typer.Option(
        "--message-id",
        metavar="ID",
        rich_help_panel=MESSAGE,
        help="Give the message this id, so that a repeat is safe: it is queued only once",
        show_default="a new id",
    ),
]
NoStdin = Annotated[
    bool,
    typer.Option(
        "--no-stdin",
        rich_help_panel=MESSAGE,
        help="Do not read stdin; otherwise a pipe or a file there is added to the prompt",
    ),
]

# Which agent gets a message.
To = Annotated[
    str,
    typer.Option(
        metavar="AGENT",
        rich_help_panel=TARGET,
        help="Send to this agent; the only argument is then PROMPT",
    ),
]
Continue = Annotated[
    bool,
    typer.Option(
        "--continue",
        "-c",
        rich_help_panel=TARGET,
        help="Send to the agent of this folder with the newest turn, as @last; the only argument is"
        " then PROMPT",
    ),
]
Connector = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        rich_help_panel=TARGET,
        help="Send to the agent of a person behind a connector, such as telegram, and make it if"
        " there is none; needs --user and --channel, and PROMPT comes after --",
    ),
]
User = Annotated[
    str,
    typer.Option(
        metavar="ID", rich_help_panel=TARGET, help="With --connector: the person's id there"
    ),
]
Channel = Annotated[
    str,
    typer.Option(
        metavar="ID", rich_help_panel=TARGET, help="With --connector: the conversation's id there"
    ),
]
Cron = Annotated[
    str,
    typer.Option(
        metavar="UID",
        rich_help_panel=TARGET,
        help="Send to the agent of this cron task, and make it if there is none",
    ),
]
Heartbeat = Annotated[
    bool,
    typer.Option(
        "--heartbeat",
        rich_help_panel=TARGET,
        help="Send to the heartbeat agent, and make it if there is none",
    ),
]
Create = Annotated[
    bool,
    typer.Option(
        "--create",
        rich_help_panel=TARGET,
        help="AGENT is a name: make an agent of that name if there is none",
    ),
]
Ephemeral = Annotated[
    bool,
    typer.Option(
        "--ephemeral",
        rich_help_panel=TARGET,
        help="Send to a new agent, which is removed when its work is done",
    ),
]

# What a new agent is like.
Provider = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        rich_help_panel=NEW_AGENT,
        help="The provider that answers: claude, gemini, echo, script, or a plug-in's",
        show_default="that of your settings, or else the one client on your search path",
    ),
]
Model = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        rich_help_panel=NEW_AGENT,
        help="The provider's model",
        show_default="that of config.toml, or else the provider's choice",
    ),
]
System = Annotated[
    str, typer.Option(metavar="TEXT", rich_help_panel=NEW_AGENT, help="The system prompt")
]
Option = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="NAME=VALUE",
        rich_help_panel=NEW_AGENT,
        help="A setting of the provider, such as file=talk.jsonl; may be repeated",
    ),
]


# How a turn is run, and what is printed of it.
def check_seconds(given: float) -> float:
    """Return an option as it is. Raises `UsageError` for `nan`, which no time is longer than."""
    if given != given:
        raise UsageError("nan is no number of seconds")
    return given


Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0,
        callback=check_seconds,
        rich_help_panel=TURN,
        help="End the turn after this time; 0: no limit",
    ),
]
Events = Annotated[
    bool,
    typer.Option(
        "--events",
        rich_help_panel=OUTPUT,
        help="Print stream events as JSON Lines, not the text of the answer",
    ),
]


Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        rich_help_panel=OUTPUT,
        help="Print the answer alone, also on a terminal; notes stay on stderr",
    ),
]


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


Jobs = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=0,
        help="How many processes work; 1: this one alone; 0: one for each processor",
    ),
]
