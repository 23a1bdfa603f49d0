"""`examples/read_agent.py`, written from SPEC.md alone, shows what `replay` shows."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import golden
import pytest

from agentsdir.engine.replay import replay
from agentsdir.formats.blocks import Reducer, make_block
from agentsdir.formats.store.agent import write_agent
from agentsdir.formats.store.layout import AgentPaths

EXAMPLE = Path(__file__).parents[2] / "examples" / "read_agent.py"
ROOTS = golden.FOLDER.parent
SOUND = sorted([*ROOTS.glob("valid/*/agents/*"), *ROOTS.glob("golden-agent/root/agents/*")])
NATIVE = "5f0c1a7b-e1b9-4c0f-9a52-d3f7e2c48d61"


def the_example() -> ModuleType:
    """Return the example as a module."""
    found = importlib.util.spec_from_file_location("read_agent", EXAMPLE)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def as_replayed(folder: Path, conversation: str = "main") -> tuple[list[Any], list[str]]:
    """Return the blocks that the program's own replay leaves, and the ids of what it finds."""
    reducer, found = Reducer(), []
    for event in replay(AgentPaths(folder, folder.name), found.append):
        reducer.apply(event)
    blocks = [one for one in reducer.blocks(conversation) if not one.get("superseded")]
    return blocks, [f"line {one.line}: {one.id}" for one in found]


def as_read(folder: Path, conversation: str = "main") -> tuple[list[Any], list[str]]:
    """Return what the example makes of the same log."""
    example = the_example()
    records, problems = example.read_log((folder / "events.jsonl").read_bytes())
    return example.conversation(records, conversation), problems


@pytest.mark.parametrize("folder", SOUND, ids=lambda path: f"{path.parts[-3]}-{path.name}")
def test_the_example_reads_the_conversation_that_replay_shows(folder: Path) -> None:
    """Of every sound agent among the fixtures, without a problem."""
    assert as_read(folder) == as_replayed(folder)
    assert as_read(folder)[1] == []


def test_a_replaced_block_stands_where_it_first_stood_and_a_superseded_one_nowhere(
    tmp_path: Path,
) -> None:
    """In each conversation by itself."""
    golden.make(tmp_path)
    paths = AgentPaths(tmp_path / "agents" / golden.AGENT, golden.AGENT)
    said = [
        ("main", "call", "tool_use", {"toolName": "Read", "input": {}, "status": "pending"}),
        ("thread", "call", "assistant_text", {"content": "of a subagent"}),
        ("main", "gone", "assistant_text", {"content": "never mind"}),
        ("main", "last", "assistant_text", {"content": "Done."}),
        ("main", "gone", "assistant_text", {"content": "never mind", "superseded": True}),
        ("main", "call", "tool_use", {"toolName": "Read", "input": {}, "status": "success"}),
    ]
    with write_agent(paths) as writer:
        for conversation, name, kind, fields in said:
            block = make_block(kind, name, conversation, NATIVE, None, None, **fields)
            writer.append("block", {"turn_id": None, "block": block}, "2026-01-02T03:05:00.000000Z")

    blocks, problems = as_read(paths.folder)

    assert [(block["id"], block.get("status")) for block in blocks[2:]] == [
        ("call", "success"),
        ("last", None),
    ]
    for conversation in ("main", "thread"):
        assert as_read(paths.folder, conversation) == as_replayed(paths.folder, conversation)
    assert problems == []


@pytest.mark.parametrize("name", sorted(set(golden.DAMAGES) - {"splice"}))
def test_the_example_finds_the_damage_that_replay_finds(name: str, tmp_path: Path) -> None:
    """By line and id. It takes no record from a damaged line, as `splice` would have it do."""
    folder = tmp_path / golden.AGENT
    folder.mkdir()
    (folder / "events.jsonl").write_bytes(golden.damaged_log(name))

    blocks, problems = as_read(folder)
    wanted, findings = as_replayed(folder)

    assert blocks == wanted
    assert [one.replace("unreadable", "bad-json") for one in problems] == findings


def test_the_example_is_one_short_program_of_the_standard_library() -> None:
    """It runs by itself, prints the conversation, and names what it cannot read."""
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 40

    def run(log: Path) -> tuple[int, str, str]:
        command = [sys.executable, "-I", "-S", str(EXAMPLE), str(log)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    shown = "user_message: fix the tests\nassistant_text: fix the tests\n"
    assert run(golden.ROOT / golden.LOG) == (0, shown, "")
    torn = golden.FOLDER / "damaged" / "torn-tail" / "events.jsonl"
    assert run(torn) == (1, shown, "line 12: torn-tail\n")
