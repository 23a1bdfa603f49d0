"""Files that bear one session's id: twins, copies and stubs, told apart and named.

Each is read as a session of its own, because the id does not tell which file has what; who counts
sessions must know all the same (docs/clients/gemini.md, "One id, several files").
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from agentsdir.formats.reading.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAMED = 3


def shared_ids(files: Iterable[tuple[str, str]]) -> dict[str, tuple[Finding]]:
    """Return a remark for each file whose session id others bear, too.

    Args:
        files: names of main files in order, each with its session id; of an empty id, nothing is
            said.
    """
    bearers: dict[str, list[PurePath]] = {}
    for name, session_id in files:
        bearers.setdefault(session_id, []).append(PurePath(name))
    return {
        str(one): (Finding("shared-id", str(one), None, None, None, _message(one, others)),)
        for session_id, paths in bearers.items()
        if session_id and len(paths) > 1
        for one in paths
        if (others := [other for other in paths if other != one])
    }


def _message(one: PurePath, others: list[PurePath]) -> str:
    said = []
    twins = [other for other in others if other.with_suffix("") == one.with_suffix("")]
    copies = [other for other in others if other.name == one.name]
    rest = [other for other in others if other not in twins and other not in copies]
    if twins:
        older, newer = (one, twins[0]) if one.suffix == ".json" else (twins[0], one)
        said.append(f"{newer.name} goes on from its twin {older.name}")
    if copies:
        said.append(f"copies stand in {_some(str(other.parent) for other in copies)}")
    if rest:
        said.append(f"so have {_some(other.name for other in rest)}")
    return "the session id is not this file's alone: " + "; ".join(said)


def _some(names: Iterable[str]) -> str:
    every = list(names)
    more = len(every) - _NAMED
    return ", ".join(every[:_NAMED]) + (f" and {more} more" if more > 0 else "")
