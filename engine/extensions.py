"""What a program that uses the library adds to the turns of an agent."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from agentsdir.engine.callbacks import Callbacks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentsdir.engine.runner import ExecutionRunner
    from agentsdir.engine.tools import Tool


class Extensions(NamedTuple):
    """Callbacks, tools by their name, and a runner, for the turns of one agent."""

    callbacks: Callbacks = Callbacks()
    tools: Mapping[str, Tool] = MappingProxyType({})
    runner: ExecutionRunner | None = None


NO_EXTENSIONS = Extensions()
