"""settings.toml: data settings of one agents directory (SPEC.md, "Layout").

Nothing in it is ever executed. Settings that this program does not know are left alone.
"""

from __future__ import annotations

from typing import NamedTuple

from agentsdir.formats.directory.durability import Durability
from agentsdir.formats.directory.layout import Layout, read_bytes
from agentsdir.formats.errors import Invalid


class Settings(NamedTuple):
    """What a root says about how it is written, and who answers where an agent does not say."""

    durability: Durability = Durability.ALWAYS
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
    except (ValueError, RecursionError) as error:  # no UTF-8, no TOML, or too much of it
        raise _refused(layout, f"is not TOML: {error}") from error
    durability = found.get("durability", Durability.ALWAYS.value)
    if durability not in [one.value for one in Durability]:
        wanted = ", ".join(one.value for one in Durability)
        raise _refused(layout, f"says durability = {durability!r}; it is one of {wanted}")
    provider = found.get("provider", Settings().provider)
    if not isinstance(provider, str) or not provider:
        raise _refused(layout, f"says provider = {provider!r}; it is the name of one")
    fallbacks = found.get("fallbacks", [])
    if not isinstance(fallbacks, list) or not all(n and isinstance(n, str) for n in fallbacks):
        raise _refused(layout, f"says fallbacks = {fallbacks!r}; it is a list of providers' names")
    return Settings(Durability(durability), provider, tuple(fallbacks))


def _refused(layout: Layout, reason: str) -> Invalid:
    return Invalid(f"{layout.settings} {reason}", hint="mend or remove it", kind="bad-settings")
