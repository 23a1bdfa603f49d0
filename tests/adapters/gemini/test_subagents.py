"""Subagents have threads of their own, tied to their calls as surely as the era allows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gemini_reading import FIXTURES, Reading, read_bytes, read_fixture

from agentsdir.formats.source import Source


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
    assert (thread[0]["type"], thread[-1]["type"]) == ("system", "system")
    assert len(thread) > 2
    assert call["status"] == "success"
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


def _time(second: int) -> str:
    return f"2026-01-01T00:00:{second:02}.000Z"


def _rows(*rows: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _main(*calls: dict[str, Any]) -> Source:
    header = {"sessionId": "aaaaaaaa-1", "projectHash": "h", "kind": "main"}
    answer = {"id": "g", "type": "gemini", "timestamp": _time(1), "content": "", "toolCalls": calls}
    return Source("chats/session-1-aaaaaaaa.jsonl", data=_rows(header, answer))


def _call(name: str, ended: int, **fields: Any) -> dict[str, Any]:
    args = {"agent_name": "generalist", "prompt": "look"}
    return {"id": name, "name": "invoke_agent", "args": args, "timestamp": _time(ended), **fields}


def _child(folder: str, name: str, begin: int = 2, end: int = 5) -> Source:
    header = {"sessionId": name, "projectHash": "h", "kind": "subagent"}
    asked = {"id": f"{name}u", "type": "user", "timestamp": _time(begin), "content": "look"}
    said = {"id": f"{name}g", "type": "gemini", "timestamp": _time(end), "content": "seen"}
    return Source(f"chats/{folder}/{name}.jsonl", data=_rows(header, asked, said))


OURS = "aaaaaaaa-1"
CANCELLED = {"status": "cancelled"}


@pytest.mark.parametrize(
    ("calls", "children", "links", "orphans"),
    [
        # An aborted call names no child, which ended before it.
        ([_call("c", 6, **CANCELLED)], [(OURS, "k1", 2, 5)], [("directory+time", "likely")], 0),
        # Two in parallel, each within its call.
        (
            [_call("c", 6), _call("d", 20)],
            [(OURS, "k1", 2, 5), (OURS, "k2", 10, 19)],
            [("directory+time", "likely"), ("directory+time", "likely")],
            0,
        ),
        # The clocks disagree, but no other child can be meant.
        ([_call("c", 4)], [(OURS, "k1", 2, 5)], [("directory", "guess")], 0),
        # Two that could be meant are not distinguished.
        ([_call("c", 4)], [(OURS, "k1", 2, 5), (OURS, "k2", 2, 6)], [("none", "none")] * 2, 2),
        # A kill leaves no call.
        ([], [(OURS, "k1", 2, 5)], [("none", "none")], 1),
        # The client started it, and no session did.
        ([], [("skill-extraction-1a2b3c4d", "k1", 2, 5)], [("skill-extraction", "none")], 0),
        # Its session's file is gone.
        ([], [("bbbbbbbb-2", "k1", 2, 5)], [("none", "none")], 1),
    ],
)
def test_each_layout_links_a_child_as_surely_as_it_can(
    calls: list[dict[str, Any]],
    children: list[tuple[str, str, int, int]],
    links: list[tuple[str, str]],
    orphans: int,
):
    """By key, folder and time, time, folder alone; or it is an orphan, or no session's."""
    reading = Reading([_main(*calls), *(_child(*child) for child in children)])
    threads = {
        name: thread
        for sink in reading.sinks
        for name, thread in sink.conversations.items()
        if name != "main"
    }
    assert [tuple(threads[child[1]].link or ()) for child in children] == links
    assert reading.findings.count("orphan-subagent") == orphans
    owned = [child for child in children if child[0] == OURS]
    assert [threads[child[1]].parent for child in owned] == ["main"] * len(owned)
