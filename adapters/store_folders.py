"""Looking into the folders of a client's own store, while the client writes there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from agentsdir.adapters.contract import Refuse


def names_in(folder: Path, refuse: Refuse) -> list[str]:
    """Return what stands in a folder, sorted; of one that cannot be read `refuse` is told."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries)
    except OSError as error:
        refuse(error)
        return []


def ignore(_error: OSError) -> None:
    """Pass over what cannot be read: what is looked for is not there."""
