"""The files of one session in the client's store, as they stand now."""

from __future__ import annotations

from agentsdir.adapters.contract import NativeFile
from agentsdir.adapters.gemini import store
from agentsdir.adapters.gemini.locations import host_storage, real_cwd
from agentsdir.adapters.gemini.own_files import own_files
from agentsdir.adapters.gemini.projects import CHATS, TMP, Projects, hashed
from agentsdir.formats.errors import UnsafePath
from agentsdir.formats.reading.source import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentsdir.adapters.contract import SessionSpec


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
    storage, cwd = host_storage(spec.host), real_cwd(spec.cwd)
    name = hashed(cwd) if by_hash else Projects(storage).folder(cwd)
    saved = own_files(spec.transcripts, spec.native_id)
    known = {own.inner[-1].removesuffix("l") for own in saved if own.role == "main"}
    cards = store.of_folder(storage / TMP / name / CHATS, spec.native_id)
    if not cards:
        return []
    # Some clients give all their sessions one id: the file that was saved is the one.
    main = next((c.file for c in cards if c.file.name.removesuffix("l") in known), cards[0].file)
    project = f"{TMP}/{saved[0].project if saved else name}"
    return list(native_files(main, spec.native_id, project))


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
