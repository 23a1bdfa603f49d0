"""The files of one session in the client's store, as they stand now."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from agentsdir.adapters.claude import store
from agentsdir.adapters.claude.paths import host_paths
from agentsdir.adapters.claude.placing import inner_path, role_at
from agentsdir.adapters.contract import NativeFile
from agentsdir.formats.errors import UnsafePath
from agentsdir.formats.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentsdir.adapters.contract import SessionSpec

_OUTPUTS = "tool-results"


def native_files(storage: Path, native_id: str) -> list[NativeFile]:
    """Return a session's transcript, then its subagents' and their sidecars, then spilled outputs.

    The transcript that was written last counts, where several have the id. Paths are relative to
    the storage. Nothing is returned of a session that is not there, and no file that no client
    makes: links, hidden ones, names with control characters.

    Raises `UnsafePath` when the transcript itself is a link.
    """
    # A bundle may say anything: an id that merely begins so is another session's.
    found = [main for main in store.locate(storage, native_id) if main.stem == native_id]
    if not found:
        return []
    main = found[0]
    if main.is_symlink():
        raise UnsafePath(f"{main} is a link; the client's own transcripts are none")
    files = []
    for transcript in store.files(main).transcripts:
        for source, role in ((transcript.source, transcript.role), (transcript.sidecar, "sidecar")):
            if source is not None and _is_plain(storage, source):
                files.append(_native(storage, source, role))
    return [*files, *_outputs(storage, main.with_suffix("") / _OUTPUTS)]


def _is_plain(storage: Path, source: Source) -> bool:
    """Tell whether a file is the client's: no link, and of a name that a client gives."""
    assert source.path is not None
    inner = source.path.relative_to(storage)
    hidden = any(part.startswith(".") for part in inner.parts)
    return not hidden and str(inner).isprintable() and not source.path.is_symlink()


def session_files(spec: SessionSpec) -> list[NativeFile]:
    """Return a session's files in its host's store, under the paths that they are saved under.

    A session that was moved stands in another project's folder, and is the same all the same.
    """
    files = native_files(host_paths(spec.host, spec.cwd).storage, spec.native_id)
    home = next((p for p in spec.transcripts if role_at(p, spec.native_id) == "main"), None)
    if home is None:
        return files
    project = "/".join(home.split("/")[:2])
    return [
        file._replace(path="/".join((project, *inner)))
        if (inner := inner_path(file.path, spec.native_id))
        else file  # of no place in a session that is moved, so it stays where it was
        for file in files
    ]


def _native(storage: Path, source: Source, role: str) -> NativeFile:
    assert source.path is not None
    return NativeFile(source.path.relative_to(storage).as_posix(), role, source)


def _outputs(storage: Path, folder: Path) -> Iterator[NativeFile]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(e.name for e in entries if e.is_file(follow_symlinks=False))
    except OSError:
        return
    for name in names:
        if name.isprintable():
            path = folder / name
            yield _native(storage, Source(str(path), path=path), "output")
