"""Outputs that the client put into files of their own, read only in the session's own folders.

A text says where such a file is, and may say anything. Of what it says, only the last name counts,
and that is looked for beside the session's chats; no link is followed (docs/clients/gemini.md,
"Outputs").
"""

from __future__ import annotations

import os
import re
import stat
from hashlib import sha256
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import orjson

from agentsdir.adapters.gemini.store.projects import CHATS, OUTPUTS
from agentsdir.adapters.gemini.transcripts.shapes import MASKED, response_output
from agentsdir.formats.reading.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agentsdir.formats.reading.blocks import BlockSource

# How an output begins that is cut or masked; anything else may merely quote one.
_CUT = (
    "Output too large. Showing first ",
    "Tool output was too large and has been truncated.",
    "[Message Normalized: Tool output exceeded size limit]",
)
_POINTER = re.compile(
    r"(?:For full output see|The full output has been saved to|Full output saved to"
    r"|Full output available at|Full string saved to): ([^\n]+?)\]?(?:\n|$)"
)
# What stands before the pointer to a whole response; the others point to one text of it.
_RESPONSE = "Full output available at"
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
# What an output that is put back into a block may have; a longer one is only pointed to.
_LONGEST_OUTPUT = 64 * 1024 * 1024
_PIECE = 1024 * 1024


class Whole(NamedTuple):
    """The file of one output: its fields in a block, and the output itself if it was masked."""

    overflow: dict[str, Any]
    output: Any = None


class _Elsewhere(Exception):
    """The file that a text names is not one of the session's."""


def is_cut(output: Any) -> TypeGuard[str]:
    """Tell whether an output begins as those do that are cut or masked."""
    return isinstance(output, str) and output.startswith((MASKED, *_CUT))


class Outputs:
    """The files in which one transcript's outputs stand whole.

    Args:
        transcript: where the chat stands; None for standard input, beside which nothing stands.
        session_id: its own id.
        report: is told of each file that is not read.
    """

    def __init__(
        self, transcript: Path | None, session_id: str, report: Callable[[Finding], None]
    ) -> None:
        self._report = report
        self._project: Path | None = None
        self._sessions = {_folder_of(session_id)} if session_id else set()
        if transcript is not None:
            for above in transcript.absolute().parents[:2]:
                if above.name == CHATS:
                    self._project = above.parent
                    break
                self._sessions.add(_folder_of(above.name))

    def whole(self, output: str, source: BlockSource) -> Whole | None:
        """Return the file of an output that is cut or masked; None where it names none.

        Where the file is not the session's own, or cannot be read, that is remarked on.
        """
        found = _POINTER.search(output)
        if found is None:
            return None
        try:
            kept, digest, size = self._read(inner := self._inner(found[1]))
        except (OSError, _Elsewhere) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            message = f"the whole of an output is not read from {found[1]!r:.300}: {why}"
            self._report(
                Finding(
                    "unread-output",
                    source["file"],
                    source["line"],
                    source["offset"],
                    source["length"],
                    message,
                )
            )
            return None
        overflow = {"file": inner.as_posix(), "length": size, "sha256": digest}
        if not output.startswith(MASKED) or kept is None:
            return Whole(overflow)
        text = kept.decode(errors="replace")
        return Whole(overflow, _masked_output(text) if _RESPONSE in found[0] else text)

    def _read(self, inner: PurePosixPath) -> tuple[bytes | None, str, int]:
        """Return a file's bytes (None of a very long one), their SHA-256, and how many they are."""
        if self._project is None:
            raise _Elsewhere("the transcript stands in no project's folder of the client's")
        digest, size, pieces = sha256(), 0, []
        with os.fdopen(_open(self._project, inner), "rb") as stream:
            while piece := stream.read(_PIECE):
                digest.update(piece)
                size += len(piece)
                if size <= _LONGEST_OUTPUT:
                    pieces.append(piece)
        return b"".join(pieces) if size <= _LONGEST_OUTPUT else None, digest.hexdigest(), size

    def _inner(self, said: str) -> PurePosixPath:
        """Return the file's place in the project's folder. Raises `_Elsewhere`."""
        parts = said.replace("\\", "/").split("/")
        if ".." in parts:
            raise _Elsewhere("it leads out of a folder")
        name = parts[-1]
        if not name.isprintable() or name.startswith(".") or not name:
            raise _Elsewhere("the client gives no such name")
        if parts[-2:-1] == [OUTPUTS]:
            return PurePosixPath(OUTPUTS, name)
        if parts[-3:-2] == [OUTPUTS]:
            if any(parts[-2] == own or parts[-2].startswith(own + "_") for own in self._sessions):
                return PurePosixPath(OUTPUTS, parts[-2], name)
            raise _Elsewhere("it is another session's")
        if name.endswith(".output"):  # 0.11 put them beside the chats
            return PurePosixPath(name)
        raise _Elsewhere("it is outside of the session's folders")


def _folder_of(session_id: str) -> str:
    return "session-" + _UNSAFE.sub("_", session_id)


def _open(project: Path, inner: PurePosixPath) -> int:
    """Open a regular file below the project's folder without following a link anywhere."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    at = os.open(project, flags | os.O_DIRECTORY)
    for part in inner.parts[:-1]:
        try:
            inner_folder = os.open(part, flags | os.O_DIRECTORY, dir_fd=at)
        finally:
            os.close(at)
        at = inner_folder
    try:
        descriptor = os.open(inner.name, flags | os.O_NONBLOCK, dir_fd=at)
    finally:
        os.close(at)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _Elsewhere("it is no plain file")
    return descriptor


def _masked_output(text: str) -> Any:
    """Return the output in a response that was masked whole."""
    try:
        value = orjson.loads(text)
    except ValueError:
        return text
    return response_output(value) if isinstance(value, dict) else text
