"""stamps.json: how an agent's files looked when this machine last wrote them (SPEC.md, "Stamps").

A file that looks as it did is believed to hold what it held, and is not read again. Derived, and
of one folder on one machine: without stamps.json, or with one that does not fit, more is read.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from agentsdir.formats import jsontext
from agentsdir.formats.errors import AgentsdirError
from agentsdir.formats.ids import short_hash
from agentsdir.formats.store.layout import MAX_DOCUMENT, open_plain, read_limited

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from agentsdir.formats.store.layout import AgentPaths

_FILES = (
    "events.jsonl",
    "state.json",
    "history.jsonl",
    "session.json",
    "descriptor.json",
    "transcripts/manifest.json",
)
_DIGEST = 32  # bytes of a SHA-256


class Stamp(NamedTuple):
    """How a file looks from outside: size in bytes, times of its bytes and its inode in ns."""

    size: int
    modified: int
    changed: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        """Return the stamp of a file from what `stat` says."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)

    def __str__(self) -> str:
        """Return the stamp as text: its numbers are too large for some readers of JSON."""
        return " ".join(map(str, self))


class TranscriptStamp(NamedTuple):
    """A stored transcript as it was when it was last synced.

    `chunks` are the SHA-256 digests of its pieces of 1 MiB; `native` is how the client's own file
    looked that had the same bytes, None where there was none.
    """

    stored: Stamp
    native: Stamp | None
    chunks: tuple[bytes, ...]


class Stamps(NamedTuple):
    """What stamps.json holds.

    `transcripts` are those of stored transcripts by native path. `left` are those of the agent's
    files by name, as text, None for one that is missing, when a command last left the agent in
    order; it is empty while none has.
    """

    transcripts: Mapping[str, TranscriptStamp] = {}
    left: Mapping[str, str | None] = {}


NO_STAMPS = Stamps()


# A file of which only all counts: a digest stands at its end. It is written in place.


def read_sealed(path: Path | str) -> dict[str, Any]:
    """Return what `write_sealed` wrote.

    Raises `ValueError` for anything else, and what `read_limited` raises.
    """
    data = read_limited(path, MAX_DOCUMENT)
    said = data[: -len(_digest_key(b""))] + b"}"
    if not data.endswith(_digest_key(said)):
        raise ValueError(f"{path} does not have its digest")
    document: dict[str, Any] = jsontext.decode(data)
    return document


def write_sealed(path: Path, document: dict[str, Any]) -> None:
    """Write a document of one line, without fsync; whatever is refused, it is not written.

    What was there is overwritten: half of a document does not fit its digest.
    """
    with suppress(OSError, AgentsdirError, TypeError):
        said = jsontext.encode_as_is(document)
        data = said[:-1] + _digest_key(said)
        descriptor = open_plain(path, os.O_WRONLY | os.O_CREAT)
        try:
            if os.pwrite(descriptor, data, 0) == len(data):
                os.ftruncate(descriptor, len(data))
        finally:
            os.close(descriptor)


def _digest_key(said: bytes) -> bytes:
    return b',"digest":"%s"}\n' % short_hash(said).encode()


def read_stamps(paths: AgentPaths) -> Stamps:
    """Return an agent's stamps; `NO_STAMPS` where the file is missing, damaged or no such file."""
    try:
        document = _read(paths)
        return Stamps(
            {path: _transcript(value) for path, value in document["transcripts"].items()},
            {name: value and str(_stamp(value)) for name, value in document["left"].items()},
        )
    except _DAMAGED:
        return NO_STAMPS


def _read(paths: AgentPaths) -> dict[str, Any]:
    """Return what stamps.json says. Raises one of `_DAMAGED`."""
    return read_sealed(f"{paths.folder}/stamps.json")


_DAMAGED = (OSError, AgentsdirError, ValueError, TypeError, KeyError, AttributeError)


def _stamp(value: Any) -> Stamp | None:
    if value is None:
        return None
    return Stamp(*map(int, value.split(" ")))


def _transcript(value: dict[str, Any]) -> TranscriptStamp:
    stored = _stamp(value["stored"])
    if stored is None:
        raise TypeError("stored")
    joined = bytes.fromhex(value["chunks"])
    chunks = tuple(joined[at : at + _DIGEST] for at in range(0, len(joined), _DIGEST))
    return TranscriptStamp(stored, _stamp(value["native"]), chunks)


def _write(paths: AgentPaths, stamps: Stamps) -> None:
    document = {
        "transcripts": {
            path: {
                "stored": str(one.stored),
                "native": one.native and str(one.native),
                "chunks": b"".join(one.chunks).hex(),
            }
            for path, one in stamps.transcripts.items()
        },
        "left": stamps.left,
    }
    write_sealed(paths.stamps, document)


def keep(paths: AgentPaths, transcripts: Mapping[str, TranscriptStamp]) -> None:
    """Write the stamps of transcripts that were stored. The caller holds `.lock`."""
    known = read_stamps(paths)
    if any(known.transcripts.get(path) != one for path, one in transcripts.items()):
        _write(paths, known._replace(transcripts={**known.transcripts, **transcripts}))


def leave(paths: AgentPaths, log_size: int, history_size: int) -> None:
    """Write how the agent's files look, which are in order. The caller holds `.lock`.

    Args:
        log_size: the size in bytes that the log has if all of it was folded; else nothing is
            written. And that of history.jsonl.
    """
    now = _now(paths)
    log, history = (now[name] or "" for name in ("events.jsonl", "history.jsonl"))
    if log.startswith(f"{log_size} ") and history.startswith(f"{history_size} "):
        known = read_stamps(paths)
        if known.left != now:
            _write(paths, known._replace(left=now))


def is_untouched(paths: AgentPaths) -> bool:
    """Tell whether each file of the agent looks as it did when a command left it in order.

    state.json is then right to the end of the log, and the other derived files are what the log
    says, unless bytes changed behind the system's back (SPEC.md, "Stamps"). A turn may be open, of
    a process that works, or that died since.
    """
    try:
        return bool(_read(paths)["left"] == _now(paths))
    except _DAMAGED:
        return False


def _now(paths: AgentPaths) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in _FILES:
        try:
            found[name] = str(Stamp.of(os.lstat(f"{paths.folder}/{name}")))
        except OSError:
            found[name] = None
    return found
