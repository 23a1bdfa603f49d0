"""Any order of commands, crashes and lost files keeps what was acknowledged, and repeats nothing.

A crash is the folder as it stood between two appends, with a part of the next record. The
`session_model` beside this file says what must be true.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from session_model import Message, Session, seen

from agentsdir.cli.exits import Exit, code_of
from agentsdir.engine.close import close
from agentsdir.engine.lookup import document_row, each_agent, inspection, list_row
from agentsdir.engine.replay import replay
from agentsdir.engine.restore import restore_agent, sweep_root
from agentsdir.engine.slots import resume, suspend
from agentsdir.formats.errors import ProviderError, SessionStateError
from agentsdir.formats.store.agent import read_agent, wrong_files
from agentsdir.formats.store.derived import derived_documents, state_document
from agentsdir.formats.store.layout import AgentPaths

OUTCOMES = {"echo": "completed", "tools.jsonl": "completed", "fails.jsonl": "failed"}
LOCKS = (".lock", ".turn")
VERBS = st.sampled_from(["send", "send", "interrupt", "suspend", "resume", "restore"])
TEXTS = st.sampled_from(["hi", "two words", "é𝄞\u2028\x00", "line\nline"])
WHICH = st.integers(0, 2)
MESSES = st.sampled_from(["kept", "kept", "lost", "garbage", "cut", "old"])


@dataclass
class Agent:
    """One agent, what must be true of it, and older versions of its derived files.

    `exact` is whether no step has touched the derived files since they were whole.
    """

    paths: AgentPaths
    kind: str
    model: Session = field(default_factory=Session)
    exact: bool = True
    older: dict[str, list[bytes]] = field(default_factory=dict)

    @property
    def log(self) -> bytes:
        """Its log as it stands."""
        return self.paths.log.read_bytes()

    def tree(self) -> dict[str, bytes]:
        """Every file of its folder but locks, by relative path."""
        return {
            path.relative_to(self.paths.folder).as_posix(): path.read_bytes()
            for path in sorted(self.paths.folder.rglob("*"))
            if path.is_file() and path.name not in LOCKS
        }

    def put(self, tree: dict[str, bytes]) -> None:
        """Make its folder hold these files and no others, but for locks."""
        for name in self.tree().keys() - tree.keys():
            (self.paths.folder / name).unlink()
        for name, data in tree.items():
            path = self.paths.folder / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_bytes(data)


class Machine(RuleBasedStateMachine):
    """Up to three agents in one agents directory."""

    def __init__(self, make_stage: Callable[[Path], Any], memory: Path) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=memory))
        self.make_stage = make_stage
        self.stage = make_stage(self.folder / "root")
        self.agents: list[Agent] = []
        self.snapshots: list[dict[str, bytes]] = []
        self.watched: Agent | None = None
        clock = self.stage.now

        def now() -> str:
            # The engine asks for the time just before each append.
            if self.watched is not None:
                self.snapshots.append(self.watched.tree())
            return str(clock())

        self.stage.now = now

    def teardown(self) -> None:
        """Leave nothing behind."""
        shutil.rmtree(self.folder)

    # What is done.

    @initialize(kind=st.sampled_from(sorted(OUTCOMES)))
    def first(self, kind: str) -> None:
        """Begin with one agent."""
        self.new(kind)

    @precondition(lambda self: len(self.agents) < 3)
    @rule(kind=st.sampled_from(sorted(OUTCOMES)))
    def new(self, kind: str) -> None:
        """Make an agent; what a dead maker of another left is no agent."""
        paths = self.stage.new() if kind == "echo" else self.stage.script(kind)
        self.agents.append(Agent(paths, kind))
        left = paths.folder.parent / f".tmp-{'y' * 24}-0"
        left.mkdir(mode=0o700, exist_ok=True)
        (left / "events.jsonl").write_bytes(b"{")
        self.check(self.agents[-1])

    @rule(which=WHICH, verb=VERBS, text=TEXTS)
    def act(self, which: int, verb: str, text: str) -> None:
        """Run one command to its end."""
        agent = self.agents[which % len(self.agents)]
        self.perform(agent, verb, text)
        if verb == "restore":
            self.check_restored(agent)
        self.check(agent)

    @rule(which=WHICH, text=TEXTS)
    def enqueue(self, which: int, text: str) -> None:
        """Leave a message of a sender that did not wait."""
        agent = self.agents[which % len(self.agents)]
        if agent.model.state != "terminated":
            message = self.stage.enqueue(agent.paths, text)
            agent.model.messages[message] = Message(text)
            self.check(agent)

    @rule(which=WHICH)
    def terminate(self, which: int) -> None:
        """Close a session for good."""
        agent = self.agents[which % len(self.agents)]
        model = agent.model
        if not model.open and len(model.messages) > 2 and model.state != "terminated":
            close(self.stage.services, agent.paths)
            model.end()
            self.check(agent)

    @rule(which=WHICH, verb=VERBS, text=TEXTS, where=st.integers(0, 30), cut=st.integers(0, 2000))
    def crash(self, which: int, verb: str, text: str, where: int, cut: int) -> None:
        """Let the process die between two appends of a command, or within one."""
        agent = self.agents[which % len(self.agents)]
        told, log = copy.deepcopy(agent.model.told), agent.log
        self.watched, self.snapshots = agent, []
        self.perform(agent, verb, text)
        self.watched = None
        self.snapshots.append(agent.tree())
        final = agent.log
        tree = dict(self.snapshots[where % len(self.snapshots)])
        stood = tree["events.jsonl"]
        assert stood.startswith(log)
        assert final.startswith(stood)
        coming = final[len(stood) :].splitlines(keepends=True)
        if coming[:1] == [b" \n"]:  # a torn tail is set apart by the same write
            coming = [b"".join(coming[:2])]
        if coming:
            tree["events.jsonl"] = stood + coming[0][: cut % len(coming[0])]
        if cut % 3 == 0:
            tree[".tmp-state.json-0"] = b'{"sessi'
        agent.put(tree)
        agent.exact = False
        agent.model = seen(agent.log)
        for before, after in zip(told, agent.model.told, strict=False):
            assert before[0] == after[0]
            assert before[2] in (after[2], [])  # what was settled, is so
        assert len(agent.model.messages) >= len(told)
        self.check(agent)

    @rule(which=WHICH, how=st.lists(MESSES, min_size=5, max_size=5), pick=st.integers(0, 50))
    def mess(self, which: int, how: list[str], pick: int) -> None:
        """Lose, break or set back any of the derived files."""
        agent = self.agents[which % len(self.agents)]
        agent.exact = False
        for mess, (name, data) in zip(how, sorted(derived(agent).items()), strict=False):
            path = agent.paths.folder / name
            older = agent.older.get(name, [])
            if mess == "lost":
                path.unlink()
            elif mess == "garbage":
                path.write_bytes(b"\x00{garbage\xff"[: pick % 11] * 40)
            elif mess == "cut":
                path.write_bytes(data[: pick * len(data) // 50])
            elif mess == "old" and older:
                path.write_bytes(older[pick % len(older)])
        self.check(agent)

    # What must come of it.

    def perform(self, agent: Agent, verb: str, text: str) -> None:
        """Run one command, and hold what it does to the model."""
        model, before, was_open = agent.model, agent.tree(), bool(agent.model.open)
        torn = not agent.log.endswith(b"\n")
        wanted = self.expect(agent, verb, text)
        error: BaseException | None = None
        try:
            self.run(agent, verb, text)
        except (ProviderError, SessionStateError, KeyboardInterrupt) as raised:
            error = raised
        assert (type(error) if error else None) is wanted
        if isinstance(error, SessionStateError):
            assert code_of(error) is Exit.STATE
            if not (was_open or torn):
                assert agent.tree() == before
        assert agent.log.startswith(before["events.jsonl"])
        found = seen(agent.log)
        assert (found.state, found.told) == (model.state, model.told)
        agent.model = found
        if agent.exact:
            whole = read_agent(agent.paths, whole=True).state
            assert wrong_files(agent.paths, whole) == []
            assert derived(agent).keys() == {*derived_documents(whole), "history.jsonl"}

    def run(self, agent: Agent, verb: str, text: str) -> None:
        """Call the engine."""
        paths, services = agent.paths, self.stage.services
        if verb == "restore":
            assert restore_agent(services, paths).error is None
        elif verb in ("send", "interrupt"):
            listen = interrupt if verb == "interrupt" else ignore
            self.stage.send(paths, text, on_event=listen, record=" " in text)
        else:
            {"suspend": suspend, "resume": resume}[verb](services, paths)

    def expect(self, agent: Agent, verb: str, text: str) -> type[BaseException] | None:
        """Do to the model what the command must do; return what it must raise."""
        model, outcome = agent.model, OUTCOMES[agent.kind]
        if verb in ("send", "interrupt"):
            if model.state == "terminated":
                return SessionStateError
            model.close()
            model.state = "active"
            for message in model.queued:
                model.run(message, outcome)
            own = model.messages["own"] = Message(text)
            model.run(own, "aborted" if verb == "interrupt" else outcome)
            if verb == "interrupt":
                return KeyboardInterrupt
            return ProviderError if outcome == "failed" else None
        model.close()
        if verb == "restore":
            if model.state == "active":
                model.state = "suspended"
            return None
        wanted = "suspended" if verb == "suspend" else "active"
        return None if model.go(wanted) else SessionStateError

    def check(self, agent: Agent) -> None:
        """Hold what readers say to the log; reading changes no byte of anything."""
        tree = self.stage.tree()
        # A last record without its LF counts for writers, not yet for readers.
        log = agent.log
        model = seen(log[: log.rfind(b"\n") + 1])
        short, whole = read_agent(agent.paths), read_agent(agent.paths, whole=True)
        assert state_document(short.state) == state_document(whole.state)
        assert {finding.id for finding in whole.findings} <= {"stub", "torn-tail"}
        shown = inspection(agent.paths, short)
        assert shown["state"] == model.state
        assert shown["counters"]["messages"] == len(model.messages)
        assert shown["counters"]["turns"] == len(model.turns)
        assert [m["content"][0]["text"] for m in shown["pending"]] == [m.text for m in model.queued]
        assert (shown["openTurn"] is not None) == bool(model.open)
        assert all(m.starts <= 1 and len(m.delivered) <= 1 for m in model.messages.values())
        events = [event["type"] for event in replay(agent.paths, ignore)]
        assert events.count("block_complete") == model.blocks
        assert events.count("metadata_update") == model.ends
        lost: list[Any] = []
        list(replay(agent.paths, lost.append, streams=True))
        assert {finding.id for finding in lost} <= {"stub", "torn-tail"}
        listed = [one for one in each_agent(self.stage.services.layout) if one.document]
        assert {one.paths.id for one in listed} == {one.paths.id for one in self.agents}
        for one in listed:
            row = list_row(one.paths, read_agent(one.paths).state)
            assert document_row(one.paths, one.document or {}) == row
        assert self.stage.tree() == tree
        for name, data in derived(agent).items():
            agent.older.setdefault(name, []).append(data)

    def check_restored(self, agent: Agent) -> None:
        """Doing it again changes nothing; what is derived follows from the log alone.

        The second time may leave a stamp: it has read all, and found it in order.
        """
        sweep_root(self.stage.services)
        for folder in (self.stage.root, self.stage.root / "agents", agent.paths.folder):
            assert not list(folder.glob(".tmp-*"))
        stamps = str(agent.paths.stamps.relative_to(self.stage.root))
        tree = self.stage.tree()
        again = restore_agent(self.stage.services, agent.paths)
        assert (again.actions, again.error) == ((), None)
        assert {**self.stage.tree(), stamps: b""} == {**tree, stamps: b""}
        assert not agent.model.open
        other = self.make_stage(self.folder / "other")
        paths = AgentPaths(other.root / "agents" / agent.paths.id, agent.paths.id)
        primary = {k: v for k, v in agent.tree().items() if k not in derived(agent)}
        paths.folder.mkdir(parents=True)
        copied = Agent(paths, agent.kind)
        copied.put(primary)
        assert restore_agent(other.services, paths).error is None
        assert copied.tree() == agent.tree()
        shutil.rmtree(other.root)
        agent.exact = True


def derived(agent: Agent) -> dict[str, bytes]:
    """Return the files that follow from the log, as they stand."""
    names = ("session.json", "state.json", "history.jsonl", "descriptor.json")
    found = {}
    for name in (*names, "transcripts/manifest.json"):
        with suppress(FileNotFoundError):
            found[name] = (agent.paths.folder / name).read_bytes()
    return found


def ignore(_event: Any) -> None:
    """Listen to nothing."""


def interrupt(_event: Any) -> None:
    """Be the person who presses Ctrl-C as soon as something is shown."""
    raise KeyboardInterrupt


@pytest.mark.feature("S-01", "S-04", "C-05")
def test_any_history_of_commands_crashes_and_lost_files_loses_and_repeats_nothing(
    stage: Any, memory_path: Path
) -> None:
    """The rules above, in a few hundred orders that are the same in every run."""
    run_state_machine_as_test(
        partial(Machine, type(stage), memory_path),
        settings=settings(max_examples=25, stateful_step_count=30, deadline=None),
    )
