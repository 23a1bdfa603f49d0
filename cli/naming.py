"""The agent that a word of a command line names (docs/behaviour.md, "Naming an agent")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentsdir.cli.output import note
from agentsdir.engine import lookup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentsdir.cli.environment import Environment
    from agentsdir.formats.store.layout import AgentPaths

LAST = "@last"
"""Names the agent of the working directory with the newest turn; no agent has such a name."""


def find_agent(env: Environment, reference: str, *, whole_name: bool = False) -> AgentPaths:
    """Return the agent that a word names.

    Arguments and errors of `lookup.find_agent`; raises what `agent_reference` raises, too.
    """
    return lookup.find_agent(env.layout, agent_reference(env, reference), whole_name=whole_name)


def find_agents(
    env: Environment, references: Sequence[str], *, archived: bool = False
) -> list[AgentPaths]:
    """Return the agents that words name, by the whole of a name, each once.

    With `archived`, `@last` is none of them.
    """
    if not archived:
        references = [agent_reference(env, reference) for reference in references]
    return lookup.find_agents(env.layout, references, archived=archived)


def agent_reference(env: Environment, reference: str) -> str:
    """Return the agent's id for `@last` and `@last:PROVIDER`, and any other word as it is.

    An agent that cannot be read is passed over, and named on stderr. Raises `NoSuchAgent` where
    there is no such agent.
    """
    word, _, provider = reference.partition(":")
    if word != LAST or reference == f"{LAST}:":
        return reference
    found = lookup.last_agent(env.layout, str(env.cwd.resolve()), provider)
    for listed in found.unreadable:
        note(env, lookup.passed_over(listed))
    return found.paths.id
