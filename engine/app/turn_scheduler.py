"""Turns of sessions by their ids, and the work that waits for the end of a turn.

docs/library.md, "TurnScheduler".
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Self, Unpack

from agentsdir.adapters import registry
from agentsdir.engine.app.app import BaseApp, as_wanted, find_whole
from agentsdir.engine.app.component import AgentConfig, always
from agentsdir.engine.create import create_agent
from agentsdir.engine.restore import restore_root
from agentsdir.formats.store.agent import read_agent

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentsdir.adapters.protocol import Architecture
    from agentsdir.engine.app.app import SharedOptions
    from agentsdir.engine.app.prompt import Input
    from agentsdir.engine.app.session import Session
    from agentsdir.engine.create import NewAgent
    from agentsdir.engine.restore import Restored
    from agentsdir.engine.services import Services
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.state import SessionRecord


class BaseTurnScheduler:
    """Makes sessions and runs their turns: a slot is acquired, the prompt sent, the slot released.

    A turn that is completed is followed by the work that `defer` was given. Any thread may use it;
    turns of several sessions run side by side, as far as there are slots.

    Args:
        services: as for `BaseApp`.
        new: the same.
        options: see `SharedOptions`.
    """

    def __init__(
        self,
        services: Callable[[], Services],
        new: NewAgent,
        **options: Unpack[SharedOptions],
    ) -> None:
        self._app = BaseApp(always(AgentConfig()), services, new, **options)
        self._new = new
        self._deferred: deque[Callable[[], object]] = deque()
        # Where the sessions are, and not their records: another session's turn may suspend one.
        self._known: dict[str, AgentPaths] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._app.close(abort=kind is not None)

    def create_session(
        self, provider: str | Architecture, model: str = "", system_prompt: str = ""
    ) -> SessionRecord:
        """Create a session, and return its record.

        Args:
            provider: its name, empty for the user's default, or a provider of this program
                (`model_provider`).
            model: empty for the provider's default.
            system_prompt: empty for none.

        Raises what `create_agent` raises.
        """
        if not isinstance(provider, str):
            registry.register(provider)  # the log has only its name
        config = AgentConfig(provider=provider, model=model, system=system_prompt)
        services = self._app.services()
        with services.disk.synced_at_end():
            made = create_agent(services, as_wanted(config, self._new))
        paths = self._app.session_of(services.layout.agent(made), is_new=True).paths
        record = read_agent(paths).state.session
        self._known[record.id] = paths
        return record

    def session(self, session_id: str) -> SessionRecord:
        """Return the record of a session as it is now. Raises `NoSuchAgent`."""
        return read_agent(self._find(session_id).paths).state.session

    def send_turn(self, session_id: str, prompt: Input) -> str:
        """Run a turn, and then what waits for its end; return the answer.

        A session that was suspended meanwhile, for the slot of another, is restored first. A turn
        that fails is followed by none of the deferred work, which waits for the next one that is
        completed.

        Raises `NoSuchAgent`, `SessionStateError` for a terminated session, `ProviderError` when the
        turn fails, `UsageError` (kind ``waits-for-itself``) in a turn of the same session, where
        `defer` is of use, and what deferred work raises; the work behind that waits.
        """
        session = self._find(session_id)
        for running in session.executions:
            running.check_can_wait()  # before the message is sent, which would have its turn
        answer = session.send(prompt).wait().response
        while self._deferred:
            self._deferred.popleft()()
        return answer

    def terminate_session(self, session_id: str) -> None:
        """Terminate a session for good. Raises `NoSuchAgent`, and what `engine.close` raises."""
        self._find(session_id).close()
        self._known.pop(session_id, None)

    def defer(self, work: Callable[[], object]) -> None:
        """Have `work` called when a turn is completed and its slot released.

        It is called in the thread of `send_turn`, in the order of the calls of `defer`; a tool or a
        callback of a turn may be where it is deferred.
        """
        self._deferred.append(work)

    def recover(self) -> list[Restored]:
        """Bring all sessions to a sound state after a crash, as `agentsdir restore` does.

        Turns that a dead process left open are ended, and sessions that are active are suspended;
        no message is sent again. Returns what was done to each.
        """
        return restore_root(self._app.services())

    def _find(self, session_id: str) -> Session:
        paths = self._known.get(session_id)
        if paths is None:
            paths, _ = find_whole(self._app.services().layout, session_id)
            self._known[session_id] = paths
        return self._app.session_of(paths)
