"""settings.toml: data settings of one agents directory (SPEC.md, "Layout").

Nothing in it is ever executed. Settings that this program does not know are named, not refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.formats import toml
from agentsdir.formats.errors import Invalid
from agentsdir.formats.store.files import Durability
from agentsdir.formats.store.layout import read_bytes

if TYPE_CHECKING:
    from agentsdir.formats.store.layout import Layout


MAX_SIZE = 64 * 1024
"""Bytes that settings.toml may have."""
MOST = 10**9
"""The largest number that a setting can be."""


class Settings(NamedTuple):
    """What a root says about how it is written and run.

    `max_slots` sessions are active at a time; one without input for `idle_timeout` seconds is put
    away, 0 for never. `provider` runs agents that were made without one; it is empty where nothing
    is said. `fallbacks` stand in for the providers of agents that have no list of their own.
    `max_children` is how many subagents of one agent may be at their first task at a time.
    `unknown` are the keys that this program does not know, sorted; another one may.
    """

    durability: str = Durability.ALWAYS
    max_slots: int = 4
    idle_timeout: float = 0
    provider: str = ""
    fallbacks: tuple[str, ...] = ()
    max_children: int = 100
    unknown: tuple[str, ...] = ()

    @property
    def unknown_keys_note(self) -> str:
        """The end of a sentence about the unknown keys; empty if there are none."""
        if not self.unknown:
            return ""
        shown = ", ".join(repr(key[:_SHOWN_KEY]) for key in self.unknown[:_SHOWN])
        more = len(self.unknown) - _SHOWN
        return f"sets {shown}{f' and {more} more' if more > 0 else ''}, which is no setting"


_KEYS = frozenset(Settings._fields) - {"unknown"}
_SHOWN, _SHOWN_KEY = 5, 40


def read_settings(layout: Layout) -> Settings:
    """Return the settings of an agents directory, or the defaults where it has none.

    Raises `Invalid` (kind ``bad-settings``) with the file and the reason.
    """
    if not layout.root.is_dir():
        return Settings()
    try:
        data = read_bytes(layout.settings, MAX_SIZE + 1)
    except FileNotFoundError:
        return Settings()
    return decode_settings(layout, data)


def decode_settings(layout: Layout, data: bytes) -> Settings:
    """Return what the bytes of a settings.toml say. Raises what `read_settings` raises."""
    try:
        found = toml.decode(data, MAX_SIZE)
    except ValueError as error:
        raise _refused(layout, str(error)) from error
    durability = found.get("durability", Durability.ALWAYS)
    if durability not in Durability.ALL:
        wanted = ", ".join(Durability.ALL)
        raise _refused(layout, f"says durability = {durability!r}; it is one of {wanted}")
    slots = _number(layout, found, "max_slots", Settings().max_slots)
    children = _number(layout, found, "max_children", Settings().max_children)
    idle = found.get("idle_timeout", Settings().idle_timeout)
    if type(idle) not in (int, float) or not 0 <= idle <= MOST:
        raise _refused(layout, f"says idle_timeout = {idle!r}; it is a number of seconds")
    provider = found.get("provider", Settings().provider)
    if not isinstance(provider, str) or not (provider or "provider" not in found):
        raise _refused(layout, f"says provider = {provider!r}; it is the name of one")
    fallbacks = found.get("fallbacks", [])
    if not isinstance(fallbacks, list) or not all(n and isinstance(n, str) for n in fallbacks):
        raise _refused(layout, f"says fallbacks = {fallbacks!r}; it is a list of providers' names")
    unknown = tuple(sorted(found.keys() - _KEYS))
    return Settings(str(durability), slots, idle, provider, tuple(fallbacks), children, unknown)


def _number(layout: Layout, found: dict[str, Any], key: str, default: int) -> int:
    number = found.get(key, default)
    if type(number) is not int or not 1 <= number <= MOST:
        raise _refused(layout, f"says {key} = {number!r}; it is a whole number from 1 to {MOST:,}")
    return number


def _refused(layout: Layout, reason: str) -> Invalid:
    return Invalid(f"{layout.settings} {reason}", hint="mend or remove it", kind="bad-settings")
