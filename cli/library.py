"""`App` and the other classes of the library that work on this machine.

They are those of `engine/app` with its clock, its ids, the user's configuration and hooks.

docs/library.md.
"""

from __future__ import annotations

import logging
import os
from functools import partial
from io import BytesIO, StringIO
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Self, TypeAlias, Unpack

from agentsdir.adapters import registry
from agentsdir.adapters.protocol import SessionSpec, deny_all
from agentsdir.cli.config import provider_config
from agentsdir.cli.environment import Environment, working_directory
from agentsdir.cli.services import FreshIds, host_of, now, services_of
from agentsdir.engine.app.agent_session import BaseAgentSandbox, BaseAgentSession
from agentsdir.engine.app.agent_system import BaseAgentSystem
from agentsdir.engine.app.app import BaseApp
from agentsdir.engine.app.asynchronous import BaseAsyncApp
from agentsdir.engine.app.component import AgentConfig
from agentsdir.engine.app.turn_scheduler import BaseTurnScheduler
from agentsdir.engine.create import NewAgent
from agentsdir.formats import ids
from agentsdir.formats.signals import sleep
from agentsdir.formats.store import locks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agentsdir.adapters.protocol import Decision, ToolRequest
    from agentsdir.engine.app.agent_session import SessionRequest
    from agentsdir.engine.app.app import AppOptions, SharedOptions
    from agentsdir.engine.app.component import Agent
    from agentsdir.engine.services import Services

Root: TypeAlias = "str | os.PathLike[str] | None"

LOGGER = logging.getLogger("agentsdir")
"""Gets what commands note on standard error."""


class App(BaseApp):
    """An app on an agents directory of this machine, as `BaseApp` describes it.

    Args:
        agent: what the sessions run: a component, an element or an `AgentConfig`.
        root: the agents directory; None for the one that commands would use here: that of
            `$AGENTSDIR_ROOT`, the nearest `.agentsdir` upwards, or `~/.agentsdir`.
        options: see `AppOptions`.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        root: Root = None,
        **options: Unpack[AppOptions],
    ) -> None:
        super().__init__(agent, *_at(root), **options)


class AsyncApp(BaseAsyncApp):
    """The same for asyncio; the arguments are those of `App`."""

    def __init__(
        self,
        agent: Agent,
        *,
        root: Root = None,
        **options: Unpack[AppOptions],
    ) -> None:
        super().__init__(App(agent, root=root, **options))


class AgentSession(BaseAgentSession):
    """A session of this machine, as `BaseAgentSession` describes it."""

    @classmethod
    def create(cls, *, root: Root = None, **wanted: Unpack[SessionRequest]) -> Self:
        """Return a new session, or the one that a request names (`BaseAgentSession.open`).

        Args:
            root: as for `App`.
            wanted: see `SessionRequest`.
        """
        return cls.open(*_at(root), **wanted)


class AgentSandbox(BaseAgentSandbox):
    """One session of a client of this machine, as `BaseAgentSandbox` describes it.

    The client runs as config.toml says.

    Args:
        architecture: by its name, or that of its adapter.
        workspace: the working directory.
        session_id: a uuid, of a new session or one that is there; empty for a new one.
        model: empty for the client's own choice.
        system_prompt: empty for none.
        options: the provider's own settings.
        confirm: answers tool calls that need permission; none is given without it.
        write_file: see `BaseAgentSandbox`.
    """

    def __init__(
        self,
        architecture: str,
        workspace: str | os.PathLike[str],
        *,
        session_id: str = "",
        model: str = "",
        system_prompt: str = "",
        options: Mapping[str, str] = MappingProxyType({}),
        confirm: Callable[[ToolRequest], Decision] = deny_all,
        write_file: Callable[[str, bytes], None] | None = None,
    ) -> None:
        env = ProgramEnvironment("")
        said = provider_config(env, registry.find(architecture).name)
        spec = SessionSpec(
            native_id=session_id or _new_uuid(),
            model=model or said.model,
            system_prompt=system_prompt,
            cwd="",
            now=now,
            sleep=sleep,
            new_id=_new_uuid,
            options=options,
            host=host_of(env, said)._replace(confirm=confirm),
        )
        super().__init__(architecture, spec, env.cwd / workspace, write_file)


class TurnScheduler(BaseTurnScheduler):
    """The sessions of an agents directory of this machine, as `BaseTurnScheduler` describes it.

    Args:
        root: as for `App`.
        options: see `SharedOptions`.
    """

    def __init__(self, *, root: Root = None, **options: Unpack[SharedOptions]) -> None:
        super().__init__(*_at(root), **options)


class AgentSystem(BaseAgentSystem):
    """The agents of an agents directory of this machine, as `BaseAgentSystem` describes it.

    Args:
        agent: what agents that are made here begin with.
        root: as for `App`.
        options: see `SharedOptions`.
    """

    def __init__(
        self,
        agent: AgentConfig = AgentConfig(),  # noqa: B008, it is frozen
        *,
        root: Root = None,
        **options: Unpack[SharedOptions],
    ) -> None:
        super().__init__(agent, *_at(root), **options)


def _at(root: Root) -> tuple[Callable[[], Services], NewAgent]:
    """Return what makes services for an agents directory, and who and where a new agent's user is.

    Args:
        root: as for `App`.
    """
    env = ProgramEnvironment("" if root is None else os.fspath(root))
    return partial(services_of, env), NewAgent(login=env.login, cwd=str(env.cwd))


def _new_uuid() -> str:
    return ids.dashed(FreshIds().session())


class ProgramEnvironment(Environment):
    """What a program passes to the engine of its process.

    There is no terminal at which a person is asked, and notes go to the logger ``agentsdir``.
    """

    def __init__(self, root: str) -> None:
        cwd = working_directory()
        super().__init__(BytesIO(), StringIO(), StringIO(), os.environ, cwd, Path.home(), root)
        self.ask = lambda _question: None
        # What follows from a turn runs in its thread: a process of the command line has none of
        # this program's providers, tools and callbacks.
        self.overrides = {"start_turn": None}

    def notify(self, text: str) -> None:
        """Log a note."""
        LOGGER.warning(text)

    def count_waits(self, limit: float | None = None) -> None:
        """Count the waits of each call of the program by themselves, however long it runs.

        A long wait is no warning: with more sessions than slots it is what most of them do.
        """
        waits = locks.Waits(LOGGER.info)
        if limit is not None:
            waits.limit = limit
        locks.count_on(waits)
