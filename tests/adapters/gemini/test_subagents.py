"""Subagents have threads of their own, tied to their calls as surely as the era allows."""

from __future__ import annotations

import pytest
from gemini_reading import FIXTURES, read_bytes, read_fixture


@pytest.mark.feature("B-04")
@pytest.mark.parametrize(
    ("name", "child", "link"),
    [
        ("subagent-0.38", "cr2ved", ("directory+time", "likely")),
        ("subagent-0.39", "zabrnh", ("agentId", "exact")),
        ("subagent-0.61", "68eeb1f4-88a2-431d-9923-e0d54e85e137", ("agentId", "exact")),
    ],
)
def test_a_child_is_linked_as_surely_as_its_era_allows(
    name: str, child: str, link: tuple[str, str]
):
    """The call is one subagent block, and the thread opens and closes with a system block."""
    reading = read_fixture(name)
    (sink,) = reading.sinks
    blocks = reading.blocks()
    (call,) = [b for b in blocks if b["type"] == "subagent"]
    assert call["subagentId"] == child
    assert call["link"] == {"method": link[0], "confidence": link[1]}
    assert not [b for b in blocks if b["conversationId"] == "main" and b["type"] == "tool_use"]
    thread = [b for b in blocks if b["conversationId"] == child]
    assert (thread[0]["id"], thread[-1]["id"]) == (f"{child}:start", f"{child}:end")
    assert sink.conversations[child].parent == "main"
    assert tuple(sink.conversations[child].link or ()) == link


def test_children_without_a_key_are_guessed_by_time_or_left_alone():
    """In the flat era children bear their parent's id; one that fits no call is an orphan."""
    reading = read_fixture("subagent-flat")
    (sink,) = reading.sinks
    links = [tuple(thread.link or ()) for thread in sink.conversations.values()]
    assert sorted(links) == [(), ("none", "none"), ("time", "guess")]
    assert reading.findings == ["orphan-subagent"]


def test_a_lost_child_still_has_its_call():
    """In 0.35 a child may overwrite its own file; the call knows no thread then."""
    blocks = read_fixture("era-0.35-lost-child.json").blocks()
    (call,) = [b for b in blocks if b["type"] == "subagent"]
    assert (call["subagentId"], call["name"], call["input"]) == (
        None, "generalist", "Inspect hello.txt",
    )  # fmt: skip


def test_an_agent_that_does_not_exist_is_a_failed_tool():
    """Such a call started nothing, so there is no subagent to refer to."""
    call = (
        b'{"id":"g","type":"gemini","content":"","toolCalls":[{"id":"c","name":"invoke_agent",'
        b'"args":{},"status":"error","result":[{"functionResponse":{"id":"c","name":"invoke_agent",'
        b'"response":{"error":"Tool \\"invoke_agent\\" not found. Did you mean"}}}]}]}\n'
    )
    header = b'{"sessionId":"s","projectHash":"h"}\n'
    assert [b["type"] for b in read_bytes(header + call).blocks()] == ["tool_use", "tool_result"]


@pytest.mark.parametrize("name", ["subagent-0.39", "subagent-0.61", "subagent-flat"])
def test_a_child_read_alone_gives_the_blocks_it_gives_beside_its_main(name: str):
    """But for the agent's name, which only the parent knows."""
    together = [b for b in read_fixture(name).blocks("all") if b["conversationId"] != "main"]
    alone = []
    for path in sorted((FIXTURES / name).rglob("*.json*")):
        blocks = read_bytes(path.read_bytes(), "-").blocks("all")
        alone += [b for b in blocks if b["conversationId"] != "main"]
    assert len(alone) == len(together)
    by_id = {block["id"]: block for block in together}
    for block in alone:
        other = by_id[block["id"]]
        for key in set(block) - {"source", "message"}:
            assert block[key] == other[key]
