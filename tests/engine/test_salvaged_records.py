"""What damaged and mistyped records give: readers, `restore` and `validate` agree on it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentsdir.engine.restore import restore_agent
from agentsdir.engine.validate.files import CheckCounts, validate_path
from agentsdir.formats.ids import short_hash
from agentsdir.formats.store.agent import history_pieces, read_agent


def problems_of(stage: Any) -> list[str]:
    """Return the id of each error that `validate` finds in the root."""
    root = stage.services.layout.root
    found = validate_path(root, str(root), CheckCounts(), modes=False)
    return [one.id for one in found if one.severity == "error"]


def change_creation(paths: Any, **changes: Any) -> None:
    """Change fields of the first record (None removes one), and keep what follows in its chain."""
    lines = paths.log.read_bytes().splitlines()
    hash_before = "0" * 16
    for number, line in enumerate(lines):
        record = json.loads(line)
        record["prev"] = hash_before
        if number == 0:
            record["data"] |= changes
            record["data"] = {k: v for k, v in record["data"].items() if v is not None}
        lines[number] = json.dumps(record, separators=(",", ":")).encode()
        hash_before = short_hash(lines[number])
    paths.log.write_bytes(b"\n".join(lines) + b"\n")
    paths.state.unlink()


def test_a_creation_that_lacks_what_it_needs_leaves_no_marker_in_the_history(stage: Any) -> None:
    """`historySize` is the size of history.jsonl, after `restore` and after the next turn."""
    paths = stage.new()
    stage.send(paths)
    change_creation(paths, agent_id=None)
    assert restore_agent(stage.services, paths).error is None
    for _ in range(2):
        state = read_agent(paths).state
        assert (
            state.history_size
            == paths.history.stat().st_size
            == len(b"".join(history_pieces(paths)))
        )
        stage.send(paths, "go on")
    assert b'"start"' not in paths.history.read_bytes()


def test_validate_says_that_the_creation_is_lost_also_where_a_record_of_it_is_left(
    stage: Any,
) -> None:
    """The record breaks the schema, and no log begins with such a one."""
    paths = stage.new()
    stage.send(paths)
    change_creation(paths, agent_id=None)
    assert problems_of(stage)[:2] == ["schema", "first-event"]


@pytest.mark.parametrize("data", [b"", b"junk\n"])
def test_validate_sees_that_a_log_without_any_record_is_shorter_than_it_was(
    stage: Any, data: bytes
) -> None:
    """state.json has the size that it had."""
    paths = stage.new()
    stage.send(paths)
    paths.log.write_bytes(data)
    assert {"first-event", "log-shorter"} <= {*problems_of(stage)}
    assert {"creation-lost", "log-shorter"} <= {
        f.id for f in read_agent(paths, whole=True).findings
    }


LENIENT = {
    "lone surrogate": b'{"content":"\\ud800"}',
    "not a number": b'{"content":NaN}',
    "control character": b'{"content":"\x01"}',
}


@pytest.mark.parametrize("block", LENIENT.values(), ids=LENIENT)
@pytest.mark.parametrize(
    ("before", "kind"), [(b"{torn", "bad-json"), (b"\0", "nul-run"), (b"{\xff", "bad-utf8")]
)
def test_a_record_on_a_damaged_line_is_read_as_strictly_as_on_a_whole_one(
    stage: Any, block: bytes, before: bytes, kind: str
) -> None:
    """Else it would count, and could not be written into the history."""
    paths = stage.new()
    sound = read_agent(paths).state.counters["blocks"]
    last = paths.log.read_bytes().splitlines()[-1]
    record = json.loads(last)
    record |= {"seq": record["seq"] + 1, "event": "block", "prev": short_hash(last)}
    record["data"] = {"turn_id": None, "block": "BLOCK"}
    line = json.dumps(record).encode()
    with paths.log.open("ab") as log:
        log.write(before + line.replace(b'"BLOCK"', block) + b"\n")
    reading = read_agent(paths, whole=True)
    assert [finding.id for finding in reading.findings] == [kind]
    assert reading.state.counters["blocks"] == sound

    paths.log.write_bytes(last + b"\n" + before + line.replace(b'"BLOCK"', b"{}") + b"\n")
    reading = read_agent(paths, whole=True)
    assert reading.state.counters["blocks"] == sound + 1
    assert reading.state.history_size == len(b"".join(history_pieces(paths)))


@pytest.mark.parametrize(
    "changes", [{"fallbacks": "x"}, {"fallbacks": {"x": 1}}, {"fallbacks": [1]}]
)
def test_a_list_of_another_type_is_not_taken_for_one(stage: Any, changes: dict[str, Any]) -> None:
    """A text is no list of its letters."""
    paths = stage.new()
    change_creation(paths, **changes)
    reading = read_agent(paths, whole=True)
    assert [f.id for f in reading.findings] == ["bad-data", "creation-lost"]
    assert reading.state.fallbacks == []


@pytest.mark.parametrize("value", ["yes", 1, [], {}])
def test_a_flag_is_true_and_nothing_else(stage: Any, value: Any) -> None:
    """`superseded` and `imported_from` count only with the value that the format gives them."""
    paths = stage.new()
    if value != {}:
        change_creation(paths, imported_from=value)
        assert not read_agent(paths, whole=True).state.imported
    last = paths.log.read_bytes().splitlines()[-1]
    record = json.loads(last)
    record |= {"seq": 2, "event": "block", "prev": short_hash(last)}
    record["data"] = {"turn_id": None, "block": {"superseded": value}}
    with paths.log.open("ab") as log:
        log.write(json.dumps(record).encode() + b"\n")
    assert read_agent(paths, whole=True).state.counters["blocks"] == 1
