"""Finding or making the agent of a key: one live agent each, whatever the index says."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from directory_machine import DirectoryMachine
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from agentsdir.engine import lookup
from agentsdir.engine.close import archive_agent, unarchive_agent
from agentsdir.engine.create import NewAgent, default_target, find_or_create
from agentsdir.engine.lookup import each_agent
from agentsdir.engine.restore import sweep_root
from agentsdir.engine.services import Services
from agentsdir.formats.errors import AgentsdirError, Invalid, NoSuchAgent, UsageError
from agentsdir.formats.store.agent import read_agent, write_agent
from agentsdir.formats.store.layout import Layout

WANTED: dict[str, dict[str, str]] = {
    "a conversation": {"connector": "irc", "user": "ada", "channel": "#c"},
    "the same channel of another user": {"connector": "irc", "user": "bob", "channel": "#c"},
    "a task": {"kind": "cron", "cron": "every night"},
    "a task whose uid is an id": {"kind": "cron", "cron": "n" * 24},
    "the heartbeat": {"kind": "heartbeat"},
    "a name": {"name": "demo"},
}
KEYS = {
    "a conversation": {"type": "user", "connector": "irc", "userId": "ada", "channelId": "#c"},
    "the same channel of another user": {
        "type": "user",
        "connector": "irc",
        "userId": "bob",
        "channelId": "#c",
    },
    "a task": {"type": "cron", "id": "every night"},
    "a task whose uid is an id": {"type": "cron", "id": "n" * 24},
    "the heartbeat": {"type": "heartbeat"},
    "a name": {"parentAgentId": None, "name": "demo"},
}
WHICH = st.sampled_from(sorted(WANTED))


def wanted(which: str) -> NewAgent:
    """Return what is looked for."""
    return NewAgent(login="me", cwd="/", **WANTED[which])  # type: ignore[arg-type]


def close(services: Services, agent_id: str) -> None:
    """Terminate a session."""
    with write_agent(services.layout.agent(agent_id), disk=services.disk) as writer:
        change = {"from": writer.state.session.state.value, "to": "terminated", "reason": "close"}
        writer.append("session.state", change, services.now())


class Routing(DirectoryMachine):
    """A directory in which agents come and go, and whose routes are lost and spoiled."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[str, str] = {}
        self.away: list[tuple[str, str]] = []

    @rule(which=WHICH)
    def find(self, which: str) -> None:
        """Find or make: the one that is known, or a new one."""
        target = find_or_create(self.services, wanted(which))
        assert target.made == (which not in self.live)
        assert self.live.setdefault(which, target.paths.id) == target.paths.id

    @rule(which=WHICH)
    def finish(self, which: str) -> None:
        """Close an agent: its key is free."""
        if which in self.live:
            close(self.services, self.live.pop(which))
            self.find(which)

    @rule(which=WHICH)
    def put_away(self, which: str) -> None:
        """Archive an agent: its key is free."""
        if which in self.live:
            archive_agent(self.services, self.layout.agent(self.live[which]))
            self.away.append((which, self.live.pop(which)))

    @rule()
    def bring_back(self) -> None:
        """Bring an agent back, if no other agent has its key by now."""
        if self.away:
            which, agent_id = self.away.pop()
            paths = self.layout.agent(agent_id, archived=True)
            if which in self.live:
                with pytest.raises(AgentsdirError) as refused:
                    unarchive_agent(self.services, paths)
                assert refused.value.kind == "already-exists"
            else:
                unarchive_agent(self.services, paths)
                self.live[which] = agent_id

    @rule(which=WHICH, data=st.binary(max_size=40))
    def damage(self, which: str, data: bytes) -> None:
        """Write anything over a route."""
        if self.layout.routes.is_dir():
            path = lookup.route_path(self.layout, KEYS[which])
            path.unlink(missing_ok=True)
            path.write_bytes(data)
            self.find(which)

    @rule(which=WHICH)
    def lose(self, which: str) -> None:
        """Lose a route."""
        lookup.route_path(self.layout, KEYS[which]).unlink(missing_ok=True)
        self.find(which)

    @rule(which=WHICH, other=WHICH)
    def mislead(self, which: str, other: str) -> None:
        """Let a route name another agent, or one that is not there."""
        lookup.write_route(
            self.layout, KEYS[which], self.live.get(other, "x" * 24), self.services.disk
        )
        self.find(which)

    @rule(which=WHICH, other=WHICH)
    def link(self, which: str, other: str) -> None:
        """Put a link in place of a route, to one that is right perhaps."""
        if self.layout.routes.is_dir():
            path = lookup.route_path(self.layout, KEYS[which])
            path.unlink(missing_ok=True)
            path.symlink_to(lookup.route_path(self.layout, KEYS[other]))
            self.find(which)

    @invariant()
    def each_key_has_one_live_agent(self) -> None:
        """The one of the model."""
        found: dict[str, list[str]] = {which: [] for which in WANTED}
        for listed in each_agent(self.layout):
            assert listed.document is not None
            for which, key in KEYS.items():
                if lookup.has_key(listed.document, key):
                    found[which].append(listed.paths.id)
        assert found == {
            which: [self.live[which]] if which in self.live else [] for which in WANTED
        }


Routing.TestCase.settings = settings(max_examples=40, stateful_step_count=20)
test_a_key_has_one_live_agent_whatever_the_index_says = pytest.mark.feature("T-03")(
    Routing.TestCase
)


@pytest.mark.feature("T-03", "T-11")
@pytest.mark.parametrize("which", WANTED)
def test_who_is_known_is_found_without_a_look_at_the_others(
    stage: Any, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its route, or its id; and again after the route was lost, by a look at all."""
    first = find_or_create(stage.services, wanted(which))
    searched: list[str] = []
    search = lookup.find_by_key
    monkeypatch.setattr(
        lookup, "find_by_key", lambda *given: searched.append(which) or search(*given)
    )

    again = find_or_create(stage.services, wanted(which))
    assert (again.paths.id, again.made, searched) == (first.paths.id, False, [])

    for path in Layout(stage.root).routes.iterdir():
        path.unlink()
    assert find_or_create(stage.services, wanted(which)).paths.id == first.paths.id
    assert find_or_create(stage.services, wanted(which)).paths.id == first.paths.id
    assert len(searched) == (0 if which == "a task whose uid is an id" else 1)


def test_what_is_found_stays_as_it_is(stage: Any) -> None:
    """Settings are for the agent that is made, and nothing is written to one that is there."""
    first = find_or_create(stage.services, wanted("the heartbeat"))
    before = stage.tree()

    again = find_or_create(
        stage.services, wanted("the heartbeat")._replace(model="other", provider="nobody")
    )

    assert (again.paths.id, again.made) == (first.paths.id, False)
    assert stage.tree() == before


def test_an_index_that_is_a_link_is_neither_read_nor_written(
    stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could lead anywhere."""
    agent = find_or_create(stage.services, wanted("a task")).paths
    elsewhere = tmp_path / "elsewhere"
    layout = Layout(stage.root)
    layout.routes.rename(elsewhere)
    layout.routes.symlink_to(elsewhere)
    before = {path.name: path.read_bytes() for path in elsewhere.iterdir()}
    searched: list[str] = []
    search = lookup.find_by_key
    monkeypatch.setattr(lookup, "find_by_key", lambda *given: searched.append("") or search(*given))

    assert find_or_create(stage.services, wanted("a task")).paths.id == agent.id
    find_or_create(stage.services, wanted("the heartbeat"))

    assert len(searched) == 2 + 1  # the last one is that of `make_agent`
    assert {path.name: path.read_bytes() for path in elsewhere.iterdir()} == before


@pytest.mark.parametrize("place", ["routes", "route"])
@pytest.mark.parametrize("what", ["FIFO", "folder", "file"])
def test_an_oddity_in_the_index_costs_a_search_and_no_more(
    stage: Any, place: str, what: str
) -> None:
    """Nothing hangs, nothing is refused."""
    layout = Layout(stage.root)
    agent = find_or_create(stage.services, wanted("a task")).paths
    (route,) = layout.routes.iterdir()
    route.unlink()
    path = route if place == "route" else layout.routes
    if place == "routes":
        path.rmdir()
    {"FIFO": os.mkfifo, "folder": Path.mkdir, "file": Path.touch}[what](path)

    for _ in range(2):
        assert find_or_create(stage.services, wanted("a task")).paths.id == agent.id


def test_a_damaged_agent_that_may_have_the_key_is_not_given_a_twin(stage: Any) -> None:
    """Its descriptor.json says so; every other key is served as ever."""
    broken = find_or_create(stage.services, wanted("a task")).paths
    broken.log.unlink()

    with pytest.raises(Invalid, match=f"agent {broken.id}, which cannot be read") as refused:
        find_or_create(stage.services, wanted("a task"))

    assert refused.value.kind == "already-exists"
    assert find_or_create(stage.services, wanted("the heartbeat")).made


def test_what_a_dead_writer_left_in_the_index_is_swept(stage: Any, tmp_path: Path) -> None:
    """By a restoration of all; never through a link."""
    find_or_create(stage.services, wanted("a task"))
    layout = Layout(stage.root)
    left = layout.routes / ".tmp-x"
    left.touch()
    assert sweep_root(stage.services) == [left]
    assert not left.exists()

    left.touch()
    elsewhere = tmp_path / "elsewhere"
    layout.routes.rename(elsewhere)
    layout.routes.symlink_to(elsewhere)
    assert sweep_root(stage.services) == []
    assert (elsewhere / ".tmp-x").exists()


def test_a_search_without_a_key_is_refused_before_anything_is_made(stage: Any) -> None:
    """Plain `new` makes another agent each time; no search could find it."""
    with pytest.raises(UsageError, match="nothing to find it by"):
        find_or_create(stage.services, NewAgent(login="me", cwd="/"))
    with pytest.raises(UsageError, match="nobody"):
        find_or_create(stage.services, wanted("a task")._replace(provider="nobody"))
    assert not stage.root.exists()


def test_a_route_is_what_its_schema_says(stage: Any) -> None:
    """Its name follows from its key, and it holds no more than the key and an id."""
    from agentsdir.schemas import check

    agent = find_or_create(stage.services, wanted("a conversation")).paths
    (path,) = Layout(stage.root).routes.iterdir()

    document = json.loads(path.read_bytes())
    assert document == {"agentId": agent.id, "key": KEYS["a conversation"]}
    assert check("route", document) == []


def test_a_subagents_message_is_for_its_parent_and_any_others_for_the_foreground(
    stage: Any,
) -> None:
    """The seeds' defaults; a foreground agent is never its own."""
    task = stage.new(kind="cron", cron="nightly")
    child = stage.new(kind="subagent", parent=task.id, name="scout")
    with pytest.raises(NoSuchAgent):
        default_target(stage.services, task)

    one, two = stage.new(), stage.new()
    stage.send(two)

    assert default_target(stage.services, child).id == task.id
    assert default_target(stage.services, task).id == two.id
    assert default_target(stage.services, two).id == one.id
    assert default_target(stage.services, one).id == two.id


def test_who_stands_in_a_round_of_parents_has_no_default(stage: Any) -> None:
    """It is refused, naming all of them, rather than sent round."""
    from test_lineage import adopt, line_of

    line = line_of(stage, 3)
    adopt(line[0], line[2].id)

    with pytest.raises(Invalid, match="go round") as refused:
        default_target(stage.services, line[1])
    assert all(paths.id in refused.value.message for paths in line)
    assert read_agent(line[1]).state.pending == []


def test_validate_says_what_is_wrong_in_the_indexes(stage: Any) -> None:
    """Nothing of a healthy index; a remark on what is out of date, an error on what cannot be."""
    from agentsdir.engine.validate.files import validate

    closed = find_or_create(stage.services, wanted("a task")).paths
    find_or_create(stage.services, wanted("a conversation"))
    layout = Layout(stage.root)
    slots = stage.root / "slots"
    slots.mkdir(0o700)
    assert [str(problem) for problem in validate([stage.root])] == []

    close(stage.services, closed.id)
    (slots / closed.id).write_text("2026-01-02T03:04:05.678900Z\n")
    (slots / ("y" * 24)).write_text("yesterday\n")
    (slots / ".lock").touch()
    for folder in (layout.routes, slots):
        (folder / "notes.txt").touch()
        (folder / ".tmp-x").touch()
    right = lookup.route_path(layout, KEYS["a conversation"])
    right.rename(lookup.route_path(layout, KEYS["a name"]))
    lookup.route_path(layout, KEYS["the heartbeat"]).symlink_to(right)
    (layout.routes / f"{'0' * 32}.json").write_bytes(b"{")
    (layout.routes / f"{'1' * 32}.json").write_bytes(b'{"agentId": 1, "key": {}}\n')
    deep = b'{"agentId": "%s", "key": {"a": %s}}' % (b"x" * 24, b"[" * 120 + b"]" * 120)
    (layout.routes / f"{'2' * 32}.json").write_bytes(deep)
    large = b'{"agentId": "%s", "key": {"type": 1e999}}' % (b"x" * 24)
    (layout.routes / f"{'3' * 32}.json").write_bytes(large)

    found = {
        (Path(problem.file).relative_to(stage.root).as_posix(), problem.id)
        for problem in validate([stage.root])
    }
    stale = lookup.route_path(layout, KEYS["a task"]).name
    moved = lookup.route_path(layout, KEYS["a name"]).name
    link = lookup.route_path(layout, KEYS["the heartbeat"]).name
    assert found == {
        (f"routes/{stale}", "derived-stale"),
        (f"routes/{moved}", "derived-differs"),
        (f"routes/{link}", "unsafe-path"),
        (f"routes/{'0' * 32}.json", "half-document"),
        (f"routes/{'1' * 32}.json", "schema"),
        (f"routes/{'2' * 32}.json", "derived-differs"),
        (f"routes/{'3' * 32}.json", "bad-json"),
        ("routes/notes.txt", "foreign-entry"),
        ("routes/.tmp-x", "leftover"),
        (f"slots/{'y' * 24}", "derived-differs"),
        ("slots/notes.txt", "foreign-entry"),
        ("slots/.tmp-x", "leftover"),
    }
