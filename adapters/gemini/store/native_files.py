"""The files of one session in the client's store, as they stand now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentsdir.adapters.contract import NativeFile
from agentsdir.adapters.gemini.store import contents as store
from agentsdir.adapters.gemini.store.locations import project_folder
from agentsdir.adapters.gemini.store.own_files import own_files
from agentsdir.adapters.gemini.store.projects import CHATS, TMP
from agentsdir.formats.errors import UnsafePath
from agentsdir.formats.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentsdir.adapters.contract import SessionSpec
    from agentsdir.adapters.gemini.store.own_files import Own


def session_files(spec: SessionSpec, *, by_hash: bool = False) -> list[NativeFile]:
    """Return a session's files in its host's store, under the paths that they are saved under.

    The client looks in the folder of its working directory alone, so what stands in others is not
    this session. One that was moved stands in another project's folder than it was saved from, and
    is the same all the same. Nothing is returned of a session that is not there, and no file that
    no client makes: links, hidden ones, names with control characters.

    Args:
        spec: of the session.
        by_hash: for a client before 0.29, which names a project's folder by a hash.

    Raises `UnsafePath` when the transcript itself is a link.
    """
    folder = project_folder(spec, by_hash=by_hash)
    saved = own_files(spec.transcripts, spec.native_id)
    main = _main_in(folder, spec.native_id, saved)
    if main is None:
        return []
    project = f"{TMP}/{saved[0].project if saved else folder.name}"
    return list(native_files(main, spec.native_id, project))


def main_file(spec: SessionSpec, *, by_hash: bool = False) -> Path | None:
    """Return the transcript that the client has of a session now, None for none.

    Args:
        spec: of the session.
        by_hash: as for `session_files`.
    """
    folder = project_folder(spec, by_hash=by_hash)
    return _main_in(folder, spec.native_id, own_files(spec.transcripts, spec.native_id))


def _main_in(folder: Path, native_id: str, saved: list[Own]) -> Path | None:
    """Return the transcript of a session in a project's folder.

    Some clients give all their sessions one id: the file that was saved is the one.
    """
    known = {own.inner[-1].removesuffix("l") for own in saved if own.role == "main"}
    files = [card.file for card in store.of_folder(folder / CHATS, native_id)]
    return next(
        (one for one in files if one.name.removesuffix("l") in known), next(iter(files), None)
    )


def native_files(main: Path, native_id: str, project: str) -> Iterator[NativeFile]:
    """Yield a session's transcript, its subagents', its outputs, then its twin and its stubs.

    Args:
        main: the transcript.
        native_id: of the session.
        project: the path that the folder above the chats has in the files' paths.

    Raises `UnsafePath` when the transcript itself is a link.
    """
    if main.is_symlink():
        raise UnsafePath(f"{main} is a link; the client's own transcripts are none")

    def native(path: Path, role: str) -> NativeFile:
        inner = path.relative_to(main.parent).as_posix()
        return NativeFile(f"{project}/{CHATS}/{inner}", role, Source(str(path), path=path))

    yield native(main, "main")
    for transcript in store.files(main).transcripts[1:]:
        path = transcript.source.path
        if path is not None and _is_plain(path):
            yield native(path, "subagent")
    for path in store.outputs(main, native_id):
        if _is_plain(path):
            inner = path.relative_to(path.parents[2]).as_posix()
            yield NativeFile(f"{project}/{inner}", "output", Source(str(path), path=path))
    for card in store.of_folder(main.parent, native_id):
        twin = card.file.with_suffix("") == main.with_suffix("")
        if card.file != main and (twin or not card.head.talks) and _is_plain(card.file):
            yield native(card.file, "sidecar")


def _is_plain(path: Path) -> bool:
    """Tell whether a file is the client's: no link, and of a name that a client gives."""
    return path.name.isprintable() and not path.name.startswith(".") and not path.is_symlink()
