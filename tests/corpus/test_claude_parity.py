"""What a run says on stdout gives the blocks that its transcript gives (decision D21)."""

from __future__ import annotations

import copy
import gzip
import json
from functools import cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from claude_differences import COMPARED, RULES, Difference, Run, rule_for

from agentsdir.adapters.claude.reader import ClaudeReader
from agentsdir.adapters.claude.stream import ClaudeTranslator
from agentsdir.formats.blocks import MAIN, Block, Reducer
from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
CORPUS = ROOT.parent / "shared" / "corpus"
OWN = ROOT / "fixtures" / "claude-runs"
READER = ClaudeReader()
_DEADLY = frozenset({"2", "9", "15"})  # signals that end a run

pytestmark = [pytest.mark.feature("B-05"), pytest.mark.feature("B-06")]


def _scenarios() -> list[Path]:
    """Return our own recordings, and the corpus where it is."""
    found = [*OWN.glob("claude-*/*"), *CORPUS.glob("claude-*/*")]
    return sorted(path for path in found if path.is_dir())


class Session(NamedTuple):
    """One session of a scenario: its runs, what they streamed, and what its files hold.

    `by` says which run gave a block of the stream; `own` are the threads that answer no call.
    """

    runs: list[Run]
    by: dict[str, Run]
    stream: Reducer
    files: list[Block]
    own: frozenset[str]


def _content(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def _translate(data: bytes) -> tuple[ClaudeTranslator, list[dict[str, Any]]]:
    translator = ClaudeTranslator()
    events = []
    for line in data.split(b"\n"):
        events += translator.line(line + b"\n")
    return translator, [*events, *translator.end()]


def _named(data: bytes) -> set[str]:
    """Return which session its `init` and `result` lines say that a run was."""
    found = set()
    for line in data.split(b"\n"):
        try:
            row = json.loads(line)
        except ValueError:  # a signal may have cut the last one
            continue
        if (row.get("type"), row.get("subtype")) == ("system", "init") or row["type"] == "result":
            found.add(row["session_id"])
    return found


def _streamed(scenario: Path) -> dict[str, Session]:
    """Fold the runs of a scenario in order; a fork begins with what its parent streamed."""
    sessions: dict[str, Session] = {}
    described = scenario.glob("run-*.cmd.json")
    for path in sorted(described, key=lambda path: int(path.name.split(".")[0][4:])):
        about = json.loads(path.read_bytes())
        stem = path.name.removesuffix(".cmd.json")
        (stdout,) = scenario.glob(f"{stem}.stdout*")
        arguments = tuple(about["argv"])
        run = Run(
            scenario.parent.name.removeprefix("claude-"), arguments, str(about["signal"]) in _DEADLY
        )
        if "stream-json" not in arguments:
            continue
        lines = _content(stdout)
        translator, events = _translate(lines)
        assert not any(finding.is_damage for finding in translator.findings)
        said = _named(lines)
        if not said:
            assert events == []
            continue
        (name,) = said
        if "--fork-session" in arguments:
            parent = sessions[arguments[arguments.index("--resume") + 1]]
            sessions.setdefault(name, copy.deepcopy(parent))
        fresh = Session([], {}, Reducer(), [], frozenset())
        session = sessions.setdefault(name, fresh)
        session.runs.append(run)
        for event in events:
            # A handle is one stream's, and the fake API numbers its messages anew for each run.
            block = session.stream.apply({**event, "blockId": f"{stem}/{event.get('blockId')}"})
            if block is not None:
                session.by.setdefault(block["id"], run)
    return sessions


def _stored(scenario: Path) -> dict[str, tuple[list[Block], frozenset[str]]]:
    """Parse the transcripts of a scenario, by the name of the main one."""
    sources = []
    for path in sorted((scenario / "tree").rglob("*.jsonl*")):
        name = str(path.relative_to(scenario)).removesuffix(".gz")
        source = Source(name, data=_content(path))
        if READER.detect(source.head(), name):
            sources.append(source)
    stored = {}
    for files in READER.discover(sources):
        sink = ParseSink()
        READER.parse_transcripts(files, sink)
        blocks = list(sink.blocks("all"))
        own = {
            name
            for name, thread in sink.conversations.items()
            if thread.link is not None and thread.link.confidence == "none"
        }
        if files.transcripts[0].role == "main":
            stored[PurePath(files.transcripts[0].source.name).stem] = (blocks, frozenset(own))
    return stored


def _without_placed(scenario: Path, blocks: list[Block], session: Session) -> list[Block]:
    """Leave out what was put into a file by hand before its first run."""
    if not scenario.name.startswith("restore_"):
        return blocks
    typed = {argument for run in session.runs for argument in run.arguments}
    for number, block in enumerate(blocks):
        if block["type"] == "user_message" and block["content"] in typed:
            return blocks[number:]
    return []


def _sessions(scenario: Path) -> Iterator[Session]:
    stored = _stored(scenario)
    for name, session in _streamed(scenario).items():
        blocks, own = stored.get(name, ([], frozenset()))
        yield session._replace(files=_without_placed(scenario, blocks, session), own=own)


def _compared(block: Block) -> dict[str, Any]:
    return {name: block[name] for name in COMPARED if block.get(name) not in (None, False)}


def _named_alike(session: Session) -> Iterator[Difference]:
    """Give the stream's threads and rows the names that the files have, where they have others."""
    there = {block["id"]: block for block in session.files}
    stream = [block for blocks in session.stream.conversations.values() for block in blocks]
    for block in stream:
        told = there.get(block["id"])
        if block["type"] != "subagent" or told is None or told["subagentId"] == block["subagentId"]:
            continue
        was, name = block["subagentId"], told["subagentId"]
        assert was == block["toolUseId"]
        block["subagentId"] = name
        yield Difference("both", told, frozenset({"subagentId"}), block, tuple(session.runs))
        rows = {
            (row["type"], row["toolUseId"]): row["id"]
            for row in session.files
            if row["conversationId"] == name and "toolUseId" in row
        }
        for row in stream:
            if row["conversationId"] == was:
                row["conversationId"] = name
                row["id"] = row["id"].replace(f"{was}:", f"{name}:")
                known = rows.get((row["type"], row.get("toolUseId", "")), row["id"])
                if known != row["id"]:
                    yield Difference("both", row, frozenset({"id"}), row, tuple(session.runs))
                    row["id"] = known


def differences(session: Session) -> Iterator[Difference]:
    """Yield every difference between what was streamed and what is stored."""
    runs = tuple(session.runs)
    yield from _named_alike(session)
    streamed: dict[str, Block] = {}
    for blocks in session.stream.conversations.values():
        streamed.update((block["id"], block) for block in blocks)
    stored = {block["id"]: block for block in session.files}
    for name, block in stored.items():
        own = block["conversationId"] in session.own
        if name not in streamed:
            yield Difference("file", block, frozenset(), None, runs, own)
            continue
        here, there = _compared(streamed[name]), _compared(block)
        fields = {field for field in {*here, *there} if here.get(field) != there.get(field)}
        if fields:
            yield Difference("both", block, frozenset(fields), streamed[name], runs, own)
    for name, block in streamed.items():
        if name not in stored:
            by = session.by.get(name)
            yield Difference("stream", block, frozenset(), block, (by,) if by else runs)
    for thread in {block["conversationId"] for block in stored.values()}:
        common = [n for n, block in stored.items() if n in streamed and _in(block, thread)]
        given = [n for n, block in streamed.items() if n in stored and _in(block, thread)]
        if common != given:
            steady = [n for n in common if stored[n]["type"] != "user_message"]
            moved = {"user_message"} if steady == [n for n in given if n in steady] else {"any"}
            yield Difference("order", stored[common[0]], frozenset(moved), None, runs)


def _in(block: Block, thread: str) -> bool:
    return bool(block["conversationId"] == thread)


@cache
def _found() -> dict[str, set[str]]:
    """Return the versions in which each rule was needed."""
    found: dict[str, set[str]] = {}
    for scenario in _scenarios():
        for session in _sessions(scenario):
            for one in differences(session):
                rule = rule_for(one)
                if rule is not None:
                    found.setdefault(rule.id, set()).update(run.version for run in one.runs)
    return found


def test_the_document_has_the_same_table() -> None:
    """Row by row, so that what is tolerated is what is promised."""
    page = (ROOT / "docs/clients/claude.md").read_text(encoding="utf-8")
    block = page.split("<!-- claude-stream: begin -->")[1].split("<!-- claude-stream: end -->")[0]
    rows = [line.strip("| ").split(" | ") for line in block.strip().splitlines()[2:]]
    assert [(row[0].strip("`"), *row[1:]) for row in rows] == [
        (rule.id, rule.what, rule.where, rule.versions, rule.why) for rule in RULES
    ]


recorded = pytest.mark.skipif(not CORPUS.is_dir(), reason="the recorded corpus is not here")


@pytest.mark.parametrize(
    "scenario", _scenarios(), ids=lambda path: f"{path.parent.name}-{path.name}"
)
def test_the_stream_gives_the_blocks_of_the_file(scenario: Path) -> None:
    """Id, type, content, pairing, conversation and order, but for what the table lists."""
    untold = [
        f"{one.side} {sorted(one.fields)} {one.block}"[:400]
        for session in _sessions(scenario)
        for one in differences(session)
        if rule_for(one) is None
    ]
    assert untold == []


@recorded
def test_each_row_of_the_table_is_needed_in_its_versions() -> None:
    """A difference that no client makes any more is not tolerated any more."""
    assert {name: sorted(versions) for name, versions in _found().items()} == {
        rule.id: sorted(rule.versions.split()) for rule in RULES
    }


@recorded
def test_a_message_that_never_came_does_not_survive() -> None:
    """The text of the broken stream is superseded, and the answer stands once."""
    (session,) = _sessions(CORPUS / "claude-2.1.98" / "cut_once")
    texts = [block for block in session.stream.blocks(MAIN) if block["type"] == "assistant_text"]
    assert [block.get("superseded", False) for block in texts] == [True, False, False]
    assert texts[1]["content"].startswith(texts[0]["content"])
