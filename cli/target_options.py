"""The options that say whom a message is for, declared once for the commands that have them."""

from __future__ import annotations

from typing import Annotated

import typer

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
