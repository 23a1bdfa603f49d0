"""An agent as files elsewhere: workspace capture, export and import of bundles.

See docs/moving.md, "Bundles" and "Workspace capture".
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from agentsdir.adapters import registry
from agentsdir.adapters.protocol import StoreReader
from agentsdir.adapters.store_files import begins_with, size_of
from agentsdir.engine.create import (
    CreatedAgent,
    check_unique,
    copied_identity,
    hold_root,
)
from agentsdir.engine.lookup import descendants, each_agent
from agentsdir.engine.parse import main_in
from agentsdir.engine.providers import find_provider, forked_files
from agentsdir.engine.turn_lock import hold_turn
from agentsdir.engine.validate.files import AgentCheck, CheckCounts
from agentsdir.formats import ids
from agentsdir.formats.errors import AgentsdirError, Invalid, NoSuchAgent, UsageError
from agentsdir.formats.rows import LINE_CAP
from agentsdir.formats.source import Source, stream_of
from agentsdir.formats.store import derived, transcripts, workspace
from agentsdir.formats.store.agent import history_pieces, making_agent, read_agent, write_agent
from agentsdir.formats.store.bundles import LIMITS, Again, bad_bundle, unpack
from agentsdir.formats.store.derived import encode_document
from agentsdir.formats.store.events import IMPORT
from agentsdir.formats.store.files import make_folder, write_new
from agentsdir.formats.store.layout import FORMAT, VERSION, Layout
from agentsdir.formats.store.log import open_log, read_log
from agentsdir.formats.store.saved_files import check_size, unpack_document
from agentsdir.formats.store.state import SessionState
from agentsdir.formats.times import from_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agentsdir.engine.parse import ClientStore
    from agentsdir.engine.services import Services
    from agentsdir.formats.findings import Finding
    from agentsdir.formats.source import Readable
    from agentsdir.formats.store.agent import Reading, UnpublishedAgent
    from agentsdir.formats.store.bundles import Limits
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.log import Record
    from agentsdir.formats.store.state import AgentState

_DOCUMENTS = (
    "descriptor.json",
    "session.json",
    "state.json",
    "transcripts/manifest.json",
    "workspace/manifest.json",
)
_HINT = "`agentsdir export --bundle AGENT` makes one"
_SNIFFED = 512
"""Bytes of what is imported that tell JSON from a tar."""


def capture_workspace(
    services: Services, paths: AgentPaths, *, wait: float = 0
) -> workspace.Captured:
    """Copy the files of an agent's working directory into its folder, under `.turn`, and log it.

    Raises `AgentsdirError` (kind ``no-workspace``) when the folder is gone, `Busy` when a turn runs
    longer than `wait` seconds, and what `check_trust` and `workspace.capture` raise.
    """
    services.check_trust()  # the log chooses the folder
    with hold_turn(paths, wait=wait), services.disk.synced_at_end():
        with write_agent(paths, disk=services.disk) as writer:
            state = writer.state
        folder = Path(state.cwd)
        if not folder.is_dir():
            raise AgentsdirError(
                f"the working directory {folder} of agent {paths.id} is no folder",
                kind="no-workspace",
            )
        captured = workspace.capture(paths, folder, services.disk)
        with write_agent(paths, disk=services.disk, known=state) as writer:
            data = {"cwd": str(folder), **captured._asdict()}
            writer.append("workspace.captured", data, services.now())
    return captured


def put_back_workspace(services: Services, paths: AgentPaths, folder: Path) -> workspace.PutBack:
    """Write captured files that are missing into a folder that the user chose.

    Raises what `check_trust` and `workspace.put_back` raise.
    """
    services.check_trust()
    return workspace.put_back(paths, folder, services.is_private)


class Exported(NamedTuple):
    """Files by their paths, the time for all of them (epoch seconds), and the findings."""

    files: dict[str, Source]
    moment: int
    findings: tuple[Finding, ...]


def export_transcripts(paths: AgentPaths) -> Exported:
    """Return the provider's own transcripts, to the byte, under their native paths.

    Raises `AgentsdirError` (kind ``nothing-to-export``) when there are none, and `Invalid` when one
    is damaged.
    """
    state, moment, findings = _read(paths)
    files = transcripts.load_recorded(paths, state.synced)
    if not files:
        raise AgentsdirError(f"agent {paths.id} has no transcript yet", kind="nothing-to-export")
    return Exported(files, moment, findings)


def export_bundle(layout: Layout, paths: AgentPaths) -> Exported:
    """Return an agent, and those that it spawned, as an agents directory: what their logs name.

    Raises `Invalid` when a transcript or a captured file is damaged.
    """
    files, moment = _head(), None
    found: list[Finding] = []
    for one in (paths, *_spawned(layout, paths)):
        state, last, findings = _read(one)
        moment = last if moment is None else moment
        found += findings
        folder = f"agents/{one.id}"
        for name, document in derived.derived_documents(state).items():
            files[f"{folder}/{name}"] = Source(name, data=document)
        files[f"{folder}/{one.history.name}"] = _History(one, state)
        files[f"{folder}/{one.log.name}"] = _log(one, state)
        for name, source in transcripts.load_recorded(one, state.synced, streams=True).items():
            files[f"{folder}/transcripts/{name}"] = source
        for name, source in workspace.stored_files(one).items():
            files[f"{folder}/workspace/{name}"] = source
    return Exported(files, moment or 0, tuple(found))


class Carried(NamedTuple):
    """Files by their paths in a bundle, and what of them is damaged."""

    files: dict[str, Source]
    damage: list[str]


def saved_files(
    layout: Layout, paths: AgentPaths, reading: Reading, limits: Limits = LIMITS
) -> Carried:
    """Return what `inspect --saved` carries: a bundle without what its logs say anyway.

    The files are carried as they stand, damaged or not.

    Args:
        reading: of the whole log.

    Raises `Invalid` (kind ``saved-too-large``).
    """
    files = _head()
    agents = [(paths, reading)]
    for one in _spawned(layout, paths):
        with suppress(NoSuchAgent):
            agents.append((one, read_agent(one, whole=True)))
    for one, read in agents:
        folder = f"agents/{one.id}"
        files[f"{folder}/{one.log.name}"] = _log(one, read.state)
        for name, source in transcripts.load_as_they_stand(one, read.state.synced).items():
            files[f"{folder}/transcripts/{name}"] = source
        for name, source in workspace.files_as_they_stand(one).items():
            files[f"{folder}/workspace/{name}"] = source
    check_size(files, limits)
    damage = []
    for one, read in agents:
        damage += [str(finding) for finding in read.findings if finding.is_damage]
        try:
            transcripts.load_recorded(one, read.state.synced, streams=True)
            workspace.stored_files(one)
        except Invalid as error:
            damage.append(error.message)
    return Carried(files, damage)


def _head() -> dict[str, Source]:
    head = encode_document({"format": FORMAT, "version": VERSION, "features": []})
    return {"agentsdir.json": Source("agentsdir.json", data=head)}


def _spawned(layout: Layout, paths: AgentPaths) -> list[AgentPaths]:
    """Return the agents that an agent spawned, and that those spawned, parents first."""
    return [listed.paths for listed in descendants(layout, paths.id)]


def _log(paths: AgentPaths, state: AgentState) -> Source:
    return transcripts.beginning(paths.log, state.position.size, paths.log.name)


class _History(Source):
    """history.jsonl as the log says it must be, made when it is read."""

    __slots__ = ("_paths", "_state")

    def __init__(self, paths: AgentPaths, state: AgentState) -> None:
        super().__init__(paths.history.name)
        self._paths = paths
        self._state = state

    def open(self) -> BinaryIO:
        """Open for reading from the start."""
        return stream_of(history_pieces(self._paths, self._state.position.size))

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return self._state.history_size


def _read(paths: AgentPaths) -> tuple[AgentState, int, tuple[Finding, ...]]:
    """Fold an agent's log; return its state, the time of its last record, and the findings."""
    last = ""

    def keep_time(_state: AgentState, record: Record | None) -> None:
        nonlocal last
        last = record.ts if record else last

    reading = read_agent(paths, whole=True, follow=keep_time)
    try:
        moment = max(0, int(from_text(last).timestamp()))
    except (OverflowError, ValueError):  # an invalid time of a foreign writer
        moment = 0
    # Bytes after the last whole record are not exported.
    findings = tuple(finding for finding in reading.findings if finding.id != "torn-tail")
    return reading.state, moment, findings


# Import. A bundle is untrusted: it is unpacked into a folder of its own and validated, and then the
# agent is created by one rename. The client's store is not changed; the next turn writes the
# transcripts there.


class Imported(NamedTuple):
    """An imported agent, the folder that its bundle names, and the files that were restored."""

    made: CreatedAgent
    former_cwd: str
    put_back: workspace.PutBack | None


def import_agent(
    services: Services,
    bundle: Unpacked,
    *,
    cwd: str,
    login: str,
    workplace: Path | None = None,
    stores: Sequence[ClientStore] = (),
) -> Imported:
    """Add the agent of an unpacked bundle to this agents directory.

    It keeps its ids and every byte of its log if its id, its session and its native session are
    free here, and so do the agents that it spawned. Else it becomes another agent with the same
    history, so that a bundle cannot choose a session in a client's store, and has spawned none.

    Args:
        bundle: an agents directory of one agent and those that it spawned.
        cwd: the working directory here. That of the bundle is not used.
        login: the user of the agent, if it cannot keep its key.
        workplace: the working directory, if the captured files are to be restored there.
        stores: of this user's clients.

    Raises `Invalid` for a bundle that is damaged, or no bundle, and what `making_agent` raises.
    """
    main, *spawned = _checked_agents(bundle)
    former_cwd = main.state.cwd
    layout = services.layout
    make_folder(layout.root, services.disk)
    layout.check_version(writing=True)
    put_back = None
    if workplace is not None:
        services.check_trust()
        put_back = workspace.put_back(main.paths, workplace, services.is_private)
        cwd = str(workplace)
    findings: list[Finding] = []
    with hold_root(services) as index:
        here = _Here(layout)
        if here.leaves_free(main, stores):
            agent_id = main.paths.id
            taken = _take_over(services, here, main, spawned, cwd, stores)
        else:
            agent_id = _take_as_another(services, main, cwd, login, findings)
            taken = [main]
            services.notify_user(
                "it is another agent with the same history: the id, session, key or name of the "
                "first is taken here"
            )
        for one in taken[:-1]:
            index.add(one.paths.id)
        index.add(agent_id)
    _say_what_waits(services, [one.state for one in taken])
    if left := 1 + len(spawned) - len(taken):
        services.notify_user(
            f"spawned agents that are not taken: {left}; they, or what only one agent may have of "
            "them, are here already, or their parent became another agent"
        )
    return Imported(CreatedAgent(agent_id, findings), former_cwd, put_back)


def _say_what_waits(services: Services, states: Sequence[AgentState]) -> None:
    if waiting := sum(len(state.pending) for state in states):
        services.notify_user(
            f"messages that wait in it: {waiting}; the next `send` runs them first"
        )
    if texts := sum(len(state.undelivered) for state in states):
        services.notify_user(
            f"texts that wait in its outbox: {texts}; the next turn, or `restore`, hands them out"
        )


class _Checked(NamedTuple):
    """An agent of a bundle: validated, with its transcripts and captured files.

    `has_history` is whether its history.jsonl is what its log says.
    """

    paths: AgentPaths
    state: AgentState
    has_history: bool
    saved: dict[str, Source]
    captured: dict[str, Source]


def _checked_agents(bundle: Unpacked) -> list[_Checked]:
    """Validate a bundle; return its agent, and those that it spawned, parents first."""
    layout = Layout(bundle.folder)
    _check_sizes(layout.root, "agentsdir.json")
    if not layout.check_version(writing=True):
        raise bad_bundle("it holds no agents directory", _HINT)
    found = {}
    for agent_id in layout.agent_ids():
        paths = layout.agent(agent_id)
        _check_sizes(paths.folder, *_DOCUMENTS)
        state, has_history = _checked_agent(paths)
        saved = transcripts.load_recorded(paths, state.synced, streams=True)
        captured = workspace.stored_files(paths)
        found[agent_id] = _Checked(paths, state, has_history, saved, captured)
    tops = [one for one in found.values() if one.state.parent not in found]
    if len(tops) != 1:
        raise bad_bundle(
            f"it holds {len(tops)} agents that no other in it spawned, and a bundle holds one",
            _HINT,
        )
    ordered = tops
    for above in ordered:
        ordered += [one for one in found.values() if one.state.parent == above.paths.id]
    sessions = [key for one in ordered for key in {one.state.session.id, one.state.native["id"]}]
    if len(ordered) < len(found) or len({*sessions}) < len(sessions):
        raise bad_bundle("its agents spawned each other in a round, or have one session")
    if bundle.agent_id not in (None, ordered[0].paths.id):
        raise bad_bundle(
            f"its `agentId` is {bundle.agent_id}, and {ordered[0].paths.id} spawned it"
        )
    return ordered


def _check_sizes(folder: Path, *names: str) -> None:
    """Refuse a document larger than a writer makes it, because it is read whole."""
    for name in names:
        try:
            size = (folder / name).lstat().st_size
        except OSError:  # missing or unreachable; the validation reports it
            continue
        if size > LINE_CAP:
            raise bad_bundle(f"{name} has {size} bytes")


def _checked_agent(paths: AgentPaths) -> tuple[AgentState, bool]:
    """Validate a bundle's agent; return its state, and whether history.jsonl is what the log says.

    Raises `Invalid`.
    """
    check = AgentCheck(paths, f"agents/{paths.id}", CheckCounts(), modes=False)
    for problem in check.run():
        if problem.severity == "error":
            raise bad_bundle(str(problem))
    state = check.state or _folded(paths)
    if state.agent_id != paths.id:
        raise bad_bundle(f"agents/{paths.id} calls itself {state.agent_id}")
    return state, check.history_is_whole


def _folded(paths: AgentPaths) -> AgentState:
    """Fold a log that has lines which are no records, such as writes that were set apart."""
    reading = read_agent(paths, whole=True)
    for finding in reading.findings:
        if finding.severity == "error":
            raise bad_bundle(str(finding))
    return reading.state


class _Here:
    """What the agents have that are here already, under the create lock."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._ids: set[str] = set()
        self._sessions: set[str] = set()
        self._natives: set[str] = set()
        for archived in (False, True):
            for listed in each_agent(layout, archived=archived):
                self._ids.add(listed.paths.id)
                if (document := listed.document) is not None:
                    self._sessions.add(document["sessionId"])
                    if listed.is_live and not archived:
                        session = ids.dashed(document["sessionId"])
                        self._natives |= {document["native"]["id"], session}

    def has(self, agent_id: str | None) -> bool:
        """Return whether an agent is here."""
        return agent_id in self._ids

    def add(self, one: _Checked) -> None:
        """Note that an agent has come; no two of a bundle have one session."""
        self._ids.add(one.paths.id)

    def leaves_free(self, one: _Checked, stores: Sequence[ClientStore]) -> bool:
        """Return whether an agent of a bundle can be here what it was there.

        The ids, the key and the name are free, and no client has another session of its native id.
        """
        state = one.state
        if (
            one.paths.id in self._ids
            or state.session.id in self._sessions
            or state.native["id"] in self._natives
            or _is_known(one, stores)
        ):
            return False
        try:
            if state.session.state is not SessionState.TERMINATED:
                check_unique(self._layout, state.descriptor, state.name or "", one.paths.id)
        except AgentsdirError as error:
            if error.kind != "already-exists":
                raise
            return False
        return True


def _take_over(
    services: Services,
    here: _Here,
    main: _Checked,
    spawned: Sequence[_Checked],
    cwd: str,
    stores: Sequence[ClientStore],
) -> list[_Checked]:
    """Add an agent and those that it spawned, each with its ids and every byte of its log.

    The agent appears last, so that an import that was killed can be run again. One that fails adds
    none. A spawned agent that cannot be here what it was there is left out, and so are its own.
    """
    taken: list[_Checked] = []
    try:
        for one in spawned:
            has_parent = one.state.parent == main.paths.id or here.has(one.state.parent)
            if has_parent and here.leaves_free(one, stores):
                _add(services, one, cwd)
                here.add(one)
                taken.append(one)
        _add(services, main, cwd)
    except BaseException:
        for one in taken:
            shutil.rmtree(services.layout.agents / one.paths.id, ignore_errors=True)
        raise
    return [*taken, main]


def _add(services: Services, one: _Checked, cwd: str) -> None:
    state = one.state
    with making_agent(services.layout, one.paths.id, state.session.id, services.disk) as made:
        made.take_log(one.paths, state, has_history=one.has_history)
        for native, file in one.saved.items():
            made.store(native, state.synced[native]["role"], file)
        _finish_import(services, made, one, cwd)


def _take_as_another(
    services: Services, one: _Checked, cwd: str, login: str, findings: list[Finding]
) -> str:
    """Add another agent with the same history; return its id."""
    agent_id, session_id = services.ids.agent(), services.ids.session()
    with making_agent(services.layout, agent_id, session_id, services.disk) as made:
        converted = _Conversion(services, one.paths, one.state, agent_id, session_id, login)
        converted.store(made, one.saved, findings)
        for record in converted.records():
            made.append(record.event, record.data, record.ts)
        converted.name_own(made)
        one.state.native = converted.native
        _finish_import(services, made, one, cwd)
    return agent_id


def _is_known(one: _Checked, stores: Sequence[ClientStore]) -> bool:
    """Return whether a client's store has more of the session than the bundle.

    Then the bundle is not an export of that session, but names it.
    """
    state = one.state
    try:
        reader = registry.get(state.session.provider_name).reader
    except UsageError:
        return False  # the provider's adapter is not installed
    if not isinstance(reader, StoreReader):
        return False
    main = main_in(stores, reader, state.native["id"])
    if main is None:
        return False
    own = transcripts.of_session(state.transcripts, state.native["id"])
    mains = [one.saved[path] for path, entry in own.items() if entry["role"] == "main"]
    there = Source(str(main), path=main)
    # A larger one is not looked into.
    return not any(size_of(there) <= size_of(main) and begins_with(there, main) for main in mains)


def _finish_import(services: Services, made: UnpublishedAgent, one: _Checked, cwd: str) -> None:
    """Log the new working directory and the suspension, and write the captured files."""
    state, captured = one.state, one.captured
    # Always: settings in the bundle's log before this record grant nothing.
    made.append("agent.set", {"values": {"cwd": cwd}, "reason": IMPORT}, services.now())
    if state.session.state is SessionState.ACTIVE and state.open_turn is None:
        change = {"from": "active", "to": "suspended", "reason": "import"}
        made.append("session.state", change, services.now())
    for name, file in captured.items():
        path = made.paths.workspace / name
        make_folder(path.parent, services.disk)
        write_new(path, file.read(), services.disk)
    for folder in {(made.paths.workspace / name).parent for name in captured}:
        services.disk.sync_folder(folder)


class _Conversion:
    """Rewrites the records and transcripts of an imported agent for new ids."""

    def __init__(
        self,
        services: Services,
        source: AgentPaths,
        state: AgentState,
        agent_id: str,
        session_id: str,
        login: str,
    ) -> None:
        self._services = services
        self._source = source
        self._state = state
        self._agent_id = agent_id
        self._login = login
        self._old: str = state.native["id"]
        turn = state.open_turn
        self._undone = {message["messageId"] for message in state.pending}
        self._undone.update(turn["messageIds"] if turn else ())
        self._current = ""
        self._stored: dict[str, list[dict[str, Any]]] = {}
        self.native = {**state.native, "id": ids.dashed(session_id)}

    def records(self) -> Iterator[Record]:
        """Yield each record of the log as it is to be appended."""
        with open_log(self._source.log) as stream:
            for line in read_log(stream, str(self._source.log)):
                record = line.record
                if record is None or line.after.size > self._state.position.size:
                    continue
                if record.event == "native.changed" and (left := self._left()):
                    # Transcripts of an earlier session are named while it is the present one.
                    yield record._replace(event="transcript.synced", data={"files": left})
                data = self._data(record)
                if data is not None:
                    if "native" in data:
                        self._current = record.data["native"]["id"]
                    yield record._replace(data=data)

    def _left(self) -> list[dict[str, Any]]:
        """Return the transcripts of the session that the next record leaves."""
        return self._stored.pop(self._current, []) if self._current != self._old else []

    def _data(self, record: Record) -> dict[str, Any] | None:
        data = record.data
        if record.event == "session.created":
            return self._created(data)
        if record.event == "native.changed":
            return {**data, "native": self._renamed(data["native"])}
        if record.event == "message.enqueued" and data.get("message_id") in self._undone:
            # The sender waits for the answer of the exported agent, not of this one.
            return {name: value for name, value in data.items() if name not in ("sync", "spawn")}
        if record.event == "agent.renamed":
            return None  # it is created with its last name, if that is free
        if record.event == "session.state":
            return {name: value for name, value in data.items() if name != "provider_state"}
        if record.event == "transcript.synced":
            # The converted transcripts are logged at the end; streams are not converted.
            streams = [entry for entry in data["files"] if entry["role"] == transcripts.STREAM]
            return {**data, "files": streams} if streams else None
        if record.event == "block" and data["block"].get("sessionId") == self._old:
            return {**data, "block": {**data["block"], "sessionId": self.native["id"]}}
        return data

    def _created(self, data: dict[str, Any]) -> dict[str, Any]:
        layout = self._services.layout
        name = self._state.name or ""
        try:
            made = copied_identity(layout, data, self._agent_id, name, self._login, keep=True)
        except AgentsdirError as error:
            if error.kind != "already-exists":
                raise
            made = copied_identity(layout, data, self._agent_id, "", self._login)
        return {
            **made,
            "native": self._renamed(data["native"]),
            "imported_from": {
                "agent_id": self._source.id,
                "session_id": self._state.session.id,
                "native_id": self._old,
            },
        }

    def _renamed(self, native: dict[str, Any]) -> dict[str, Any]:
        return {**native, "id": self.native["id"]} if native["id"] == self._old else native

    def store(
        self, made: UnpublishedAgent, saved: dict[str, Source], findings: list[Finding]
    ) -> None:
        """Store the transcripts under the new session's id, and those of earlier sessions."""
        entries = self._state.synced
        own = transcripts.of_session(entries, self._old)
        _, provider = find_provider(self._state)
        files = forked_files(
            provider,
            {path: saved[path] for path in own},
            self._old,
            self.native["id"],
            findings.append,
        )
        self._stored[self._old] = [
            made.store(file.path, file.role, file.source).as_entry() for file in files
        ]
        for path in saved.keys() - own.keys():
            synced = made.store(path, entries[path]["role"], saved[path])
            if synced.role != transcripts.STREAM:
                self._stored.setdefault(entries[path]["native"], []).append(synced.as_entry())

    def name_own(self, made: UnpublishedAgent) -> None:
        """Log the transcripts of the present session."""
        if files := self._stored.pop(self._old, None):
            made.append("transcript.synced", {"files": files}, self._services.now())


class Unpacked(NamedTuple):
    """A folder that is an agents directory, and the agent that it is of; None if it is not said."""

    folder: Path
    agent_id: str | None = None


def unpacked(stream: Readable, folder: Path) -> Unpacked:
    """Unpack a bundle, or the document of `inspect --saved`, into a new folder below `folder`.

    A document begins with a brace, as no tar of an agents directory does.

    Raises `Invalid` (kind ``bad-bundle`` or ``no-files``); then nothing of it is left.
    """
    into = folder / "bundle"
    into.mkdir(mode=0o700)
    head = stream.read(_SNIFFED)
    try:
        if head.lstrip().startswith(b"{"):
            return Unpacked(into, unpack_document(Again(head, stream), into))
        unpack(Again(head, stream), into)
    except BaseException:
        shutil.rmtree(into, ignore_errors=True)
        raise
    return Unpacked(into)
