"""Tokens per session are what the client itself counted, wherever it wrote that down."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from agentsdir.adapters.claude import ARCHITECTURE
from agentsdir.adapters.protocol import SessionFiles
from agentsdir.formats.blocks import COUNTED, Usage, add_usage, no_usage
from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
READER = ARCHITECTURE.reader
assert READER is not None
OWN = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")

# What the client left out when it wrote its count, so that the rows say more than it did.
CLIENT_FORGOT = {
    "claude-2.1.332/int_text": "the count of a process that was interrupted",
    "claude-2.1.332/kill_tool": "the count of a process that was killed",
    "claude-2.1.332/restore_dangling": "rows that were put in place by hand",
    "claude-2.1.332/restore_minimal": "rows that were put in place by hand",
}
# Sessions that hold what no recorded run spent, or whose runs printed no count.
UNCOUNTED_RUNS = {
    "claude-2.1.98/hello_text": "prints text only",
    "claude-2.1.98/kill_tool": "the first run was killed, and printed no result",
    "claude-2.1.98/kill_tool_goon": "the first run was killed, and printed no result",
    "claude-2.1.98/restore_copy": "the session comes from another recording",
}

pytestmark = [pytest.mark.feature("B-01")]
if not any(CORPUS.glob("claude-*/*")):
    pytest.skip("the recorded corpus is not here", allow_module_level=True)


def _scenarios() -> list[Path]:
    return sorted(path for path in CORPUS.glob("claude-*/*") if path.is_dir())


def _sources(scenario: Path, kind: str) -> list[Source]:
    assert READER is not None
    sources = []
    for path in sorted(scenario.rglob("*")):
        if path.is_file() and path.name.removesuffix(".gz").endswith(kind):
            source = Source(path.relative_to(CORPUS).as_posix(), path=path)
            if path.suffix == ".gz":
                source = Source(source.name, data=gzip.decompress(path.read_bytes()))
            if READER.detect(source.head(), source.name):
                sources.append(source)
    return sources


def _parse(files: SessionFiles, *, apart: bool = False) -> ParseSink:
    assert READER is not None
    sink = ParseSink(apart=apart)
    READER.parse_transcripts(files, sink)
    return sink


def _rows(source: Source) -> list[dict[str, Any]]:
    rows = []
    for line in source.read().split(b"\n"):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            rows.append(value)
    return rows


def _by_model(models: dict[str, Any]) -> list[int]:
    return [sum(spent[name] for spent in models.values()) for name in OWN]


def _counts(usage: Usage) -> list[int]:
    return [usage[name] for name in COUNTED]


def _printed(source: Source) -> list[int] | None:
    """Return what a run spent by its own account: by its last result, or by all that are new."""
    results = [row for row in _rows(source) if row.get("type") == "result" and "modelUsage" in row]
    if not results:
        return None
    if "model_usage_since_last_result" not in results[-1]:
        return _by_model(results[-1]["modelUsage"])
    news = [_by_model(row["model_usage_since_last_result"]) for row in results]
    return [sum(column) for column in zip(*news, strict=True)]


def test_a_recorded_run_costs_what_its_results_say() -> None:
    """Calls of subagents, and those that no line shows, are in."""
    assert READER is not None
    compared = 0
    for scenario in _scenarios():
        for source in _sources(scenario, ".stdout"):
            printed = _printed(source)
            if printed is not None:
                (files,) = READER.discover([source])
                assert (source.name, _counts(_parse(files).usage())) == (source.name, printed)
                compared += 1
    assert compared >= 120


def test_a_session_costs_what_its_last_cost_state_says() -> None:
    """Main thread and subagents together, over all runs; never less than the client's count."""
    assert READER is not None
    equal = set()
    for scenario in _scenarios():
        name = scenario.relative_to(CORPUS).as_posix()
        for files in READER.discover(_sources(scenario, ".jsonl")):
            rows = _rows(files.transcripts[0].source)
            states = [row for row in rows if row.get("type") == "cost-state"]
            if not states:
                continue
            own, counts = _by_model(states[-1]["modelUsage"]), _counts(_parse(files).usage())
            if name in CLIENT_FORGOT:
                assert all(ours >= theirs for ours, theirs in zip(counts, own, strict=True))
                assert counts != own
            else:
                assert (name, counts) == (name, own)
                equal.add(files.transcripts[0].source.name)
    assert len(equal) >= 20


def test_a_session_without_a_count_of_its_own_costs_what_its_runs_printed() -> None:
    """Over all files of a recording, copies once; or the sum says that it is a lower bound."""
    assert READER is not None
    exact = set()
    for scenario in _scenarios():
        name = scenario.relative_to(CORPUS).as_posix()
        sources = _sources(scenario, ".jsonl")
        printed = [counts for one in _sources(scenario, ".stdout") if (counts := _printed(one))]
        if name in CLIENT_FORGOT or name in UNCOUNTED_RUNS or not (sources and printed):
            continue
        counted: set[int] = set()
        total = no_usage()
        for files in READER.discover(sources):
            total = add_usage(total, _parse(files, apart=True).session_usage().added(counted))
        if total["exact"]:
            spent = [sum(column) for column in zip(*printed, strict=True)]
            assert (name, _counts(total)) == (name, spent)
            exact.add(name)
    assert {name.split("/")[0] for name in exact} == {"claude-2.1.98", "claude-2.1.332"}
    assert len(exact) >= 50
