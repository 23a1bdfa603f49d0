"""An agent's session opened in the real client at a terminal (docs/behaviour.md, "Open")."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from agentsdir.adapters.protocol import TerminalSession, program_of
from agentsdir.engine.providers import (
    apply_profile,
    check_folder,
    find_provider,
    mode_of,
    open_provider,
    provider_errors,
    session_spec,
)
from agentsdir.engine.recovery import close_crashed_turn
from agentsdir.engine.slots import SessionMultiplexer
from agentsdir.engine.sync import sync_with_client
from agentsdir.engine.turn import check_can_run
from agentsdir.engine.turn_lock import hold_turn
from agentsdir.formats.blocks import MAIN
from agentsdir.formats.errors import ProviderError, UsageError
from agentsdir.formats.store.agent import read_agent, recorded_creation
from agentsdir.formats.store.log import read_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentsdir.adapters.protocol import SessionSpec, TerminalProgram
    from agentsdir.engine.services import Services
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.log import Position

_is_uuid = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch


class Opened(NamedTuple):
    """What became of a client that was opened: its exit code, and how many prompts it brought."""

    code: int
    prompts: int


def check_opens(paths: AgentPaths) -> None:
    """Raise `UsageError` (kind ``no-program``) for an agent whose provider runs no program.

    Raises `SessionStateError` (kind ``no-folder``) where the working directory is gone.
    """
    state = read_agent(paths).state
    provider = find_provider(state)[1]
    if program_of(provider) is None:
        raise UsageError(
            f"{state.session.provider_name} runs no program that could be opened",
            hint=f"`agentsdir log {paths.id}` shows what was said",
            kind="no-program",
        )
    check_folder(paths, state)


def open_client(
    services: Services,
    paths: AgentPaths,
    run: Callable[[TerminalProgram, SessionSpec], int],
    *,
    wait: float = 0,
) -> Opened:
    """Have a person go on with an agent's session in its client, and log what was said there.

    `.turn` and a slot are held meanwhile. The log is level with the client's transcript before the
    client starts and after it has ended, however that is.

    Args:
        run: runs the program at the terminal, and returns its exit code.
        wait: seconds to wait for a turn that runs, and for a slot.

    Raises `Busy`, `SlotsHeld`, `SessionStateError` for a closed agent, `UsageError` for a provider
    that cannot be opened, and what the start of a turn raises.
    """
    services.check_trust()
    check_opens(paths)
    slots = SessionMultiplexer(services)
    with hold_turn(paths, wait=wait) as held, services.disk.synced_at_end():
        state = close_crashed_turn(services, paths)
        check_can_run(state)
        state = slots.acquire(paths, state, held, reason="open", wait=wait).state
        try:
            architecture, provider = find_provider(state)
            spec = session_spec(services, paths, state, provider)
            mode = mode_of(services.client_config(state), recorded_creation(paths), state)
            spec = spec._replace(host=spec.host._replace(permission_mode=mode))
            _check_id(spec)
            apply_profile(services, paths, state, provider)
            state, spec = sync_with_client(services, paths, state, architecture, provider, spec)
            begun = state.position
            try:
                with open_provider(services, provider, spec) as session:
                    if not isinstance(session, TerminalSession):
                        name = state.session.provider_name
                        raise UsageError(f"{name} cannot be opened", kind="no-program")
                    with provider_errors():
                        program = session.at_terminal()
                    held.check()
                    code = run(program, spec)
            finally:
                sync_with_client(services, paths, state, architecture, provider, spec)
        finally:
            slots.release(paths)
    return Opened(code, _prompts(paths, begun))


def _check_id(spec: SessionSpec) -> None:
    """Raise `ProviderError` (kind ``bad-native-id``) for an id that a client could misread."""
    if not _is_uuid(spec.native_id):
        raise ProviderError(
            f"the log calls the session {spec.native_id[:100]!r}, which is no UUID",
            hint="nothing was started; `agentsdir reset` begins another session",
            kind="bad-native-id",
        )


def _prompts(paths: AgentPaths, begun: Position) -> int:
    """Return how many prompts the log has since a point."""
    found = set()
    for record in read_records(paths.log, begun):
        block = record.data.get("block") if record.event == "block" else None
        if isinstance(block, dict) and block.get("type") == "user_message":
            found.add((block.get("conversationId"), block.get("id")))
    return sum(conversation == MAIN for conversation, _ in found)
