"""Tokens per session are what the client itself counted, on every recording that says so."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from agentsdir.adapters.gemini import ARCHITECTURE
from agentsdir.formats.blocks import Usage
from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
READER = ARCHITECTURE.reader
assert READER is not None
COUNTS = ("inputTokens", "cacheReadTokens", "outputTokens", "totalTokens")

# Sessions whose file has less than the client counted, and says so (`exact` is false).
FILE_LACKS = {
    "gemini-0.11.3/inv_generalist": "of turns that only call tools, the file has one count",
    "gemini-0.11.3/sub_generalist": "of turns that only call tools, the file has one count",
    "gemini-0.11.3/tools": "of turns that only call tools, the file has one count",
    "gemini-0.29.0/bigout": "of turns that only call tools, the file has one count",
    "gemini-0.29.0/image": "of turns that only call tools, the file has one count",
    "gemini-0.29.0/inv_generalist": "of turns that only call tools, the file has one count",
    "gemini-0.29.0/parallel": "of turns that only call tools, the file has one count",
    "gemini-0.29.0/restore_copy": "of turns that only call tools, the file has one count",
    "gemini-0.29.0/sub_generalist": "of turns that only call tools, the file has one count",
    "gemini-0.29.0/tools": "of turns that only call tools, the file has one count",
    "gemini-0.29.0/err500": "a turn that failed has no count in the file",
    "gemini-0.61.0/empty": "an answer of nothing has no message, and so no count",
}
# Clients that print one sum over all models: it has the router's calls, which are in no file.
ROUTER_INCLUDED = {
    "gemini-0.11.3/hello": "one call of the router",
    "gemini-0.11.3/unicode": "one call of the router",
    "gemini-0.29.0/hello": "one call of the router",
    "gemini-0.29.0/resume": "five calls of the router",
    "gemini-0.29.0/unicode": "two calls of the router",
}
# Sessions with a run that was killed: it printed no count, and may be in the file.
KILLED = {
    "gemini-0.29.0/kill_tool",
    "gemini-0.61.0/int_text",
    "gemini-0.61.0/kill_parallel",
    "gemini-0.61.0/kill_text",
    "gemini-0.61.0/kill_tool",
    "gemini-0.61.0/term_text",
}

pytestmark = [pytest.mark.feature("B-01")]
if not any(CORPUS.glob("gemini-*/*")):
    pytest.skip("the recorded corpus is not here", allow_module_level=True)


def _content(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def _scenarios() -> list[Path]:
    return sorted(path for path in CORPUS.glob("gemini-0*/*") if path.is_dir())


def _name(scenario: Path) -> str:
    return scenario.relative_to(CORPUS).as_posix()


def _counts(sent: int, cached: int, got: int, total: int) -> Counter[str]:
    return Counter(dict(zip(COUNTS, (sent - cached, cached, got, total), strict=True)))


def _streamed(stats: dict[str, Any]) -> Counter[str]:
    """Return what a `result` line counts, the router's model left out where models are named."""
    models = stats.get("models", {"all": stats})
    return sum(
        (
            _counts(
                one["input_tokens"],
                one.get("cached", 0),
                one["total_tokens"] - one["input_tokens"],
                one["total_tokens"],
            )
            for model, one in models.items()
            if "lite" not in model
        ),
        Counter(),
    )


def _reported(stats: dict[str, Any]) -> Counter[str]:
    """Return what the one JSON report counts, the router's role left out."""
    tokens = [
        role["tokens"]
        for model in stats["models"].values()
        for name, role in model["roles"].items()
        if name != "utility_router"
    ]
    return sum(
        (
            _counts(one["prompt"], one["cached"], one["candidates"] + one["thoughts"], one["total"])
            for one in tokens
        ),
        Counter(),
    )


def _printed(scenario: Path) -> tuple[dict[str, Counter[str]], set[str]]:
    """Return what each session's runs counted in all, and the sessions of which a run was cut."""
    printed: dict[str, Counter[str]] = {}
    cut = set()
    for path in sorted(scenario.glob("run-*.stdout*")):
        data = _content(path)
        if data.startswith(b'{"type":"init"'):
            rows = [json.loads(line) for line in data.split(b"\n") if line]
            session = rows[0]["session_id"]
            if rows[-1]["type"] != "result":
                cut.add(session)
                continue
            counted = _streamed(rows[-1]["stats"])
        elif data.startswith(b"{"):
            report = json.loads(data)
            session, counted = report["session_id"], _reported(report["stats"])
        else:
            continue
        printed[session] = printed.get(session, Counter()) + counted
    return printed, cut


def _parsed(scenario: Path) -> dict[str, Usage]:
    """Return the usage of each session id: of its fullest file, children included."""
    assert READER is not None
    sources = [
        Source(str(path.relative_to(scenario)), data=_content(path))
        for path in sorted(scenario.glob("tree/**/chats/**/*.json*"))
    ]
    found: dict[str, Usage] = {}
    for files in READER.discover(sources):
        sink = ParseSink()
        READER.parse_transcripts(files, sink)
        names = {
            block["sessionId"] for block in sink.blocks("all") if block["conversationId"] == "main"
        }
        for name in names:
            if name not in found or found[name]["totalTokens"] < sink.usage()["totalTokens"]:
                found[name] = sink.usage()
    return found


def _values(usage: Usage) -> list[int]:
    return [usage[name] for name in COUNTS]


def _sums(names: Iterable[Counter[str]]) -> list[list[int]]:
    return [[one[name] for name in COUNTS] for one in names]


@pytest.mark.parametrize("scenario", _scenarios(), ids=_name)
def test_a_session_costs_what_its_runs_printed(scenario: Path) -> None:
    """All four counts, over all runs, subagents included; or the file says that it has less."""
    name = _name(scenario)
    printed, cut = _printed(scenario)
    parsed = _parsed(scenario)
    assert bool(cut) == (name in KILLED)
    for session, counted in printed.items():
        if session not in parsed:
            assert not list(scenario.glob(f"tree/**/*{session[:8]}*"))  # deleted by the client
            continue
        ours, (theirs,) = parsed[session], _sums([counted])
        if session in cut:
            assert all(one >= other for one, other in zip(_values(ours), theirs, strict=True))
        elif name in FILE_LACKS and _values(ours) != theirs:
            assert ours["totalTokens"] < theirs[-1]
            assert ours["exact"] is False
        elif name in ROUTER_INCLUDED:
            assert ours["totalTokens"] < theirs[-1]
        else:
            assert (session, _values(ours)) == (session, theirs)


def test_a_prompt_whose_answer_was_cut_off_makes_the_counts_a_lower_bound() -> None:
    """What the model had sent before the signal is counted in no file."""
    for name in ("int_text", "kill_text", "term_text"):
        (usage,) = _parsed(CORPUS / "gemini-0.61.0" / name).values()
        assert usage["exact"] is False


def test_the_lists_of_exceptions_hold_nothing_else() -> None:
    """Each exception is a recording in which the file has less than the client counted."""
    for name in {**FILE_LACKS, **ROUTER_INCLUDED}:
        printed, _ = _printed(CORPUS / name)
        parsed = _parsed(CORPUS / name)
        assert any(
            parsed[session]["totalTokens"] < counted["totalTokens"]
            for session, counted in printed.items()
            if session in parsed
        ), name


def test_a_recorded_run_costs_what_its_last_line_says() -> None:
    """Read from standard output itself, the router's calls are in."""
    assert READER is not None
    compared = 0
    for scenario in _scenarios():
        for path in scenario.glob("run-*.stdout*"):
            data = _content(path)
            source = Source(path.name, data=data)
            if not READER.detect(source.head(), path.name):
                continue
            sink = ParseSink()
            (files,) = READER.discover([source])
            READER.parse_transcripts(files, sink)
            if data.startswith(b"{\n"):
                models = json.loads(data)["stats"]["models"].values()
                total = sum(model["tokens"]["total"] for model in models)
            else:
                last = json.loads(data.rstrip(b"\n").rsplit(b"\n", 1)[-1])
                total = last["stats"]["total_tokens"] if last["type"] == "result" else 0
            assert sink.usage()["totalTokens"] == total
            compared += bool(total)
    assert compared >= 80
