"""The known architectures: a table of built-ins, and others by name: registered, or installed.

Adapters are imported when a command needs them, and so is `importlib.metadata`: it would cost every
command more than its own work.
"""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from agentsdir.adapters.protocol import Architecture
from agentsdir.formats.errors import AgentsdirError, Terminated, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

CLIENTS = ("claude", "gemini")
"""Built-in architectures of a program of the user's, each with the name of its program."""
WITHOUT_CLIENT = "echo"
"""The provider of an agent for which nothing names one, where there is no client."""
BUILT_IN = (*CLIENTS, "script", WITHOUT_CLIENT)
ENTRY_POINTS = "agentsdir.adapters"
_registered: dict[str, Architecture] = {}


def register(architecture: Architecture) -> None:
    """Add an architecture that only this process has, until it ends.

    Raises `UsageError`: kind ``name-taken`` for a name that is built in, or another's,
    ``bad-provider`` for what is no architecture.
    """
    if not isinstance(architecture, Architecture):
        raise UsageError(
            f"{architecture!r} is no provider",
            hint="model_provider(NAME, FUNCTION) makes one of a function",
            kind="bad-provider",
        )
    name = architecture.name
    if name in BUILT_IN or _registered.setdefault(name, architecture) is not architecture:
        raise UsageError(
            f"there is an adapter {name!r} already",
            hint="make a provider once in a process, or each with a name of its own",
            kind="name-taken",
        )


def unregister(name: str) -> None:
    """Remove an architecture that `register` added, if it did."""
    _registered.pop(name, None)


def get(name: str) -> Architecture:
    """Return an architecture by name, built-in, registered or installed.

    Raises `UsageError` (kind ``no-such-adapter``) for an unknown name, or a plug-in that breaks
    the contract.
    """
    if name in BUILT_IN:
        module = import_module(f"agentsdir.adapters.{name}")
        architecture = module.ARCHITECTURE
        assert isinstance(architecture, Architecture)
        return architecture
    return _registered.get(name) or _installed(name)


def find(name: str) -> Architecture:
    """Return an architecture by its name, or by the one that `type` of a stored session has.

    Raises what `get` raises.
    """
    known = (*built_in(), *_registered.values())
    return next((one for one in known if name in (one.name, one.architecture)), None) or get(name)


def built_in() -> list[Architecture]:
    """Return the built-in architectures, in the order in which `detect` is called."""
    return [get(name) for name in BUILT_IN]


def installed_names() -> list[str]:
    """Return the names that third parties publish, without importing any of them."""
    from importlib.metadata import entry_points

    return sorted({point.name for point in entry_points(group=ENTRY_POINTS)} - set(BUILT_IN))


@contextmanager
def adapter_errors(architecture: Architecture) -> Iterator[None]:
    """Turn what an installed adapter's reader raises into an error that names the adapter.

    Raises `AgentsdirError` (kind ``adapter-failed``). What a built-in reader raises passes, and so
    does what the system refuses.
    """
    try:
        yield
    except (AgentsdirError, OSError, MemoryError, Terminated):
        raise
    except (Exception, SystemExit) as error:
        if architecture.name in BUILT_IN:
            raise
        raise AgentsdirError(
            f"the adapter {architecture.name!r} raised {described(error)}", kind="adapter-failed"
        ) from error


def described(error: BaseException) -> str:
    """Return the kind of an exception and what it says."""
    return f"{type(error).__name__}: {error}"


def _installed(name: str) -> Architecture:
    from importlib.metadata import entry_points

    for point in entry_points(group=ENTRY_POINTS, name=name):
        try:
            found = point.load()
        except Terminated:
            raise
        except (Exception, SystemExit) as error:
            raise UsageError(
                f"the plug-in {name!r} ({point.value}) cannot be imported: {described(error)}",
                kind="no-such-adapter",
            ) from error
        if not isinstance(found, Architecture) or found.name != name:
            raise UsageError(
                f"the plug-in {name!r} ({point.value}) is no agentsdir Architecture of that name",
                kind="no-such-adapter",
            )
        return found
    known = ", ".join([*BUILT_IN, *_registered, *installed_names()])
    raise UsageError(
        f"there is no adapter {name!r}", hint=f"known: {known}", kind="no-such-adapter"
    )
