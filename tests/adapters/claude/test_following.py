"""What a follower emits for a growing session of Claude Code."""

from __future__ import annotations

import pytest
from claude_client import Claude
from claude_support import call, lines, result, said, user
from clients import ID
from watching import Watching, same

TALK = [user("u1", None, "hi"), said("a1", "u1", "yes")]
MORE = [user("u2", "a1", "more"), said("a2", "u2", "done")]
CHILD = {"isSidechain": True, "agentId": "abc1", "sessionId": ID}
ASKED = {**user("c1", None, "look"), **CHILD}


@pytest.fixture
def watched(client: Claude) -> Watching:
    """Return a follower of a session that is there: a prompt and its answer, both told."""
    watched = client.watch(client.stand(lines(*TALK)))
    watched.poll()
    return watched


def test_a_row_that_is_taken_back_leaves_a_superseded_block_and_nothing_is_repeated(
    client: Claude, watched: Watching
) -> None:
    """As the client does with the answer of a stream that broke: it writes the end anew."""
    client.stand(lines(TALK[0], *MORE))
    events = watched.poll()
    told = [(e["type"], e["blockId"], sorted(e.get("updates", ()))) for e in events]
    assert told == [
        ("block_complete", "u2:0", []),
        ("block_complete", "a2:0", []),
        ("block_update", "a1:0", ["superseded"]),
    ]
    assert watched.texts() == ["hi", "more", "done"]


def test_rows_that_move_get_an_update_of_their_source(client: Claude, watched: Watching) -> None:
    """A row before them went: their `source` changes, and nothing else."""
    client.stand(lines(*TALK, *MORE))
    watched.poll()
    client.stand(lines(TALK[0], *MORE))
    moved = [e for e in watched.poll() if "source" in e.get("updates", ())]
    assert [event["blockId"] for event in moved] == ["u2:0", "a2:0"]
    same(watched.end(), client.parsed(watched.main))


@pytest.mark.parametrize("place", [f"{ID}/subagents/", f"{ID}/subagents/workflows/r1/", ""])
def test_the_result_of_its_call_ends_a_subagent(
    client: Claude, watched: Watching, place: str
) -> None:
    """In every layout."""
    rows = [*TALK, said("a3", "a1", call("t1", "Agent", prompt="look"))]
    client.stand(lines(*rows))
    client.stand(lines(ASKED, {**said("c2", "c1", "seen"), **CHILD}), f"{place}agent-abc1.jsonl")
    watched.poll()
    returned = user("u9", "a3", [result("t1")], toolUseResult={"agentId": "abc1"})
    client.stand(lines(*rows, returned))
    watched.poll()
    assert watched.reducer.blocks("abc1")[-1]["content"] == "seen"
    (block,) = [one for one in watched.reducer.blocks() if one["type"] == "subagent"]
    assert (block["status"], block["subagentId"]) == ("success", "abc1")
    same(watched.end(), client.parsed(watched.main))


def test_a_sidecar_that_comes_late_names_its_subagent(client: Claude, watched: Watching) -> None:
    """The client writes it beside the transcript, and changes it when the subagent is done."""
    child = client.stand(lines(ASKED), f"{ID}/subagents/agent-abc1.jsonl")
    watched.poll()
    child.with_suffix(".meta.json").write_text('{"agentType":"scout"}')
    (event,) = watched.poll()
    assert event["updates"]["message"] == "Subagent scout started"
