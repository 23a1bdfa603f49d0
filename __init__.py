"""Sessions of agents, for programs: `App`, its sessions, and what they are made of.

The library's API is provisional until 1.0 (docs/library.md). A name is imported when it is first
used: the command line, which uses none of them, does not pay for them.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "AgentConfig": "engine.app.component",
    "AgentsdirError": "formats.errors",
    "App": "cli.library",
    "AsyncApp": "cli.library",
    "Callbacks": "engine.callbacks",
    "Element": "engine.app.component",
    "Execution": "engine.app.execution",
    "ExecutionRunner": "engine.runner",
    "Session": "engine.app.session",
    "Tool": "engine.tools",
    "element": "engine.app.component",
}
"""Where each name of the library is defined, in a module below this package."""

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
