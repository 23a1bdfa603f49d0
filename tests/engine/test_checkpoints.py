"""The end of a turn reads what its client wrote since the checkpoint, and logs what a whole would.

A checkpoint is derived: whatever is done to it, the log has the same bytes.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, Any

import pytest
from rows_clients import RowsClient, begins, hold_beside, rows_client

from agentsdir.adapters.protocol import NativeFile
from agentsdir.engine.bundle import export_bundle
from agentsdir.engine.sync import ChangedTranscripts, LoggedBlocks
from agentsdir.formats.source import Source
from agentsdir.formats.store.checkpoint import read_checkpoint
from agentsdir.formats.store.layout import Layout
from agentsdir.formats.store.stamps import read_sealed, write_sealed
from agentsdir.formats.store.transcripts import Synced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agentsdir.formats.store.layout import AgentPaths

LONG = "words " * 12_000


class Client(RowsClient):
    """A client that writes Claude's rows."""

    def __init__(self, stage: Any, folder: Path) -> None:
        super().__init__(stage, folder)
        self._last: str | None = None
        self._made = 0

    def row(self, kind: str, content: Any, **more: Any) -> dict[str, Any]:
        """Return the next row of the chain."""
        self._made += 1
        uuid = more.pop("uuid", f"{self._made:08d}-0000-4000-8000-000000000000")
        message = {"role": kind, "content": content}
        if kind == "assistant":
            message |= {"id": more.pop("id", f"msg_{uuid}"), "model": "m"}
            message["usage"] = {"input_tokens": self._made, "output_tokens": 2}
        made = {
            "parentUuid": self._last,
            "isSidechain": False,
            "type": kind,
            "uuid": uuid,
            "timestamp": f"2026-01-02T03:04:05.{self._made % 1000:03d}Z",
            "sessionId": "s",
            "version": "2.1.98",
            "message": message,
            **more,
        }
        self._last = uuid
        return made

    def said(self, text: str, **more: Any) -> dict[str, Any]:
        """Return an answer of the model."""
        return self.row("assistant", [{"type": "text", "text": text}], **more)

    def begin(self) -> None:
        """Run the turn that makes a transcript so long that there is a checkpoint of it."""
        rows = [self.row("user", "go"), *(self.said(LONG) for _ in range(16))]
        self.turn(*rows)


@pytest.fixture
def client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: Any
) -> Iterator[Callable[[str], Client]]:
    """Return a function that makes a client, in a folder of that name; their ids are the same."""
    with rows_client(tmp_path / "site", monkeypatch, "claude"):
        yield lambda name: Client(stage, tmp_path / name)


def size_of(paths: AgentPaths) -> int:
    """Return how many bytes the checkpoint is about."""
    checkpoint = read_checkpoint(paths)
    assert checkpoint is not None
    return checkpoint.size


def one_turn(it: Client) -> None:
    """Run an ordinary turn with a call and its result."""
    call = {"type": "tool_use", "id": f"t{it._made}", "name": "Bash", "input": {"a": 1}}
    rows = [it.row("user", "and?"), it.row("assistant", [call])]
    answer = {"type": "tool_result", "tool_use_id": call["id"], "content": "done"}
    it.turn(*rows, it.row("user", [answer]), it.said("so"))


def long_turn(it: Client) -> None:
    """Run a turn that is so long that there is a new checkpoint."""
    it.turn(it.row("user", "at length"), *(it.said(LONG) for _ in range(16)))


def rewind(it: Client) -> None:
    """Run a turn that goes back to the first prompt, and answers on the old branch as well."""
    last = it._last
    it.turn(
        it.row("user", "otherwise", parentUuid=None),
        it.said("late", parentUuid=last),
        it.said("otherwise"),
    )


def subagent(it: Client, name: str = "a1", prompt: str = "look") -> None:
    """Run a turn with a subagent that has a file of its own."""
    call = {"type": "tool_use", "id": f"c{name}", "name": "Task", "input": {"prompt": prompt}}
    rows = [it.row("user", "send one"), it.row("assistant", [call])]
    answer = {"type": "tool_result", "tool_use_id": call["id"], "content": "found"}
    done = it.row("user", [answer], toolUseResult={"agentId": name, "status": "completed"})
    last = it._last
    child = [
        it.row("user", prompt, isSidechain=True, agentId=name, parentUuid=None),
        it.said("I looked", isSidechain=True, agentId=name),
    ]
    it._last = last
    it.turn(*rows, done, it.said("it did"), files={f"ID/subagents/agent-{name}.jsonl": child})


def subagent_goes_on(it: Client) -> None:
    """Run a turn in which the first subagent writes on."""
    last = it._last
    child = it.said("and more", isSidechain=True, agentId="a1", parentUuid=None)
    it._last = last
    it.turn(it.row("user", "more"), files={"ID/subagents/agent-a1.jsonl": [child]})


def streams_an_old_block(it: Client) -> None:
    """Run a turn whose stream has a block of the first turn, with other words."""
    block = {
        "type": "user_message",
        "id": "00000001-0000-4000-8000-000000000000:0",
        "conversationId": "main",
        "sessionId": "s",
        "timestamp": None,
        "content": "other words",
        "source": None,
    }
    it.turn(it.row("user", "again"), stream=[block])


def in_the_client(it: Client) -> None:
    """Let a person write in the client, and run a turn."""
    it.append(it.row("user", "mine"), it.said("yours"))
    one_turn(it)


def goes_on_with_a_message(it: Client) -> None:
    """Run a turn whose first row is of the first message, which has other counts now."""
    it.turn(it.said("part two", id="msg_00000002-0000-4000-8000-000000000000"), it.said("so"))


def repeats_a_row(it: Client) -> None:
    """Run a turn that begins with a row that stands in the file already."""
    it.turn(
        it.row("user", "go", uuid="00000001-0000-4000-8000-000000000000", parentUuid=None),
        it.said("once"),
    )


TURNS = [
    one_turn,
    rewind,
    subagent,
    long_turn,
    one_turn,
    subagent_goes_on,
    lambda it: subagent(it, "b2", "look"),
    lambda it: subagent(it, "a0", "look"),
    streams_an_old_block,
    one_turn,
    in_the_client,
    goes_on_with_a_message,
    repeats_a_row,
    one_turn,
]


def without(paths: AgentPaths) -> None:
    """Remove the checkpoint."""
    paths.checkpoint.unlink(missing_ok=True)


def test_a_turn_reads_from_the_checkpoint_on(client: Callable[[str], Client]) -> None:
    """The first turn reads all and leaves one; the next ones begin there, until 1 MiB is more."""
    it = client("a")
    it.begin()
    size = size_of(it.paths)
    assert size == (it.store / f"{it.native_id}.jsonl").stat().st_size
    one_turn(it)
    one_turn(it)
    assert begins() == [None, size, size]
    assert size_of(it.paths) == size
    long_turn(it)
    one_turn(it)
    assert begins() == [size, size_of(it.paths)]
    assert size_of(it.paths) > 2 * size - 100_000


def test_the_log_is_what_whole_readings_give(client: Callable[[str], Client]) -> None:
    """Turns of all kinds, beside an agent that cannot have a checkpoint."""
    one, other = client("a"), client("b")
    other.paths.checkpoint.mkdir()
    for it in (one, other):
        it.begin()
    begins()
    assert hold_beside(one, other, TURNS) >= 8  # else nothing was compared


@pytest.mark.parametrize("play", [streams_an_old_block, in_the_client])
def test_where_older_blocks_are_compared_all_is_read(
    client: Callable[[str], Client], play: Callable[[Client], None]
) -> None:
    """A block of this turn that stands in an old row; and what a person did in the client."""
    it = client("a")
    it.begin()
    begins()
    play(it)
    assert begins()[0] is None


def test_rows_that_the_log_does_not_know_are_never_passed_over(
    client: Callable[[str], Client],
) -> None:
    """A checkpoint that is ahead of what the log knew of the transcript is not used."""
    it = client("a")
    it.begin()
    begins()
    name = f"{it.native_id}.jsonl"
    synced = it.stage.state(it.paths).transcripts
    entry = synced[name]
    native = NativeFile(name, "main", Source(name, path=it.store / name))
    for grown_from in (entry["size"], entry["size"] - 1):
        grown = Synced(name, "main", entry["size"], entry["sha256"], grown_from=grown_from)
        architecture = sys.modules["plugin_rows"].ARCHITECTURE
        found = ChangedTranscripts(it.paths, synced, architecture, [native], [grown])
        assert list(found.new_blocks(LoggedBlocks(), of_turn=True)) == []
    assert begins() == [entry["size"], None]


def _set(**values: Any) -> Callable[[AgentPaths, Client], None]:
    """Return what writes a checkpoint with other values, under a digest that fits."""

    def change(paths: AgentPaths, _other: Client) -> None:
        write_sealed(paths.checkpoint, {**read_sealed(paths.checkpoint), **values})

    return change


def _replace(make: Callable[[bytes], bytes]) -> Callable[[AgentPaths, Client], None]:
    def change(paths: AgentPaths, _other: Client) -> None:
        paths.checkpoint.write_bytes(make(paths.checkpoint.read_bytes()))

    return change


def _in_its_place(make: Callable[[Path], object]) -> Callable[[AgentPaths, Client], None]:
    def change(paths: AgentPaths, _other: Client) -> None:
        paths.checkpoint.unlink()
        make(paths.checkpoint)

    return change


def of_another_agent(paths: AgentPaths, other: Client) -> None:
    """Copy the checkpoint of an agent with another transcript of the same size."""
    shutil.copy(other.paths.checkpoint, paths.checkpoint)


WAYS: dict[str, Callable[[AgentPaths, Client], None]] = {
    "deleted": lambda paths, _: without(paths),
    "empty": _replace(lambda _: b""),
    "half written": _replace(lambda data: data[: len(data) // 2]),
    "one byte changed": _replace(lambda data: data.replace(b'"size":1', b'"size":2', 1)),
    "of another agent": of_another_agent,
    "of another program": _set(madeBy="0.0.9 little"),
    "of another reader": _set(reader="claude"),
    "of another file": _set(path="other.jsonl"),
    "ahead of the log": _set(size=10**9),
    "of less": _set(size=100),
    "a negative size": _set(size=-5),
    "a digest that is none": _set(sha256={}),
    "no state": _set(state={}),
    "a state of another kind": _set(state=[1]),
    "keys that are none": _set(keys="x"),
    "a list": _replace(lambda _: b"[1]\n"),
    "a folder": _in_its_place(lambda path: path.mkdir()),
    "a FIFO": _in_its_place(os.mkfifo),
    "a link": _in_its_place(lambda path: path.symlink_to("/etc/passwd")),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_checkpoint_that_does_not_fit_costs_a_whole_reading_and_nothing_else(
    client: Callable[[str], Client], way: str
) -> None:
    """The log has the same bytes as without one."""
    one, other = client("a"), client("b")
    for it, word in ((one, "go"), (other, "no")):
        rows = [it.row("user", word), *(it.said(LONG) for _ in range(16))]
        it.turn(*rows)
    WAYS[way](one.paths, other)
    begins()
    one_turn(one)
    one_turn(one)
    assert None in begins()[:2]  # a state is tried before it is given up
    reference = client("c")
    reference.turn(reference.row("user", "go"), *(reference.said(LONG) for _ in range(16)))
    for _ in range(2):
        without(reference.paths)
        one_turn(reference)
    assert one.paths.log.read_bytes() == reference.paths.log.read_bytes()


def test_states_that_were_changed_at_any_place_are_no_error(
    client: Callable[[str], Client],
) -> None:
    """Under a digest that fits, as only a program writes one: a turn ends as any other."""
    it = client("a")
    it.begin()
    subagent(it)
    without(it.paths)
    one_turn(it)
    document = read_sealed(it.paths.checkpoint)
    state = document["state"]
    places = [(part, name) for part in ("main", "calls", "subagents") for name in state[part]]
    for part, name in places:
        for value in ("AAAA", [[1]]):
            changed = {**state, part: {**state[part], name: value}}
            write_sealed(it.paths.checkpoint, {**document, "state": changed})
            one_turn(it)
            assert it.stage.events(it.paths)[-2:] == ["turn.complete", "message.delivered"]


def test_a_checkpoint_goes_with_no_bundle(client: Callable[[str], Client]) -> None:
    """As stamps, it is of one folder. Only its owner can read it."""
    it = client("a")
    it.begin()
    assert it.paths.checkpoint.stat().st_mode & 0o777 == 0o600
    names = [
        path.rpartition("/")[2] for path in export_bundle(Layout(it.stage.root), it.paths).files
    ]
    assert "events.jsonl" in names
    assert "checkpoint.json" not in names
