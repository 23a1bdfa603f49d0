"""`validate` for files and folders: roots, agents, the indexes, single files (SPEC.md, "Damage").

Content never raises: all errors in it are `Finding`. Memory is bounded by a line, or a document.
"""

from __future__ import annotations

import json
import os
import re
import stat
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from agentsdir.engine import lookup, workers
from agentsdir.engine.validate.derived import REMADE, DerivedFiles, read_document
from agentsdir.engine.validate.findings import (
    NOTHING,
    JSONText,
    breaches,
    decode,
    difference,
    from_refusal,
    kind_of_document,
    kind_of_line,
)
from agentsdir.engine.validate.log import LogCheck
from agentsdir.formats import ids
from agentsdir.formats.errors import AgentsdirError, Invalid, NotRecorded, UnsafePath
from agentsdir.formats.findings import Finding
from agentsdir.formats.rows import LINE_CAP, read_lines
from agentsdir.formats.source import Source
from agentsdir.formats.store import derived, locks, workspace
from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.layout import (
    FORMAT,
    TEMPORARY,
    VERSION,
    AgentPaths,
    Layout,
    open_plain,
)
from agentsdir.formats.store.settings import read_settings
from agentsdir.formats.store.transcripts import digest_beginning, store_path
from agentsdir.schemas.rfc3339 import is_rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from agentsdir.formats.store.state import AgentState

FOLDERS = ("transcripts", "workspace")
FILES = (
    "descriptor.json",
    "session.json",
    "state.json",
    "history.jsonl",
    "events.jsonl",
    "stamps.json",
    "checkpoint.json",
    ".lock",
    ".turn",
)
_ROUTE = re.compile(r"[0-9a-f]{32}\.json")
INDEXES = ("routes", "slots")
# The documents of the format by name; events.jsonl has a check of its own.
NAMES = {
    "agentsdir.json": "agentsdir",
    "descriptor.json": "descriptor",
    "session.json": "session",
    "state.json": "state",
    "manifest.json": "manifest",
    "history.jsonl": "history-entry",
}
LOG = "events.jsonl"
SUFFIXES = (".json", ".jsonl")
_SNIFFED = 20  # lines of which one must be of this format
_SMALL = 64 * 1024  # bytes of log whose check takes as long as that of an agent without any


class CheckCounts:
    """The numbers of files, of JSON values in them, and of agents that were checked."""

    def __init__(self) -> None:
        self.files = 0
        self.records = 0
        self.agents = 0

    def add(self, files: int, records: int, agents: int) -> None:
        """Add the numbers of another part."""
        self.files += files
        self.records += records
        self.agents += agents


def check_entry(path: Path, name: str, *, modes: bool, folder: bool) -> Iterator[Finding]:
    """Check the type of an entry and, with `modes`, its permissions."""
    yield from _check_status(path.lstat(), name, modes=modes, folder=folder)


def _check_status(
    status: os.stat_result, name: str, *, modes: bool, folder: bool
) -> Iterator[Finding]:
    if not (stat.S_ISDIR if folder else stat.S_ISREG)(status.st_mode):
        wanted = "folder" if folder else "regular file"
        kind = "a link" if stat.S_ISLNK(status.st_mode) else "something else"
        yield Finding("unsafe-path", name, f"{kind} stands in place of a {wanted}")
    elif modes and stat.S_IMODE(status.st_mode) & 0o077:
        wanted, mode = ("0700" if folder else "0600"), stat.S_IMODE(status.st_mode)
        yield Finding("wide-mode", name, f"the mode is {mode:04o}, not {wanted}")


class AgentCheck:
    """Checks one agent: its files, its log, and whether they agree.

    `name` is the name of its folder in findings. After `run`, `state` is the fold of the log if
    each of its lines is a record in order, and `history_is_whole` whether history.jsonl is what
    such a log says.
    """

    def __init__(self, paths: AgentPaths, name: str, tally: CheckCounts, *, modes: bool) -> None:
        self._paths = paths
        self._name = name
        self._tally = tally
        self._modes = modes
        self._stored: dict[str, Path] = {}
        self._derived = DerivedFiles(paths, self._in)
        self.state: AgentState | None = None
        self.history_is_whole = False

    def run(self) -> Iterator[Finding]:
        """Yield every finding of the agent. Raises `OSError` if a folder cannot be read."""
        self._tally.agents += 1
        odd: set[str] = set()
        try:
            for finding in self._all():
                # Each reader of an unsafe path reports it again.
                if finding.id != "unsafe-path" or finding.file not in odd:
                    yield finding
                if finding.id == "unsafe-path":
                    odd.add(finding.file)
        finally:
            self._derived.close()

    def _all(self) -> Iterator[Finding]:
        yield from self._entries()
        files = self._derived
        for document in files.documents:
            yield from document.findings
        log = LogCheck(self._paths.log, self._in("events.jsonl"), self._is_held, files.on_record)
        try:
            yield from log.run()
        except FileNotFoundError:
            if not self._paths.folder.exists():  # removed while we looked
                return
            log.sound = False
            yield Finding("no-log", self._name, "there is no events.jsonl")
        yield from files.history.finish(sound=log.sound)
        if log.sound:
            self.state = log.state
            self.history_is_whole = files.history.outcome.status == "same"
        yield from self._missing(log.state)
        self._tally.files += 1 + files.history.exists + sum(one.exists for one in files.documents)
        self._tally.records += log.records
        self._tally.records += sum(one.value is not NOTHING for one in files.documents)
        if log.state is not None:
            yield from self._identity(log.state)
            yield from self._transcripts(log.state)
            yield from self._captured()
        yield from self._comparisons(log)

    def _in(self, name: str) -> str:
        return f"{self._name}/{name}"

    def _is_held(self) -> bool:
        return locks.is_held(self._paths.turn) or locks.is_held(self._paths.lock)

    def _entries(self) -> Iterator[Finding]:
        yield from check_entry(self._paths.folder, self._name, modes=self._modes, folder=True)
        for entry in _sorted(self._paths.folder):
            name = self._in(entry.name)
            if entry.name.startswith(TEMPORARY):
                yield Finding("leftover", name, "a writer that died left it; nothing needs it")
            elif entry.name in FOLDERS:
                yield from self._entry(entry, name, folder=True)
                if entry.name == "transcripts" and entry.is_dir(follow_symlinks=False):
                    yield from self._tree(Path(entry.path))
            elif entry.name in FILES or not entry.is_dir(follow_symlinks=False):
                yield from self._entry(entry, name, folder=False)

    def _entry(self, entry: os.DirEntry[str], name: str, *, folder: bool) -> Iterator[Finding]:
        status = entry.stat(follow_symlinks=False)
        yield from _check_status(status, name, modes=self._modes, folder=folder)

    def _tree(self, top: Path) -> Iterator[Finding]:
        """Check the entries below transcripts/, and collect the files; links are not followed."""
        # A list and not recursion: hostile folders may be nested deeper than Python's stack.
        folders = [("", iter(_sorted(top)))]
        while folders:
            inside, entries = folders[-1]
            entry = next(entries, None)
            if entry is None:
                folders.pop()
                continue
            native = f"{inside}{entry.name}"
            name = self._in(f"transcripts/{native}")
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name.startswith(TEMPORARY):
                yield Finding("leftover", name, "a writer that died left it; nothing needs it")
                continue
            yield from self._entry(entry, name, folder=is_folder)
            if is_folder:
                folders.append((native + "/", iter(_sorted(Path(entry.path)))))
            elif entry.is_file(follow_symlinks=False) and native != "manifest.json":
                self._stored[native] = Path(entry.path)

    def _missing(self, state: AgentState | None) -> Iterator[Finding]:
        files = self._derived
        wanted = {
            "descriptor.json": files.descriptor.exists,
            "session.json": files.session.exists,
            "state.json": files.state.exists,
            "history.jsonl": files.history.exists,
        }
        if state is not None and state.synced:
            wanted[derived.MANIFEST] = files.manifest.exists
        for name, exists in wanted.items():
            if not exists and self._paths.folder.exists():  # else removed while we looked
                yield Finding("missing", self._in(name), REMADE)

    def _identity(self, state: AgentState) -> Iterator[Finding]:
        """Check that folder, log, descriptor and session record name the same agent."""
        folder = self._paths.id
        if state.agent_id != folder:
            reason = f"the first event says agent {state.agent_id}, the folder {folder}"
            yield Finding(
                "id-differs", self._in("events.jsonl"), reason, 1, 0, pointer="/data/agent_id"
            )
        descriptor, piece = self._derived.descriptor.value, self._derived.descriptor.piece
        if piece is not None and isinstance(descriptor, dict):
            if found := difference(state.descriptor, descriptor):
                yield piece.finding("descriptor-differs", f"it {found[1]}", found[0])
            if descriptor.get("type") == "subagent" and descriptor.get("id") != folder:
                yield piece.finding("id-differs", f"the folder is {folder}", "/id")
        record = self._derived.session
        session, piece = record.value, record.piece
        if piece is not None and isinstance(session, dict) and session.get("id"):
            if session["id"] == state.session.id or record.findings:
                return
            reason = f"the log says {state.session.id}"
            record.findings.append(piece.finding("session-id-differs", reason, "/id"))
            yield record.findings[-1]

    def _comparisons(self, log: LogCheck) -> Iterator[Finding]:
        if not log.opened:
            return
        files, end = self._derived, log.position.size
        seen = files.state.log_size
        ahead = seen is not None and files.state.piece is not None and seen > end
        if ahead and not self._is_held():
            reason = f"state.json was made of {seen} bytes of the log, which has {end} whole ones"
            yield Finding("log-shorter", self._in("events.jsonl"), reason)
            return
        if not log.records or not log.sound or self._is_held():
            return
        yield from files.session.compare()
        yield from files.manifest.compare()
        yield from files.state.compare_at(end)

    def _transcripts(self, state: AgentState) -> Iterator[Finding]:
        for native, entry in sorted(state.synced.items()):
            name = self._in(f"transcripts/{native}")
            path = self._stored.pop(native, None)
            try:
                store_path(self._paths, native)
            except Invalid as error:
                yield from_refusal(error, name)
                continue
            if path is None:
                yield Finding("transcript-missing", name, "it was synced, and is not there")
                continue
            self._tally.files += 1
            if type(entry["size"]) is int:
                yield from self._transcript(path, name, entry)
        for native in sorted(self._stored):
            name = self._in(f"transcripts/{native}")
            if not self._is_held():
                yield Finding("transcript-unlisted", name, "no event of the log names it")

    def _captured(self) -> Iterator[Finding]:
        folder = self._paths.workspace
        if folder.is_symlink() or not folder.is_dir():
            return
        try:
            workspace.stored_files(self._paths)
        except Invalid as error:
            yield Finding("workspace-differs", self._in("workspace"), error.message)

    def _transcript(self, path: Path, name: str, entry: Mapping[str, Any]) -> Iterator[Finding]:
        size, digest = entry["size"], entry["sha256"]
        try:
            length, found = _measure(path, entry)
        except (Invalid, NotRecorded) as error:
            yield from_refusal(error, name)
            return
        if length < size:
            reason = f"it has {length} bytes, and {size} were synced"
            yield Finding("transcript-differs", name, reason, offset=length)
        elif found != digest:
            reason = f"the SHA-256 of its first {size} bytes is {found[:16]}…, not {digest[:16]}…"
            yield Finding("transcript-differs", name, reason)
        elif length > size and not self._is_held():
            reason = f"{length - size} bytes came after the last sync"
            yield Finding("transcript-ahead", name, reason, offset=size)


def _sorted(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _measure(path: Path, entry: Mapping[str, Any]) -> tuple[int, str]:
    """Return a file's length, and the digest of what was synced of it."""
    with os.fdopen(open_plain(path), "rb") as stream:
        digest = digest_beginning(stream, entry)
        return os.fstat(stream.fileno()).st_size, digest


# routes/, slots/ and index.jsonl are unverified caches of the agents' logs. An error there misleads
# no reader, but shows that another program wrote it (docs/behaviour.md, "Routes").


def check_indexes(
    layout: Layout, name: str, tally: CheckCounts, *, modes: bool
) -> Iterator[Finding]:
    """Yield the findings of both folders and of index.jsonl; a missing one is none."""
    for folder, check in ((layout.routes, _route), (layout.slots, _slot)):
        if folder.is_symlink() or not folder.is_dir():
            continue
        with os.scandir(folder) as entries:
            found = sorted(entry.name for entry in entries)
        for entry in found:
            inside = f"{name}/{folder.name}/{entry}"
            if entry.startswith(TEMPORARY):
                yield Finding("leftover", inside, "a writer that died left it; nothing needs it")
                continue
            findings = [*check_entry(folder / entry, inside, modes=modes, folder=False)]
            if not any(finding.id == "unsafe-path" for finding in findings):
                findings += check(layout, folder / entry, inside, tally)
            yield from findings
    if missing := lookup.not_in_index(layout):
        reason = f"no line says who these agents are: {lookup.first_few(missing)}"
        yield Finding("derived-stale", f"{name}/{layout.index.name}", reason)


def _route(layout: Layout, path: Path, name: str, tally: CheckCounts) -> Iterator[Finding]:
    if _ROUTE.fullmatch(path.name) is None:
        yield Finding("foreign-entry", name, "its name is no route's")
        return
    findings: list[Finding] = []
    piece = read_document(path, name, findings)
    value = NOTHING if piece is None else decode(piece, findings, document=True)
    if piece is not None and value is not NOTHING:
        tally.files += 1
        tally.records += 1
        findings += breaches("route", value, piece)
    yield from findings
    if value is NOTHING or any(finding.is_damage for finding in findings):
        return
    key = value["key"]
    if not _is_named_by(layout, key, path):
        yield Finding("derived-differs", name, "its name is not the one of its key")
    elif not _is_so(layout, value["agentId"], lambda state: lookup.has_key(state.to_json(), key)):
        reason = f"agent {value['agentId']} is not, or no longer, {lookup.describe_key(key)}"
        yield Finding("derived-stale", name, reason)


def _is_named_by(layout: Layout, key: lookup.Key, path: Path) -> bool:
    try:
        return lookup.route_path(layout, key) == path
    except Invalid:  # no key of ours would be written so
        return False


def _slot(_layout: Layout, path: Path, name: str, tally: CheckCounts) -> Iterator[Finding]:
    # An entry that the agent's log contradicts does not count, and is no finding.
    if path.name == ".lock":
        return
    if not ids.is_agent_id(path.name):
        yield Finding("foreign-entry", name, "its name is no agent id")
        return
    findings: list[Finding] = []
    piece = read_document(path, name, findings)
    yield from findings
    if piece is None:
        return
    tally.files += 1
    said = piece.data.decode(errors="replace").strip()
    if said and not is_rfc3339(said):  # empty while the session has not been released yet
        yield Finding("derived-differs", name, "it holds no time")


def _is_so(layout: Layout, agent_id: str, wanted: Callable[[AgentState], bool]) -> bool:
    try:
        return wanted(read_agent(layout.agent(agent_id)).state)
    except AgentsdirError:  # removed, or unreadable, which its own check reports
        return False


class NothingToValidate(Invalid):
    """There is nothing of this format at the path."""

    kind = "nothing-to-validate"


def validate(paths: Iterable[Path], tally: CheckCounts | None = None) -> Iterator[Finding]:
    """Yield the findings of everything below each of `paths`.

    Raises `NothingToValidate` for a path that holds nothing of this format.
    """
    for path in paths:
        yield from validate_path(path, str(path), tally or CheckCounts())


def validate_path(
    path: Path,
    name: str,
    tally: CheckCounts,
    *,
    kind: str = "",
    modes: bool = False,
    jobs: int = 1,
) -> Iterator[Finding]:
    """Yield the findings of an agents directory, an agent's folder, a file, or a folder of these.

    Args:
        name: of `path` in findings.
        kind: the schema for a file, instead of the one of its name or content.
        modes: report permissions for other users; a copy, such as a checkout, has them.
        jobs: how many processes check the agents of a directory (`workers.deal`).

    Raises `NothingToValidate` when there is nothing of this format.
    """
    if not path.is_dir():
        yield from _file(path, name, tally, kind)
    elif _is_root(path):
        yield from _root(Layout(path), name, tally, modes=modes, jobs=jobs)
    elif _is_agent(path):
        yield from _agent(path, path.resolve().name, name, tally, modes=modes)
    else:
        found = yield from _folder(path, name, tally, modes=modes, jobs=jobs)
        if not found:
            raise NothingToValidate(
                f"{name} holds no agents directory, no agent and no file of this format"
            )


def validate_source(source: Source, tally: CheckCounts, *, kind: str = "") -> Iterator[Finding]:
    """Yield the findings of a file whose name does not tell its kind.

    JSON Lines if the first line is JSON by itself, else one document. Raises `NothingToValidate`.
    """
    with source.open() as stream:
        first = next((line for line in read_lines(stream) if _has_text(line.data)), None)
    if first is not None and (first.data is None or _is_json(first.data)):
        yield from _lines(source, tally, kind)
    else:
        with source.open() as stream:
            data = stream.read(LINE_CAP + 1)
        yield from _document(JSONText(source.name, 1, 0, data), tally, kind)


def _is_root(path: Path) -> bool:
    return (path / "agentsdir.json").is_file() or (path / "agents").is_dir()


def _is_agent(path: Path) -> bool:
    return (path / LOG).exists() or (path / "descriptor.json").is_file()


def _root(
    layout: Layout, name: str, tally: CheckCounts, *, modes: bool, jobs: int
) -> Iterator[Finding]:
    known = True
    yield from check_entry(layout.root, name, modes=modes, folder=True)
    for entry in _sorted(layout.root):
        path, inside = Path(entry.path), f"{name}/{entry.name}"
        if entry.name.startswith(TEMPORARY):
            yield Finding("leftover", inside, "a writer that died left it; nothing needs it")
        elif entry.name in ("agents", "archive", *INDEXES):
            yield from check_entry(path, inside, modes=modes, folder=True)
        elif entry.name in (
            "agentsdir.json",
            "settings.toml",
            ".lock",
            ".gitignore",
            "index.jsonl",
        ):
            yield from check_entry(path, inside, modes=modes, folder=False)
    try:
        findings: list[Finding] = []
        piece = read_document(layout.document, f"{name}/agentsdir.json", findings)
    except FileNotFoundError:
        yield Finding(
            "missing", f"{name}/agentsdir.json", "it says that this is an agents directory"
        )
    else:
        if piece is not None:
            tally.files += 1
            tally.records += 1
            value = decode(piece, findings, document=True)
            findings += _version(value, piece)
            known = not any(finding.id == "unknown-version" for finding in findings)
        yield from findings
    yield from _settings(layout, f"{name}/settings.toml", tally)
    for folder in (layout.agents, layout.archive):
        if known and not folder.is_symlink() and folder.is_dir():
            yield from _agents(folder, f"{name}/{folder.name}", tally, modes=modes, jobs=jobs)
    if known:
        yield from check_indexes(layout, name, tally, modes=modes)


def _version(value: Any, piece: JSONText) -> Iterator[Finding]:
    if value is NOTHING:
        return
    yield from breaches("agentsdir", value, piece)
    if not isinstance(value, dict):
        return
    if value.get("format") == FORMAT and value.get("version") != VERSION:
        reason = f"this program knows version {VERSION}, and looks no further"
        yield piece.finding("unknown-version", reason, "/version")
    features = value.get("features")
    for index, feature in enumerate(features if isinstance(features, list) else ()):
        reason = f"this program does not know {feature!r}, and would not write here"
        yield piece.finding("unknown-feature", reason, f"/features/{index}")


def _settings(layout: Layout, name: str, tally: CheckCounts) -> Iterator[Finding]:
    if not layout.settings.exists():
        return
    tally.files += 1
    try:
        said = read_settings(layout).unknown_keys_note
    except UnsafePath:
        return  # said of the entry already
    except Invalid as error:
        yield Finding(error.kind, name, error.message)
    else:
        if said:
            yield Finding("unknown-setting", name, f"it {said}")


def _agents(
    folder: Path, name: str, tally: CheckCounts, *, modes: bool, jobs: int
) -> Iterator[Finding]:
    entries = _sorted(folder)
    if jobs == 1:
        for entry in entries:
            yield from _among_agents(entry, name, tally, modes=modes)
        return
    check = partial(_encoded, name=name, modes=modes)
    with closing(workers.deal(entries, check, size=_weight, jobs=jobs)) as results:
        for result in results:
            if result.error is not None:
                inside = f"{name}/{result.item.name}"
                yield Finding("unreadable", inside, result.error.message)
            for piece in result.pieces:
                for line in piece.splitlines():
                    part = json.loads(line)
                    if isinstance(part, dict):
                        tally.add(**part)
                    else:
                        yield Finding(*part)


def _weight(entry: os.DirEntry[str]) -> int:
    """Return how many bytes the check of an agent is worth."""
    try:
        return _SMALL + os.lstat(f"{entry.path}/{LOG}").st_size
    except OSError:
        return _SMALL


def _encoded(entry: os.DirEntry[str], name: str, *, modes: bool) -> tuple[bytes, Iterator[bytes]]:
    """Return no note, and as lines of JSON the findings of an entry and the counts."""
    return b"", _encoded_lines(entry, name, modes=modes)


def _encoded_lines(entry: os.DirEntry[str], name: str, *, modes: bool) -> Iterator[bytes]:
    tally = CheckCounts()
    # Not orjson: file names may hold bytes that are no UTF-8.
    for finding in _among_agents(entry, name, tally, modes=modes):
        yield f"{json.dumps(finding)}\n".encode()
    yield f"{json.dumps(vars(tally))}\n".encode()


def _among_agents(
    entry: os.DirEntry[str], name: str, tally: CheckCounts, *, modes: bool
) -> Iterator[Finding]:
    """Check an entry of a folder of agents."""
    inside = f"{name}/{entry.name}"
    if entry.name.startswith(TEMPORARY):
        yield Finding("leftover", inside, "a writer that died left it; nothing needs it")
    elif not ids.is_agent_id(entry.name):
        yield Finding("foreign-entry", inside, "its name is no agent id")
    elif not entry.is_dir(follow_symlinks=False):
        yield from check_entry(Path(entry.path), inside, modes=modes, folder=True)
    else:
        yield from _agent(Path(entry.path), entry.name, inside, tally, modes=modes)


def _agent(
    path: Path, agent_id: str, name: str, tally: CheckCounts, *, modes: bool
) -> Iterator[Finding]:
    try:
        yield from AgentCheck(AgentPaths(path, agent_id), name, tally, modes=modes).run()
    except FileNotFoundError:
        return  # removed while we looked
    except OSError as error:  # one agent that cannot be read does not hide the others
        yield Finding("unreadable", name, str(error.strerror))


def _folder(
    path: Path, name: str, tally: CheckCounts, *, modes: bool, jobs: int
) -> Generator[Finding, None, bool]:
    """Check the files of this format in any folder; return whether there were any.

    Links are not followed, and other files are skipped.
    """
    found = False
    # A list and not recursion: hostile folders may be nested deeper than Python's stack.
    folders = [(name, iter(_sorted(path)))]
    while folders:
        above, entries = folders[-1]
        entry = next(entries, None)
        if entry is None:
            folders.pop()
            continue
        child, inside = Path(entry.path), f"{above}/{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            if (child / "agentsdir.json").is_file() or _is_agent(child):
                yield from validate_path(child, inside, tally, modes=modes, jobs=jobs)
                found = True
            else:
                folders.append((inside, iter(_sorted(child))))
        elif entry.is_file(follow_symlinks=False) and entry.name.endswith(SUFFIXES):
            try:
                yield from _file(child, inside, tally, "")
                found = True
            except NothingToValidate:
                continue
    return found


def _file(path: Path, name: str, tally: CheckCounts, kind: str) -> Iterator[Finding]:
    path = path.resolve()  # a link on the command line means its target
    if not path.is_file():
        yield Finding("unsafe-path", name, "it is no regular file")
        return
    if path.name == LOG and not kind:
        log = LogCheck(path, name, _never)
        yield from log.run()
        tally.files += 1
        tally.records += log.records
        return
    kind = kind or NAMES.get(path.name, "")
    if path.suffix == ".jsonl":
        yield from _lines(Source(name, path=path), tally, kind)
    elif path.suffix == ".json":
        findings: list[Finding] = []
        piece = read_document(path, name, findings)
        yield from findings
        if piece is not None:
            yield from _document(piece, tally, kind)
    else:
        yield from validate_source(Source(name, path=path), tally, kind=kind)


def _never() -> bool:
    return False


def _document(piece: JSONText, tally: CheckCounts, kind: str) -> Iterator[Finding]:
    findings: list[Finding] = []
    value = decode(piece, findings, document=True)
    kind = kind or kind_of_document(value) or ""
    if not kind:
        raise NothingToValidate(
            f"{piece.file} is no document of this format"
            if value is not NOTHING
            else f"{piece.file} is no JSON: {findings[0].message}",
            hint="--kind KIND says what it is meant to be",
        )
    tally.files += 1
    yield from findings
    if value is not NOTHING:
        tally.records += 1
        yield from breaches(kind, value, piece)


def _lines(source: Source, tally: CheckCounts, kind: str) -> Iterator[Finding]:
    sniffed = set() if kind else _sniff(source)
    if not kind and not sniffed:
        raise NothingToValidate(
            f"{source.name} holds no record, block or event of this format",
            hint="`agentsdir parse` reads transcripts; --kind KIND says what lines are meant to be",
        )
    tally.files += 1
    if "script-line" in sniffed:
        kind = "script-line"  # its stream events may lack what the player puts in
    with source.open() as stream:
        for number, offset, length, data in read_lines(stream):
            if data is None:
                reason = f"the line has {length} bytes, the limit is {LINE_CAP}"
                yield Finding("oversize", source.name, reason, number, offset)
            elif _has_text(data):
                yield from _line(JSONText(source.name, number, offset, data), tally, kind)


def _line(piece: JSONText, tally: CheckCounts, kind: str) -> Iterator[Finding]:
    findings: list[Finding] = []
    value = decode(piece, findings, document=False)
    yield from findings
    if value is NOTHING:
        return
    tally.records += 1
    kind = kind or kind_of_line(value) or kind_of_document(value) or ""
    if kind:
        yield from breaches(kind, value, piece)
    else:
        yield piece.finding("unknown-kind", "it is no record, block or event of this format")


def _sniff(source: Source) -> set[str]:
    """Return the kinds of the first lines that are of this format."""
    kinds = set()
    with source.open() as stream:
        for line in islice(read_lines(stream), _SNIFFED):
            try:
                value = orjson.loads(line.data or b"")
            except orjson.JSONDecodeError:
                continue
            kinds.add(kind_of_line(value) or kind_of_document(value) or "")
    return kinds - {""}


def _has_text(data: bytes | None) -> bool:
    return data is None or not data.isspace()


def _is_json(data: bytes) -> bool:
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    return True
