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


# A turn that has its program ask for subagents; a system message it merely repeats.
ASKS = """
from asking import agentsdir
if "<system_message" not in str(content):
    for name in str(content).split():
        more = ["echo"] if name != "failing" else ["script", "-o", "file=/nonexistent"]
        task = ["task of " + name, "--name", name, "--provider", *more]
        said = agentsdir(self.host, "spawn", *task)
        yield self.on_disk("assistant_text", "spawned-" + name, content=said)
else:
    yield self.on_disk("assistant_text", "answer", content="heard: " + str(content))
"""


class Told:
    """Whom a made-up provider asks what to do with a prompt; the test says it."""

    on_prompt: Callable[[str], None] = staticmethod(lambda _prompt: None)
