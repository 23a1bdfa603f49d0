"""settings.toml: data settings of one agents directory (SPEC.md, "Layout").

Nothing in it is ever executed. Settings that this program does not know are left alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from agentsdir.formats.directory.durability import Durability
from agentsdir.formats.directory.layout import Layout, read_bytes
from agentsdir.formats.errors import Invalid


class Settings(NamedTuple):
    """What a root says about how it is written and run.

    `max_slots` sessions are active at a time; one without input for `idle_timeout` seconds is put
    away, 0 for never. `provider` runs agents that were made without one, and `fallbacks` stand in
    for the providers of agents that have no list of their own.
    """

    durability: Durability = Durability.ALWAYS
    max_slots: int = 4
    idle_timeout: float = 0
    provider: str = "echo"
    fallbacks: tuple[str, ...] = ()


def read_settings(layout: Layout) -> Settings:
    """Return the settings of an agents directory, or the defaults where it has none.

    Raises `Invalid` (kind ``bad-settings``) with the file and the reason.
    """
    if not layout.root.is_dir():
        return Settings()
    try:
        data = read_bytes(layout.settings)
    except FileNotFoundError:
        return Settings()
    import tomllib

    try:
        found = tomllib.loads(data.decode())
        str(found)  # hexadecimal integers may be longer than Python shows
    except (ValueError, RecursionError) as error:  # no UTF-8, no TOML, or too much of it
        raise _refused(layout, f"is not TOML: {error}") from error
    durability = found.get("durability", Durability.ALWAYS.value)
    if durability not in [one.value for one in Durability]:
        wanted = ", ".join(one.value for one in Durability)
        raise _refused(layout, f"says durability = {durability!r}; it is one of {wanted}")
    slots = found.get("max_slots", Settings().max_slots)
    if type(slots) is not int or slots < 1:
        raise _refused(layout, f"says max_slots = {slots!r}; it is a whole number from 1 on")
    idle = found.get("idle_timeout", Settings().idle_timeout)
    if type(idle) not in (int, float) or not 0 <= idle < math.inf:
        raise _refused(layout, f"says idle_timeout = {idle!r}; it is a number of seconds")
    provider = found.get("provider", Settings().provider)
    if not isinstance(provider, str) or not provider:
        raise _refused(layout, f"says provider = {provider!r}; it is the name of one")
    fallbacks = found.get("fallbacks", [])
    if not isinstance(fallbacks, list) or not all(n and isinstance(n, str) for n in fallbacks):
        raise _refused(layout, f"says fallbacks = {fallbacks!r}; it is a list of providers' names")
    return Settings(Durability(durability), slots, idle, provider, tuple(fallbacks))


def _refused(layout: Layout, reason: str) -> Invalid:
    return Invalid(f"{layout.settings} {reason}", hint="mend or remove it", kind="bad-settings")
