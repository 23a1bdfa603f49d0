"""The store of Claude Code: where its transcripts are, and what a list shows of them."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import unicodedata
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from agentsdir.adapters.claude.discover import SIDE_FOLDER, FirstRows, discover
from agentsdir.adapters.claude.sessions import own_session
from agentsdir.adapters.claude.shapes import SYNTHETIC, mapping, part_text, parts, text
from agentsdir.adapters.claude.speakers import COMMAND, command_text, divide_speech, is_caveat
from agentsdir.adapters.protocol import MIN_NATIVE_PREFIX, NativeSession, Paths
from agentsdir.adapters.store_files import ignore, names_in
from agentsdir.formats import times
from agentsdir.formats.rows import LINE_CAP
from agentsdir.formats.source import Source, heads

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from agentsdir.adapters.protocol import Host, Refuse, SessionFiles


# Where the client keeps its transcripts, and how it names a project's folder.

MAX_NAME = 200
_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"


def claude_paths(home: Path, cwd: Path, env: Mapping[str, str]) -> Paths:
    """Return the client's root and the folder of the transcripts made in `cwd`.

    `cwd` must be resolved: the client names the folder after the real path.
    """
    configured = env.get("CLAUDE_CONFIG_DIR")
    root = Path(unicodedata.normalize("NFC", configured)) if configured else home / ".claude"
    return Paths(storage=root, transcripts=root / "projects" / project_folder_name(str(cwd)))


def host_paths(host: Host, cwd: str) -> Paths:
    """Return the same for a client that runs on `host`, with the home that its settings give it."""
    variables = {**host.variables, **host.environment}
    home = Path(variables.get("HOME") or host.home)
    return claude_paths(home, Path(os.path.realpath(cwd)), variables)


def project_folder_name(cwd: str) -> str:
    """Return the folder name for a working directory, which cannot be converted back.

    The client replaces UTF-16 units, so a character beyond the BMP gives two hyphens. Names
    over 200 are cut and get a hash, which differs between the client's runtimes: this is Node's.
    """
    units = unicodedata.normalize("NFC", cwd).encode("utf-16-le", "surrogatepass")
    codes = [int.from_bytes(units[at : at + 2], "little") for at in range(0, len(units), 2)]
    name = re.sub("[^A-Za-z0-9]", "-", "".join(chr(code) if code < 128 else "-" for code in codes))
    if len(name) <= MAX_NAME:
        return name
    return f"{name[:MAX_NAME]}-{_hash(codes)}"


def _hash(codes: list[int]) -> str:
    value = 0
    for code in codes:
        value = (value * 31 + code) & 0xFFFFFFFF
    rest = abs(value - 2**32 if value >= 2**31 else value)
    digits = ""
    while rest:
        rest, digit = divmod(rest, 36)
        digits = _BASE36[digit] + digits
    return digits or "0"


# Listing: what a list shows of a session, from the first and last 64 KiB of its file.
#
# More is read where these hold no whole row of a conversation, or the first no prompt. Few rows are
# needed, and some are long. So each kind is searched by a word that its rows contain, and only
# lines with the word are decoded. The word may be anywhere in a line, so the decoded row decides.

END = 64 * 1024
TITLE = 200
NOTE = 1024
_BOM = b"\xef\xbb\xbf"
# Rows with a title of the session, the best first.
_TITLES = (
    ("custom-title", "customTitle"),
    ("ai-title", "aiTitle"),
    ("summary", "summary"),
)
# Commands of the client that begin or leave a conversation, and are no title.
_OWN_COMMANDS = frozenset({"/clear", "/new", "/reset", "/exit", "/quit", "/resume", "/login"})
# What every row of a conversation has. Some clients leave files with old titles alone.
_CHAINED = b'"parentUuid"'
_SIDECHAIN = re.compile(rb'"isSidechain":\s*(true|false)')


class _Part:
    """One end of a file, whose rows are decoded when they are asked for, and once."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        # By the place where its line begins; None for a line that is damaged, or cut.
        self._decoded: dict[int, dict[str, Any] | None] = {}

    def rows(self, word: str) -> Iterator[dict[str, Any]]:
        """Yield the complete rows that contain a word as a JSON string, in order."""
        data, needle = self.data, f'"{word}"'.encode()
        at = data.find(needle)
        while at >= 0:
            row = self.row_at(at)
            if row is not None:
                yield row
            end = data.find(b"\n", at)
            at = data.find(needle, end) if end >= 0 else -1

    def rows_back(self, word: str) -> Iterator[dict[str, Any]]:
        """Yield the same rows, the last one first."""
        data, needle = self.data, f'"{word}"'.encode()
        at = data.rfind(needle)
        while at >= 0:
            row = self.row_at(at)
            if row is not None:
                yield row
            begin = data.rfind(b"\n", 0, at)
            at = data.rfind(needle, 0, begin) if begin >= 0 else -1

    def first(self, name: str) -> str:
        """Return the first text of a field that is not empty; empty for none."""
        return next((row[name] for row in self.rows(name) if text(row.get(name))), "")

    def row_at(self, at: int) -> dict[str, Any] | None:
        """Return the row on the line of a byte."""
        begin = self.data.rfind(b"\n", 0, at) + 1
        if begin not in self._decoded:
            end = self.data.find(b"\n", at)
            self._decoded[begin] = _decode(self.data[begin : end if end >= 0 else len(self.data)])
        return self._decoded[begin]

    def notes(self) -> Iterator[bytes]:
        """Yield the lines that may have a title, the last one first: short ones, and some others.

        Long lines are messages and results, which most searches need not read, unless they begin
        with a type.
        """
        data, end = self.data, len(self.data)
        while end >= 0:
            begin = data.rfind(b"\n", 0, end) + 1
            if end - begin < NOTE or data.startswith(b'{"type"', begin):
                yield data[begin:end]
            end = begin - 1


class _Ends:
    """The two ends of a file; the same bytes where it is short."""

    def __init__(self, head: _Part, tail: _Part) -> None:
        self.head = head
        self.tail = tail
        # The last rows first: those of the tail, then those of the head.
        self._notes = [*tail.notes(), *(head.notes() if head is not tail else ())]

    def first(self, name: str) -> str:
        """Return the first text of a field in the head, failing that in the tail."""
        return self.head.first(name) or self.tail.first(name)

    def last(self, name: str) -> str:
        """Return the last text of a field in the tail, failing that the first in the head."""
        for row in self.tail.rows_back(name):
            if isinstance(row.get(name), str):
                return str(row[name])
        return self.first(name)

    def named(self, kind: str, name: str) -> str:
        """Return the text of the last row of a kind; a row that clears it counts."""
        needle = f'"{kind}"'.encode()
        for line in self._notes:
            if needle in line:
                row = _decode(line)
                if row is not None and row.get("type") == kind:
                    return text(row.get(name))
        return ""


def read_list_entry(path: Path) -> NativeSession | None:
    """Return what a list shows of the session in a file; None for no session.

    Raises `OSError` when the file cannot be read, is no regular file, or has nothing to show in its
    first 64 MiB and is longer.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        size = status.st_size
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        if not size:
            return None
        beginnings = _beginnings(descriptor, size)
        head = next(beginnings)
        is_chained = _is_chained(head)
        while not is_chained and (longer := next(beginnings, None)) is not None:
            head = longer
            is_chained = _is_chained(head)
        tail = head if len(head.data) == size <= END else _Part(_end(descriptor, size))
        if _is_sidechain(head):
            return None
        if not (is_chained or _is_chained(tail)):
            _refuse_long(path, size)
            return None
        ends = _Ends(head, tail)
        title = next((found for kind, name in _TITLES if (found := ends.named(kind, name))), "")
        if not title.strip():
            title, is_prompt = _first_prompt(head)
            if is_prompt:
                if not (head.first("cwd") and _created(head)):
                    ends.head = next(beginnings, head)
            else:
                # Cut rows are read to their end before a command counts: one may be the prompt.
                for ends.head in beginnings:
                    title, _ = _first_prompt(ends.head)
                    if title:
                        break
                else:
                    last = ends.named("last-prompt", "lastPrompt")
                    title = title or ("" if last.startswith("/") else last)
    finally:
        os.close(descriptor)
    if not title.strip() and not _is_answered(ends.head):
        _refuse_long(path, size)
        return None
    return NativeSession(
        id=path.stem,
        file=path,
        cwd=ends.first("cwd"),
        title=_one_line(title),
        branch=ends.last("gitBranch"),
        created=_created(ends.head),
        modified=times.of_file(status.st_mtime),
        size=size,
    )


def _created(head: _Part) -> str | None:
    """Return the time of the first row that has a valid one."""
    moments = (times.native(row.get("timestamp")) for row in head.rows("timestamp"))
    return next((moment for moment in moments if moment is not None), None)


def _is_chained(part: _Part) -> bool:
    """Tell whether any row belongs to a conversation; a row that is cut counts by its bytes."""
    if any("parentUuid" in row for row in part.rows("parentUuid")):
        return True
    return part.data.find(_CHAINED, part.data.rfind(b"\n") + 1) >= 0


def _beginnings(descriptor: int, size: int) -> Iterator[_Part]:
    """Yield the complete rows of the first 64 KiB, then of ever longer beginnings."""
    for head in heads(lambda length: os.pread(descriptor, length, 0)):
        whole = len(head) if len(head) >= size else head.rfind(b"\n") + 1
        yield _Part(head[:whole].removeprefix(_BOM))


def _end(descriptor: int, size: int) -> bytes:
    """Return the last 64 KiB, or as many bytes as the last row has."""
    length = END
    while True:
        tail = os.pread(descriptor, length, max(0, size - length))
        if length >= min(size, LINE_CAP) or b"\n" in tail[:-1]:
            return tail
        length *= 2


def _refuse_long(path: Path, size: int) -> None:
    """Raise `OSError` for a file that is longer than what was read of it."""
    if size > LINE_CAP:
        raise OSError(errno.EFBIG, "its first 64 MiB do not say what it is about", str(path))


def _is_sidechain(head: _Part) -> bool:
    """Tell whether the first row with `isSidechain` belongs to a subagent."""
    found = _SIDECHAIN.search(head.data)
    while found is not None:
        row = head.row_at(found.start())
        if row is not None and type(row.get("isSidechain")) is bool:
            return bool(row["isSidechain"])
        found = _SIDECHAIN.search(head.data, found.end())
    return False


def _first_prompt(head: _Part) -> tuple[str, bool]:
    """Return the first prompt; failing that the first command that is no `_OWN_COMMANDS`.

    The second value is whether it is a prompt.
    """
    command, caveat = "", None
    for row in head.rows("user"):
        if row.get("type") != "user" or row.get("isSidechain") is True:
            continue
        pieces = parts(mapping(row.get("message")).get("content"))
        if any(isinstance(part, dict) and part.get("type") == "tool_result" for part in pieces):
            continue
        texts = [piece for part in pieces if (piece := part_text(part))]
        if row.get("isMeta") is True and texts and is_caveat(texts[0]):
            caveat = text(row.get("uuid")) or None
        speaker, divided = divide_speech(row, texts, caveat, is_whole=len(texts) == len(pieces))
        if speaker.is_person:
            for _, typed in divided:
                if typed.strip():
                    return typed.strip(), True
        elif speaker is COMMAND and not command:
            typed = command_text(texts[0])
            command = "" if typed.split(" ", 1)[0] in _OWN_COMMANDS else typed
    return command, False


def _is_answered(head: _Part) -> bool:
    """Tell whether the model answered: a prompt that is an image gives no title."""
    for row in head.rows("assistant"):
        message = mapping(row.get("message"))
        own = row.get("type") == "assistant" and row.get("isSidechain") is not True
        if own and message.get("model") != SYNTHETIC:
            return True
    return False


def _decode(line: bytes) -> dict[str, Any] | None:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        try:  # orjson refuses half a surrogate pair, json does not
            row = json.loads(line)
        except (ValueError, RecursionError):  # damaged, or cut by the end of what was read
            return None
    return row if isinstance(row, dict) else None


def _one_line(title: str) -> str:
    line = " ".join(title.encode(errors="replace").decode().split())
    return line if len(line) <= TITLE else line[: TITLE - 1] + "…"


# The client's own store: which files in it are transcripts, and where a session is.
#
# The client's index and the names of projects' folders are not trusted: the file itself says which
# session it is. Only files whose name is an id are sessions.

PROJECTS = "projects"
SUFFIX = ".jsonl"
_SESSION = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_BEGINNING = re.compile(r"[0-9A-Fa-f-]+")
# What stands beside `projects` in a root that a client has used, in any generation.
_ROOT_MARKS = (
    ".claude.json",
    ".credentials.json",
    "backups",
    "history.jsonl",
    "sessions",
    "settings.json",
    "shell-snapshots",
    "statsig",
    "todos",
)


def is_storage(folder: Path) -> bool:
    """Tell whether a folder is a client's root, which also has settings and secrets."""
    if not (folder / PROJECTS).is_dir():
        return False
    return folder.name == ".claude" or any((folder / mark).exists() for mark in _ROOT_MARKS)


def transcripts(storage: Path, refuse: Refuse) -> Iterator[Path]:
    """Yield all transcripts with content: of each project the sessions, then their children."""
    for folder in _projects(storage, refuse):
        found = names_in(folder, refuse)
        for name in found:
            path = folder / name
            if (_is_session(name) or _is_child_file(name)) and _is_filled(path):
                yield path
        for name in found:
            if _SESSION.fullmatch(name):
                yield from _children(folder / name, refuse)


def sessions(storage: Path, refuse: Refuse) -> Iterator[NativeSession]:
    """Yield what a list shows of each session, the one written last first.

    Files are sorted before any is read, so the first row comes at once. Sessions of subagents, and
    sessions without a conversation, are left out.
    """
    dated: list[tuple[int, Path]] = []
    for folder in _projects(storage, refuse):
        for name in names_in(folder, refuse):
            if _is_session(name):
                path = folder / name
                try:
                    dated.append((path.stat().st_mtime_ns, path))
                except OSError as error:
                    refuse(error)
    for _, path in sorted(dated, reverse=True):
        try:
            listed = read_list_entry(path)
        except OSError as error:
            refuse(error)
        else:
            if listed is not None:
                yield listed


def locate(storage: Path, native_id: str) -> list[Path]:
    """Return the files of one id, or of ids that begin so, the one written last first.

    Empty files, which some clients leave when they resume, are left out.
    """
    whole = _SESSION.fullmatch(native_id) is not None
    if not whole and (len(native_id) < MIN_NATIVE_PREFIX or not _BEGINNING.fullmatch(native_id)):
        return []
    found: list[tuple[int, Path]] = []
    for folder in _projects(storage, ignore):
        names = [native_id + SUFFIX] if whole else names_in(folder, ignore)
        for name in names:
            path = folder / name
            if name.startswith(native_id) and _is_session(name) and _is_filled(path):
                with suppress(OSError):  # the client may be taking it away
                    found.append((path.stat().st_mtime_ns, path))
    return [path for _, path in sorted(found, reverse=True)]


def files(main: Path) -> SessionFiles:
    """Return a session as it is now: its main transcript and its subagents' files."""
    main_source = Source(str(main), path=main)
    named = own_session(FirstRows(main_source.head), main_source.name)
    near = beside(main, {main.stem, named} - {""})
    sources = [Source(str(path), path=path) for path in near]
    for session in discover([main_source, *sources]):
        if session.transcripts[0].source is main_source:
            return session
    raise AssertionError("a main transcript is always of some session")


def beside(main: Path, names: Iterable[str]) -> Iterator[Path]:
    """Yield the files that may be children of `main`: in its side folder, or flat beside it.

    `names` are those under which the side folder may stand: the file's, and the session's own.
    """
    for name in sorted(names):
        if _SESSION.fullmatch(name) or name == main.stem:
            yield from _children(main.with_name(name), ignore)
    for name in names_in(main.parent, ignore):
        path = main.parent / name
        if _is_child_file(name) and path != main and _is_filled(path):
            yield path


def beside_files(main: Path) -> Iterator[Path]:
    """Yield every file of a session but `main`: all of its side folder, and flat children.

    Links are not followed: what is taken along is the session's own.
    """
    for folder, folders, names in os.walk(main.with_suffix("")):
        folders.sort()
        for name in sorted(names):
            path = Path(folder) / name
            if path.is_file() and not path.is_symlink():
                yield path
    for child in files(main).transcripts[1:]:
        flat = child.source.path
        if flat is not None and flat.parent == main.parent:
            yield flat


def _projects(storage: Path, refuse: Refuse) -> Iterator[Path]:
    """Yield the folders that may hold sessions, each once, however often links lead to it.

    One level deep and no deeper. `storage` may also be the folder of all projects, or one of them.
    """
    top = storage / PROJECTS
    if not top.is_dir():
        top = storage
    seen: set[tuple[int, int]] = set()
    for folder in (top, *(top / name for name in names_in(top, refuse))):
        try:
            status = folder.stat()
        except OSError:  # a dangling link
            continue
        if folder.is_dir() and (status.st_dev, status.st_ino) not in seen:
            seen.add((status.st_dev, status.st_ino))
            yield folder


def _children(side: Path, refuse: Refuse) -> Iterator[Path]:
    """Yield the subagents' files in a session's side folder, however deep a workflow put them."""
    pending = [side / SIDE_FOLDER]
    seen: set[tuple[int, int]] = set()
    while pending:
        folder = pending.pop()
        try:
            status = folder.stat()
        except OSError:
            continue
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        inner = []
        for name in names_in(folder, refuse):
            path = folder / name
            if path.is_dir():
                inner.append(path)
            elif _is_child_file(name) and _is_filled(path):
                yield path
        pending += reversed(inner)


def _is_session(name: str) -> bool:
    return name.endswith(SUFFIX) and _SESSION.fullmatch(name.removesuffix(SUFFIX)) is not None


def _is_child_file(name: str) -> bool:
    return name.startswith("agent-") and name.endswith(SUFFIX)


def _is_filled(path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_size > 0
    except OSError:
        return False
