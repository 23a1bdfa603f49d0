"""A turn whose follower begins where a reading ended has the events of one that reads everything.

It is what a turn of a client with a long log begins with.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cuts import ends
from gemini_cuts import Begun, begun, logs_in, mutated
from gemini_files import answer, context, header, log, message, prompt
from gemini_reading import FIXTURES

from agentsdir.adapters.gemini import store
from agentsdir.adapters.gemini.stream import GeminiTranslator, JoinedTurn, PendingFollower
from agentsdir.adapters.protocol import EarlierReading, ReaderState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentsdir.adapters.protocol import SessionFiles
    from agentsdir.formats.blocks import StreamEvent

pytestmark = pytest.mark.feature("B-01")

MUTATIONS = 120


def earlier(before: Begun) -> EarlierReading:
    """Return a reading as a turn gets it."""
    assert before.state is not None
    return EarlierReading(before.state, before.keys.__contains__)


def play(main: Path, data: bytes, pieces: Iterable[int], before: Begun | None) -> list[StreamEvent]:
    """Return the events of a turn, in which a file gets one piece after another, up to each."""
    size, *rest = pieces
    main.write_bytes(data[:size])
    follower = PendingFollower(lambda: main)
    follower.pass_over(earlier(before) if before else None)
    turn = JoinedTurn(GeminiTranslator(), follower)
    events = []
    for end in rest:
        with main.open("ab") as stream:
            stream.write(data[size:end])
        size = end
        events += [*turn.poll(), *turn.poll()]
    return [*events, *turn.end()]


def placed(session: SessionFiles, folder: Path) -> Path:
    """Write the files of a session into an empty folder as the client has them."""
    main, *children = [Path(one.source.name) for one in session.transcripts]
    for path, one in zip(children, session.transcripts[1:], strict=True):
        place = folder / "chats" / path.relative_to(main.parent)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(one.source.read())
    (folder / "chats").mkdir(parents=True, exist_ok=True)
    return folder / "chats" / main.name


def hold(session: SessionFiles, data: bytes, folder: Path, chosen: random.Random) -> bool:
    """Compare the events of both ways; return whether there was a place to go on from."""
    if session.transcripts[0].role != "main" or data.count(b"\n") < 3:
        return False
    main = placed(session, folder)
    read, *pieces = sorted(chosen.choices(ends(data), k=4))
    main.write_bytes(data[:read])
    before = begun(store.files(main))
    if before.state is None:
        return False
    pieces = sorted({*pieces, len(data)})
    assert play(main, data, pieces, before) == play(main, data, pieces, None), (main.name, pieces)
    return True


def test_turns_of_the_fixtures_have_the_same_events(tmp_path: Path) -> None:
    """The reading ended somewhere before the turn, and the client writes in pieces."""
    chosen, held = random.Random(1), 0
    for number, session in enumerate(logs_in(FIXTURES, FIXTURES.parent / "gemini-cases")):
        data = session.transcripts[0].source.read()
        held += hold(session, data, tmp_path / str(number), chosen)
    assert held > 30


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_restate_and_change_earlier_ones_have_the_same_events(
    tmp_path: Path, seed: int
) -> None:
    """Ids that stand twice, restatements under new ids, rewinds, damage."""
    chosen, held = random.Random(seed), 0
    sessions = logs_in(FIXTURES, FIXTURES.parent / "gemini-cases")
    for number in range(MUTATIONS):
        session = chosen.choice(sessions)
        data = session.transcripts[0].source.read()
        if len(data) < 200_000:
            held += hold(session, mutated(data, chosen), tmp_path / str(number), chosen)
    assert held > MUTATIONS // 3


def orphan() -> dict[str, Any]:
    """Return a result that no call asked for."""
    response = {"id": "t9", "name": "look", "response": {"output": "x"}}
    return message("r9", "user", [{"functionResponse": response}])


OLD = [header(), context(), prompt("first"), answer(), orphan()]
NEW = [prompt("second", "u2"), answer("no", "g2")]


@pytest.mark.parametrize("known", [True, False])
def test_what_only_the_end_settles_is_no_news_of_a_later_turn(tmp_path: Path, known: bool) -> None:
    """A result without a call, and the thread of a subagent that was killed."""
    main = tmp_path / "session-x.jsonl"
    child = tmp_path / header()["sessionId"] / "a1.jsonl"
    child.parent.mkdir()
    child.write_bytes(log(header("a1", "subagent"), prompt("go"), answer("I")))
    main.write_bytes(log(*OLD))
    before = begun(store.files(main)) if known else None
    sizes = [len(log(*OLD)), len(log(*OLD, *NEW))]
    events = play(main, log(*OLD, *NEW), sizes, before)
    completed = [event["blockId"] for event in events if event["type"] == "block_complete"]
    assert completed == ["u2:p", "g2:x"]


def test_nothing_before_the_reading_is_read(tmp_path: Path) -> None:
    """The bytes before are other ones, but for what is compared: 64 KiB, and the first row."""
    texts = [answer(f"{number} " * 3000, f"old{number}") for number in range(30)]
    old = log(header(), *texts)
    main = tmp_path / "session-x.jsonl"
    main.write_bytes(old)
    before = begun(store.files(main))
    spoilt = bytearray(old)
    spoilt[2000:100_000] = b"x" * 98_000
    data = bytes(spoilt) + log(*NEW)
    events = play(main, data, [len(old), len(data)], before)
    completed = [event["blockId"] for event in events if event["type"] == "block_complete"]
    assert completed == ["u2:p", "g2:x"]


@pytest.mark.parametrize("way", ["another session", "no line", "beyond", "no state", "no rows"])
def test_a_reading_that_does_not_fit_is_not_used(tmp_path: Path, way: str) -> None:
    """Then the whole file is read."""
    main = tmp_path / "session-x.jsonl"
    main.write_bytes(log(*OLD))
    before = begun(store.files(main))
    assert before.state is not None
    size, state = before.state
    if way == "another session":
        state["fold"]["sessionId"] = "other"
    elif way == "no rows":
        state["fold"]["index"].update(line="", offset="", length="")
    wrong = {"no line": size - 1, "beyond": size + 1}.get(way, size)
    changed = before._replace(state=ReaderState(wrong, {} if way == "no state" else state))
    data = log(*OLD, *NEW)
    pieces = [len(log(*OLD)), len(data)]
    assert play(main, data, pieces, changed) == play(main, data, pieces, None)
