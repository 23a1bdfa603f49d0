"""The timeline of a session: what a model is given, from the log and what was put in its place."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsdir.engine.timeline import (
    ROLES,
    Timeline,
    TimelineFold,
    estimated_tokens,
    role_of,
    select,
)
from agentsdir.formats.blocks import BLOCKS, make_block
from agentsdir.formats.errors import Invalid, SessionStateError, UsageError
from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.layout import AgentPaths
from agentsdir.formats.store.log import NO_LINE, Record, encode_record, line_hash
from agentsdir.schemas import check

pytestmark = pytest.mark.feature("A-12", "A-13")


def text(block_id: str, said: str = "", conversation: str = "main", **fields: Any) -> Any:
    """Return a block of text."""
    return make_block(
        "assistant_text", block_id, conversation, "s", None, None, content=said, **fields
    )


def call(use: str) -> Any:
    """Return the call of a tool."""
    fields = {"toolName": "t", "toolUseId": use, "input": {}, "status": "success"}
    return make_block("tool_use", f"call-{use}", "main", "s", None, None, **fields)


def result(use: str) -> Any:
    """Return the result of a call."""
    fields = {"toolUseId": use, "output": "done", "isError": False}
    return make_block("tool_result", f"result-{use}", "main", "s", None, None, **fields)


def ids(blocks: list[Any]) -> list[str]:
    """Return the ids of blocks."""
    return [block["id"] for block in blocks]


def record(event: str, data: dict[str, Any]) -> Record:
    """Return a record."""
    return Record(1, "2026-01-02T03:04:05.000000Z", event, "s", data, NO_LINE)


# Against a naive fold.


def naive(records: list[Record]) -> tuple[list[Any], list[Any]]:
    """Return the timeline and the history, as SPEC.md says them, by looking at all of it."""
    resets = [n for n, one in enumerate(records) if one.event == "history.reset"]
    since = records[resets[-1] + 1 :] if resets else records
    timeline: list[tuple[str, str]] = []
    said: dict[tuple[str, str], Any] = {}
    logged: dict[tuple[str, str], Any] = {}
    for one in since:
        if one.event == "block":
            block = one.data["block"]
            key = (block["conversationId"], block["id"])
            if key in timeline:
                said[key] = block
            elif key not in logged and key[0] == "main":
                timeline.append(key)
                said[key] = block
            logged[key] = block
        elif one.event == "timeline.set":
            before, timeline, said = said, [], {}
            del before
            for entry in one.data["entries"]:
                if "block" in entry:
                    key = (entry["block"]["conversationId"], entry["block"]["id"])
                    shown = entry["block"]
                else:
                    key = (entry["conversation_id"], entry["id"])
                    shown = logged.get(key)
                if shown is not None and key not in timeline:
                    timeline.append(key)
                    said[key] = shown
    entries = [said[key] for key in timeline if not said[key].get("superseded")]
    history = [
        block
        for (conversation, _), block in logged.items()
        if conversation == "main" and not block.get("superseded")
    ]
    return entries, history


NAME = st.sampled_from(["a", "b", "c", "d", "e"])
CONVERSATION = st.sampled_from(["main", "main", "main", "sub"])
TEXTS = st.builds(
    lambda name, said, conversation, fields: text(name, said, conversation, **fields),
    NAME,
    st.sampled_from(["1", "2"]),
    CONVERSATION,
    st.sampled_from([{}, {}, {"superseded": True}]),
)
ENTRY = st.one_of(
    st.fixed_dictionaries({"conversation_id": CONVERSATION, "id": NAME}),
    TEXTS.map(lambda block: {"block": block}),
)
RECORD = st.one_of(
    TEXTS.map(lambda block: record("block", {"turn_id": None, "block": block})),
    st.lists(ENTRY, max_size=4).map(lambda entries: record("timeline.set", {"entries": entries})),
    st.just(record("history.reset", {})),
    st.just(record("agent.tagged", {"tags": []})),
)


@settings(max_examples=400)
@given(st.lists(RECORD, max_size=25))
def test_the_fold_equals_the_naive_one_after_every_record(records: list[Record]) -> None:
    """Entries and history, in order and in their last version."""
    fold = TimelineFold()
    for number, one in enumerate(records, 1):
        fold.take(one)
        assert (fold.entries(), fold.history()) == naive(records[:number])


@settings(max_examples=600)
@given(st.lists(RECORD, max_size=25), st.integers(1, 3))
def test_a_limited_fold_has_the_newest_or_says_that_it_lacks_them(
    records: list[Record], most: int
) -> None:
    """It never has other blocks than the whole one; made again, it has them."""
    fold = TimelineFold(most)
    for number, one in enumerate(records, 1):
        fold.take(one)
        expected = naive(records[:number])[0][-most:]
        if fold.lacks:
            fold = TimelineFold()
            for before in records[:number]:
                fold.take(before)
            fold.limit(most)
        assert fold.entries() == expected
        assert not fold.lacks


@pytest.mark.parametrize("most", [None, 1])
def test_a_summary_that_was_cut_off_and_then_left_out_may_come_from_the_log(
    most: int | None,
) -> None:
    """As long as it stands in the timeline, a record of its id does not append it again."""
    fold = TimelineFold(most)
    entries = [{"block": text("summary")}, {"block": text("a")}]
    fold.take(record("timeline.set", {"entries": entries}))
    fold.take(record("block", {"block": text("summary")}))
    assert ids(fold.entries())[-1] == "a"
    fold.take(record("history.reset", {}))
    fold.take(record("timeline.set", {"entries": entries}))
    fold.take(record("timeline.set", {"entries": []}))
    fold.take(record("block", {"block": text("summary")}))
    assert ids(fold.entries()) == ["summary"]


def test_a_limited_fold_lets_go_of_what_it_does_not_hold() -> None:
    """Ids are what it keeps of older blocks."""
    fold = TimelineFold(3)
    for number in range(1000):
        fold.take(record("block", {"block": text(f"b{number}")}))
        fold.take(record("block", {"block": text(f"b{number}", "", "sub")}))
    assert ids(fold.entries()) == ["b997", "b998", "b999"]
    assert len([block for block in fold._logged.values() if block is not None]) == 3


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"entries": {}},
        {"entries": [None, 1, "a", [], {}, {"block": None}, {"block": "a"}]},
        {"entries": [{"conversation_id": ["main"], "id": {}}, {"id": "a"}]},
    ],
)
def test_entries_that_are_none_are_passed_over(data: dict[str, Any]) -> None:
    """A foreign writer's, or a newer version's."""
    fold = TimelineFold()
    fold.take(record("block", {"block": text("a")}))
    fold.take(record("timeline.set", data))
    assert ids(fold.entries()) == (["a"] if data.get("entries") in (None, {}) else [])
    fold.take(record("block", {"block": "none"}))
    fold.take(record("block", {"block": {"type": "new", "id": 1}}))


# Of an agent.


def say(stage: Any, paths: AgentPaths, *names: str, **fields: Any) -> None:
    """Log blocks."""
    for name in names:
        block = text(name, f"said {name}", **fields)
        stage.append(paths, "block", {"turn_id": None, "block": block})


@pytest.mark.parametrize("most", [None, 100])
def test_what_a_timeline_set_leaves_out_stays_out_and_the_log_keeps_it(
    stage: Any, most: int | None
) -> None:
    """A summary in place of two blocks; a later version of one of them does not bring it back."""
    paths = stage.new()
    timeline = Timeline(paths, most)
    say(stage, paths, "a", "b", "c")
    history = paths.history.read_bytes()
    summary = text("summary", "a and b")
    assert ids(timeline.replace(stage.services, lambda now: [summary, *now[2:]])) == [
        "summary",
        "c",
    ]
    assert paths.history.read_bytes() == history
    assert stage.log(paths)[-1]["data"] == {
        "entries": [{"block": summary}, {"conversation_id": "main", "id": "c"}]
    }
    say(stage, paths, "d", "a")
    assert ids(timeline.entries()) == ["summary", "c", "d"]
    assert ids(timeline.conversation_history()) == ["a", "b", "c", "d"]
    assert ids(Timeline(paths, most).entries()) == ["summary", "c", "d"]


def test_a_block_that_was_left_out_can_be_put_back(stage: Any) -> None:
    """By its id, as it was logged last; with a limit, too."""
    paths = stage.new()
    say(stage, paths, "a", "b")
    timeline = Timeline(paths, 1)
    timeline.replace(stage.services, lambda _: [])
    a = Timeline(paths).conversation_history()[0]
    timeline.replace(stage.services, lambda now: [*now, a])
    assert stage.log(paths)[-1]["data"]["entries"] == [{"block": a}]
    whole = Timeline(paths)
    assert ids(whole.entries()) == ["a"]
    whole.replace(stage.services, lambda _: list(reversed(whole.conversation_history())))
    assert stage.log(paths)[-1]["data"]["entries"] == [
        {"conversation_id": "main", "id": "b"},
        {"conversation_id": "main", "id": "a"},
    ]
    assert ids(timeline.entries()) == ["a"]


def test_a_reset_begins_the_timeline_anew(stage: Any) -> None:
    """A block of before cannot be named after it."""
    paths = stage.new()
    timeline = Timeline(paths)
    say(stage, paths, "a")
    timeline.replace(stage.services, lambda now: [text("note"), *now])
    stage.append(paths, "history.reset", {})
    assert timeline.entries() == timeline.conversation_history() == []
    stage.append(paths, "timeline.set", {"entries": [{"conversation_id": "main", "id": "a"}]})
    say(stage, paths, "b")
    assert ids(timeline.entries()) == ["b"]


def test_the_same_timeline_is_not_recorded(stage: Any) -> None:
    """And what is returned can be changed without harm."""
    paths = stage.new()
    say(stage, paths, "a")
    timeline = Timeline(paths)
    before = paths.log.read_bytes()
    timeline.replace(stage.services, lambda now: now)
    assert paths.log.read_bytes() == before
    timeline.entries()[0]["content"] = "changed"
    assert timeline.entries()[0]["content"] == "said a"


def test_a_changed_block_is_recorded_as_a_block(stage: Any) -> None:
    """A callback that edits what it was given, deep inside, and true in place of 1."""
    paths = stage.new()
    block = make_block(
        "user_message", "p", "main", "s", None, None, content=[{"type": "text", "n": 1}]
    )
    stage.append(paths, "block", {"turn_id": None, "block": block})

    def edit(now: list[Any]) -> list[Any]:
        now[0]["content"][0]["n"] = True
        return now

    timeline = Timeline(paths)
    timeline.replace(stage.services, edit)
    assert timeline.entries()[0]["content"][0]["n"] is True
    assert timeline.conversation_history() == [block]


def test_a_change_is_made_again_if_blocks_came_meanwhile(stage: Any) -> None:
    """So none is lost that the callback has not seen."""
    paths = stage.new()
    say(stage, paths, "a")
    seen: list[list[str]] = []

    def change(now: list[Any]) -> list[Any]:
        seen.append(ids(now))
        if len(seen) == 1:
            say(stage, paths, "b")
        return [text("summary"), *now[1:]]

    timeline = Timeline(paths)
    timeline.replace(stage.services, change)
    assert seen == [["a"], ["a", "b"]]
    assert ids(timeline.entries()) == ["summary", "b"]


def test_a_block_of_a_program_need_not_say_that_it_is_of_no_file(stage: Any) -> None:
    """What is recorded is a block of the schema; the same again is not recorded."""
    paths = stage.new()
    mine = text("summary")
    del mine["source"]
    timeline = Timeline(paths)

    assert timeline.replace(stage.services, lambda _: [mine]) == [text("summary")]
    before = paths.log.read_bytes()
    timeline.replace(stage.services, lambda _: [mine])

    assert paths.log.read_bytes() == before
    assert check("event", orjson.loads(before.splitlines()[-1])) == []


@pytest.mark.parametrize(
    ("blocks", "error", "kind"),
    [
        ([{"type": "assistant_text"}], Invalid, "bad-block"),
        ([{"type": "mood", "id": "a"}], Invalid, "bad-block"),
        ([{}], Invalid, "bad-block"),
        ([text("a"), text("a")], UsageError, "bad-block"),
        ([text("a", 1 << 60)], Invalid, "value-refused"),  # type: ignore[arg-type]
        ([{**text("a"), "usage": {1, 2}}], Invalid, "value-refused"),
        ([{**text("a"), "usage": {1: 2}}], Invalid, "value-refused"),
        ([text("a", "x" * (64 * 1024 * 1024))], Invalid, "too-large"),
    ],
)
def test_what_no_log_may_have_is_refused(
    stage: Any, blocks: list[Any], error: type[Exception], kind: str
) -> None:
    """The log is as before."""
    paths = stage.new()
    before = paths.log.read_bytes()
    with pytest.raises(error) as raised:
        Timeline(paths).replace(stage.services, lambda _: blocks)
    assert raised.value.kind == kind  # type: ignore[attr-defined]
    assert paths.log.read_bytes() == before


def test_a_block_of_a_newer_version_is_named_and_not_copied(stage: Any) -> None:
    """Also one that holds what no log may have: a change around it needs no new record of it."""
    paths = stage.new()
    block = {"type": "mood", "id": "m", "conversationId": "main", "level": 2**60}
    with paths.log.open("ab") as log:
        log.write(line_of(paths, block))
    timeline = Timeline(paths)
    assert timeline.entries() == [{**block, "level": str(2**60)}]
    before = paths.log.read_bytes()
    timeline.replace(stage.services, lambda now: now)
    assert paths.log.read_bytes() == before
    timeline.replace(stage.services, lambda now: [*now, text("a")])
    assert stage.log(paths)[-1]["data"]["entries"][0] == {"conversation_id": "main", "id": "m"}


def line_of(paths: AgentPaths, block: dict[str, Any]) -> bytes:
    """Return the next line of a log, as a foreign program writes it."""
    state = read_agent(paths).state
    fields = Record(
        state.position.next_seq,
        "2026-01-02T03:04:05.000000Z",
        "block",
        state.session.id,
        {"turn_id": None, "block": block},
        state.position.last_hash,
    )
    return orjson.dumps(fields._asdict()) + b"\n"


def test_an_interrupt_amid_a_reading_loses_no_block(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C between a record and its fold: the next look has it."""
    paths = stage.new()
    say(stage, paths, "a")
    timeline = Timeline(paths)
    assert ids(timeline.entries()) == ["a"]
    say(stage, paths, "b", "c")

    def interrupted(_fold: TimelineFold, _record: Record) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(TimelineFold, "take", interrupted)
        with pytest.raises(KeyboardInterrupt):
            timeline.entries()
    assert ids(timeline.entries()) == ["a", "b", "c"]


def test_the_timeline_of_a_closed_agent_is_read_and_not_set(stage: Any) -> None:
    """As all of its log."""
    paths = stage.new()
    say(stage, paths, "a")
    stage.append(paths, "session.state", {"from": "created", "to": "terminated", "reason": "close"})
    timeline = Timeline(paths)
    assert ids(timeline.entries()) == ["a"]
    with pytest.raises(SessionStateError) as raised:
        timeline.replace(stage.services, lambda _: [])
    assert raised.value.kind == "closed"


def test_a_log_that_was_put_back_is_read_from_its_start(stage: Any) -> None:
    """What was read of another file counts for nothing."""
    paths = stage.new()
    earlier = paths.log.read_bytes()
    timeline = Timeline(paths)
    say(stage, paths, "a", "b")
    assert ids(timeline.entries()) == ["a", "b"]
    paths.log.write_bytes(earlier)
    paths.state.unlink()
    assert timeline.entries() == []
    say(stage, paths, "c")
    assert ids(timeline.entries()) == ["c"]


def test_damage_and_an_unfinished_line_cost_nothing_but_themselves(stage: Any) -> None:
    """The line that a writer is about to end is read when it is there."""
    paths = stage.new()
    timeline = Timeline(paths)
    say(stage, paths, "a")
    with paths.log.open("ab") as log:
        log.write(b"#\n")
    say(stage, paths, "b")
    line = paths.log.read_bytes().splitlines(keepends=True)[-1]
    whole = paths.log.read_bytes()
    paths.log.write_bytes(whole[: -len(line) // 2])
    assert ids(timeline.entries()) == ["a"]
    paths.log.write_bytes(whole)
    assert ids(timeline.entries()) == ["a", "b"]


def test_only_what_is_new_is_read(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the log is: a look at 10,000 blocks decodes the records that came since."""
    paths = stage.new()
    with paths.log.open("ab") as log:
        log.writelines(log_lines(paths, 10_000))
    timeline = Timeline(paths, 50)
    assert len(timeline.entries()) == 50
    taken: list[Record] = []
    take = TimelineFold.take

    def counted(fold: TimelineFold, one: Record) -> None:
        taken.append(one)
        take(fold, one)

    monkeypatch.setattr(TimelineFold, "take", counted)
    assert len(timeline.entries()) == 50
    say(stage, paths, "new")
    assert ids(timeline.entries())[-1] == "new"
    assert len(taken) == 1


def log_lines(paths: AgentPaths, count: int) -> list[bytes]:
    """Return lines that continue a log with blocks."""
    state = read_agent(paths).state
    seq, before = state.position.last_seq, state.position.last_hash
    lines = []
    for number in range(count):
        data = {"turn_id": None, "block": text(f"b{number}", "words " * 20)}
        one = Record(
            seq + number + 1, "2026-01-02T03:04:05.000000Z", "block", state.session.id, data, before
        )
        lines.append(encode_record(one))
        before = line_hash(lines[-1])
    return lines


def test_threads_read_one_timeline_side_by_side(stage: Any) -> None:
    """Each sees a state of the log, and in the end all see the whole of it."""
    paths = stage.new()
    timeline = Timeline(paths)
    names = [f"b{number}" for number in range(40)]
    wrong: list[Any] = []

    def look() -> None:
        while len(seen := ids(timeline.entries())) < len(names):
            if seen != names[: len(seen)]:
                wrong.append(seen)
                return

    threads = [threading.Thread(target=look) for _ in range(4)]
    for one in threads:
        one.start()
    for name in names:
        say(stage, paths, name)
    for one in threads:
        one.join()
    assert wrong == []


def test_a_timeline_of_none_is_refused(tmp_path: Path) -> None:
    """A limit of zero would be a session without a memory."""
    with pytest.raises(UsageError):
        Timeline(AgentPaths(tmp_path, "x"), 0)


# What is selected.


def test_each_type_of_block_has_a_role() -> None:
    """A new one needs a speaker that has."""
    assert {kind: role_of({"type": kind}) for kind in BLOCKS} == {
        "user_message": "user",
        "assistant_text": "assistant",
        "thinking": "assistant",
        "tool_use": "assistant",
        "tool_result": "tool",
        "system": "system",
        "subagent": "tool",
    }
    assert role_of({"type": "mood"}) is None


TALK = [
    make_block("user_message", "p1", "main", "s", None, None, content="one"),
    call("t1"),
    result("t1"),
    text("a1", "x" * 400),
    make_block("user_message", "p2", "main", "s", None, None, content="two"),
    call("t2"),
]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, ["p1", "call-t1", "result-t1", "a1", "p2", "call-t2"]),
        ({"limit": 2}, ["p2", "call-t2"]),
        ({"limit": 0}, []),
        ({"limit": 4}, ["a1", "p2", "call-t2"]),  # the result alone would be refused
        ({"limit": 5}, ["call-t1", "result-t1", "a1", "p2", "call-t2"]),
        ({"roles": ["user"]}, ["p1", "p2"]),
        ({"roles": ["user", "assistant"]}, ["p1", "a1", "p2", "call-t2"]),
        ({"roles": ["tool"]}, []),
        ({"roles": ["system"]}, []),
        ({"roles": ["user"], "limit": 1}, ["p2"]),
        ({"max_tokens": 50}, ["p2", "call-t2"]),
        ({"max_tokens": 0}, []),
        ({"max_tokens": 10_000}, ["p1", "call-t1", "result-t1", "a1", "p2", "call-t2"]),
    ],
)
def test_the_newest_are_selected_and_calls_stay_with_their_results(
    wanted: dict[str, Any], expected: list[str]
) -> None:
    """In the order of the timeline; a call that waits for its result stays."""
    assert ids(select(TALK, **wanted)) == expected


@given(
    st.lists(st.sampled_from(TALK), max_size=8, unique_by=lambda block: block["id"]),
    st.none() | st.integers(0, 9),
    st.none() | st.integers(0, 200),
    st.lists(st.sampled_from(ROLES), max_size=3),
)
def test_a_selection_keeps_its_limits(
    entries: list[Any], limit: int | None, tokens: int | None, roles: list[str]
) -> None:
    """It is a part of the timeline in its order, and no call is parted from its result."""
    taken = select(entries, limit, tokens, roles)
    assert taken == [block for block in entries if block in taken]
    assert limit is None or len(taken) <= limit
    assert tokens is None or sum(map(estimated_tokens, taken)) <= tokens
    assert not roles or {role_of(block) for block in taken} <= set(roles)
    for use in ("t1", "t2"):
        both = [block for block in (call(use), result(use)) if block in entries]
        kept = [block for block in both if block in taken]
        assert len(both) < 2 or len(kept) in (0, 2)


@pytest.mark.parametrize("wanted", [{"roles": ["model"]}, {"limit": -1}, {"max_tokens": -1}])
def test_a_selection_that_means_nothing_is_refused(wanted: dict[str, Any]) -> None:
    """With a usage error."""
    with pytest.raises(UsageError):
        select(TALK, **wanted)


def test_tokens_are_estimated_from_what_a_model_reads() -> None:
    """A quarter of its bytes, not of the ids around it, and of foreign values that nest deep."""
    assert estimated_tokens(text("a", "x" * 400)) == estimated_tokens(text("long" * 99, "x" * 400))
    assert 100 <= estimated_tokens(text("a", "x" * 400)) <= 102
    deep: Any = []
    for _ in range(300):
        deep = [deep]
    assert estimated_tokens({**result("t"), "output": deep}) > 0
