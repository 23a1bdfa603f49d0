"""Every Claude recording parses, whatever its age, damage and spelling."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from agentsdir.adapters.claude import ARCHITECTURE
from agentsdir.adapters.protocol import SessionFiles
from agentsdir.formats.blocks import MAIN
from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
READER = ARCHITECTURE.reader
assert READER is not None
HEAD = 64 * 1024

pytestmark = [pytest.mark.feature("B-01"), pytest.mark.feature("B-06")]


def _content(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def _scenarios() -> list[Path]:
    return sorted(path for path in CORPUS.glob("claude-*/*") if path.is_dir())


@cache
def _sessions(scenario: Path) -> list[SessionFiles]:
    """Return the sessions of one scenario: transcripts on disk, and recorded output."""
    sources = []
    for path in sorted(scenario.rglob("*")):
        kind = path.name.removesuffix(".gz")
        if path.is_file() and kind.endswith((".jsonl", ".stdout")):
            data = _content(path)
            name = str(path.relative_to(CORPUS))
            assert READER is not None
            if READER.detect(data[:HEAD], name):
                packed = path.suffix == ".gz"
                sources.append(Source(name, data=data) if packed else Source(name, path=path))
    assert READER is not None
    return READER.discover(sources)


def _parse(files: SessionFiles, *, hidden: bool = False) -> ParseSink:
    assert READER is not None
    sink = ParseSink(hidden=hidden)
    READER.parse_transcripts(files, sink)
    return sink


def _balanced(sink: ParseSink) -> bool:
    tally = sink.tally
    return tally.parsed + tally.hidden + tally.folded + tally.damaged == tally.lines


def _unplaced(block: dict[str, Any]) -> dict[str, Any]:
    return {**block, "source": {**block["source"], "file": ""}}


if not _scenarios():
    pytest.skip("the recorded corpus is not here", allow_module_level=True)

every_scenario = pytest.mark.parametrize(
    "scenario", _scenarios(), ids=lambda path: f"{path.parent.name}-{path.name}"
)


@every_scenario
def test_every_line_of_every_recording_is_accounted_for(scenario: Path) -> None:
    """Whole sessions and single files alike, with and without hidden blocks."""
    for files in _sessions(scenario):
        sink = _parse(files)
        lines = sum(len(_lines(one.source)) for one in files.transcripts)
        assert sink.tally.lines == lines
        assert _balanced(sink)
        assert _parse(files, hidden=True).tally.as_json() == sink.tally.as_json()


def _lines(source: Source) -> list[bytes]:
    with source.open() as stream:
        return stream.readlines()


@every_scenario
def test_parsing_twice_gives_the_same_blocks(scenario: Path) -> None:
    """Ids are unique, and nothing depends on a clock or on chance."""
    for files in _sessions(scenario):
        first, second = _parse(files, hidden=True), _parse(files, hidden=True)
        assert list(first.lines("all")) == list(second.lines("all"))
        ids = [block["id"] for block in first.blocks("all")]
        assert len(ids) == len(set(ids))


@every_scenario
def test_a_pipe_gives_the_same_as_a_path(scenario: Path) -> None:
    """Only the name in `source` differs."""
    assert READER is not None
    for files in _sessions(scenario):
        for transcript in files.transcripts:
            (alone,) = READER.discover([transcript.source])
            with transcript.source.open() as stream:
                (piped,) = READER.discover([Source("-", data=stream.read())])
            by_path = [_unplaced(block) for block in _parse(alone).blocks("all")]
            assert [_unplaced(block) for block in _parse(piped).blocks("all")] == by_path


@every_scenario
def test_what_was_typed_is_said_exactly_once(scenario: Path) -> None:
    """Each prompt of each run is one `user_message` on the main thread, and none is made up."""
    typed, answered = _typed(scenario)
    said: set[str] = set()
    recorded = [files for files in _sessions(scenario) if _is_on_disk(files)]
    for files in recorded:
        prompts = [
            block["content"]
            for block in _parse(files).blocks("all")
            if block["type"] == "user_message" and block["conversationId"] == MAIN
        ]
        said.update(prompts)
        for prompt in prompts:
            assert prompts.count(prompt) <= max(typed.count(prompt), 1)
    if recorded:
        assert answered - said == set()
    assert said - set(typed) <= _PLACED


# Prompts of transcripts that were put in place by hand, and of runs fed through stdin.
_PLACED = {
    "minimal question",
    "bare question",
    "use a tool",
    "one [[plan:hello]]",
    "two [[plan:recall]]",
}


def _typed(scenario: Path) -> tuple[list[str], set[str]]:
    """Return the prompts of all runs, and those of runs that ended well. Commands are none."""
    typed: list[str] = []
    answered: set[str] = set()
    for path in sorted(scenario.glob("run-*.cmd.json")):
        command = json.loads(path.read_text())
        prompts = [word for word in command["argv"] if "[[plan:" in str(word)]
        typed += prompts
        if command["rc"] == 0:
            answered.update(prompts)
    return typed, answered


def _is_on_disk(files: SessionFiles) -> bool:
    return files.transcripts[0].source.name.removesuffix(".gz").endswith(".jsonl")


def test_output_and_transcript_agree_on_what_the_model_said() -> None:
    """The same rows have the same block ids on stdout and on disk."""
    compared = 0
    for scenario in _scenarios():
        disk: dict[str, Any] = {}
        streamed: dict[str, Any] = {}
        for files in _sessions(scenario):
            on_disk = _is_on_disk(files)
            for block in _parse(files).blocks("all"):
                if block["type"] in ("assistant_text", "thinking", "tool_use"):
                    content = block.get("content", block.get("input"))
                    (disk if on_disk else streamed)[block["id"]] = content
        for block_id in disk.keys() & streamed.keys():
            assert disk[block_id] == streamed[block_id]
            compared += 1
    assert compared > 100


def test_no_gemini_recording_is_taken_for_claudes() -> None:
    """Nor any of Claude's own files that are no transcripts."""
    assert READER is not None
    others = [*CORPUS.glob("gemini-*/**/*"), *CORPUS.glob("claude-*/**/*.json")]
    for path in others:
        if path.is_file():
            assert not READER.detect(_content(path)[:HEAD], path.name), path


@pytest.mark.parametrize("version", sorted(path.name for path in CORPUS.glob("claude-*")))
def test_a_whole_corpus_is_one_folder_to_the_command(version: str, tmp_path: Path) -> None:
    """Trees, sidecars, indexes and todos lie about: no traceback, and every line has its count."""
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "agentsdir.cli.main", "parse", "--view", "all", "--hidden"]
    command += ["--report", str(report), str(CORPUS / version)]
    done = subprocess.run(command, capture_output=True, timeout=300, check=False)
    assert b"Traceback" not in done.stderr
    assert done.returncode in (0, 3)
    said = json.loads(report.read_bytes())
    counts = [said[name] for name in ("parsed", "hidden", "folded", "damaged")]
    on_disk = sum(
        path.read_bytes().count(b"\n")
        for path in (CORPUS / version).rglob("*.jsonl")
        if path.is_file()
    )
    assert sum(counts) == said["lines"] >= on_disk > 0
    assert len(done.stdout.splitlines()) == sum(said["blocks"].values())
    assert done.returncode == (3 if any(f["severity"] != "info" for f in said["findings"]) else 0)


def test_transcripts_and_output_are_among_the_recordings() -> None:
    """The tests above would not notice if a kind of file were never found."""
    names = [files.transcripts[0].source.name for one in _scenarios() for files in _sessions(one)]
    assert sum(name.removesuffix(".gz").endswith(".stdout") for name in names) > 120
    assert sum(name.removesuffix(".gz").endswith(".jsonl") for name in names) > 90
