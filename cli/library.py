"""The library's `App`, with the clock, the ids, the configuration and the hooks of this machine.

docs/library.md.
"""

from __future__ import annotations

import logging
import os
from functools import partial
from io import BytesIO, StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from agentsdir.cli.environment import Environment
from agentsdir.cli.services import services_of
from agentsdir.engine.app.app import BaseApp
from agentsdir.engine.app.asynchronous import BaseAsyncApp
from agentsdir.engine.create import NewAgent

if TYPE_CHECKING:
    from agentsdir.engine.app.app import AppOptions
    from agentsdir.engine.app.component import Agent

LOGGER = logging.getLogger("agentsdir")
"""Gets what commands note on standard error."""


class App(BaseApp):
    """An app on an agents directory of this machine , as `BaseApp` describes it.

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
        root: str | os.PathLike[str] | None = None,
        **options: Unpack[AppOptions],
    ) -> None:
        env = ProgramEnvironment("" if root is None else os.fspath(root))
        new = NewAgent(login=env.login, cwd=str(env.cwd))
        super().__init__(agent, partial(services_of, env), new, **options)


class AsyncApp(BaseAsyncApp):
    """The same for asyncio; the arguments are those of `App`."""

    def __init__(
        self,
        agent: Agent,
        *,
        root: str | os.PathLike[str] | None = None,
        **options: Unpack[AppOptions],
    ) -> None:
        super().__init__(App(agent, root=root, **options))


class ProgramEnvironment(Environment):
    """What a program passes to the engine of its process.

    There is no terminal at which a person is asked, and notes go to the logger ``agentsdir``.
    """

    def __init__(self, root: str) -> None:
        cwd, home = Path.cwd(), Path.home()
        super().__init__(BytesIO(), StringIO(), StringIO(), os.environ, cwd, home, root)
        self.ask = lambda _question: None

    def notify(self, text: str) -> None:
        """Log a note."""
        LOGGER.warning(text)
