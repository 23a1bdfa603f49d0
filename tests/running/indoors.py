"""`agentsdir` run in this process, for programs that run it hundreds of times."""

from __future__ import annotations

import os
from collections.abc import Mapping
from io import BytesIO, TextIOWrapper
from pathlib import Path

from agentsdir.cli.command_line import run
from agentsdir.cli.environment import Environment
from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.layout import Layout

ROUNDS = 20
"""More than any scene has turns that follow from one another."""


def surroundings(variables: Mapping[str, str] = os.environ) -> Environment:
    """Return what a command is run in."""
    out, err = (TextIOWrapper(BytesIO(), "utf-8") for _ in range(2))
    home = Path(variables["HOME"])
    return Environment(BytesIO(), out, err, variables, Path.cwd(), home, login="me")


def agentsdir(*arguments: str, variables: Mapping[str, str] = os.environ) -> tuple[int, str, str]:
    """Run one command; return its exit code and what it printed."""
    env = surroundings(variables)
    code = run([*arguments], env)
    for stream in (env.stdout, env.stderr):
        stream.seek(0)
    return int(code), env.stdout.read(), env.stderr.read()


def pending() -> list[str]:
    """Return the agents that have messages which no turn ran."""
    layout = Layout(Path(os.environ["AGENTSDIR_ROOT"]))
    agents = map(layout.agent, layout.agent_ids())
    return [paths.id for paths in agents if read_agent(paths).state.pending]


def drain() -> None:
    """Have every message run, and what comes of it."""
    said: list[tuple[int, str, str]] = []
    for _ in range(ROUNDS):
        waiting = pending()
        if not waiting:
            return
        said = [agentsdir("send", "--no-message", agent) for agent in waiting]
    raise AssertionError(f"{waiting} still have messages: {said}")
