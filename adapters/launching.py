"""Which program a session starts, and in which environment (decision D33)."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from agentsdir.formats.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from agentsdir.adapters.contract import Host


def environment_of(host: Host, not_inherited: AbstractSet[str]) -> dict[str, str]:
    """Return all of a program's environment: ours, what the user configured, and the marks.

    Args:
        not_inherited: what a client that runs us says to its children: ours would take it for its
            own.
    """
    inherited = {k: v for k, v in host.variables.items() if k not in not_inherited}
    return {"HOME": str(host.home), **inherited, **host.environment, **host.marks}


def command_of(
    host: Host, provider: str, product: str, environment: Mapping[str, str]
) -> list[str]:
    """Return the program, found on the search path, and its first arguments.

    Args:
        provider: its name in config.toml, which is the program's own name, too.
        product: its name for people.

    Raises `ProviderError` (kind ``no-client``).
    """
    program, *given = host.command or (provider,)
    found = shutil.which(program, path=environment.get("PATH", os.defpath))
    if found is None:
        raise ProviderError(
            f"there is no program {program!r} to run",
            hint=f"install {product}, or name it in config.toml: [providers.{provider}] command",
            kind="no-client",
        )
    return [found, *given]
