"""A reader that goes on from its own state gives what a whole reading gives, to the byte."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from cuts import MUTATIONS, cut, ends, read_on, readings_of_mutated, states_in_processes
from gemini_cuts import READER, Begun, begun, logs_in, mutated
from gemini_files import answer, context, header, log, message, prompt
from gemini_reading import FIXTURES

from agentsdir.adapters.protocol import ReaderState, SessionFiles, Transcript
from agentsdir.formats.blocks import block_key
from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

pytestmark = pytest.mark.feature("B-01")

SHARED = Path(__file__).resolve().parents[4] / "shared"
CUTS = 12


def whole(session: SessionFiles) -> list[bytes]:
    """Return every block of a session that is read from its first byte, as a line."""
    sink = ParseSink()
    READER.parse_transcripts(session, sink)
    return list(sink.lines("all"))


def check(session: SessionFiles, before: Begun, lines: list[bytes]) -> bool:
    """Compare a reading on with the whole one, `lines`; return whether there was one.

    It has every block of the later rows, in the same order and with the same bytes. What it has
    not are blocks of earlier rows, whose keys were known.
    """
    main, state = session.transcripts[0].source.name, before.state
    found = None if state is None else read_on(READER, session, state)
    if state is None or found is None:
        return False
    rest = iter(found)
    expected = next(rest, None)
    for line in lines:
        if line == expected:
            expected = next(rest, None)
            continue
        block = orjson.loads(line)
        place = block["source"] or {}
        assert block_key(block) in before.keys, (main, state.size, block)
        assert place.get("file") != main or place["offset"] < state.size, (main, state.size, block)
    assert expected is None, (main, state.size, expected)
    return True


def hold(session: SessionFiles, cuts: Iterable[int], chosen: random.Random) -> int:
    """Compare the readings on from each cut with the whole one; return how many there were."""
    main, *children = session.transcripts
    if main.role != "main" or not main.source.name.endswith("l"):
        return 0
    lines, read = whole(session), 0
    for size in cuts:
        known = [child for child in children if chosen.random() < 0.6]
        read += check(session, begun(cut(session, size, known)), lines)
    return read


def test_each_row_of_each_fixture_is_a_place_to_go_on_from() -> None:
    """With the subagents' files that were there before chosen at random."""
    chosen = random.Random(1)
    cuts = read = 0
    for session in logs_in(FIXTURES, FIXTURES.parent / "gemini-cases"):
        places = ends(session.transcripts[0].source.read())
        cuts += len(places)
        read += hold(session, places, chosen)
    assert read > 0.6 * cuts


@pytest.mark.skipif(not SHARED.is_dir(), reason="the corpus is not beside the repository")
def test_sessions_of_the_corpus_are_read_on() -> None:
    """Of every client, the interactive ones too."""
    chosen = random.Random(4)
    read = 0
    for session in logs_in(SHARED / "corpus", SHARED / "interactive"):
        places = ends(session.transcripts[0].source.read())
        read += hold(session, chosen.sample(places, min(CUTS, len(places))), chosen)
    assert read


def test_a_reading_on_is_a_place_to_go_on_from() -> None:
    """Row by row: each state is made from the one before, and the last is that of the whole."""
    made = 0
    for session in logs_in(FIXTURES):
        main, *children = session.transcripts
        state, keys = None, set()
        for size in ends(main.source.read()) if main.role == "main" else ():
            now = cut(session, size, children)
            if state is not None:
                assert check(now, Begun(state, keys), whole(now))
            known = begun(now)
            if known.state is not None and state is not None:
                assert begun(now, state).state == known.state
                made += 1
            state, keys = known
    assert made > 300


@pytest.mark.parametrize("seed", range(4))
def test_rows_that_restate_and_change_earlier_ones_are_read_on_or_refused(seed: int) -> None:
    """Ids that stand twice, restatements under new ids, rewinds, damage: never other blocks."""
    sessions = logs_in(FIXTURES, FIXTURES.parent / "gemini-cases")
    assert readings_of_mutated(sessions, mutated, hold, random.Random(seed)) > MUTATIONS


def test_a_state_is_the_same_in_every_process() -> None:
    """Whatever numbers a process gives to texts: those of a state are for another one."""
    for name in ("compress.jsonl", "calls.jsonl"):
        assert len(states_in_processes("gemini", FIXTURES / name)) == 1


def call(name: str = "t1", output: str = "found") -> dict[str, Any]:
    """Return a call as the client records it, with its result."""
    response = {"id": name, "name": "look", "response": {"output": output}}
    done = {"result": [{"functionResponse": response}], "timestamp": "2026-01-02T03:04:07.000Z"}
    return {"id": name, "name": "look", "args": {"a": 1}, "status": "success", **done}


BEFORE = [
    header(),
    context(),
    prompt("first"),
    answer("", "g1", toolCalls=[call()]),
    message("r1", "user", call()["result"]),
    answer("it is there", "g2", tokens={"input": 5, "output": 7, "total": 12}),
]


def lines_after(*rows: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return the blocks of rows after `BEFORE`, and those of which they say more."""
    data = log(*BEFORE)
    source = Source("session-x.jsonl", data=data + log(*rows))
    session = SessionFiles((Transcript(source, "main"),))
    before = begun(cut(session, len(data), []))
    assert before.state is not None
    check(session, before, whole(session))
    found = read_on(READER, session, before.state)
    return found and [orjson.loads(line) for line in found]


def test_what_is_restated_as_it_was_gives_no_block() -> None:
    """A resume: a header, the context, and the whole history, results as messages of their own."""
    parts = [{"functionCall": {name: call()[name] for name in ("id", "name", "args")}}]
    restated = [
        context()["$set"]["messages"][0],
        prompt("first"),
        {**answer("", "g1"), "content": parts},
        message("g1_response", "user", call()["result"]),
        answer("it is there", "g2"),
    ]
    resume = {"$set": {"messages": restated}}
    found = lines_after(header(), context(), resume, prompt("next", "u2")) or []
    assert [block["id"] for block in found] == ["u2:p"]


def test_a_message_that_says_more_has_its_blocks_anew() -> None:
    """A longer result of an old call is in the later row, and with it the block."""
    found = lines_after(answer("", "g1", toolCalls=[call(output="found, and more")])) or []
    assert [block["id"] for block in found] == ["g1:ct1", "g1:rt1"]
    assert found[1]["output"] == "found, and more"
    assert found[1]["source"]["line"] == len(BEFORE) + 1


def test_old_messages_that_come_back_under_new_ids_are_known() -> None:
    """Where a list replaces the history, and where a row repeats a call."""
    again = [prompt("first", "n1"), answer("it is there", "n2"), prompt("new", "n3")]
    found = lines_after({"$set": {"messages": again}}) or []
    assert [block["id"] for block in found] == ["n3:p"]


def test_blocks_of_later_rows_that_a_rewind_dropped_are_superseded() -> None:
    """A rewind goes back to an old message, beyond a new one."""
    found = lines_after(prompt("other", "u2"), {"$rewindTo": "u1"}, prompt("this", "u3")) or []
    assert [block.get("superseded", False) for block in found] == [True, False]


def test_where_much_would_be_kept_there_is_no_state() -> None:
    """Results that the next row may repeat, a torn line, and a log without a header."""
    for data in (log(*BEFORE[:4]), log(*BEFORE) + b'{"id":"u', log(*BEFORE[1:])):
        source = Source("session-x.jsonl", data=data)
        assert begun(SessionFiles((Transcript(source, "main"),))).state is None


def test_a_subagents_thread_that_stands_in_two_files_needs_the_whole() -> None:
    """Which of them is the fuller one was not kept."""
    main = Transcript(Source("session-x.jsonl", data=log(*BEFORE)), "main")
    child = log(header("a1", "subagent"), prompt("go"), answer("done"))
    first, second = (
        Transcript(Source(f"x/{name}.jsonl", data=child), "subagent") for name in ("a", "b")
    )
    state = begun(SessionFiles((main, first))).state
    assert state is not None
    assert read_on(READER, SessionFiles((main, first)), state) == []
    assert read_on(READER, SessionFiles((main, first, second)), state) is None
    assert read_on(READER, SessionFiles((main,)), state) is None
    assert begun(SessionFiles((main, first, second))).state is None


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to each value in a document."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _places(item, (*path, key))
    elif isinstance(value, list):
        for at, item in enumerate(value[:6]):
            yield from _places(item, (*path, at))


OTHERS: list[Any] = [None, -1, 0, 2**40, "", "x", [], [0], [[9, 9, "x"]], {}, {"a": 1}, True, 1.5]


def test_a_state_of_other_values_ends_in_an_error_or_in_blocks() -> None:
    """A reader that is given anything ends: values of a state replaced by other ones."""
    data = log(*BEFORE, prompt("next", "u2"), answer("so", "g3"))
    session = SessionFiles((Transcript(Source("session-x.jsonl", data=data), "main"),))
    made = begun(cut(session, len(log(*BEFORE)), [])).state
    assert made is not None
    text = orjson.dumps(made.state)
    tries = [(path, other) for path in _places(made.state) for other in OTHERS]
    refused = 0
    for path, other in random.Random(5).sample(tries, 400):
        state = orjson.loads(text)
        inner = state
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = other
        try:
            READER.resume(session, ParseSink(), ReaderState(made.size, state))
        except Exception:  # noqa: BLE001, whatever it is, the whole is read
            refused += 1
    assert 0 < refused < 400
