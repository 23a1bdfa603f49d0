"""What `spawn` does with its arguments: whose subagent, what it is, and who runs it."""

from __future__ import annotations

from typing import Any, NamedTuple

from agentsdir.cli.answers import AnswerPrinter
from agentsdir.cli.environment import Environment
from agentsdir.cli.output import print_document
from agentsdir.cli.pairs import read_pairs
from agentsdir.cli.prompts import check_text, read_prompt
from agentsdir.engine.agents import find_agent
from agentsdir.engine.spawning.agent_files import AgentFile, read_agent_file
from agentsdir.engine.spawning.children import BASE_NAME, Child, Wanted
from agentsdir.formats.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from agentsdir.engine.results import TurnResult
    from agentsdir.engine.world import World


class Asked(NamedTuple):
    """The arguments of `spawn`, as they were given."""

    prompt: str | None
    parent: str
    name: str
    provider: str
    model: str
    system: str
    profile: str
    cwd: str
    options: list[str]
    file: Path | None
    props: list[str]
    max_ticks: int | None
    detach: bool
    ephemeral: bool
    events: bool
    wait: float | None
    timeout: float | None
    as_json: bool


def wanted_of(env: Environment, asked: Asked) -> Wanted:
    """Return what the arguments and the agent file say that the subagent is to be.

    Raises `UsageError` for what cannot be meant, and what `read_agent_file` raises.
    """
    for option in ("name", "model", "system", "profile"):
        check_text(getattr(asked, option), option)
    props = read_pairs("--prop", asked.props)
    for name, value in props.items():
        check_text(name + value, "prop")
    if props and asked.file is None:
        raise UsageError("--prop fills in an agent file; give one by --file")
    said = AgentFile()
    if asked.file is not None:
        said = read_agent_file(env.cwd / asked.file, props)
    folder = env.cwd / asked.cwd
    if asked.cwd and not folder.is_dir():
        raise UsageError(f"--cwd {folder} is no folder")
    profile = asked.profile or said.profile
    return Wanted(
        content=_task(env, asked, said),
        name=asked.name,
        base=(asked.file.stem if asked.file else profile) or BASE_NAME,
        provider=asked.provider or said.provider,
        model=asked.model or said.model,
        system_prompt=asked.system or said.system,
        profile=profile,
        cwd=str(folder.resolve()) if asked.cwd else "",
        options=read_pairs("--option", asked.options),
        max_ticks=asked.max_ticks or said.max_ticks,
        ephemeral=asked.ephemeral,
    )


def _task(env: Environment, asked: Asked, said: AgentFile) -> list[dict[str, Any]]:
    if asked.prompt is None and said.prompt.strip():
        return [{"type": "text", "text": said.prompt}]
    return read_prompt(env, "-" if asked.prompt is None else asked.prompt)
