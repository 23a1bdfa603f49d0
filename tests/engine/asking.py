"""What a turn's program does that calls `agentsdir`: in this process, with the turn's marks."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

from agentsdir.adapters.protocol import Host
from agentsdir.cli.command_line import run
from agentsdir.cli.environment import Environment


def agentsdir(host: Host, *arguments: str) -> str:
    """Run one command as a tool of the turn does; return what it prints. It must succeed."""
    out, err = io.StringIO(), io.StringIO()
    marks = {**host.variables, **host.marks}
    env = Environment(io.BytesIO(), out, err, marks, Path("/"), host.home, login="me")
    code = run(list(arguments), env)
    assert (code, err.getvalue()) == (0, ""), err.getvalue()
    return out.getvalue().strip()


class Told:
    """Whom a made-up provider asks what to do with a prompt; the test says it."""

    on_prompt: Callable[[str], None] = staticmethod(lambda _prompt: None)
