"""Sessions put into Claude's store, taken out of it, forked and adopted."""

from __future__ import annotations

import os
import re
import uuid
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from agentsdir.adapters.claude import store
from agentsdir.adapters.claude.control import encode
from agentsdir.adapters.claude.discover import FirstRows
from agentsdir.adapters.claude.shapes import SYNTHETIC
from agentsdir.adapters.claude.store import MAX_NAME, host_paths, project_folder_name
from agentsdir.adapters.protocol import Adoptable, NativeFile
from agentsdir.adapters.store_files import (
    begins_with,
    is_there,
    make_folders,
    size_of,
    write_new,
)
from agentsdir.formats.errors import Invalid, UnsafePath
from agentsdir.formats.rows import Tally, read_rows
from agentsdir.formats.source import Pieces, Source
from agentsdir.formats.times import from_text, native, to_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from agentsdir.adapters.protocol import SessionSpec
    from agentsdir.formats.findings import Finding
    from agentsdir.formats.rows import Row


# Open calls at the end of a transcript get an error result, as the client itself adds one.
#
# 2.1.332 appends such rows when it resumes. Older clients leave the call out of what they send, so
# the model never sees that it was interrupted. The rows are added to what is materialized, for a
# client of any version.

# The client's own words.
INTERRUPTED = (
    "[Tool call interrupted: the session ended before this call's result was recorded, so its "
    "outcome is unknown. Check whether it took effect before relying on it or running it again.]"
)
_COPIED = ("userType", "entrypoint", "cwd", "sessionId", "version", "gitBranch", "slug")
_STEP = timedelta(milliseconds=1)
_EARLIEST = datetime.min.replace(tzinfo=UTC)


class _UnansweredCalls:
    """The calls of the model's last message without a result, and the values of a row for one."""

    def __init__(self) -> None:
        self.open: dict[str, dict[str, Any]] = {}
        self.prompt: Any = None
        self.last = _EARLIEST
        self._message: Any = None

    def take(self, row: dict[str, Any]) -> None:
        """Take one row of the main thread."""
        self.last = max(self.last, _moment(row.get("timestamp")))
        message = row.get("message")
        if row.get("isSidechain") is True or not isinstance(message, dict):
            return
        content = message.get("content")
        parts = (
            [part for part in content if isinstance(part, dict)] if type(content) is list else []
        )
        if row.get("type") == "assistant":
            if message.get("id") != self._message or self._message is None:
                self.open.clear()  # the conversation continued without a result
            self._message = message.get("id")
            for part in parts:
                if part.get("type") == "tool_use" and isinstance(call := part.get("id"), str):
                    self.open[call] = row
        elif row.get("type") == "user":
            results = [part for part in parts if part.get("type") == "tool_result"]
            for part in results:
                self.open.pop(str(part.get("tool_use_id")), None)
            if not results and not row.get("isMeta"):
                self.prompt = row.get("promptId")
                self.open.clear()


def missing_results(source: Source, now: str) -> Iterator[bytes]:
    """Yield a line with an error result for each open call at the end of a main transcript.

    Args:
        now: an RFC 3339 time; the rows' times are later than it and all others, and increase.
    """
    calls = _UnansweredCalls()
    with source.open() as stream:
        for row in read_rows(stream, source.name, Tally(), lambda _finding: None):
            calls.take(row.value)
    moment = max(_moment(now), calls.last)
    for call, asked in calls.open.items():
        moment += _STEP
        yield encode(_error_result(call, asked, calls.prompt, moment))


def _error_result(call: str, row: dict[str, Any], prompt: Any, moment: datetime) -> dict[str, Any]:
    """Return the client's own row, with its keys in its order; unknown values are left out."""
    asked = row.get("uuid")
    result = {"type": "tool_result", "content": INTERRUPTED, "is_error": True, "tool_use_id": call}
    made = {
        "parentUuid": asked,
        "isSidechain": False,
        "promptId": prompt,
        "type": "user",
        "message": {"role": "user", "content": [result]},
        # The same id each time, so that a second copy adds no second result.
        "uuid": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{asked}:{call}")),
        "timestamp": to_text(moment)[:-4] + "Z",  # milliseconds, as the client writes them
        "toolUseResult": INTERRUPTED,
        "toolDenialKind": "interrupted",
        "sourceToolAssistantUUID": asked,
        **{name: row[name] for name in _COPIED if name in row},
    }
    if not isinstance(prompt, str):
        del made["promptId"]
    return made


def _moment(text: Any) -> datetime:
    try:
        return from_text(str(native(text)))
    except (OverflowError, ValueError):
        return _EARLIEST


# Materializing: saved transcripts written where the client finds them.
#
# Files in the client's store belong to the client: new files are made, existing ones never changed.
# Each file gets its name in one step, the main transcript last, so that a session is there as a
# whole or not at all.

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FLAT_CHILD = re.compile(r"agent-[A-Za-z0-9_-]{1,128}\.jsonl")
_TRANSCRIPT = ".jsonl"


class _SavedFile(NamedTuple):
    """A saved file, and where it belongs below the project's folder."""

    inner: tuple[str, ...]
    source: Source


def materialize(spec: SessionSpec, *, here: bool = False) -> list[Path]:
    """Write a session's saved files into the client's store; return what was written.

    A session that is in the store already stays in its folder: newer clients find it by its id from
    every folder. Missing files of its side folder are written beside it.

    Args:
        here: write into the folder of the working directory in any case: older clients look only
            there.

    Raises `Invalid` (kind ``transcript-differs``) where a transcript is in the way that does not
    continue the saved one, `UnsafePath` for links and folders of other users, and `AgentsdirError`
    where the system refuses.
    """
    saved = _saved(spec)
    if not saved or saved[-1].inner != (f"{spec.native_id}{_TRANSCRIPT}",):
        return []
    paths = host_paths(spec.host, spec.cwd)
    folder = session_folder(paths.storage, paths.transcripts, spec.native_id, anywhere=not here)
    # All files are checked before any is written.
    missing = [one for one in saved if not _is_present(spec, folder, one)]
    written = []
    for one in missing:
        path = folder.joinpath(*one.inner)
        make_folders(paths.storage, path.parent)
        more = missing_results(one.source, spec.now()) if one is saved[-1] else ()
        write_new(path, one.source, lines=path.suffix == _TRANSCRIPT, more=more)
        written.append(path)
    return written


def _is_present(spec: SessionSpec, folder: Path, one: _SavedFile) -> bool:
    path = folder.joinpath(*one.inner)
    check = begins_with if path.suffix == _TRANSCRIPT else None
    return is_there(path, one.source, check, spec.compared)


def _saved(spec: SessionSpec) -> list[_SavedFile]:
    """Return the files of this session, the main transcript last.

    A session that was in several folders over time may be saved under several: the longest copy is
    the latest one.
    """
    found: dict[tuple[str, ...], Source] = {}
    for path, source in spec.transcripts.items():
        inner = inner_path(path, spec.native_id)
        if inner and (inner not in found or size_of(found[inner]) < size_of(source)):
            found[inner] = source
    main = (f"{spec.native_id}{_TRANSCRIPT}",)
    return [
        _SavedFile(inner, found[inner]) for inner in sorted(found, key=lambda i: (i == main, i))
    ]


def inner_path(path: str, native_id: str) -> tuple[str, ...]:
    """Return a storage-relative path as a path below a project's folder; empty for other files.

    The session's own files are its transcript, its side folder, and old subagents' files beside the
    transcript.
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
    """Return the role of a file below a project's folder (see `NativeFile`)."""
    name = inner[-1]
    if name.startswith("agent-") and name.endswith(_TRANSCRIPT):
        return "subagent"
    if name.endswith(".meta.json"):
        return "sidecar"
    return "main" if len(inner) == 1 else "output"


def role_at(path: str, native_id: str) -> str:
    """Return the role of a storage-relative path; empty for a file of another session."""
    inner = inner_path(path, native_id)
    return role_of(inner) if inner else ""


def session_folder(storage: Path, folder: Path, native_id: str, *, anywhere: bool = True) -> Path:
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


# Forking, as ``claude --fork-session`` does it.
#
# Rows keep their uuids and every byte but the session id. Rows of one process of the client (its
# queue, its requests, its costs) are left out.

_OWN = frozenset(
    [
        "queue-operation",
        "api-request",
        "api-request-shape",
        "api-request-blob",
        "atis-latch",
        "cost-state",
    ]
)
_ID = re.compile(rb'(?<!\\)"sessionId"\s*:\s*("(?:[^"\\]|\\.)*")')
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]')


def fork(
    transcripts: Mapping[str, Source],
    old_id: str,
    new_id: str,
    report: Callable[[Finding], None],
) -> Iterator[NativeFile]:
    """Yield the session's transcript, and the files of its side folder, under the new id.

    Old subagents' files are beside the transcript, under names without a session: they go into the
    side folder. Paths in texts stay as they are. `report` is called for each damaged line; records
    on it that can be read are copied.
    """
    for path, source in sorted(transcripts.items()):
        inner = inner_path(path, old_id)
        if not inner:
            continue
        project = path.split("/")[1]
        role = role_of(inner)
        name = f"projects/{project}/{_new_name(inner, role, new_id)}"
        if role in ("main", "subagent"):
            source = Source.from_stream(name, Pieces(_rows(source, new_id, report)))
        yield NativeFile(name, role, source)


def _new_name(inner: tuple[str, ...], role: str, new_id: str) -> str:
    if role == "main":
        return f"{new_id}.jsonl"
    rest = inner[1:] or ("subagents", inner[0])
    return "/".join((new_id, *rest))


def _rows(source: Source, new_id: str, report: Callable[[Finding], None]) -> Iterator[bytes]:
    with source.open() as stream:
        for row in read_rows(stream, source.name, Tally(), report):
            if row.value.get("type") not in _OWN:
                line = _renamed(row, b'"%s"' % new_id.encode())
                yield line if line.endswith(b"\n") else line + b"\n"


def _renamed(row: Row, new: bytes) -> bytes:
    """Return a row's bytes with another session id at its top level."""
    if not isinstance(row.value.get("sessionId"), str):
        return row.raw
    places = [match.span(1) for match in _ID.finditer(row.raw)]
    if len(places) > 1:
        top = _depths(row.raw)
        places = [place for place in places if top.get(place[0]) == 1]
    line, at = bytearray(), 0
    for begin, end in places:
        line += row.raw[at:begin] + new
        at = end
    return bytes(line + row.raw[at:])


def _depths(raw: bytes) -> dict[int, int]:
    """Return the depth of each string of a row, by its offset."""
    depth, found = 0, {}
    for token in _TOKEN.finditer(raw):
        character = token.group()[:1]
        if character == b'"':
            found[token.start()] = depth
        else:
            depth += 1 if character in b"{[" else -1
    return found


# Adopting: what an agent needs to continue a session of the client.

_TAIL = 256 * 1024


def adoptable(main: Path) -> Adoptable:
    """Return a session with its side folder (`StoreReader.adoptable`). Also raises `OSError`."""
    source = Source(str(main), path=main)
    rows = FirstRows(source.head)
    native_id = native_id_of(main)
    if not UUID.fullmatch(native_id):
        raise Invalid(
            f"{main} does not say which session it is: {native_id!r} is no id",
            kind="bad-native-id",
        )
    cwd = _first(rows, "cwd")
    in_store = main.parent.parent.name == store.PROJECTS
    folder = f"{store.PROJECTS}/{main.parent.name if in_store else project_folder_name(cwd)}"
    try:
        listed = store.read_list_entry(main)
    except OSError:  # a title is all that is missing then
        listed = None
    return Adoptable(
        id=native_id,
        cwd=cwd,
        model=_model(main),
        title=listed.title if listed else "",
        files=tuple(_files(main, folder, native_id)),
    )


def native_id_of(main: Path) -> str:
    """Return the id of the session of a main transcript; empty where there is none.

    The client goes by the file's name. For a renamed file, the rows decide.
    """
    if UUID.fullmatch(main.stem):
        return main.stem
    return _first(FirstRows(Source(str(main), path=main).head), "sessionId")


def _first(rows: Iterable[dict[str, Any]], name: str) -> str:
    return next((row[name] for row in rows if isinstance(row.get(name), str)), "")


def _files(main: Path, folder: str, native_id: str) -> Iterator[NativeFile]:
    yield NativeFile(f"{folder}/{native_id}.jsonl", "main", Source(str(main), path=main))
    for path in store.beside_files(main):
        if path.parent == main.parent:
            inner: tuple[str, ...] = (path.name,)
        else:
            inner = (native_id, *path.relative_to(main.with_suffix("")).parts)
        yield NativeFile("/".join((folder, *inner)), role_of(inner), Source(str(path), path=path))


def _model(main: Path) -> str:
    """Return the model that answered last, from the end of the file."""
    with main.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - _TAIL))
        lines = stream.read().split(b"\n")
    for line in reversed(lines):
        if b'"model"' in line:
            try:
                model = orjson.loads(line)["message"]["model"]
            except (orjson.JSONDecodeError, KeyError, TypeError):
                continue
            if isinstance(model, str) and model != SYNTHETIC:
                return model
    return ""


# The files of one session in the client's store.

_OUTPUTS = "tool-results"


def native_files(storage: Path, native_id: str) -> list[NativeFile]:
    """Return a session's transcript, then its subagents' and their sidecars, then its outputs.

    Of several transcripts with the id, the one written last is used. Paths are relative to the
    storage. Files that no client makes are left out: links, hidden files, names with control
    characters. The list is empty for a session that is not there.

    Raises `UnsafePath` when the transcript itself is a link.
    """
    # An id from a bundle may be a mere prefix of another session's id.
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
    """Tell whether a file is no link, and has a name that a client gives."""
    assert source.path is not None
    inner = source.path.relative_to(storage)
    hidden = any(part.startswith(".") for part in inner.parts)
    return not hidden and str(inner).isprintable() and not source.path.is_symlink()


def session_files(spec: SessionSpec) -> list[NativeFile]:
    """Return a session's files in its host's store, under the paths of their saved copies.

    A session that was moved to another project's folder keeps its saved paths.
    """
    files = native_files(host_paths(spec.host, spec.cwd).storage, spec.native_id)
    home = next((p for p in spec.transcripts if role_at(p, spec.native_id) == "main"), None)
    if home is None:
        return files
    project = "/".join(home.split("/")[:2])
    return [
        file._replace(path="/".join((project, *inner)))
        if (inner := inner_path(file.path, spec.native_id))
        else file  # it has no place in another folder
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
