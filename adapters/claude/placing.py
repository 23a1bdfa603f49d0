"""Putting saved transcripts where the real client finds them (seed: setupSessionTranscripts).

What stands in the client's store is the client's: a file is made, and never changed. Files get
their names in one step, the main transcript last, so that a session is there whole or not at all.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from agentsdir.adapters.claude.dangling import answers
from agentsdir.adapters.claude.paths import MAX_NAME, host_paths
from agentsdir.adapters.store_files import (
    begins_with,
    is_there,
    make_folders,
    size_of,
    write_new,
)

if TYPE_CHECKING:
    from pathlib import Path

    from agentsdir.adapters.contract import SessionSpec
    from agentsdir.formats.reading.source import Source

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FLAT_CHILD = re.compile(r"agent-[A-Za-z0-9_-]{1,128}\.jsonl")
_TRANSCRIPT = ".jsonl"


class _Saved(NamedTuple):
    """A saved file, and where it belongs below the project's folder."""

    inner: tuple[str, ...]
    source: Source


def place(spec: SessionSpec, *, here: bool = False) -> list[Path]:
    """Put a session's saved files into the client's store; return what was written.

    A session that stands anywhere in the store already stays there: newer clients find it by its
    id from every folder. What it lacks of its side folder is written beside it.

    Args:
        here: into the folder of the working directory, wherever else the session may stand: older
            clients look there alone.

    Raises `Invalid` (kind ``transcript-differs``) where a transcript stands that does not go on
    from the saved one, `UnsafePath` for links and folders of other users, and `AgentsdirError`
    where the system refuses.
    """
    saved = _saved(spec)
    if not saved or saved[-1].inner != (f"{spec.native_id}{_TRANSCRIPT}",):
        return []
    paths = host_paths(spec.host, spec.cwd)
    folder = standing(paths.storage, paths.transcripts, spec.native_id, anywhere=not here)
    # What stands in the way of one file is known before any is written.
    missing = [one for one in saved if not _stands(folder, one)]
    written = []
    for one in missing:
        path = folder.joinpath(*one.inner)
        make_folders(paths.storage, path.parent)
        more = answers(one.source, spec.now()) if one is saved[-1] else ()
        write_new(path, one.source, lines=path.suffix == _TRANSCRIPT, more=more)
        written.append(path)
    return written


def _stands(folder: Path, one: _Saved) -> bool:
    path = folder.joinpath(*one.inner)
    return is_there(path, one.source, begins_with if path.suffix == _TRANSCRIPT else None)


def _saved(spec: SessionSpec) -> list[_Saved]:
    """Return the files of this session, the main transcript last.

    A session that was placed in several folders in its life may be saved under several: the
    longest copy is the latest one.
    """
    found: dict[tuple[str, ...], Source] = {}
    for path, source in spec.transcripts.items():
        inner = inner_path(path, spec.native_id)
        if inner and (inner not in found or size_of(found[inner]) < size_of(source)):
            found[inner] = source
    main = (f"{spec.native_id}{_TRANSCRIPT}",)
    return [_Saved(inner, found[inner]) for inner in sorted(found, key=lambda i: (i == main, i))]


def inner_path(path: str, native_id: str) -> tuple[str, ...]:
    """Return where a storage-relative file belongs below a project's folder; empty for nowhere.

    Only what is the session's own has a place: its transcript, its side folder, and old
    subagents' files, which stand beside it.
    """
    top, _, rest = path.partition("/")
    parts = tuple(rest.split("/")[1:])
    if top != "projects" or not parts or not UUID.fullmatch(native_id):
        return ()
    if any(not part or part.startswith(".") or not part.isprintable() for part in parts):
        return ()
    beside = len(parts) == 1
    own = parts == (f"{native_id}{_TRANSCRIPT}",) or (parts[0] == native_id and not beside)
    return parts if own or (beside and _FLAT_CHILD.fullmatch(parts[0])) else ()


def role_of(inner: tuple[str, ...]) -> str:
    """Return what a file below a project's folder is to its session (roles of `NativeFile`)."""
    name = inner[-1]
    if name.startswith("agent-") and name.endswith(_TRANSCRIPT):
        return "subagent"
    if name.endswith(".meta.json"):
        return "sidecar"
    return "main" if len(inner) == 1 else "output"


def role_at(path: str, native_id: str) -> str:
    """Return the same for a storage-relative path; empty for a file of no part in the session."""
    inner = inner_path(path, native_id)
    return role_of(inner) if inner else ""


def standing(storage: Path, folder: Path, native_id: str, *, anywhere: bool = True) -> Path:
    """Return the project folder that has the session, else the one that it belongs to.

    Args:
        folder: of the working directory. The hash in a name that was cut differs between the
            client's runtimes, so an existing one that begins the same is taken.
        anywhere: look in the folders of other working directories, too.
    """
    name = f"{native_id}{_TRANSCRIPT}"
    cut = folder.name[: MAX_NAME + 1] if len(folder.name) > MAX_NAME else None
    with suppress(OSError):
        present = sorted((storage / "projects").iterdir())
        like = [other for other in present if cut and other.name.startswith(cut)]
        for other in (folder, *like, *(present if anywhere else [])):
            with suppress(OSError):
                if (other / name).stat().st_size:
                    return other
        if like and folder not in like:
            return like[0]
    return folder
