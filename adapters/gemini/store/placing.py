"""Putting a saved session where the real client finds it (seed: setupSessionTranscripts).

docs/clients/gemini.md, "Placing". A client looks for sessions in the folder of its working
directory alone, so that is where one goes, wherever else it may stand. What stands in the client's
store is the client's: files are made, and never changed, not even its registry: it registers a
folder that it finds marked. Files get their names in one step, the main transcript last, so that a
session is there whole or not at all.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from agentsdir.adapters.gemini.store import contents as store
from agentsdir.adapters.gemini.store.continuing import goes_on
from agentsdir.adapters.gemini.store.locations import host_storage, project_folder, real_cwd
from agentsdir.adapters.gemini.store.own_files import own_files
from agentsdir.adapters.gemini.store.projects import CHATS, MARK, TMP, Projects, hashed, mark_of
from agentsdir.adapters.gemini.transcripts.detection import LOG, family_of
from agentsdir.adapters.store_files import is_there, make_folders, write_new
from agentsdir.formats.errors import Invalid
from agentsdir.formats.reading.source import Source

if TYPE_CHECKING:
    from pathlib import Path

    from agentsdir.adapters.contract import SessionSpec
    from agentsdir.adapters.gemini.store.own_files import Own


def place(spec: SessionSpec, *, by_hash: bool = False) -> list[Path]:
    """Put a session's saved files into the client's store; return what was written.

    Neither ids nor paths in the files are changed: no client compares them.

    Args:
        spec: of the session.
        by_hash: for a client before 0.29, which names a project's folder by a hash.

    Raises `Invalid` (kind ``transcript-differs``) where a transcript stands that does not go on
    from the saved one, and for a folder that no client knows again, `UnsafePath` for links and
    folders of other users, and `AgentsdirError` where the system refuses.
    """
    saved = own_files(spec.transcripts, spec.native_id)
    if not saved:
        return []
    storage, cwd = host_storage(spec.host), real_cwd(spec.cwd)
    folder = project_folder(spec, by_hash=by_hash)
    main = saved[0]
    # A stub has nothing, and a client that finds one deletes it with all files of its short id.
    # Of other names of the session, only that of the document before the log is another file.
    rest = [
        own
        for own in saved
        if own.role in ("subagent", "output")
        or (own is not main and own.talks and _stem(own) == _stem(main))
    ]
    # Whatever is in the way of one is known before anything is made.
    missing = [own for own in (*rest, main) if not _stands(folder, own)]
    if main in missing and _is_renamed(folder, main, saved, spec.native_id):
        missing.remove(main)
    if missing and not by_hash and _claim(storage, cwd) != folder:
        return place(spec)  # somebody else has taken the folder just now
    written = []
    for own in missing:
        path = folder.joinpath(*own.inner)
        make_folders(storage, path.parent)
        write_new(path, own.source, lines=family_of(own.source.head()) == LOG)
        written.append(path)
    return written


def _stem(own: Own) -> str:
    return own.inner[-1].removesuffix("l")


def _stands(folder: Path, own: Own) -> bool:
    """Tell whether a file is there; what is no transcript is the client's to rewrite."""
    transcript = own.role in ("main", "subagent")
    return is_there(folder.joinpath(*own.inner), own.source, goes_on if transcript else None)


def _is_renamed(folder: Path, main: Own, saved: list[Own], native_id: str) -> bool:
    """Tell whether the session stands in the folder under another name, and goes on from there.

    Two files of one id would be two sessions to the client, which goes on with the one that it
    wrote last. So one that does not go on, under a name that none of the saved files has, is
    refused.
    """
    names = {_stem(own) for own in saved}
    for card in store.of_folder(folder / CHATS, native_id):
        name = card.file.name.removesuffix("l")
        if not card.head.talks or name == _stem(main):
            continue
        if goes_on(main.source, Source(str(card.file), path=card.file)):
            return True
        if name not in names:
            raise Invalid(
                f"{card.file} is of the session {native_id}, too, whose file is {main.inner[-1]}",
                hint="nothing was overwritten; compare the two, and move that one away",
                kind="transcript-differs",
            )
    return False


def _claim(storage: Path, cwd: str) -> Path:
    """Mark the folder of a project, as its client would; return it."""
    if cwd != cwd.rstrip():
        raise Invalid(
            f"no client finds its sessions in {cwd!r} again: it reads its mark without the white "
            "space at its end",
            hint="give the folder another name, or choose another one (--cwd)",
        )
    mark = Source(MARK, data=os.fsencode(cwd))
    while True:
        folder = storage / TMP / Projects(storage).folder(cwd)
        make_folders(storage, folder)
        if folder.name == hashed(cwd):
            return folder
        if not is_there(folder / MARK, mark):
            with suppress(Invalid):  # it has just been marked
                write_new(folder / MARK, mark, lines=False)
        if mark_of(folder) == cwd:
            return folder
