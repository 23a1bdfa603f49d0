"""One agent's folder, checked: its files, the log, and whether they agree."""

from __future__ import annotations

import os
import stat
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from agentsdir.engine.validation.derived import REMADE, DerivedFiles
from agentsdir.engine.validation.logs import LogCheck
from agentsdir.engine.validation.problems import Problem, from_refusal
from agentsdir.engine.validation.values import NOTHING, difference
from agentsdir.formats.directory import derived, locks, workspace
from agentsdir.formats.directory.layout import TEMPORARY, open_plain
from agentsdir.formats.directory.transcripts import store_path
from agentsdir.formats.errors import Invalid, NotRecorded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.records import Record
    from agentsdir.formats.directory.states import AgentState

FOLDERS = ("transcripts", "workspace")
FILES = (
    "descriptor.json",
    "session.json",
    "state.json",
    "history.jsonl",
    "events.jsonl",
    ".lock",
    ".turn",
)
_CHUNK = 1024 * 1024


class Tally:
    """What was checked so far: whole files, and JSON values in them."""

    def __init__(self) -> None:
        self.files = 0
        self.records = 0
        self.agents = 0


def check_entry(path: Path, name: str, *, modes: bool, folder: bool) -> Iterator[Problem]:
    """Check what stands at `path` itself: its type, and (if `modes`) who may read it."""
    status = path.lstat()
    if not (stat.S_ISDIR if folder else stat.S_ISREG)(status.st_mode):
        wanted = "folder" if folder else "regular file"
        kind = "link" if stat.S_ISLNK(status.st_mode) else "other thing"
        yield Problem("unsafe-path", name, f"a {kind} stands in place of a {wanted}")
    elif modes and stat.S_IMODE(status.st_mode) & 0o077:
        wanted, mode = ("0700" if folder else "0600"), stat.S_IMODE(status.st_mode)
        yield Problem("wide-mode", name, f"the mode is {mode:04o}, not {wanted}")


class AgentCheck:
    """Checks one agent; `name` is what problems call its folder."""

    def __init__(self, paths: AgentPaths, name: str, tally: Tally, *, modes: bool) -> None:
        self._paths = paths
        self._name = name
        self._tally = tally
        self._modes = modes
        self._stored: dict[str, Path] = {}
        self._derived = DerivedFiles(paths, self._in)

    def run(self) -> Iterator[Problem]:
        """Yield every problem of the agent. Raises `OSError` where the system refuses a folder."""
        self._tally.agents += 1
        odd: set[str] = set()
        try:
            for problem in self._all():
                # Whoever tries to read an oddity meets it again.
                if problem.id != "unsafe-path" or problem.file not in odd:
                    yield problem
                if problem.id == "unsafe-path":
                    odd.add(problem.file)
        finally:
            self._derived.close()

    def _all(self) -> Iterator[Problem]:
        yield from self._entries()
        files = self._derived
        for document in files.documents:
            yield from document.problems
        log = LogCheck(self._paths.log, self._in("events.jsonl"), self._is_held, self._follow)
        try:
            yield from log.run()
        except FileNotFoundError:
            if not self._paths.folder.exists():  # removed while we looked
                return
            log.sound = False
            yield Problem("no-log", self._name, "there is no events.jsonl")
        yield from files.history.finish(sound=log.sound)
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

    def _entries(self) -> Iterator[Problem]:
        yield from check_entry(self._paths.folder, self._name, modes=self._modes, folder=True)
        for entry in _sorted(self._paths.folder):
            path, name = Path(entry.path), self._in(entry.name)
            if entry.name.startswith(TEMPORARY):
                yield Problem("leftover", name, "a writer that died left it; nothing needs it")
            elif entry.name in FOLDERS:
                yield from check_entry(path, name, modes=self._modes, folder=True)
                if entry.name == "transcripts" and not path.is_symlink() and path.is_dir():
                    yield from self._tree(path)
            elif entry.name in FILES or not entry.is_dir(follow_symlinks=False):
                yield from check_entry(path, name, modes=self._modes, folder=False)

    def _tree(self, top: Path) -> Iterator[Problem]:
        """Check the entries below transcripts/, and collect the files; links are not followed."""
        # A list of open folders, since whoever nests them deeper than Python calls is hostile.
        folders = [("", iter(_sorted(top)))]
        while folders:
            inside, entries = folders[-1]
            entry = next(entries, None)
            if entry is None:
                folders.pop()
                continue
            native = f"{inside}{entry.name}"
            path, name = Path(entry.path), self._in(f"transcripts/{native}")
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name.startswith(TEMPORARY):
                yield Problem("leftover", name, "a writer that died left it; nothing needs it")
                continue
            yield from check_entry(path, name, modes=self._modes, folder=is_folder)
            if is_folder:
                folders.append((native + "/", iter(_sorted(path))))
            elif entry.is_file(follow_symlinks=False) and native != "manifest.json":
                self._stored[native] = path

    def _follow(self, record: Record, log: LogCheck) -> Iterator[Problem]:
        assert log.state is not None
        yield from self._derived.follow(record, log.state)

    def _missing(self, state: AgentState | None) -> Iterator[Problem]:
        files = self._derived
        wanted = {
            "descriptor.json": files.descriptor.exists,
            "session.json": files.session.exists,
            "state.json": files.state.exists,
            "history.jsonl": files.history.exists,
        }
        if state is not None and state.transcripts:
            wanted[derived.MANIFEST] = files.manifest.exists
        for name, exists in wanted.items():
            if not exists and self._paths.folder.exists():  # else removed while we looked
                yield Problem("missing", self._in(name), REMADE)

    def _identity(self, state: AgentState) -> Iterator[Problem]:
        """Check that folder, log, descriptor and session record speak of the same agent."""
        folder = self._paths.id
        if state.agent_id != folder:
            reason = f"the first event says agent {state.agent_id}, the folder {folder}"
            yield Problem("id-differs", self._in("events.jsonl"), reason, 1, 0, "/data/agent_id")
        descriptor, piece = self._derived.descriptor.value, self._derived.descriptor.piece
        if piece is not None and isinstance(descriptor, dict):
            if found := difference(state.descriptor, descriptor):
                yield piece.problem("descriptor-differs", f"it {found[1]}", found[0])
            if descriptor.get("type") == "subagent" and descriptor.get("id") != folder:
                yield piece.problem("id-differs", f"the folder is {folder}", "/id")
        record = self._derived.session
        session, piece = record.value, record.piece
        if piece is not None and isinstance(session, dict) and session.get("id"):
            if session["id"] == state.session.id or record.problems:
                return
            reason = f"the log says {state.session.id}"
            record.problems.append(piece.problem("session-id-differs", reason, "/id"))
            yield record.problems[-1]

    def _comparisons(self, log: LogCheck) -> Iterator[Problem]:
        if not log.records:
            return
        files, end = self._derived, log.position.size
        seen = files.state.log_size
        ahead = seen is not None and files.state.piece is not None and seen > end
        if ahead and not self._is_held():
            reason = f"state.json was made of {seen} bytes of the log, which has {end} whole ones"
            yield Problem("log-shorter", self._in("events.jsonl"), reason)
            return
        if not log.sound or self._is_held():
            return
        yield from files.session.compare()
        yield from files.manifest.compare()
        yield from files.state.compare_at(end)

    def _transcripts(self, state: AgentState) -> Iterator[Problem]:
        for native, entry in sorted(state.transcripts.items()):
            name = self._in(f"transcripts/{native}")
            path = self._stored.pop(native, None)
            try:
                store_path(self._paths, native)
            except Invalid as error:
                yield from_refusal(error, name)
                continue
            if path is None:
                yield Problem("transcript-missing", name, "it was synced, and is not there")
                continue
            self._tally.files += 1
            if type(entry["size"]) is int:
                yield from self._transcript(path, name, entry["size"], entry["sha256"])
        for native in sorted(self._stored):
            name = self._in(f"transcripts/{native}")
            if not self._is_held():
                yield Problem("transcript-unlisted", name, "no event of the log names it")

    def _captured(self) -> Iterator[Problem]:
        folder = self._paths.workspace
        if folder.is_symlink() or not folder.is_dir():
            return
        try:
            workspace.stored_files(self._paths)
        except Invalid as error:
            yield Problem("workspace-differs", self._in("workspace"), error.message)

    def _transcript(self, path: Path, name: str, size: int, digest: str) -> Iterator[Problem]:
        try:
            length, found = _measure(path, size)
        except (Invalid, NotRecorded) as error:
            yield from_refusal(error, name)
            return
        if length < size:
            reason = f"it has {length} bytes, and {size} were synced"
            yield Problem("transcript-differs", name, reason, offset=length)
        elif found != digest:
            reason = f"the SHA-256 of its first {size} bytes is {found[:16]}…, not {digest[:16]}…"
            yield Problem("transcript-differs", name, reason)
        elif length > size and not self._is_held():
            reason = f"{length - size} bytes came after the last sync"
            yield Problem("transcript-ahead", name, reason, offset=size)


def _sorted(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _measure(path: Path, size: int) -> tuple[int, str]:
    """Return a file's length, and the SHA-256 of its first `size` bytes."""
    digest = sha256()
    with os.fdopen(open_plain(path), "rb") as stream:
        left = size
        while left and (chunk := stream.read(min(left, _CHUNK))):
            digest.update(chunk)
            left -= len(chunk)
        return os.fstat(stream.fileno()).st_size, digest.hexdigest()
