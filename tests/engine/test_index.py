"""index.jsonl says where to look: whatever happens to it, the same agents are found."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from directory_machine import DirectoryMachine
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from agentsdir.engine import lookup
from agentsdir.engine.close import archive_agent, close, remove_agent, unarchive_agent
from agentsdir.engine.create import NewAgent, create_agent
from agentsdir.engine.lookup import descendants, find_agent
from agentsdir.engine.restore import sweep_root
from agentsdir.engine.settings import rename
from agentsdir.engine.spawn import SpawnRequest, create_child
from agentsdir.engine.validate.files import validate
from agentsdir.formats.errors import AgentsdirError
from agentsdir.formats.ids import short_hash
from agentsdir.formats.store.agent import current_document
from agentsdir.formats.store.files import Disk, Durability
from agentsdir.formats.store.index import read_index
from agentsdir.formats.store.layout import Layout
from agentsdir.schemas import check

NAMES = ("fox", "dog", "xaaa", "xaaab", 'a "b"\\', "näme")
NAME = st.sampled_from(NAMES)
PICK = st.integers(0, 30)


def outcome(layout: Layout, reference: str) -> str:
    """Return the id of the agent that a reference names, or the error."""
    try:
        return find_agent(layout, reference).id
    except AgentsdirError as error:
        return f"{error.kind}: {error.message}"


def answers(layout: Layout) -> dict[str, Any]:
    """Return what is found by every reference that may mean an agent, and below every agent."""
    words = (*NAMES, *(name[:4] for name in NAMES), "unused", "gone-1")
    found: dict[str, Any] = {word: outcome(layout, word) for word in words}
    for agent_id in layout.agent_ids():
        found[f"below {agent_id}"] = [one.paths.id for one in descendants(layout, agent_id)]
        for length in (4, 6, 23, 24):
            found[agent_id[:length]] = outcome(layout, agent_id[:length])
        document = current_document(layout.agent(agent_id))
        if document is not None:
            session = document["sessionId"]
            for length in (4, 9, 31, 32):
                found[session[:length]] = outcome(layout, session[:length])
    return found


def searched(layout: Layout) -> dict[str, Any]:
    """Return the same from a search of all agents."""
    away = layout.root / "away"
    try:
        layout.index.rename(away)
    except FileNotFoundError:
        return answers(layout)
    try:
        return answers(layout)
    finally:
        away.rename(layout.index)


class Directory(DirectoryMachine):
    """An agents directory in which agents come, go and change, and its index is played with."""

    def __init__(self) -> None:
        super().__init__()
        self.older: list[bytes] = []

    def pick(self, at: int, *, archived: bool = False) -> Any:
        """Return the paths of some agent, or None where there is none."""
        found = list(self.layout.agent_ids(archived=archived))
        return self.layout.agent(found[at % len(found)], archived=archived) if found else None

    def attempt(self, act: Any, *given: Any) -> None:
        """Do something that may be refused."""
        with suppress(AgentsdirError):
            act(self.services, *given)

    @rule(name=st.one_of(NAME, st.just("")))
    def make(self, name: str) -> None:
        """Make an agent."""
        self.attempt(create_agent, NewAgent(login="me", cwd="/", name=name))

    @rule(at=PICK, name=NAME)
    def spawn(self, at: int, name: str) -> None:
        """Make a subagent."""
        if (paths := self.pick(at)) is not None:
            wanted = SpawnRequest([{"type": "text", "text": "hi"}], name=name)
            with suppress(AgentsdirError):
                create_child(self.services, paths, wanted, turn_id=None, sync=False)

    @rule(at=PICK, name=NAME)
    def rename(self, at: int, name: str) -> None:
        """Give an agent another name."""
        if (paths := self.pick(at)) is not None:
            self.attempt(rename, paths, name)

    @rule(at=PICK)
    def close(self, at: int) -> None:
        """Close an agent and those below it."""
        if (paths := self.pick(at)) is not None:
            self.attempt(close, paths)

    @rule(at=PICK)
    def remove(self, at: int) -> None:
        """Remove an agent."""
        if (paths := self.pick(at)) is not None:
            self.attempt(remove_agent, paths)

    @rule(at=PICK, back=st.booleans())
    def move(self, at: int, back: bool) -> None:
        """Archive an agent, or bring one back."""
        if (paths := self.pick(at, archived=back)) is not None:
            self.attempt(unarchive_agent if back else archive_agent, paths)

    @rule(at=PICK)
    def copy_by_hand(self, at: int) -> None:
        """Put a copy of an agent beside it, with its name and its session."""
        if (paths := self.pick(at)) is not None:
            shutil.copytree(paths.folder, paths.folder.with_name(self.agent()))

    @rule(at=PICK)
    def break_and_mend(self, at: int) -> None:
        """Have an agent that cannot be read when the index is made, and can be later."""
        if (paths := self.pick(at)) is not None:
            away = self.layout.root / "log"
            paths.log.rename(away)
            self.layout.index.unlink(missing_ok=True)
            create_agent(self.services, NewAgent(login="me", cwd="/"))
            assert answers(self.layout) == searched(self.layout)
            away.rename(paths.log)

    @rule(data=st.binary(max_size=60), keep=st.integers(0, 3000))
    def damage(self, data: bytes, keep: int) -> None:
        """Cut the index off anywhere, and append anything."""
        if self.layout.index.is_file():
            self.layout.index.write_bytes(self.layout.index.read_bytes()[:keep] + data)

    @rule(at=PICK)
    def take_an_older_one(self, at: int) -> None:
        """Put back an index that was right once."""
        if self.older:
            self.layout.index.write_bytes(self.older[at % len(self.older)])

    @rule()
    def lose(self) -> None:
        """Lose the index."""
        self.layout.index.unlink(missing_ok=True)

    @invariant()
    def the_same_is_found(self) -> None:
        """By the index, and by a look at all."""
        if self.layout.agents.is_dir():
            assert answers(self.layout) == searched(self.layout)
            if read_index(self.layout) is not None:
                self.older.append(self.layout.index.read_bytes())


Directory.TestCase.settings = settings(max_examples=25, stateful_step_count=20)
test_the_same_agents_are_found_whatever_happens_to_the_index = Directory.TestCase


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Count the agents that are looked at."""
    found: list[str] = []
    look = lookup.listed_agent
    everyone = lookup.each_agent

    def each(*given: Any, **named: Any) -> Any:
        for one in everyone(*given, **named):
            found.append(one.paths.id)
            yield one

    monkeypatch.setattr(lookup, "listed_agent", lambda paths: found.append(paths.id) or look(paths))
    monkeypatch.setattr(lookup, "each_agent", each)
    return found


def test_no_other_agent_is_looked_at_for_a_name_an_id_or_children(
    stage: Any, looked_at: list[str]
) -> None:
    """Nor after a rename, a close, an archiving and a removal."""
    others = [stage.new(name=f"n{number}") for number in range(6)]
    wanted = stage.new(name="fox")
    child = stage.new(kind="subagent", parent=wanted.id, name="kid")
    rename(stage.services, wanted, "wolf")
    close(stage.services, others[0])
    archive_agent(stage.services, others[1])
    remove_agent(stage.services, others[2])
    layout = Layout(stage.root)
    session = stage.state(wanted).session.id
    for reference in ("wolf", session, session[:8]):
        looked_at.clear()
        found = find_agent(layout, reference)
        assert (found.id, set(looked_at)) == (wanted.id, {wanted.id}), reference
    looked_at.clear()
    assert [one.paths.id for one in descendants(layout, wanted.id)] == [child.id]
    assert descendants(layout, child.id) == []
    assert looked_at == [child.id]


def test_what_is_not_in_the_index_is_searched_for(stage: Any, looked_at: list[str]) -> None:
    """Before "no such agent" is said, and before a second agent gets a name."""
    made = [stage.new(name=name) for name in ("fox", "dog")]
    layout = Layout(stage.root)
    looked_at.clear()
    assert outcome(layout, "unused").startswith("no-such-agent")
    assert looked_at == sorted(one.id for one in made)

    # A hostile index that hides an agent: no second one gets its name.
    lines = layout.index.read_bytes().splitlines(keepends=True)
    kept = b"".join(line for line in lines[:-1] if made[0].id.encode() not in line)
    forge(layout, kept)
    assert find_agent(layout, "fox").id == made[0].id
    with pytest.raises(AgentsdirError, match="already is"):
        stage.new(name="fox")


def test_an_agent_that_a_hostile_index_hides_is_not_taken_for_one_of_a_longer_name(
    stage: Any,
) -> None:
    """What only begins with the word is taken after a search of all agents."""
    alpha, alphabet = stage.new(name="alpha"), stage.new(name="alphabet")
    layout = Layout(stage.root)
    forge(layout, layout.index.read_bytes().replace(b'"name":"alpha"', b'"name":null'))

    assert find_agent(layout, "alpha").id == alpha.id
    assert find_agent(layout, "alphab").id == alphabet.id


HOSTILE = {
    "an id that is a path": {"id": "../../etc", "session": None, "parent": None, "name": "fox"},
    "an id that is no text": {"id": 7, "session": None, "parent": None, "name": "fox"},
    "no id": {"name": "fox"},
    "an agent that is not there": {"id": "q" * 24, "session": None, "parent": None, "name": "fox"},
    "a huge line": {"id": "q" * 24, "name": "x" * 300_000, "session": None},
    "a list": [1, 2],
}


@pytest.mark.parametrize("line", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_index_that_counts_costs_a_look(stage: Any, line: Any) -> None:
    """Lines that name what is none, or another one's agent, lead nowhere."""
    fox, dog = stage.new(name="fox"), stage.new(name="dog")
    layout = Layout(stage.root)
    truth = searched(layout)
    lies = {"id": dog.id, "session": stage.state(fox).session.id, "parent": None, "name": "fox"}
    forge(layout, layout.index.read_bytes(), line, lies)
    assert answers(layout) == truth

    # Where it hides one of several agents, the others are what is found; they do match.
    forge(layout, b"", line, lies)
    found = answers(layout)
    assert find_agent(layout, "fox").id == fox.id
    assert {key for key in truth if found[key] != truth[key]} == {
        key for key in truth if str(truth[key]).startswith("ambiguous: ") and found[key] == dog.id
    }


def test_validate_names_the_agents_that_an_index_does_not_say_as_they_are(stage: Any) -> None:
    """Not where the index does not count, nor an agent that cannot be read, nor older lines."""
    fox, dog, torn = (stage.new(name=name) for name in ("fox", "dog", "torn"))
    layout = Layout(stage.root)
    rename(stage.services, dog, "wolf")
    assert list(validate([stage.root])) == []

    stage.append(fox, "agent.renamed", {"name": "vixen"})
    torn.log.unlink()
    found = [str(one) for one in validate([stage.root]) if one.file.endswith("index.jsonl")]
    assert found == [f"{layout.index}: derived-stale: no line says who these agents are: {fox.id}"]

    with layout.index.open("ab") as stream:
        stream.write(b"{}\n")
    assert not [one for one in validate([stage.root]) if one.file.endswith("index.jsonl")]


def forge(layout: Layout, before: bytes, *lines: Any) -> None:
    """Write an index with these lines that counts."""
    data = before + b"".join(orjson.dumps(one) + b"\n" for one in lines)
    trailer = orjson.loads(layout.index.read_bytes().splitlines()[-1])
    trailer |= {"made": len(data), "digest": short_hash(data)}
    layout.index.write_bytes(data + orjson.dumps(trailer) + b"\n")
    assert read_index(layout) is not None


@pytest.mark.parametrize("what", ["FIFO", "folder", "link", "hard link"])
def test_an_oddity_in_place_of_the_index_is_not_followed(
    stage: Any, tmp_path: Path, what: str
) -> None:
    """Nothing hangs, nothing is refused, and nothing is written elsewhere."""
    fox = stage.new(name="fox")
    layout = Layout(stage.root)
    elsewhere = tmp_path / "elsewhere"
    layout.index.rename(elsewhere)
    before = elsewhere.read_bytes()
    if what == "FIFO":
        os.mkfifo(layout.index)
    elif what == "folder":
        layout.index.mkdir()
    elif what == "link":
        layout.index.symlink_to(elsewhere)
    else:
        layout.index.hardlink_to(elsewhere)

    assert find_agent(layout, "fox").id == fox.id
    rename(stage.services, fox, "wolf")
    stage.new(name="dog")
    assert answers(layout) == searched(layout)
    assert elsewhere.read_bytes() == before


def test_an_index_of_another_root_does_not_count(stage: Any, tmp_path: Path) -> None:
    """A copy of a root has it, with the same agents and times."""
    stage.new(name="fox")
    assert read_index(Layout(stage.root)) is not None
    shutil.copytree(stage.root, tmp_path / "copy", symlinks=True)
    assert read_index(Layout(tmp_path / "copy")) is None


def test_a_copied_root_has_an_index_again_after_a_restoration(stage: Any, tmp_path: Path) -> None:
    """Of all agents; a dry run makes none."""
    stage.new(name="fox")
    stage.root = Path(shutil.copytree(stage.root, tmp_path / "copy"))
    layout = Layout(stage.root)
    assert sweep_root(stage.services, dry_run=True) == []
    assert read_index(layout) is None
    assert sweep_root(stage.services) == []
    assert read_index(layout) is not None
    assert answers(layout) == searched(layout)


def test_a_rename_that_dies_leaves_no_name_behind(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index has the new name before the log does: between the two, it names it in vain."""
    from agentsdir.formats.store.agent import AgentWriter

    fox, old = stage.new(name="fox"), stage.new(name="wolf")
    close(stage.services, old)
    layout = Layout(stage.root)

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(AgentWriter, "append", dies)
        with pytest.raises(KeyboardInterrupt):
            rename(stage.services, fox, "wolf")
    assert b'"name":"wolf"' in layout.index.read_bytes().splitlines()[-2]
    assert answers(layout) == searched(layout)
    rename(stage.services, fox, "wolf")
    assert find_agent(layout, "wolf").id == fox.id


@pytest.mark.parametrize("durability", Durability.ALL)
def test_a_new_name_is_durable_in_the_index_before_it_is_in_the_log(
    stage: Any, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where anything is: else a power cut could leave the log's name without the index's."""
    fox = stage.new(name="fox")
    layout, synced, sync = Layout(stage.root), [], os.fsync

    def seen(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", seen)
    rename(stage.services._replace(disk=Disk(durability)), fox, "wolf")
    expected = [] if durability == Durability.NEVER else ["index.jsonl", "events.jsonl"]
    assert synced == expected
    assert find_agent(layout, "wolf").id == fox.id
    assert answers(layout) == searched(layout)


def test_a_disk_that_takes_no_more_costs_the_index_and_nothing_else(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is removed, since it would lack a name that counts."""
    fox = stage.new(name="fox")
    layout = Layout(stage.root)
    write = os.write

    def full(descriptor: int, data: bytes) -> int:
        if Path(f"/proc/self/fd/{descriptor}").readlink() == layout.index:
            return write(descriptor, data[:10])
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    rename(stage.services, fox, "wolf")
    monkeypatch.undo()
    assert find_agent(layout, "wolf").id == fox.id
    assert answers(layout) == searched(layout)


def test_an_index_is_made_anew_when_it_has_outgrown_its_agents(stage: Any) -> None:
    """Its length follows the number of agents, not of changes."""
    fox = stage.new(name="fox")
    layout = Layout(stage.root)
    longest = 0
    for number in range(500):
        rename(stage.services, fox, f"fox-{number}")
        longest = max(longest, layout.index.stat().st_size)
    assert longest < 70_000
    assert layout.index.stat().st_size < longest
    assert find_agent(layout, "fox-499").id == fox.id


def test_an_index_that_is_too_large_is_left_alone(stage: Any) -> None:
    """It is neither read nor made anew with each change, which would take long each time."""
    fox = stage.new(name="fox")
    layout = Layout(stage.root)
    layout.index.write_bytes(b"")
    os.truncate(layout.index, (64 << 20) + 1)
    rename(stage.services, fox, "wolf")
    stage.new(name="dog")
    assert layout.index.stat().st_size == (64 << 20) + 1
    assert find_agent(layout, "wolf").id == fox.id


def test_each_line_is_what_its_schema_says(stage: Any) -> None:
    """Those of agents, and the trailer."""
    fox = stage.new(name="fox")
    stage.new(kind="subagent", parent=fox.id, name="kid")
    lines = [orjson.loads(line) for line in Layout(stage.root).index.read_bytes().splitlines()]
    assert [check("index-line", line) for line in lines] == [[]] * len(lines)
    assert [line["name"] for line in lines if "id" in line] == ["fox", "kid"]
