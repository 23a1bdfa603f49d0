"""The store of Gemini CLI: which sessions it has, and what a list shows of them."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from agentsdir.adapters.gemini.discover import (
    BEGINNING,
    cut_prompt,
    ends_of,
    group,
    id_of,
    messages,
    peek,
    prompt_of,
    read_ends,
    started,
    summary_of,
)
from agentsdir.adapters.gemini.projects import CHATS, MARK, OUTPUTS, TMP, Projects
from agentsdir.adapters.gemini.speakers import names_command
from agentsdir.adapters.protocol import MIN_NATIVE_PREFIX, NativeSession
from agentsdir.adapters.store_files import ignore, names_in, size_of
from agentsdir.formats import times
from agentsdir.formats.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from agentsdir.adapters.gemini.discover import FileEnds, FileHead
    from agentsdir.adapters.protocol import Refuse, SessionFiles


# Listing: what a list shows of a session, from the first and last 64 KiB of its file.

TITLE = 200


class ListEntry(NamedTuple):
    """A session's file. `modified` is in nanoseconds since 1970, `size` in bytes."""

    file: Path
    head: FileHead
    title: str
    created: str | None
    modified: int
    size: int


def read_list_entry(path: Path, wanted: Callable[[str], bool] | None = None) -> ListEntry | None:
    """Return what a list shows of a session's file; None for no session.

    Args:
        path: the file.
        wanted: returns whether the session's id is wanted; if not, the result is None.

    Raises `OSError` when it cannot be read.
    """
    # O_NONBLOCK: a FIFO in its place must not block.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not status.st_size:
            return None
        if wanted and not wanted(id_of(os.pread(descriptor, BEGINNING, 0)) or path.stem):
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            ends = ends_of(stream)
    finally:
        os.close(descriptor)
    head = peek(ends)
    family = head.family
    if family is None:
        return None
    if not head.session_id:  # a log without its header has the id in its name
        head = head._replace(session_id=path.stem)
    title = _title(ends, family) if head.talks else ""
    created = times.native(started(ends))
    return ListEntry(path, head, title, created, status.st_mtime_ns, ends.size)


def _title(ends: FileEnds, family: str) -> str:
    """Return the client's own title, failing that the first prompt, or a command."""
    title = summary_of(ends, family)
    command = ""
    if not title.strip():
        for message in messages(ends, family):
            typed = prompt_of(message).strip()
            if typed and not (typed.startswith("?") or names_command(typed)):
                title = typed
                break
            command = command or typed
    return _one_line(title or command or cut_prompt(ends, family))


def _one_line(title: str) -> str:
    line = " ".join(title.encode(errors="replace").decode().split())
    return line if len(line) <= TITLE else line[: TITLE - 1] + "…"


# The client's own store: which files in it are transcripts, and where a session is
# (docs/clients/gemini.md, "Its store").
#
# A file's content says which session it is; its name has only 8 characters of the id. Several files
# can have one id: each resume by a newer client leaves a stub, a session that went from an older
# client to a newer one has a document and a log, and some clients give all their sessions the same
# id. So the id alone chooses nothing; the file with a conversation is chosen.

SUFFIXES = (".jsonl", ".json")
PREFIX = "session-"
_FALLBACK_NAME = re.compile(r"logs\.json|checkpoint-.*\.json", re.DOTALL)
ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
# Files in a root that a client of any version has used.
_ROOT_MARKS = (
    "google_accounts.json",
    "installation_id",
    "oauth_creds.json",
    "projects.json",
    "settings.json",
    "trustedFolders.json",
)


class _Main(NamedTuple):
    """A main transcript in a project's folder."""

    project: str
    listed: ListEntry

    @property
    def twin(self) -> Path:
        """The path without suffix, which a document and its log share."""
        return self.listed.file.with_suffix("")


def is_storage(folder: Path) -> bool:
    """Tell whether a folder is a client's root, which also has settings and secrets.

    A workspace's folder of that name, which has no transcripts, counts as one.
    """
    if folder.name == ".gemini":
        return True
    if not any((folder / mark).exists() for mark in _ROOT_MARKS):
        return False
    return any(
        (folder / TMP / name / inner).exists()
        for name in names_in(folder / TMP, ignore)
        for inner in (CHATS, MARK)
    )


def transcripts(storage: Path, refuse: Refuse) -> Iterator[Path]:
    """Yield all transcripts with content: of each project the sessions, then their children.

    Prompt logs and saved chats follow: they may have sessions whose file is gone.
    """
    for _, folder in _folders(storage, refuse):
        found = names_in(folder, refuse)
        for name in found:
            if _is_session(name) and _is_filled(folder / name):
                yield folder / name
        for name in found:
            if (folder / name).is_dir():
                yield from _transcripts_in(folder / name, refuse)
        project = folder.parent
        if project == storage or storage in project.parents:
            for name in names_in(project, refuse):
                if _FALLBACK_NAME.fullmatch(name) and _is_filled(project / name):
                    yield project / name
            yield from _transcripts_in(project / "checkpoints", refuse)


def sessions(storage: Path, refuse: Refuse) -> Iterator[NativeSession]:
    """Yield what a list shows of each session, the one written last first.

    A document and the log that continues it are one row, and so are copies in the folders of one
    project. Subagents, and files without a conversation, are left out.
    """
    projects = Projects(storage)
    roots: dict[str, str] = {}
    shown: set[tuple[str, str, str]] = set()
    mains = _ranked(main for main in _mains(storage, refuse) if main.listed.head.talks)
    rows = []
    for project, listed in mains:
        if project not in roots:
            roots[project] = projects.root(project)
        cwd = roots[project]
        key = cwd or project, listed.file.stem, listed.head.session_id
        if key not in shown:
            shown.add(key)
            rows.append((listed, cwd))
    rows.sort(key=lambda row: (row[0].modified, row[0].file), reverse=True)
    for listed, cwd in rows:
        yield NativeSession(
            id=listed.head.session_id,
            file=listed.file,
            cwd=cwd,
            title=listed.title,
            branch="",
            created=listed.created,
            modified=times.of_file(listed.modified / 1e9),
            size=listed.size,
        )


def locate(storage: Path, native_id: str) -> list[Path]:
    """Return the main transcripts of one id, or of the ids that begin so, the best one first.

    Files with a conversation come before stubs, a log before the document that it continues, and
    then the file written last.
    """
    if not ID.fullmatch(native_id):
        return []
    found = list(_mains(storage, ignore, lambda said: said.startswith(native_id)))
    same = [main for main in found if main.listed.head.session_id == native_id]
    if not same and len(native_id) < MIN_NATIVE_PREFIX:
        return []
    return [main.listed.file for main in _ranked(same or found)]


def in_folder(chats: Path, native_id: str) -> list[ListEntry]:
    """Return the main transcripts of one id in one folder, the best one first."""
    mains = _mains_in("", chats, ignore, lambda said: said == native_id)
    return [main.listed for main in _ranked(mains)]


def native_id(main: Path) -> str:
    """Return the session id in a main transcript's header; empty for none."""
    return id_of(Source(str(main), path=main).head(BEGINNING))


def files(main: Path) -> SessionFiles:
    """Return a session as it is now: its main transcript and its subagents' files."""
    main_source = Source(str(main), path=main)
    sources = [Source(str(path), path=path) for path in beside(main, native_id(main))]
    for session in group([main_source, *sources]):
        if session.transcripts[0].source is main_source:
            return session
    raise AssertionError("a main transcript is always of some session")


def beside(main: Path, native_id: str) -> Iterator[Path]:
    """Yield the files that may be subagents' of `main`: in the session's folder, or beside it.

    Files beside it must have the session's id and be a subagent's, or have no kind.
    """
    if native_id:
        yield from _transcripts_in(main.with_name(safe_part(native_id)), ignore)
    for name in names_in(main.parent, ignore):
        path = main.parent / name
        if _is_session(name) and path != main:
            with suppress(OSError):
                listed = read_list_entry(path, lambda said: said == native_id)
                if listed and listed.head.may_be_child:
                    yield path


def outputs(main: Path, native_id: str) -> Iterator[Path]:
    """Yield the files with whole outputs of a session's calls, beside its project's chats.

    Links are not followed. Files of the oldest clients, which all sessions share, are left out.
    """
    folder = main.parent.parent / OUTPUTS / f"{PREFIX}{safe_part(native_id)}"
    if not native_id or folder.is_symlink():
        return
    for name in names_in(folder, ignore):
        path = folder / name
        if path.is_file() and not path.is_symlink():
            yield path


def safe_part(native_id: str) -> str:
    """Return an id as the client writes it in a file's name."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", native_id)


def _ranked(mains: Iterable[_Main]) -> list[_Main]:
    found = list(mains)
    logs = {
        main.twin
        for main in found
        if main.listed.file.suffix == ".jsonl" and main.listed.head.talks
    }

    def rank(main: _Main) -> tuple[bool, bool, int, str]:
        listed = main.listed
        outdone = listed.file.suffix != ".jsonl" and main.twin in logs
        return listed.head.talks, not outdone, listed.modified, str(listed.file)

    return sorted(found, key=rank, reverse=True)


def _mains(
    storage: Path, refuse: Refuse, wanted: Callable[[str], bool] | None = None
) -> Iterator[_Main]:
    for project, folder in _folders(storage, refuse):
        yield from _mains_in(project, folder, refuse, wanted)


def _mains_in(
    project: str, folder: Path, refuse: Refuse, wanted: Callable[[str], bool] | None
) -> Iterator[_Main]:
    """Yield a folder's main transcripts, of the sessions that are wanted."""
    found: list[ListEntry] = []
    for name in names_in(folder, refuse):
        if _is_session(name):
            try:
                listed = read_list_entry(folder / name, wanted)
            except OSError as error:
                refuse(error)
            else:
                if listed is not None and listed.head.kind != "subagent":
                    found.append(listed)
    sure = {listed.head.session_id for listed in found if not listed.head.may_be_child}
    for listed in found:
        if not (listed.head.may_be_child and listed.head.session_id in sure):
            yield _Main(project, listed)


def _folders(storage: Path, refuse: Refuse) -> Iterator[tuple[str, Path]]:
    """Yield the folders of chats with the names of their projects, each once.

    `storage` may also be the folder of all projects, one of them, or its chats.
    """
    top = storage / TMP
    if not top.is_dir():
        top = storage
    if top.name == CHATS:
        yield top.parent.name, top
        return
    seen: set[tuple[int, int]] = set()
    for folder in (top, *(top / name for name in names_in(top, refuse))):
        chats = folder / CHATS
        try:
            status = chats.stat()
        except OSError:  # a dangling link, or a project without chats
            continue
        if chats.is_dir() and (status.st_dev, status.st_ino) not in seen:
            seen.add((status.st_dev, status.st_ino))
            yield folder.name, chats


def _transcripts_in(folder: Path, refuse: Refuse) -> Iterator[Path]:
    try:
        if not folder.is_dir():
            return
    except OSError as error:  # an id may be too long for a name
        refuse(error)
        return
    for name in names_in(folder, refuse):
        if name.endswith(SUFFIXES) and not name.startswith(".") and _is_filled(folder / name):
            yield folder / name


def _is_session(name: str) -> bool:
    return name.startswith(PREFIX) and name.endswith(SUFFIXES)


def _is_filled(path: Path) -> bool:
    """Tell whether a file has content. A link is refused: it may lead to the client's secrets."""
    try:
        return not path.is_symlink() and path.is_file() and path.stat().st_size > 0
    except OSError:
        return False


# Saved files: the role of each, and its place below a project's folder.
#
# The path decides for subagents and outputs. The names of chats have only 8 characters of the id,
# so their content decides.

_CHAT = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{1,200}}\.jsonl?")
_CHILD = re.compile(r"[A-Za-z0-9_-]{1,200}\.jsonl?")
_DEEP = 3


class Own(NamedTuple):
    """A saved file of a session: its path below the project's folder, and its role.

    `role` is one of `NativeFile`'s, `project` the name of the project's folder, and `talks` whether
    a chat has any text of a person or a model.
    """

    project: str
    inner: tuple[str, ...]
    role: str
    source: Source
    talks: bool = False


def own_files(saved: Mapping[str, Source], native_id: str) -> list[Own]:
    """Return the files of one session, the main transcript first; none without a main one.

    Args:
        saved: files by their paths relative to the storage. They may come from a bundle, so only
            files of the session, with a name that a client gives, are returned. A session that was
            in several folders over time may be saved under each: the larger of two files is the
            later one.
        native_id: the session's id.
    """
    found: dict[tuple[str, ...], Own] = {}
    for path, source in sorted(saved.items()):
        own = _own(path, source, native_id)
        if own is None:
            continue
        other = found.get(own.inner)
        if other is None or size_of(other.source) < size_of(source):
            found[own.inner] = own
    mains = [own for own in found.values() if own.role == "main"]
    if not mains:
        return []
    logs = {own.inner[-1] for own in mains if own.talks and own.inner[-1].endswith("l")}

    def rank(own: Own) -> tuple[bool, bool, int, str]:
        name = own.inner[-1]
        return own.talks, f"{name}l" not in logs, size_of(own.source), name

    main = max(mains, key=rank)
    rest = [
        own._replace(role="sidecar") if own.role == "main" else own
        for own in found.values()
        if own is not main
    ]
    return [main, *rest]


def _own(path: str, source: Source, native_id: str) -> Own | None:
    """Return a saved file as the session's own; None for another file."""
    parts = tuple(path.split("/"))
    if len(parts) < _DEEP + 1 or parts[0] != TMP or not ID.fullmatch(native_id):
        return None
    if any(not part or part.startswith(".") or not part.isprintable() for part in parts):
        return None
    project, inner = parts[1], parts[2:]
    name = inner[-1]
    if len(inner) == _DEEP:
        if inner[:2] == (OUTPUTS, f"{PREFIX}{safe_part(native_id)}"):
            return Own(project, inner, "output", source)
        if inner[:2] == (CHATS, safe_part(native_id)) and _CHILD.fullmatch(name):
            return Own(project, inner, "subagent", source)
    elif inner[0] == CHATS and len(inner) == _DEEP - 1 and _CHAT.fullmatch(name):
        head = peek(read_ends(source))
        if head.session_id == native_id:
            role = "subagent" if head.kind == "subagent" else "main"
            return Own(project, inner, role, source, head.talks)
    return None


def is_chat_name(name: str) -> bool:
    """Tell whether a file's name is one of a session's chat."""
    return _CHAT.fullmatch(name) is not None


def chat_name(native_id: str, started: str, suffix: str) -> str:
    """Return the name that a client would give a session's file.

    Args:
        native_id: of the session.
        started: when it began, in RFC 3339; the name has the minute.
        suffix: ``.json`` or ``.jsonl``.
    """
    assert suffix in SUFFIXES
    stamp = re.sub("[^A-Za-z0-9]+", "-", started[:10] + "T" + started[11:16])
    return f"{PREFIX}{stamp}-{safe_part(native_id)[:8]}{suffix}"
