"""Sessions of agents, for programs: `App`, its sessions, and what they are made of.

The library's API is provisional until 1.0 (docs/library.md). A name is imported when it is first
used: the command line, which uses none of them, does not pay for them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names, for type checkers and editors
    from typing import Any

    from agentsdir.adapters.in_process import model_provider as model_provider
    from agentsdir.adapters.protocol import Architecture as Architecture
    from agentsdir.adapters.protocol import Decision as Decision
    from agentsdir.adapters.protocol import ModelRequest as ModelRequest
    from agentsdir.adapters.protocol import Profile as Profile
    from agentsdir.adapters.protocol import ToolCall as ToolCall
    from agentsdir.adapters.protocol import ToolRequest as ToolRequest
    from agentsdir.adapters.protocol import ToolResult as ToolResult
    from agentsdir.adapters.registry import register as register
    from agentsdir.adapters.script import write_script as write_script
    from agentsdir.cli.library import AgentSandbox as AgentSandbox
    from agentsdir.cli.library import AgentSession as AgentSession
    from agentsdir.cli.library import AgentSystem as AgentSystem
    from agentsdir.cli.library import App as App
    from agentsdir.cli.library import AsyncApp as AsyncApp
    from agentsdir.cli.library import TurnScheduler as TurnScheduler
    from agentsdir.engine.app.asynchronous import AsyncExecution as AsyncExecution
    from agentsdir.engine.app.asynchronous import AsyncSession as AsyncSession
    from agentsdir.engine.app.component import AgentConfig as AgentConfig
    from agentsdir.engine.app.component import Element as Element
    from agentsdir.engine.app.component import element as element
    from agentsdir.engine.app.execution import Execution as Execution
    from agentsdir.engine.app.procedures import Call as Call
    from agentsdir.engine.app.procedures import Next as Next
    from agentsdir.engine.app.session import Session as Session
    from agentsdir.engine.app.session_store import FileSessionStore as FileSessionStore
    from agentsdir.engine.app.session_store import SessionStore as SessionStore
    from agentsdir.engine.app.sqlite_store import SqliteSessionStore as SqliteSessionStore
    from agentsdir.engine.callbacks import Callbacks as Callbacks
    from agentsdir.engine.callbacks import Cancel as Cancel
    from agentsdir.engine.result import TurnResult as TurnResult
    from agentsdir.engine.runner import ExecutionRunner as ExecutionRunner
    from agentsdir.engine.runner import SessionRef as SessionRef
    from agentsdir.engine.tools import Tool as Tool
    from agentsdir.engine.tools import ToolContext as ToolContext
    from agentsdir.engine.tools import ToolOutput as ToolOutput
    from agentsdir.engine.tools import create_tool as create_tool
    from agentsdir.engine.tools import tool as tool
    from agentsdir.formats.blocks import StreamEvent as StreamEvent
    from agentsdir.formats.errors import AgentsdirError as AgentsdirError
    from agentsdir.formats.errors import BudgetSpent as BudgetSpent
    from agentsdir.formats.errors import Busy as Busy
    from agentsdir.formats.errors import HookFailed as HookFailed
    from agentsdir.formats.errors import Interruption as Interruption
    from agentsdir.formats.errors import Invalid as Invalid
    from agentsdir.formats.errors import NoSuchAgent as NoSuchAgent
    from agentsdir.formats.errors import NotRecorded as NotRecorded
    from agentsdir.formats.errors import ProviderError as ProviderError
    from agentsdir.formats.errors import SessionStateError as SessionStateError
    from agentsdir.formats.errors import SlotsHeld as SlotsHeld
    from agentsdir.formats.errors import TurnTimeout as TurnTimeout
    from agentsdir.formats.errors import Uncertain as Uncertain
    from agentsdir.formats.errors import UsageError as UsageError

_HOMES = {
    "AgentConfig": "engine.app.component",
    "AgentSandbox": "cli.library",
    "AgentSession": "cli.library",
    "AgentSystem": "cli.library",
    "AgentsdirError": "formats.errors",
    "App": "cli.library",
    "Architecture": "adapters.protocol",
    "AsyncApp": "cli.library",
    "AsyncExecution": "engine.app.asynchronous",
    "AsyncSession": "engine.app.asynchronous",
    "BudgetSpent": "formats.errors",
    "Busy": "formats.errors",
    "Call": "engine.app.procedures",
    "Callbacks": "engine.callbacks",
    "Cancel": "engine.callbacks",
    "Decision": "adapters.protocol",
    "Element": "engine.app.component",
    "Execution": "engine.app.execution",
    "ExecutionRunner": "engine.runner",
    "FileSessionStore": "engine.app.session_store",
    "HookFailed": "formats.errors",
    "Interruption": "formats.errors",
    "Invalid": "formats.errors",
    "ModelRequest": "adapters.protocol",
    "Next": "engine.app.procedures",
    "NoSuchAgent": "formats.errors",
    "NotRecorded": "formats.errors",
    "Profile": "adapters.protocol",
    "ProviderError": "formats.errors",
    "Session": "engine.app.session",
    "SessionRef": "engine.runner",
    "SessionStateError": "formats.errors",
    "SessionStore": "engine.app.session_store",
    "SlotsHeld": "formats.errors",
    "SqliteSessionStore": "engine.app.sqlite_store",
    "StreamEvent": "formats.blocks",
    "Tool": "engine.tools",
    "ToolCall": "adapters.protocol",
    "ToolContext": "engine.tools",
    "ToolOutput": "engine.tools",
    "ToolRequest": "adapters.protocol",
    "ToolResult": "adapters.protocol",
    "TurnResult": "engine.result",
    "TurnScheduler": "cli.library",
    "TurnTimeout": "formats.errors",
    "Uncertain": "formats.errors",
    "UsageError": "formats.errors",
    "create_tool": "engine.tools",
    "element": "engine.app.component",
    "model_provider": "adapters.in_process",
    "register": "adapters.registry",
    "tool": "engine.tools",
    "write_script": "adapters.script",
}
"""Where each name of the library is defined, in a module below this package."""

__all__ = list(_HOMES)

if not TYPE_CHECKING:  # a checker is to notice a name that is misspelt

    def __getattr__(name: str) -> "Any":
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
