"""Every recorded scenario and every kind of damage is a fixture, with its blocks beside it.

A golden file holds the blocks of all sessions in a folder, and after each session a line with what
the report says of it. Hidden blocks stand there by id and name only: their rows are in the fixture.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from claude_support import FIXTURES, balanced, reader

from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source

pytestmark = [pytest.mark.feature("B-01"), pytest.mark.feature("B-06")]

RECORDED = FIXTURES / "recorded"
DAMAGED = FIXTURES / "damaged"
# What the clients of four generations were made to do. Two more recordings, `slim_subagent` and
# `subagent_fwd` of 2.1.98, ended before they wrote or printed anything.
SCENARIOS = {
    "1.0.128": "compact hello resume subagent tools",
    "2.0.77": ("compact fork hello kill_tool parallel restore_minimal_ts resume subagent tools"),
    "2.1.98": (
        "ask bg bigout compact concurrent_new cut_always cut_once empty err400 err401 err429 err500"
        " fork hello hello_bare hello_configdir hello_json hello_nopersist hello_text hello_whole"
        " image int_text kill_start kill_text kill_tool kill_tool_goon maxtok maxturns parallel"
        " refusal restore_bare restore_bare_ts restore_copy restore_dangling restore_junk"
        " restore_minimal restore_minimal_ts restore_nonl resume resume_missing resume_noprompt"
        " resume_othercwd slim_tools slow sse_error stdin_two stop_cont subagent subagent_custom"
        " subagent_fg term_text toolong tools unicode"
    ),
    "2.1.332": (
        "bg bigout compact err500 fork hello_bare image int_text kill_text kill_tool maxturns"
        " parallel refusal restore_dangling restore_minimal resume slim_subagent slim_tools"
        " subagent subagent_fg subagent_fwd tools unicode"
    ),
}
# Kind of damage → the findings that are damage, and the prompts that are left.
DAMAGE = {
    "nul-line": (["nul-run"], 3),
    "nul-before-record": (["nul-run"], 3),
    "nul-after-record": (["nul-run"], 3),
    "nul-to-the-end": (["nul-run"], 3),
    "nul-inside-record": (["nul-run"], 2),
    "cut-row": (["bad-json"], 2),
    "cut-last-line": (["torn-tail"], 3),
    "no-last-newline": ([], 3),
    "stub-and-record": (["splice"], 3),
    "glued-records": (["splice"], 3),
    "spliced-records": (["splice"], 2),
    "spliced-over-lines": (["splice", "bad-json"], 2),
    "lost-turn": ([], 2),
    "control-characters": ([], 1),
    "lone-surrogates": ([], 3),
    "line-separators": ([], 3),
    "byte-order-mark": ([], 3),
    "carriage-returns": ([], 3),
    "bad-utf8": (["bad-utf8"], 3),
    "raw-control-bytes": ([], 3),
    "non-finite-numbers": ([], 3),
    "junk-lines": (["bad-json", "bad-json", "not-an-object", "not-an-object"], 3),
    "deep-nesting": (["too-deep"], 3),
    "index-of-nothing": ([], 3),
}

_SCENARIOS = [
    RECORDED / version / name for version in SCENARIOS for name in SCENARIOS[version].split()
]
_DAMAGED = [DAMAGED / name for name in DAMAGE]


def _fixture(path: Path) -> Path:
    return path if path.is_dir() else path.with_name(f"{path.name}.jsonl")


def _parse(path: Path) -> list[tuple[str, ParseSink]]:
    """Return the sessions of a fixture, each with the name of its first file."""
    path = _fixture(path)
    paths = [path] if path.is_file() else sorted(path.rglob("*.json*"))
    sources = [Source(found.relative_to(FIXTURES).as_posix(), path=found) for found in paths]
    known = [source for source in sources if reader().detect(source.head(), source.name)]
    sessions = []
    for files in reader().discover(known):
        sink = ParseSink(hidden=True)
        reader().parse_transcripts(files, sink)
        sessions.append((files.transcripts[0].source.name, sink))
    return sessions


def _golden(sessions: list[tuple[str, ParseSink]]) -> bytes:
    lines = []
    for name, sink in sessions:
        for line in sink.lines("all"):
            block = json.loads(line)
            if block.get("hidden"):
                line = _line({"id": block["id"], "hidden": True, "message": block["message"]})
            lines.append(line)
        lines.append(_line(_report(name, sink)))
    return b"".join(lines)


def _report(name: str, sink: ParseSink) -> dict[str, Any]:
    return {
        "session": name,
        "clientVersion": sink.client_version,
        "lines": sink.tally.as_json(),
        "conversations": {
            conversation: {
                "parent": thread.parent,
                "link": thread.link._asdict() if thread.link else None,
                "usage": thread.usage,
            }
            for conversation, thread in sink.conversations.items()
        },
        "usage": sink.usage(),
        "findings": [finding.as_json() for finding in sink.findings],
    }


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


@pytest.mark.parametrize("path", _SCENARIOS + _DAMAGED, ids=lambda p: f"{p.parent.name}-{p.name}")
def test_each_fixture_gives_the_blocks_beside_it(path: Path) -> None:
    """Byte for byte, with its counts, links, tokens and findings (UPDATE_GOLDEN=1 records anew)."""
    sessions = _parse(path)
    given = _golden(sessions)
    expected = path.with_name(f"{path.name}.blocks.jsonl")
    if os.environ.get("UPDATE_GOLDEN"):
        expected.write_bytes(given)
    assert given == expected.read_bytes()
    assert all(balanced(sink) for _, sink in sessions)


def test_every_scenario_and_every_kind_of_damage_has_its_fixture() -> None:
    """The tables above and the folders name the same."""
    recorded = {
        path for version in RECORDED.iterdir() for path in version.iterdir() if path.is_dir()
    }
    assert recorded == set(_SCENARIOS)
    damaged = {
        path.with_name(path.name.removesuffix(".jsonl"))
        for path in DAMAGED.iterdir()
        if not path.name.endswith(".blocks.jsonl")
    }
    assert damaged == set(_DAMAGED)


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_costs_what_it_hit_and_nothing_else(name: str) -> None:
    """Every record that is whole is shown; what is not is named."""
    findings, prompts = DAMAGE[name]
    ((_, sink),) = _parse(DAMAGED / name)
    assert [finding.id for finding in sink.findings if finding.is_damage] == findings
    typed = [block for block in sink.blocks() if block["type"] == "user_message"]
    assert len(typed) == prompts


def test_fixtures_stay_small() -> None:
    """All of them together stay below 3.5 MB."""
    total = sum(path.stat().st_size for path in FIXTURES.rglob("*") if path.is_file())
    assert total < 3_500_000
