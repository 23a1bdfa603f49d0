"""What is particular to placing a session of Claude Code: open calls, and where it may stand."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from claude_client import Claude
from claude_support import call, lines, result, said, user
from clients import ID, NOW

from agentsdir.formats.errors import Invalid

TALK = Claude.talk


def at(second: int, row: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a row of the session, written at some second of a day."""
    time = f"2026-01-01T00:00:{second:02}.000Z"
    return {**row, "sessionId": ID, "timestamp": time, "promptId": "p2", **fields}


def calls(name: str, parent: str) -> dict[str, Any]:
    """Return a row with one call of a message of several."""
    return said(f"r-{name}", parent, call(name), id="m")


CALLS = TALK + lines(
    at(3, user("u2", "a1", "go on")), at(4, calls("a", "u2")), at(5, calls("b", "r-a"))
)


def placed(client: Claude, data: bytes) -> list[dict[str, Any]]:
    """Place a transcript; return the rows that were added to it."""
    client.place(client.save({client.transcript: data}))
    return [orjson.loads(line) for line in client.main.read_bytes().removeprefix(data).splitlines()]


def test_open_calls_at_the_end_are_answered(client: Claude) -> None:
    """As the client does: one row for each call, hung from it, in its key order, later than all."""
    rows = placed(client, CALLS)
    assert [list(one)[:7] for one in rows] == [
        ["parentUuid", "isSidechain", "promptId", "type", "message", "uuid", "timestamp"]
    ] * 2
    assert [one["parentUuid"] for one in rows] == ["r-a", "r-b"]
    assert [one["message"]["content"][0]["tool_use_id"] for one in rows] == ["a", "b"]
    assert [one["timestamp"] for one in rows] == [
        "2026-01-02T03:04:05.679Z",
        "2026-01-02T03:04:05.680Z",
    ]
    assert {(one["toolDenialKind"], one["promptId"], one["sessionId"]) for one in rows} == {
        ("interrupted", "p2", ID)
    }
    assert rows[0]["uuid"] != rows[1]["uuid"]


def test_a_clock_that_went_back_does_not_take_the_answers_back(client: Claude) -> None:
    """The rows are later than the rows before, whatever time it is now."""
    late = at(6, calls("c", "r-b"), timestamp="2030-01-01T00:00:00.500Z")
    rows = placed(client, CALLS + lines(late))
    assert rows[0]["timestamp"] == "2030-01-01T00:00:00.501Z"
    assert len({one["timestamp"] for one in rows}) == 3


@pytest.mark.parametrize(
    "after",
    [
        user("u3", "r-b", [result("a"), result("b")]),
        user("u3", "r-b", "never mind"),
        said("a3", "r-b", "gone on"),
    ],
)
def test_calls_that_are_answered_or_past_are_left(client: Claude, after: dict[str, Any]) -> None:
    """Nothing is appended where the talk went on."""
    assert placed(client, CALLS + lines(at(6, after))) == []


def test_a_file_that_appears_meanwhile_is_never_replaced(client: Claude) -> None:
    """The client may begin the session between the look and the write."""

    def now() -> str:
        client.stand(b"the client's own\n")
        return NOW

    spec = client.spec(client.save({client.transcript: TALK}))._replace(now=now)
    with pytest.raises(Invalid) as caught:
        client.provider.materialize(spec)
    assert caught.value.kind == "transcript-differs"
    assert client.main.read_bytes() == b"the client's own\n"
    assert [path.name for path in client.project.iterdir()] == [client.transcript]


def test_a_session_in_another_folder_of_the_store_stays_there(client: Claude) -> None:
    """One session, one file: a copy beside it would be a second truth."""
    other = client.project.with_name("-elsewhere")
    client.stand(TALK, project=other)
    saved = client.save({client.transcript: TALK, client.child: b"{}\n"})
    assert client.place(saved) == [other / client.child]
    assert not client.project.exists()


def test_a_cut_folder_name_is_found_by_its_beginning(client: Claude) -> None:
    """The hash after 200 characters differs between the client's runtimes."""
    client.cwd = client.cwd / "/".join(["x" * 60] * 5)
    client.cwd.mkdir(parents=True)
    other = client.project.with_name(client.project.name[:201] + "zzzzzz")
    other.mkdir(parents=True)
    saved = client.save({client.transcript: TALK})
    assert client.place(saved) == [other / client.transcript]
