"""Sessions written into Gemini's store, read from it, continued, forked and adopted."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from agentsdir.adapters.gemini import store
from agentsdir.adapters.gemini.discover import (
    DOCUMENT,
    LOG,
    family_of,
    messages,
    peek,
    read_ends,
    started,
    workspace_of,
)
from agentsdir.adapters.gemini.projects import (
    CHATS,
    MARK,
    TMP,
    Projects,
    hashed,
    host_storage,
    mark_of,
    project_folder,
    real_cwd,
    slug,
)
from agentsdir.adapters.gemini.shapes import dict_of, list_of, text_of
from agentsdir.adapters.gemini.store import chat_name, is_chat_name, own_files, safe_part
from agentsdir.adapters.protocol import Adoptable, NativeFile
from agentsdir.adapters.store_files import begins_with, is_there, make_folders, write_new
from agentsdir.formats.errors import Invalid, UnsafePath
from agentsdir.formats.rows import Tally, read_rows
from agentsdir.formats.source import Pieces, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from agentsdir.adapters.gemini.discover import FileEnds
    from agentsdir.adapters.gemini.store import Own
    from agentsdir.adapters.protocol import SessionSpec
    from agentsdir.formats.findings import Finding
    from agentsdir.formats.rows import Row


# Continuation: whether one copy of a session's file has all that another has.
#
# A log is only appended to, so it must begin with the other. A document is rewritten at each
# change, so its messages are compared: each message of the other must be in it, with its content.


def is_continuation(saved: Source, present: Source) -> bool:
    """Tell whether `present` is `saved`, or what became of it.

    A message of a document continues one with the same id and type if it begins with its text and
    has its calls; the client may add text, calls and tokens, or mask the result of a call. A
    document that is damaged, or that lost, moved or changed a message, continues
    from nothing but itself.

    Raises `AgentsdirError` when either cannot be read.
    """
    if begins_with(saved, present):
        return True
    families = family_of(saved.head()), family_of(present.head())
    if families != (DOCUMENT, DOCUMENT):
        return False
    before, after = _messages(saved), _messages(present)
    if before is None or after is None:
        return False
    # They keep their order. Ids alone would not do: a message may have none, or that of another.
    rest = iter(after)
    return all(any(_includes(now, message) for now in rest) for message in before)


def _messages(source: Source) -> list[dict[str, Any]] | None:
    """Return the messages of a whole document; None where it is damaged."""
    data = source.read()
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        try:  # half of a surrogate pair is nothing to the one, and a character to the other
            value = json.loads(data)
        except (ValueError, RecursionError):
            return None
    messages = dict_of(value).get("messages")
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        return None
    return messages


def _includes(now: dict[str, Any], before: dict[str, Any]) -> bool:
    if any(now.get(name) != before.get(name) for name in ("id", "type")):
        return False
    said, says = before.get("content"), now.get("content")
    if said != says and not (
        isinstance(said, str) and isinstance(says, str) and says.startswith(said)
    ):
        return False
    return _calls(before) <= _calls(now)


def _calls(message: dict[str, Any]) -> set[str]:
    return {text_of(dict_of(call).get("id")) for call in list_of(message.get("toolCalls"))}


# Materializing: a saved session written where the client finds it (docs/clients/gemini.md,
# "Placing").
#
# A client looks for sessions only in the folder of its working directory, so the session goes
# there. Files in the client's store belong to the client: new files are made, existing ones never
# changed, the registry included, as a client registers a marked folder itself. Each file gets its
# name in one step, the main transcript last, so that a session is there as a whole or not at all.


def materialize(spec: SessionSpec, *, by_hash: bool = False) -> list[Path]:
    """Put a session's saved files into the client's store; return what was written.

    Neither ids nor paths in the files are changed: no client compares them.

    Args:
        spec: of the session.
        by_hash: for a client before 0.29, which names a project's folder by a hash.

    Raises `Invalid` (kind ``transcript-differs``) where a transcript is in the way that does not
    continue the saved one, and for a folder that no client would find, `UnsafePath` for links and
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
    missing = [own for own in (*rest, main) if not _is_present(spec, folder, own)]
    if main in missing and _is_renamed(folder, main, saved, spec.native_id):
        missing.remove(main)
    if missing and not by_hash and _claim(storage, cwd) != folder:
        return materialize(spec)  # another process took the folder meanwhile
    written = []
    for own in missing:
        path = folder.joinpath(*own.inner)
        make_folders(storage, path.parent)
        write_new(path, own.source, lines=family_of(own.source.head()) == LOG)
        written.append(path)
    return written


def _stem(own: Own) -> str:
    return own.inner[-1].removesuffix("l")


def _is_present(spec: SessionSpec, folder: Path, own: Own) -> bool:
    """Tell whether a file is there; what is no transcript is the client's to rewrite."""
    transcript = own.role in ("main", "subagent")
    check = is_continuation if transcript else None
    return is_there(folder.joinpath(*own.inner), own.source, check, spec.compared)


def _is_renamed(folder: Path, main: Own, saved: list[Own], native_id: str) -> bool:
    """Tell whether the session is in the folder under another name, in a file that continues it.

    Two files of one id would be two sessions to the client, which continues the one that it wrote
    last. So one that does not continue the saved one, under a name that none of the saved files
    has, is refused.
    """
    names = {_stem(own) for own in saved}
    for listed in store.in_folder(folder / CHATS, native_id):
        name = listed.file.name.removesuffix("l")
        if not listed.head.talks or name == _stem(main):
            continue
        if is_continuation(main.source, Source(str(listed.file), path=listed.file)):
            return True
        if name not in names:
            raise Invalid(
                f"{listed.file} is of the session {native_id}, too, whose file is {main.inner[-1]}",
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


# Forking, which this client does not do itself.
#
# Every byte stays but the session's id, in the field that names the file's session and in the
# file's name. A stub or an older twin, which the session does not need, is left out.

_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{}\[\]]', re.DOTALL)
_VALUE = re.compile(rb'\s*:\s*("(?:[^"\\]|\\.)*")')
_KEY = b'"sessionId"'
_SHORT = 8


def fork(
    transcripts: Mapping[str, Source],
    old_id: str,
    new_id: str,
    report: Callable[[Finding], None],
) -> Iterator[NativeFile]:
    """Yield the session's transcript, its subagents' and its outputs, under the new id.

    Paths in texts stay as they are. `report` is called for
    each damaged line of a log; records that can be read on it are taken.
    """
    for own in own_files(transcripts, old_id):
        if own.role == "sidecar":
            continue
        path = f"{TMP}/{own.project}/{'/'.join(_new_inner(own, old_id, new_id))}"
        source = own.source
        if own.role in ("main", "subagent"):
            new = b'"%s"' % new_id.encode()
            # A subagent in its own folder has an id of its own.
            old = b'"%s"' % old_id.encode()
            log = family_of(source.head()) == LOG
            pieces = _rows(source, old, new, report) if log else _document(source, old, new)
            source = Source.from_stream(path, Pieces(pieces))
        yield NativeFile(path, own.role, source)


def _new_inner(own: Own, old_id: str, new_id: str) -> tuple[str, ...]:
    """Return where a file of the new session belongs; its name has 8 characters of the id."""
    old, new = safe_part(old_id), safe_part(new_id)
    if len(own.inner) > 2:
        top, folder, name = own.inner
        return top, folder.removesuffix(old) + new, name
    stem, dot, suffix = own.inner[-1].rpartition(".")
    stem = stem.removesuffix(f"-{old[:_SHORT]}")
    return own.inner[0], f"{stem}-{new[:_SHORT]}{dot}{suffix}"


def _rows(
    source: Source, old: bytes, new: bytes, report: Callable[[Finding], None]
) -> Iterator[bytes]:
    with source.open() as stream:
        for row in read_rows(stream, source.name, Tally(), report):
            line = _renamed_row(row, old, new)
            yield line if line.endswith(b"\n") else line + b"\n"


def _renamed_row(row: Row, old: bytes, new: bytes) -> bytes:
    """Return a row's bytes with another session id in its header, or in a change of it."""
    if "id" in row.value or _KEY not in row.raw:
        return row.raw
    return _renamed(row.raw, old, new, 2 if "$set" in row.value else 1)


def _document(source: Source, old: bytes, new: bytes) -> Iterator[bytes]:
    yield _renamed(source.read(), old, new, 1)


def _renamed(data: bytes, old: bytes, new: bytes, deep: int) -> bytes:
    """Replace the session ids that stand so deep, and are the old one."""
    depth, at, made = 0, 0, bytearray()
    for token in _TOKEN.finditer(data):
        word = token.group()
        if word in b"{[":
            depth += 1
        elif word in b"}]":
            depth -= 1
        elif depth == deep and word == _KEY and (value := _VALUE.match(data, token.end())):
            if value[1] == old:
                made += data[at : value.start(1)] + new
                at = value.end(1)
            if deep == 1:
                break  # a header says it once, and first
    return bytes(made + data[at:])


# The files of one session in the client's store.


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
    files = [listed.file for listed in store.in_folder(folder / CHATS, native_id)]
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
    for listed in store.in_folder(main.parent, native_id):
        twin = listed.file.with_suffix("") == main.with_suffix("")
        if listed.file != main and (twin or not listed.head.talks) and _is_plain(listed.file):
            yield native(listed.file, "sidecar")


def _is_plain(path: Path) -> bool:
    """Tell whether a file is the client's: no link, and of a name that a client gives."""
    return path.name.isprintable() and not path.name.startswith(".") and not path.is_symlink()


# Adopting: what an agent needs to continue a session of the client.

# As a document has it in a message, and not deeper.
_MODEL = re.compile(rb'\n {6}"model": "([^"\\]+)"')
_IS_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,200}").fullmatch
_NO_TIME = "1970-01-01T00:00"


def adoptable(main: Path) -> Adoptable:
    """Return a session with all files that are its own (`StoreReader.adoptable`).

    If `main` is a document with a log that continues it, the log is used.

    Raises `Invalid` (kind ``bad-native-id``) when the file does not say which session it is, or
    says what no client takes for an id; `OSError` and `AgentsdirError` when it cannot be read.
    """
    # Prompt logs and forks have ids of sessions too, but the client cannot continue them.
    native_id = peek(read_ends(Source(str(main), path=main))).session_id
    if not store.ID.fullmatch(native_id):
        raise Invalid(
            f"{main} does not say which session it is: {native_id!r} is no id",
            kind="bad-native-id",
        )
    main = _log_of(main, native_id)
    ends = read_ends(Source(str(main), path=main))
    listed = store.read_list_entry(main)
    family = listed.head.family if listed and listed.head.family else ""
    in_store = main.parent.name == CHATS
    folder = main.parent.parent.name if in_store else ""
    # A bundle is no store, and says itself where it belongs.
    cwd = Projects(main.parents[3]).root(folder) if in_store and len(main.parents) > 3 else ""
    cwd = cwd or workspace_of(ends, family)
    if not _IS_FOLDER(folder):
        folder = slug(Path(cwd).name)
    return Adoptable(
        id=native_id,
        cwd=cwd,
        model=_model(ends, family),
        title=listed.title if listed else "",
        files=tuple(_files(main, native_id, f"{TMP}/{folder}", ends)),
    )


def _log_of(main: Path, native_id: str) -> Path:
    log = main.with_suffix(".jsonl")
    if log != main and log.is_file():
        listed = store.read_list_entry(log)
        if listed and listed.head.talks and listed.head.session_id == native_id:
            return log
    return main


def _files(main: Path, native_id: str, project: str, ends: FileEnds) -> Iterator[NativeFile]:
    """Yield the session's files, the transcript under a name that a client gives such files."""
    for file in native_files(main, native_id, project):
        if file.role == "main" and not is_chat_name(main.name):
            suffix = ".jsonl" if family_of(ends.head) == LOG else ".json"
            name = chat_name(native_id, started(ends) or _NO_TIME, suffix)
            yield file._replace(path=f"{project}/{CHATS}/{name}")
        else:
            yield file


def _model(ends: FileEnds, family: str) -> str:
    """Return the model that answered last, as the ends of the file say; empty where they do not."""
    named = [text_of(message.get("model")) for message in messages(ends, family)]
    named += [found.decode(errors="replace") for found in _MODEL.findall(ends.tail)]
    return next((model for model in reversed(named) if model), "")
