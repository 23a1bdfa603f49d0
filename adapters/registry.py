"""Which architectures there are. Built-ins stand in a table; others are looked up by name.

Nothing is imported before it is asked for: reading package metadata alone would cost every
command more than its own work.
"""

from __future__ import annotations

from agentsdir.adapters.contract import Architecture
from agentsdir.formats.errors import UsageError
from agentsdir.formats.smalljson import load_orjson

BUILT_IN = ("claude", "gemini", "script", "echo")
# The others read much JSON: its library is loaded before them, where no signal breaks that off.
_SMALL = ("script", "echo")
ENTRY_POINTS = "agentsdir.adapters"


def get(name: str) -> Architecture:
    """Return an architecture by name, built-in or installed.

    Raises `UsageError` (kind ``no-such-adapter``) for an unknown name, or a plug-in that breaks
    the contract.
    """
    if name not in _SMALL:
        load_orjson()
    if name in BUILT_IN:
        # Not `import_module`: that is a module more.
        module = __import__(f"agentsdir.adapters.{name}", fromlist=["ARCHITECTURE"])
        architecture = module.ARCHITECTURE
        assert isinstance(architecture, Architecture)
        return architecture
    return _installed(name)


def built_in() -> list[Architecture]:
    """Return the built-in architectures, in the order in which `detect` asks them."""
    return [get(name) for name in BUILT_IN]


def installed_names() -> list[str]:
    """Return the names that third parties publish, without importing any of them."""
    from importlib.metadata import entry_points

    return sorted({point.name for point in entry_points(group=ENTRY_POINTS)} - set(BUILT_IN))


def _installed(name: str) -> Architecture:
    from importlib.metadata import entry_points

    for point in entry_points(group=ENTRY_POINTS, name=name):
        try:
            found = point.load()
        except Exception as error:
            raise UsageError(
                f"the plug-in {name!r} ({point.value}) cannot be imported: {error}",
                kind="no-such-adapter",
            ) from error
        if not isinstance(found, Architecture) or found.name != name:
            raise UsageError(
                f"the plug-in {name!r} ({point.value}) is no agentsdir Architecture of that name",
                kind="no-such-adapter",
            )
        return found
    known = ", ".join([*BUILT_IN, *installed_names()])
    raise UsageError(
        f"there is no adapter {name!r}", hint=f"known: {known}", kind="no-such-adapter"
    )
