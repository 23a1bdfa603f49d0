"""What holds for any bytes: nothing raises, every line is settled, nothing said is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from any_json import hold
from clients import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.feature("B-06")


def for_any(tries: int, check: Callable[[st.DataObject], None]) -> None:
    """Run a check with so many draws."""
    hurry = [HealthCheck.too_slow, HealthCheck.data_too_large]
    unhurried = settings(
        max_examples=tries, deadline=None, derandomize=True, suppress_health_check=hurry
    )
    unhurried(given(st.data())(check))()


def lines(rows: list[Any]) -> bytes:
    """Return rows as a file."""
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def real_lines(client: Client) -> list[bytes]:
    """Return the shorter lines of all recordings that are logs."""
    return [
        line + b"\n"
        for path in client.logs
        for line in path.read_bytes().split(b"\n")
        if line and len(line) < 4000
    ]


def test_no_rows_raise_or_go_uncounted(client: Client) -> None:
    """Any field may be missing, null or of another type."""

    def check(data: st.DataObject) -> None:
        rows = data.draw(st.lists(client.any_rows.rows, max_size=8))
        sink = hold(
            client.reader, lines(rows), role=data.draw(st.sampled_from(["main", "subagent"]))
        )
        assert sink.tally.lines == len(rows)
        ids = [block["id"] for block in sink.blocks("all")]
        assert len(ids) == len(set(ids)) or not client.single_ids

    for_any(client.tries, check)


@pytest.mark.cases("odd_logs")
def test_rows_that_once_went_wrong_are_counted(client: Client, case: list[dict[str, Any]]) -> None:
    """What a search found, for good."""
    hold(client.reader, lines(case))


def test_no_mutation_of_real_rows_raises_or_goes_uncounted(client: Client) -> None:
    """Anything is put in the place of anything, anywhere in them."""
    real = real_lines(client)
    any_rows = client.any_rows

    def check(data: st.DataObject) -> None:
        log = []
        for line in data.draw(st.lists(st.sampled_from(real), min_size=1, max_size=12)):
            with suppress(ValueError):
                log.append(json.loads(line))
        for _ in range(data.draw(st.integers(1, 4))):
            node: Any = log
            for _ in range(data.draw(st.integers(1, 7))):
                keys = list(range(len(node))) if isinstance(node, list) else list(node)
                if not keys:
                    break
                key = data.draw(st.sampled_from(keys))
                if not isinstance(node[key], list | dict):
                    node[key] = data.draw(any_rows.values)
                    break
                parent, node = node, node[key]
            else:
                parent[key] = data.draw(any_rows.loose if parent is log else any_rows.values)
        hold(client.reader, lines(log))

    for_any(client.tries // 2, check)


def test_real_rows_and_noise_are_read_twice_the_same(client: Client) -> None:
    """No clock, no chance: the bytes decide alone."""
    pieces = st.lists(st.sampled_from(real_lines(client)) | st.binary(max_size=60), max_size=8)

    def check(data: st.DataObject) -> None:
        hold(client.reader, b"".join(data.draw(pieces)))

    for_any(client.tries // 2, check)


def test_a_log_cut_anywhere_keeps_what_was_said_before(client: Client) -> None:
    """A cut takes away at most the line it falls into; growth never renames a block."""
    files = [path.read_bytes() for path in client.cut_logs]

    def check(data: st.DataObject) -> None:
        whole = data.draw(st.sampled_from(files))
        cut = data.draw(st.integers(whole.find(b"\n") + 1, len(whole)))
        sinks = [
            hold(client.reader, part)
            for part in (whole[: whole.rfind(b"\n", 0, cut) + 1], whole[:cut], whole)
        ]
        before, after, grown = (
            {(block["conversationId"], block["id"]) for block in sink.blocks("all")}
            for sink in sinks
        )
        for later, passing in zip((after, grown), client.passing, strict=True):
            assert not [name for _, name in before - later if not re.fullmatch(passing, name)]

    for_any(client.tries // 2, check)
