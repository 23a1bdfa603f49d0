"""The client's session that a word of a command line names."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from agentsdir.cli.naming import agent_reference
from agentsdir.cli.trust import check_trust
from agentsdir.engine.follow import session_of_agent
from agentsdir.engine.parse import (
    FoundSession,
    find_native,
    find_sessions,
    is_native_reference,
    stores_of,
)
from agentsdir.formats import ids
from agentsdir.formats.errors import AgentsdirError, NoSuchAgent, NotATranscript, UsageError
from agentsdir.formats.source import Source

if TYPE_CHECKING:
    from agentsdir.cli.environment import Environment


def find_session(env: Environment, operand: str) -> FoundSession:
    """Return the session that an operand names by its id, or by an agent that goes on with it.

    Raises `NoSuchAgent`, and `UsageError` for a word that can name neither.
    """
    operand = agent_reference(env, operand)
    stores = stores_of(env.home, env.cwd, env.variables)
    missing: AgentsdirError | None = None
    if is_native_reference(operand):
        try:
            return find_native(stores, operand).found
        except NoSuchAgent as error:
            missing = error
    if ids.may_be_name(operand):
        try:
            architecture, reader, main = session_of_agent(
                operand,
                layout=env.layout,
                stores=stores,
                home=env.home,
                variables=env.variables,
                check_trust=partial(check_trust, env),
            )
            return FoundSession(architecture, reader.files(main))
        except NoSuchAgent as error:
            if error.kind != NoSuchAgent.kind:
                raise
    if missing is not None:
        raise missing
    hint = "name an agent, or give at least the first 8 characters of a session's id"
    raise UsageError(f"there is no file {operand}", hint=hint)


def session_of_file(env: Environment, operand: str) -> FoundSession:
    """Return the session in one transcript, or for `-` on standard input.

    Raises `NotATranscript`, and `UsageError` for what is no file.
    """
    path = env.cwd / operand
    if operand == "-":
        source = Source.from_stream("-", env.stdin)
    elif path.is_file():
        source = Source(operand, path=path)
    else:
        raise UsageError(f"{operand} is no file")

    def refuse(error: NotATranscript) -> None:
        raise error

    found = find_sessions([source], "auto", refuse)
    if not found:
        raise NotATranscript(f"{operand} holds no session", file=operand)
    return found[0]
