"""The conversation that a word of a command line names: an agent's, a client's, or a file's."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agentsdir.adapters.protocol import MIN_NATIVE_PREFIX
from agentsdir.cli.naming import LAST, find_agent
from agentsdir.cli.sessions import session_of_file
from agentsdir.engine.conversation import ConversationTurns, read_conversation
from agentsdir.engine.parse import (
    SUFFIXES,
    FoundSession,
    find_native,
    is_native_reference,
    stores_of,
)
from agentsdir.formats.errors import NoSuchAgent, UsageError

if TYPE_CHECKING:
    from agentsdir.cli.environment import Environment
    from agentsdir.formats.findings import Finding
    from agentsdir.formats.store.layout import AgentPaths


_NATIVE_HINT = (
    f"`agentsdir list --native` the sessions of clients, of which {MIN_NATIVE_PREFIX} characters of"
    " the id are enough"
)


class Spoken(NamedTuple):
    """A conversation, the agent whose log it is, if any, and what is wrong with the files."""

    conversation: ConversationTurns
    paths: AgentPaths | None
    findings: list[Finding]


def find_spoken(env: Environment, operand: str) -> AgentPaths | FoundSession:
    """Return whose conversation a word names; an empty one is `@last`.

    In this order: `-` and the path of a file with the suffix of a transcript; an agent; any other
    file; a client's session by its id. Raises `NoSuchAgent`, `NotATranscript` or `UsageError`.
    """
    if operand == "-" or (operand.endswith(SUFFIXES) and (env.cwd / operand).is_file()):
        return session_of_file(env, operand)
    try:
        return find_agent(env, operand or LAST)
    except (NoSuchAgent, UsageError) as error:
        if error.kind == "ambiguous" or operand in ("", LAST) or operand.startswith(f"{LAST}:"):
            raise
        if (env.cwd / operand).exists():
            return session_of_file(env, operand)
        if isinstance(error, NoSuchAgent):
            error.hint = f"{error.hint}, {_NATIVE_HINT}" if error.hint else _NATIVE_HINT
        if not is_native_reference(operand):
            raise
        try:
            stores = stores_of(env.home, env.cwd, env.variables)
            return find_native(stores, operand).found
        except NoSuchAgent:
            raise error from None


def read_spoken(env: Environment, operand: str) -> Spoken:
    """Read the conversation that a word names, to its end (errors of `find_spoken`)."""
    found = find_spoken(env, operand)
    if isinstance(found, FoundSession):
        conversation = ConversationTurns()
        return Spoken(conversation, None, conversation.add_session(found))
    findings: list[Finding] = []
    return Spoken(read_conversation(found, findings.append), found, findings)
