"""Turns of a client that writes its history anew: they are read on, and logged as by a whole."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from rows_clients import RowsClient, begins, hold_beside, rows_client

from agentsdir.formats.store.checkpoint import read_checkpoint
from agentsdir.formats.store.stamps import read_sealed, write_sealed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LONG = "words " * 12_000
CONTEXT = "<session_context>\n- **Workspace Directories:**\n  - /w\n</session_context>"


class Gemini(RowsClient):
    """A client that writes Gemini's rows, and restates its history as each turn begins."""

    def __init__(self, stage: Any, folder: Path) -> None:
        super().__init__(stage, folder)
        self._made = 0
        self.history: list[dict[str, Any]] = []

    def message(self, kind: str, content: Any, **more: Any) -> dict[str, Any]:
        """Return the next message, which the following resumes restate."""
        self._made += 1
        value = {"id": f"m{self._made}", "timestamp": f"2026-01-02T03:04:05.{self._made:03d}Z"}
        value |= {"type": kind, "content": content}
        if kind == "gemini":
            value |= {"model": "m", "tokens": {"input": self._made, "output": 2}}
        value |= more
        self.history.append(value)
        return value

    def prompt(self, text: str) -> dict[str, Any]:
        """Return a prompt."""
        return self.message("user", [{"text": text}])

    def called(self, output: str, name: str = "", **more: Any) -> list[dict[str, Any]]:
        """Return the rows of a call: before and after it ran, and its result once more."""
        name = name or f"t{self._made}"
        response = {"id": name, "name": "look", "response": {"output": output}}
        call = {"id": name, "name": "look", "args": {"a": 1}, "status": "success", **more}
        call["result"] = [{"functionResponse": response}]
        whole = self.message("gemini", "", toolCalls=[call])
        begun = {key: value for key, value in whole.items() if key != "toolCalls"}
        return [begun, whole, self.message("user", call["result"])]

    def header(self, name: str = "", **more: Any) -> dict[str, Any]:
        """Return the first row of a file."""
        said = {"sessionId": name or self.native_id, "projectHash": "h", "kind": "main"}
        return {**said, "startTime": "2026-01-02T03:04:05.000Z", **more}

    def restated(self, how: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
        """Return the row of a resume."""
        context = {"id": "c", "type": "user", "content": [{"text": CONTEXT}]}
        return {"$set": {"messages": [context, *map(how, self.history)]}}

    def resume(self) -> list[dict[str, Any]]:
        """Return the rows with which the client begins a turn."""
        return [self.header(), self.restated(parts_of)] if self.history else [self.header()]

    def begin(self) -> None:
        """Run the turn that makes a transcript so long that there is a checkpoint of it."""
        rows = [self.prompt("go"), *(self.message("gemini", f"{n} {LONG}") for n in range(16))]
        self.turn(self.header(), *rows)


def parts_of(value: dict[str, Any]) -> dict[str, Any]:
    """Return a message as a resume restates it."""
    if value["type"] != "gemini":
        return value
    calls = [
        {"functionCall": {name: call[name] for name in ("id", "name", "args")}}
        for call in value.get("toolCalls", ())
    ]
    said = [{"text": value["content"]}] if value["content"] else []
    kept = {name: value[name] for name in ("id", "timestamp", "type")}
    return {**kept, "content": [*said, *calls]}


@pytest.fixture
def client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: Any
) -> Iterator[Callable[[str], Gemini]]:
    """Return a function that makes a client, in a folder of that name; their ids are the same."""
    with rows_client(tmp_path / "site", monkeypatch, "gemini"):
        yield lambda name: Gemini(stage, tmp_path / name)


def one_turn(it: Gemini) -> None:
    """Run an ordinary turn: the history anew, a prompt, a call and an answer."""
    rows = [*it.resume(), it.prompt("and?"), *it.called("done")]
    it.turn(*rows, it.message("gemini", "so"))


def short_turn(it: Gemini) -> None:
    """Run a turn that restates nothing."""
    it.turn(it.prompt("more"), it.message("gemini", "there"))


def long_turn(it: Gemini) -> None:
    """Run a turn that is so long that there is a new checkpoint."""
    texts = [it.message("gemini", f"{it._made} {n} {LONG}") for n in range(16)]
    it.turn(it.prompt("at length"), *texts)


def rewind(it: Gemini) -> None:
    """Run a turn that goes back to the first prompt."""
    first = it.history[0]["id"]
    it.history.clear()
    it.turn({"$rewindTo": first}, it.prompt("otherwise"), it.message("gemini", "yes"))


def compress(it: Gemini) -> None:
    """Run a turn in which a summary takes the place of what was said."""
    snapshot = "<state_snapshot>so far</state_snapshot>"
    kept = it.history[-2:]
    it.history.clear()
    it.prompt(snapshot)
    it.message("gemini", "Got it. Thanks for the additional context!")
    it.history += [{**value, "id": f"n-{value['id']}"} for value in kept]
    it.turn(it.restated(parts_of), it.prompt("go on"), it.message("gemini", "going on"))


def other_words(it: Gemini) -> None:
    """Run a turn whose resume restates two messages with other words, one under a new id."""
    it.history[0] = {**it.history[0], "content": [{"text": "other words"}]}
    it.history[1] = {**it.history[1], "id": "changed", "content": "and others here"}
    one_turn(it)


def richer_result(it: Gemini) -> None:
    """Run a turn in which an old call is written with more of its result."""
    old = next(value for value in it.history if "toolCalls" in value)
    (call,) = old["toolCalls"]
    response = {**call["result"][0]["functionResponse"], "response": {"output": "done, and more"}}
    more = {**old, "toolCalls": [{**call, "result": [{"functionResponse": response}]}]}
    it.turn(more, it.prompt("well?"), it.message("gemini", "well"))


def same_call_id(it: Gemini) -> None:
    """Run a turn with a call whose id an old one had."""
    it.turn(it.prompt("again"), *it.called("once more", "t-same"), it.message("gemini", "it did"))


def late_result(it: Gemini) -> None:
    """Run a turn with a result that no call asked for, and one with its call."""
    result = {"functionResponse": {"id": "late", "name": "look", "response": {"output": "x"}}}
    it.turn(it.message("user", [result]), it.message("gemini", "what?"))
    it.turn(*it.called("early", "late"), it.message("gemini", "ah"))


def subagent(it: Gemini, name: str = "a1") -> None:
    """Run a turn with a subagent that has a file of its own."""
    asked = {"id": f"{name}-u", "timestamp": "2026-01-02T03:04:06.000Z", "type": "user"}
    said = {"id": f"{name}-g", "timestamp": "2026-01-02T03:04:07.000Z", "type": "gemini"}
    child = [
        it.header(name, kind="subagent"), {**asked, "content": "go"}, {**said, "content": "done"}
    ]  # fmt: skip
    call = it.called("found", f"c{name}", agentId=name)
    rows = [it.prompt("send one"), *call, it.message("gemini", "it did")]
    it.turn(*it.resume(), *rows, files={f"ID/{name}.jsonl": child})


def subagent_goes_on(it: Gemini) -> None:
    """Run a turn in which the first subagent writes on."""
    more = {"id": "a1-g2", "timestamp": "2026-01-02T03:04:08.000Z", "type": "gemini",
            "content": "and more"}  # fmt: skip
    it.turn(it.prompt("more"), files={"ID/a1.jsonl": [more]})


def streams_an_old_block(it: Gemini) -> None:
    """Run a turn whose stream has a block of the first turn, with other words."""
    block = {
        "type": "user_message",
        "id": "m1:p",
        "conversationId": "main",
        "sessionId": "s",
        "timestamp": None,
        "content": "other words",
        "source": None,
    }
    it.turn(it.prompt("again"), stream=[block])


def in_the_client(it: Gemini) -> None:
    """Let a person write in the client, and run a turn."""
    it.append(*it.resume(), it.prompt("mine"), it.message("gemini", "yours"))
    one_turn(it)


TURNS = [
    one_turn,
    short_turn,
    subagent,
    one_turn,
    long_turn,
    one_turn,
    other_words,
    richer_result,
    same_call_id,
    same_call_id,
    late_result,
    subagent_goes_on,
    lambda it: subagent(it, "b2"),
    streams_an_old_block,
    in_the_client,
    compress,
    one_turn,
    long_turn,
    rewind,
    one_turn,
]


def test_a_turn_that_restates_the_history_is_read_from_the_checkpoint_on(
    client: Callable[[str], Gemini],
) -> None:
    """Though the history is over 1 MiB, nothing before the checkpoint is read."""
    it = client("a")
    it.begin()
    checkpoint = read_checkpoint(it.paths)
    assert checkpoint is not None
    assert checkpoint.size == (it.store / f"{it.native_id}.jsonl").stat().st_size
    short_turn(it)
    one_turn(it)
    assert begins() == [None, checkpoint.size, checkpoint.size]
    newer = read_checkpoint(it.paths)
    assert newer is not None
    one_turn(it)
    assert begins() == [newer.size]
    assert newer.size > checkpoint.size + 1_000_000


def test_the_log_is_what_whole_readings_give(client: Callable[[str], Gemini]) -> None:
    """Turns of all kinds, beside an agent that cannot have a checkpoint."""
    one, other = client("a"), client("b")
    other.paths.checkpoint.mkdir()
    for it in (one, other):
        it.begin()
    begins()
    assert hold_beside(one, other, TURNS) >= 14  # else nothing was compared


def test_a_session_gets_where_the_last_reading_ended_and_what_it_had(
    client: Callable[[str], Gemini],
) -> None:
    """And which of its own files are the stored ones: none of both is read again."""
    it = client("a")
    it.begin()
    session = sys.modules["plugin_rows"].Session
    checkpoint = read_checkpoint(it.paths)
    assert checkpoint is not None
    assert (session.earlier, session.compared) == ([None], [frozenset()])
    short_turn(it)
    earlier = session.earlier[-1]
    assert earlier.end == (checkpoint.size, checkpoint.state)
    assert [earlier.has(("main", key)) for key in ("m1:p", "m17:x", "m1:x", "m18:p")] == [
        True, True, False, False
    ]  # fmt: skip
    name = f"{it.native_id}.jsonl"
    assert session.compared[-1] == {(name, it.store / name)}


@pytest.mark.parametrize("way", ["none", "of another reader", "of other bytes", "a file is gone"])
def test_a_session_does_not_get_a_reading_that_does_not_fit(
    client: Callable[[str], Gemini], way: str
) -> None:
    """It follows its file from the beginning then."""
    it = client("a")
    subagent(it)
    it.begin()
    document = read_sealed(it.paths.checkpoint)
    name = f"{it.native_id}.jsonl"
    if way == "none":
        it.paths.checkpoint.unlink()
    elif way == "of another reader":
        write_sealed(it.paths.checkpoint, {**document, "reader": "gemini"})
    elif way == "of other bytes":
        write_sealed(it.paths.checkpoint, {**document, "sha256": {name: "0" * 64}})
    else:
        sha256 = {**document["sha256"], "b2.jsonl": "0" * 64}
        write_sealed(it.paths.checkpoint, {**document, "sha256": sha256})
    short_turn(it)
    assert sys.modules["plugin_rows"].Session.earlier[-1] is None


def test_states_that_were_changed_at_any_place_are_no_error(
    client: Callable[[str], Gemini],
) -> None:
    """Under a digest that fits, as only a program writes one: a turn ends as any other."""
    it = client("a")
    it.begin()
    subagent(it)
    document = read_sealed(it.paths.checkpoint)
    state = document["state"]
    places: list[tuple[dict[str, Any], str]] = [
        (part, name) for part in (state, state["fold"], state["fold"]["index"]) for name in part
    ]
    for part, name in places:
        kept = part[name]
        for value in ("AAAA", [[1]], 7):
            part[name] = value
            write_sealed(it.paths.checkpoint, document)
            short_turn(it)
            assert it.stage.events(it.paths)[-2:] == ["turn.complete", "message.delivered"]
        part[name] = kept
