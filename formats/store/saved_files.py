"""The files of an agent in a JSON document: `files` of `inspect --saved` (docs/moving.md, "JSON").

Each has the path that it has in a bundle, and its bytes as `text`; as `base64` where they are no
UTF-8, or have a NUL, which some readers of JSON do not take.
"""

from __future__ import annotations

import base64
import binascii
from codecs import getincrementaldecoder
from functools import partial
from typing import TYPE_CHECKING, Any

from agentsdir.formats import ids
from agentsdir.formats.errors import Invalid
from agentsdir.formats.jsonstream import JSONStream
from agentsdir.formats.jsontext import LongText
from agentsdir.formats.source import ByteSpool
from agentsdir.formats.store.bundles import LIMITS, Limits, Unpacking, bad_bundle

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from agentsdir.formats.source import Readable, Source

_PIECE = 3 * 256 * 1024
"""Bytes of a file that are printed at a time; base64 has them in groups of three."""
_MAX_NAME = 32 * 256
_HINT = "`agentsdir inspect --saved AGENT` prints one"


def check_size(files: Mapping[str, Source], limits: Limits = LIMITS) -> None:
    """Raise `Invalid` (kind ``saved-too-large``) for more than an import takes."""
    size = sum(source.size for source in files.values())
    if size > limits.size or len(files) > limits.entries:
        raise Invalid(
            f"its {len(files)} files have {size} bytes; a document has at most {limits.entries} "
            f"files of {limits.size} bytes",
            hint="`agentsdir export --bundle AGENT FOLDER` has no limit",
            kind="saved-too-large",
        )


def file_entries(files: Mapping[str, Source]) -> list[dict[str, Any]]:
    """Return the `files` of a document, sorted by path."""
    return [
        {"path": path, **_content(source, "text", "base64")}
        for path, source in sorted(files.items())
    ]


def raw_transcript(source: Source) -> dict[str, Any]:
    """Return a transcript as `rawTranscript`, or `rawTranscriptBase64` if it is no UTF-8."""
    return _content(source, "rawTranscript", "rawTranscriptBase64", nul=True)


def _content(source: Source, text: str, base: str, *, nul: bool = False) -> dict[str, Any]:
    """Return a file as a `LongText` of one name or the other.

    It is read from end to end for that, and again when it is printed.
    """
    if _is_text(source, nul=nul):
        return {text: LongText(partial(_as_text, source))}
    return {base: LongText(partial(_as_base64, source))}


def _is_text(source: Source, *, nul: bool) -> bool:
    decoder = getincrementaldecoder("utf-8")()
    try:
        for piece in _bytes_of(source):
            decoder.decode(piece)
            if not nul and b"\0" in piece:
                return False
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _as_text(source: Source) -> Iterator[str]:
    decoder = getincrementaldecoder("utf-8")()
    try:
        for piece in _bytes_of(source):
            yield decoder.decode(piece)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise _changed(source) from error


def _as_base64(source: Source) -> Iterator[str]:
    for piece in _bytes_of(source):
        yield base64.b64encode(piece).decode("ascii")


def _bytes_of(source: Source) -> Iterator[bytes]:
    size = source.size
    with source.open() as stream:
        while piece := stream.read(_PIECE):
            size -= len(piece)
            yield piece
    if size:
        raise _changed(source)  # a document that lacks a part of it must not look whole


def _changed(source: Source) -> Invalid:
    return Invalid(
        f"{source.name} changed while it was read", hint="try it again", kind="changed-meanwhile"
    )


def unpack_document(stream: Readable, folder: Path, limits: Limits = LIMITS) -> str:
    """Take the files out of a document into an empty folder of ours; return the agent's id.

    Only `agentId` and `files` are read, and of a file no more than a few MiB are held.

    Raises `Invalid`: kind ``no-files`` for a document that carries none, and ``bad-bundle`` for
    what is no such document, names a file twice or outside, or is larger than the limits; the
    caller removes what was taken out by then.
    """
    document = JSONStream(stream)
    agent_id, has_files = "", False
    try:
        for key in document.members():
            if key == "agentId":
                agent_id = document.text(_MAX_NAME)
            elif key == "files":
                has_files = True
                into = Unpacking(folder, limits)
                for _ in document.items():
                    _take(document, into, limits)
            else:
                document.skip()
        document.end()
    except OSError as error:
        raise bad_bundle(f"it cannot be unpacked: {error.strerror or error}") from error
    except Invalid as error:
        if error.kind != "not-json":
            raise
        raise bad_bundle(f"it is no JSON that can be read: {error.message}") from error
    if not has_files:
        raise Invalid(
            "the document is not taken: it has no `files`, and so not the agent's log",
            hint=f"{_HINT} that has; `agentsdir new --from FILE` takes a transcript alone",
            kind="no-files",
        )
    if not ids.is_agent_id(agent_id) or not (folder / "agents" / agent_id).is_dir():
        raise bad_bundle("its `files` have no agent of its `agentId`", _HINT)
    return agent_id


def _take(document: JSONStream, into: Unpacking, limits: Limits) -> None:
    """Write one of the files, whose path may come after its bytes."""
    path = held = None
    for key in document.members():
        if key == "path":
            path = document.text(_MAX_NAME)
        elif key not in ("text", "base64"):
            document.skip()
        elif held is not None:
            raise bad_bundle("a file of it has both `text` and `base64`")
        else:
            pieces = _encoded(document) if key == "text" else _decoded(document)
            held, left = ByteSpool(), limits.size
            for piece in pieces:
                left -= len(piece)
                if left < 0:
                    raise bad_bundle(f"its files have more than {limits.size} bytes")
                held.add(piece)
    if path is None or held is None:
        raise bad_bundle("a file of it has no `path`, or neither `text` nor `base64`")
    with held.open() as data:
        into.write(path, data)


def _encoded(document: JSONStream) -> Iterator[bytes]:
    return (piece.encode() for piece in document.pieces())


def _decoded(document: JSONStream) -> Iterator[bytes]:
    """Yield the bytes of a text that is base64, as RFC 4648 has it, without line ends."""
    left, is_over = b"", False
    for piece in document.pieces():
        try:
            left += piece.encode("ascii")
            whole = len(left) // 4 * 4
            if is_over and left:
                raise binascii.Error("something follows its end")
            yield binascii.a2b_base64(left[:whole], strict_mode=True)
        except ValueError as error:
            raise bad_bundle(f"base64 of it is damaged: {error}") from error
        is_over = is_over or left[:whole].endswith(b"=")
        left = left[whole:]
    if left:
        raise bad_bundle("base64 of it is damaged: its end is missing")
