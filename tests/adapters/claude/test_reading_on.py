"""A reader that goes on from its own state gives what a whole reading gives, to the byte."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from claude_support import FIXTURES, SESSION, SINGLE, call, lines, result, row, said, user
from cuts import (
    MUTATIONS,
    as_another_has_it,
    cut,
    ends,
    moved,
    read_on,
    readings_of_mutated,
    sessions_in,
    states_in_processes,
)

from agentsdir.adapters.claude.discover import detect, discover
from agentsdir.adapters.claude.reader import ClaudeReader
from agentsdir.adapters.protocol import ReaderState, ResumableReader, SessionFiles, Transcript
from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

pytestmark = pytest.mark.feature("B-01")

SHARED = Path(__file__).resolve().parents[4] / "shared"
READER: ResumableReader = ClaudeReader()
CUTS = 12


def whole(session: SessionFiles) -> list[tuple[bytes, dict[str, Any]]]:
    """Return every block of a session that is read from its first byte, and its line."""
    sink = ParseSink()
    READER.parse_transcripts(session, sink)
    return [(line, orjson.loads(line)) for line in sink.lines("all")]


def state_of(session: SessionFiles) -> ReaderState | None:
    """Return where a whole reading ends, as another process has it."""
    return as_another_has_it(READER.resume(session, ParseSink(), None))


def hold(session: SessionFiles, cuts: Iterable[int], chosen: random.Random) -> int:
    """Compare the readings on from each cut with the whole one; return how many there were."""
    main, *children = session.transcripts
    if main.role != "main":
        return 0
    blocks, read = whole(session), 0
    for size in cuts:
        known = [child for child in children if chosen.random() < 0.6]
        state = state_of(cut(session, size, known))
        found = None if state is None else read_on(READER, session, state)
        if found is None:
            continue
        names = {child.source.name for child in known}
        assert found == [
            line
            for line, block in blocks
            if block["source"]["file"] not in names
            and (block["source"]["file"] != main.source.name or block["source"]["offset"] >= size)
        ], (main.source.name, size, sorted(names))
        read += 1
    return read


def claudes_in(*folders: Path) -> list[SessionFiles]:
    """Return the sessions of this client in folders."""
    return sessions_in(READER, detect, *folders)


@pytest.mark.parametrize("path", SINGLE, ids=lambda path: path.name)
def test_each_row_is_a_place_to_go_on_from(path: Path) -> None:
    """All fixtures, with the subagents' files that were there before chosen at random."""
    paths = [path] if path.is_file() else sorted(path.rglob("*.jsonl"))
    sources = [Source(str(found.relative_to(FIXTURES)), path=found) for found in paths]
    for session in discover(sources):
        cuts = ends(session.transcripts[0].source.read())
        hold(session, cuts, random.Random(path.name))


def test_recorded_sessions_are_read_on_from_nearly_every_row() -> None:
    """Only prompts that wait, and files of subagents out of order, need the whole."""
    chosen = random.Random(3)
    cuts = read = 0
    for session in claudes_in(FIXTURES / "recorded"):
        places = ends(session.transcripts[0].source.read())
        places = chosen.sample(places, min(CUTS, len(places)))
        cuts += len(places)
        read += hold(session, places, chosen)
    assert read > 0.7 * cuts


@pytest.mark.skipif(not SHARED.is_dir(), reason="the corpus is not beside the repository")
def test_sessions_of_the_corpus_are_read_on() -> None:
    """Of every client, the interactive ones too."""
    chosen = random.Random(4)
    for session in claudes_in(SHARED / "corpus", SHARED / "interactive"):
        places = ends(session.transcripts[0].source.read())
        hold(session, chosen.sample(places, min(CUTS, len(places))), chosen)


def mutated(data: bytes, chosen: random.Random) -> bytes:
    """Return rows doubled, swapped, cut, or with ids of earlier ones."""
    rows = data.splitlines(keepends=True)
    for _ in range(chosen.randint(1, 4)):
        first, second = sorted(chosen.choices(range(len(rows)), k=2))
        how = chosen.choice(["double", "swap", "cut", "uuid", "message", "parent", "root", "bare"])
        if not moved(rows, how, first, second):
            rows[second] = _with_ids_of(how, rows[first], rows[second])
    return b"".join(rows)


def _with_ids_of(how: str, first: bytes, second: bytes) -> bytes:
    try:
        earlier, later = orjson.loads(first), orjson.loads(second)
        if how == "message":
            later["message"] = {**later["message"], "id": earlier["message"]["id"]}
        elif how == "bare":
            del later["uuid"]
        else:
            name = "uuid" if how == "uuid" else "parentUuid"
            later[name] = None if how == "root" else earlier["uuid"]
    except (ValueError, TypeError, KeyError):
        return second
    return orjson.dumps(later) + b"\n"


@pytest.mark.parametrize("seed", range(4))
def test_rows_that_go_back_to_earlier_ones_are_read_on_or_refused(seed: int) -> None:
    """Ids that stand twice, rewinds, and damage: never other blocks."""
    sessions = claudes_in(FIXTURES)
    assert readings_of_mutated(sessions, mutated, hold, random.Random(seed)) > MUTATIONS


def test_a_state_is_the_same_in_every_process() -> None:
    """Whatever numbers a process gives to texts: those of a state are for another one."""
    files = sorted((FIXTURES / "side-agents-2.1.98").rglob("*.jsonl"))
    assert len(states_in_processes("claude", *files)) == 1


USAGE = {"input_tokens": 5, "output_tokens": 7}
BEFORE = [
    user("u1", None, "first"),
    said("a1", "u1", {"type": "text", "text": "one"}, id="msg_1"),
    said("a2", "a1", call("t1", "Bash"), id="msg_2", stop_reason=None),
    user("u2", "a2", [result("t1", "done")]),
    said("a3", "u2", "two", id="msg_3", stop_reason=None, usage=USAGE),
]


def lines_after(*rows: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return the blocks of rows after `BEFORE`, of which they may say something."""
    data = lines(*BEFORE)
    main = Transcript(Source("s.jsonl", data=data + lines(*rows)), "main")
    session = SessionFiles((main,))
    state = state_of(cut(session, len(data), []))
    assert state is not None
    found = read_on(READER, session, state)
    if found is None:
        return None
    assert found == [line for line, b in whole(session) if b["source"]["offset"] >= len(data)]
    return [orjson.loads(line) for line in found]


def test_the_message_that_goes_on_has_its_usage_on_its_later_block() -> None:
    """Also where only the earlier row had counts."""
    later = said("a4", "a3", "three", id="msg_3", usage=None)
    (block,) = lines_after(later) or ()
    assert block["usage"]["outputTokens"] == 7


def test_a_message_before_the_latest_that_goes_on_needs_the_whole() -> None:
    """Its counts are not kept."""
    assert lines_after(said("a4", "a3", "three", id="msg_1")) is None


def test_a_row_that_stands_twice_gives_no_block() -> None:
    """Its first place is in what was read before."""
    assert lines_after(BEFORE[0], user("u9", "a3", "next")) is not None
    assert [block["id"] for block in lines_after(BEFORE[0], user("u9", "a3", "x")) or ()] == [
        "u9:0"
    ]


def test_later_rows_on_a_branch_that_a_rewind_left_are_superseded() -> None:
    """The prompt beside the first one is newer; the row after it hangs from the old branch."""
    rewound = user("u5", None, "first, again")
    late = said("a9", "a3", "too late", id="msg_9")
    found = lines_after(rewound, late, said("a8", "u5", "yes", id="msg_8")) or ()
    assert [block.get("superseded", False) for block in found] == [False, True, False]


def test_a_call_of_before_is_answered_and_its_result_is_shown() -> None:
    """The call's own block is out of reach, and no other call takes its result."""
    opened = [*BEFORE, said("a5", "a3", call("t2", "Read"), id="msg_5")]
    data = lines(*opened)
    main = Transcript(
        Source("s.jsonl", data=data + lines(user("u3", "a5", [result("t2", "r")]))), "main"
    )
    session = SessionFiles((main,))
    state = state_of(cut(session, len(data), []))
    assert state is not None
    assert state.state["calls"]["open"] == [["main", "t2"]]
    (line,) = read_on(READER, session, state) or ()
    assert orjson.loads(line)["toolUseId"] == "t2"


def test_where_much_would_be_kept_there_is_no_state() -> None:
    """A prompt that waits in the queue, a subagent's rows in the main file, a torn line."""
    waiting = {"type": "queue-operation", "operation": "enqueue", "content": "later",
               "sessionId": SESSION, "timestamp": "2026-01-02T03:04:05.678Z"}  # fmt: skip
    side = row("user", "s1", None, isSidechain=True, message={"role": "user", "content": "go"})
    for data in (
        lines(*BEFORE, waiting),
        lines(*BEFORE, side),
        lines(*BEFORE) + b'{"type":"user"',
    ):
        assert state_of(SessionFiles((Transcript(Source("s.jsonl", data=data), "main"),))) is None


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to each value in a document."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _places(item, (*path, key))
    elif isinstance(value, list):
        for at, item in enumerate(value[:3]):
            yield from _places(item, (*path, at))


OTHERS: list[Any] = [None, -1, 0, 2**40, "", "x", [], [0], [[9, 9, "x"]], {}, {"a": 1}, True, 1.5]


def test_a_state_of_other_values_ends_in_an_error_or_in_blocks() -> None:
    """A reader that is given anything ends: values of a state replaced by other ones."""
    (session,) = claudes_in(FIXTURES / "side-agents-2.1.98")
    places = ends(session.transcripts[0].source.read())
    made = state_of(cut(session, places[len(places) // 2], list(session.transcripts[1:])))
    assert made is not None
    text = orjson.dumps(made.state)
    tries = [(path, other) for path in _places(made.state) for other in OTHERS]
    refused = 0
    for path, other in random.Random(5).sample(tries, 250):
        state = orjson.loads(text)
        inner = state
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = other
        try:
            READER.resume(session, ParseSink(), ReaderState(made.size, state))
        except Exception:  # noqa: BLE001, whatever it is, the whole is read
            refused += 1
    assert 0 < refused < 250


def test_rows_that_hang_from_themselves_are_refused() -> None:
    """A chain without an end would be followed for ever."""
    data = lines(*BEFORE, user("u7", None, "a second root"))
    session = SessionFiles((Transcript(Source("s.jsonl", data=data), "main"),))
    made = state_of(session)
    assert made is not None
    for name, value in (
        ("above", [0, 0]), ("above", [1, -1]), ("prompts", [0, 99]), ("lastMain", 99),
        ("roots", [[1, 1, SESSION]]), ("absorbed", [2]), ("fillers", [-1]),
    ):  # fmt: skip
        state = orjson.loads(orjson.dumps(made.state))
        assert state["main"]["tree"][name] != value
        state["main"]["tree"][name] = value
        with pytest.raises(ValueError, match="no rows"):
            READER.resume(session, ParseSink(), ReaderState(made.size, state))
