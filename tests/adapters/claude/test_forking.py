"""A fork is a copy under another id: what the client would copy, and every other byte as it was."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.adapters.claude.moving import fork
from agentsdir.formats.findings import Finding
from agentsdir.formats.source import Source

OLD = "00000001-0000-4000-8000-000000000001"
NEW = "0000000f-0000-4000-8000-00000000000f"
MAIN = f"projects/-w/{OLD}.jsonl"


def forked(files: dict[str, bytes]) -> tuple[dict[str, bytes], list[Finding]]:
    """Return a fork's files by path, and what was reported."""
    findings: list[Finding] = []
    sources = {name: Source(name, data=data) for name, data in files.items()}
    made = {file.path: file.source.read() for file in fork(sources, OLD, NEW, findings.append)}
    return made, findings


def copied(data: bytes) -> tuple[bytes, list[str]]:
    """Return the copy of a main transcript, and the ids of what was reported."""
    made, findings = forked({MAIN: data})
    return made[f"projects/-w/{NEW}.jsonl"], [finding.id for finding in findings]


def test_only_the_session_id_of_a_row_is_changed() -> None:
    """Key order, white space, escapes and what is nested stay as they stand."""
    line = (
        b'{"parentUuid":null, "type":"user","message":{"content":"\\u00e9 \\"sessionId\\":'
        b'\\"%s\\""},'
        b'"toolUseResult":{"sessionId":"%s"},"uuid":"u","sessionId" : "%s","z":1.0}\r\n'
    )
    old = OLD.encode()

    copy, findings = copied(line % (old, old, old))

    assert copy == line % (old, old, NEW.encode())
    assert findings == []


def test_what_belongs_to_one_process_is_not_copied() -> None:
    """The queue, requests, and costs stay behind; the rest of the bookkeeping comes along."""
    kinds = (
        "queue-operation", "api-request", "api-request-shape", "api-request-blob", "atis-latch",
        "cost-state", "user", "attachment", "last-prompt", "custom-title", "something-new",
    )  # fmt: skip
    rows = [orjson.dumps({"type": kind, "sessionId": OLD}) for kind in kinds]

    copy, _ = copied(b"\n".join(rows) + b"\n")

    assert [orjson.loads(line)["type"] for line in copy.splitlines()] == list(kinds[6:])


def test_damaged_lines_are_left_out_and_reported() -> None:
    """A torn line is not copied; what stands whole on a damaged one is."""
    row = b'{"type":"user","sessionId":"%s","n":%d}'
    old, new = OLD.encode(), NEW.encode()
    data = row % (old, 1) + row % (old, 2) + b"\n" + b'{"type":"us\n' + row % (old, 3)

    copy, findings = copied(data)

    assert copy == b"".join(row % (new, number) + b"\n" for number in (1, 2, 3))
    assert findings == ["splice", "bad-json"]


def test_the_side_folder_comes_along() -> None:
    """Children are rewritten, what they point to is not; flat children move into the folder."""
    row = b'{"isSidechain":true,"agentId":"a","type":"user","sessionId":"%s"}\n'
    old, new = row % OLD.encode(), row % NEW.encode()
    made, _ = forked(
        {
            MAIN: b'{"type":"user","sessionId":"x"}\n',
            f"projects/-w/{OLD}/subagents/agent-a.jsonl": old,
            f"projects/-w/{OLD}/subagents/agent-a.meta.json": b'{"sessionId":"%s"}' % OLD.encode(),
            f"projects/-w/{OLD}/subagents/workflows/r/journal.jsonl": old,
            f"projects/-w/{OLD}/tool-results/t.txt": OLD.encode(),
            "projects/-w/agent-0a1b.jsonl": old,
            "projects/-w/00000002-0000-4000-8000-000000000002.jsonl": old,
        }
    )

    assert made == {
        f"projects/-w/{NEW}.jsonl": b'{"type":"user","sessionId":"%s"}\n' % NEW.encode(),
        f"projects/-w/{NEW}/subagents/agent-a.jsonl": new,
        f"projects/-w/{NEW}/subagents/agent-a.meta.json": b'{"sessionId":"%s"}' % OLD.encode(),
        f"projects/-w/{NEW}/subagents/workflows/r/journal.jsonl": old,
        f"projects/-w/{NEW}/tool-results/t.txt": OLD.encode(),
        f"projects/-w/{NEW}/subagents/agent-0a1b.jsonl": new,
    }


VALUES = st.recursive(
    st.none() | st.integers(-9, 9) | st.text() | st.just(OLD) | st.just('"sessionId":"x"'),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text() | st.just("sessionId"), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(min_size=1), VALUES, max_size=4), st.sampled_from(["user", "mode"]))
def test_a_copied_row_differs_in_nothing_else(row: dict[str, object], kind: str) -> None:
    """Whatever a row holds, the copy is the same value under the new id."""
    whole = {"parentUuid": None, **row, "type": kind, "sessionId": OLD}

    copy, _ = copied(orjson.dumps(whole) + b"\n")

    assert orjson.loads(copy) == {**whole, "sessionId": NEW}
    assert list(orjson.loads(copy)) == list(whole)
