"""checkpoint.json: where the last reading of a client's transcript ended (SPEC.md, "Stamps").

The end of a turn reads what the client wrote since, and not the transcript from its first byte.
Derived, and of one folder on one machine: without it, or with one that does not fit, all is read.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.formats import jsontext
from agentsdir.formats.errors import AgentsdirError
from agentsdir.formats.ids import lasting_stand_in
from agentsdir.formats.jsontext import packed, unpacked
from agentsdir.formats.store.stamps import read_sealed, write_sealed
from agentsdir.formats.version import VERSION

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable, Mapping

    from agentsdir.formats.store.layout import AgentPaths

# Another program, or a machine of another byte order, reads the transcript anew.
_MADE_BY = f"{VERSION} 2 {sys.byteorder}"


class Checkpoint(NamedTuple):
    """What checkpoint.json holds.

    `reader` is the adapter's name and `path` the native path of the main transcript, of which the
    first `size` bytes were read. `sha256` has their digest, and by native path those of the other
    files. `keys` are numbers for the keys of their blocks (`number_of`), `state` is the reader's.
    """

    reader: str
    path: str
    size: int
    sha256: Mapping[str, str]
    keys: array[int]
    state: dict[str, Any]

    def may_have(self, keys: Iterable[tuple[str, str]]) -> bool:
        """Return whether any of these may be the key of a block; False is certain."""
        return not set(self.keys).isdisjoint(map(number_of, keys))


def number_of(key: tuple[str, str]) -> int:
    """Return a number of 60 bits for the key of a block, the same before and after encoding."""
    text = "\0".join(key)
    return lasting_stand_in(text if text.isascii() else jsontext.clean(text, set()))


def read_checkpoint(paths: AgentPaths) -> Checkpoint | None:
    """Return an agent's checkpoint; None where it is missing, damaged or of another program."""
    try:
        document = read_sealed(paths.checkpoint)
        if document["madeBy"] != _MADE_BY:
            return None
        return Checkpoint(
            document["reader"],
            document["path"],
            int(document["size"]),
            dict(document["sha256"]),
            unpacked("q", document["keys"]),
            dict(document["state"]),
        )
    except (OSError, AgentsdirError, ValueError, TypeError, KeyError, AttributeError):
        return None


def write_checkpoint(paths: AgentPaths, checkpoint: Checkpoint) -> None:
    """Write checkpoint.json. The caller holds `.turn`."""
    document = {"madeBy": _MADE_BY, **checkpoint._asdict(), "keys": packed("q", checkpoint.keys)}
    write_sealed(paths.checkpoint, document)
