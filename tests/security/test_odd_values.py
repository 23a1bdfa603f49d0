"""Values that decoders take differently are reported where they stand, never mended in silence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from arena import Arena, Mould

# By name: what is put in place of `"MARK"`, and the ids by which `validate` may name it.
ODD: dict[str, tuple[str, set[str]]] = {
    "duplicate key": ('1,"odd":2', {"duplicate-key"}),
    "duplicate key by escape": ('1,"o\\u0064d":2', {"duplicate-key"}),
    "big integer": ("9007199254740993", {"big-integer"}),
    "bigger integer": ("18446744073709551617", {"big-integer"}),
    "negative big integer": ("-9007199254740993", {"big-integer"}),
    "NaN": ("NaN", {"bad-json", "half-document"}),
    "Infinity": ("-Infinity", {"bad-json", "half-document"}),
    "too large a float": ("1e999", {"bad-json", "half-document"}),
    "lone surrogate": ('"\\udc00"', {"bad-json", "half-document"}),
    "half a pair": ('"\\ud83d x"', {"bad-json", "half-document"}),
    "no UTF-8": ('"\udcff"', {"bad-utf8", "bad-json", "half-document"}),
    "raw control": ('"a\x01b"', {"bad-json", "half-document"}),
    "NUL": ('"a\0b"', {"nul-run", "bad-json", "half-document"}),
}
# In files of ours these are what the others of their sort are.
TWINS = {"bigger integer", "negative big integer", "Infinity", "half a pair"}
DOCUMENTS = ("agentsdir.json", "descriptor.json", "session.json", "state.json", "manifest.json")
LINES = ("history.jsonl", "events.jsonl")


def spot(arena: Arena, mould: Mould, name: str) -> Path:
    """Return where a file stands."""
    folder = arena.folder(mould.victim)
    places = {"agentsdir.json": arena.root / name, "manifest.json": folder / "transcripts" / name}
    return places.get(name, folder / name)


def spoil(path: Path, value: str) -> bytes:
    """Put an odd value into a file's last object; return its new bytes."""
    text = path.read_bytes().rstrip(b"\n")
    assert text.endswith(b"}")
    if path.name == "events.jsonl":
        # Into the record's data, before `prev`: the reader goes by the record's own fields.
        at = text.rindex(b'},"prev"')
        whole = text[:at] + b',"odd":' + _bytes(value) + text[at:]
    else:
        whole = text[:-1] + b',"odd":' + _bytes(value) + b"}"
    path.write_bytes(whole + b"\n")
    return path.read_bytes()


def copies(mould: Mould, tmp_path: Path, name: str) -> Iterator[tuple[str, Arena, Path, bytes]]:
    """Yield, for each odd value, a world of its own, and the spoiled file in it with its bytes."""
    for odd, (value, _) in ODD.items():
        if odd not in TWINS:
            base = tmp_path / odd.replace(" ", "-")
            base.mkdir()
            arena = mould.copy(base)
            path = spot(arena, mould, name)
            yield odd, arena, path, spoil(path, value)


def _bytes(value: str) -> bytes:
    return value.encode(errors="surrogateescape")


@pytest.mark.parametrize("name", [*DOCUMENTS, *LINES])
def test_an_odd_value_is_reported_where_it_stands(mould: Mould, tmp_path: Path, name: str) -> None:
    """By `validate` with its own id and file; all verbs go on or refuse, none crashes."""
    for odd, arena, path, spoiled in copies(mould, tmp_path, name):
        runs = arena.run_all(
            [
                ["validate", "--json"],
                ["replay", "--events", mould.victim],
                ["inspect", "--runtime", mould.victim],
                ["send", mould.victim, "hi"],
                ["restore", mould.victim],
            ]
        )
        for ran in runs:
            ran.tidy()
        assert runs[0].code == 1, (odd, runs[0])
        told = {row["id"] for row in runs[0].rows if row["file"] == str(path)}
        assert told & ODD[odd][1], (odd, runs[0].rows)
        if name in ("agentsdir.json", "events.jsonl"):
            assert path.read_bytes().startswith(spoiled), odd


@pytest.mark.parametrize("name", [*DOCUMENTS, *LINES])
def test_a_byte_order_mark_is_reported(mould: Mould, tmp_path: Path, name: str) -> None:
    """It stands before all else, and other readers stumble over it."""
    arena = mould.copy(tmp_path)
    path = spot(arena, mould, name)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    before = path.read_bytes()
    runs = arena.run_all(
        [["validate", "--json"], ["list"], ["send", mould.victim, "x"], ["restore", mould.victim]]
    )
    for ran in runs:
        ran.tidy()
    assert str(path) in [row["file"] for row in runs[0].rows if row["severity"] == "error"]
    if name in ("agentsdir.json", "events.jsonl"):
        assert path.read_bytes().startswith(before)


@pytest.mark.parametrize("name", ["descriptor.json", "session.json", "state.json", "history.jsonl"])
def test_what_restore_rewrites_it_names(mould: Mould, tmp_path: Path, name: str) -> None:
    """An odd value in a derived file goes, and the report says which file was rebuilt."""
    for odd, arena, path, spoiled in copies(mould, tmp_path, name):
        (ran,) = arena.run_all([["restore", "--json", mould.victim]])
        (row,) = ran.tidy().rows
        rewritten = path.read_bytes() != spoiled
        assert rewritten == (f"rebuilt {name}" in row["actions"]), (odd, row)
        assert rewritten, odd


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_value_in_a_transcript_is_marked_or_named(arena: Arena, odd: str) -> None:
    """`parse` cleans it in the block and says so there, or reports the line; JSON stays JSON."""
    value = ODD[odd][0]
    row = (
        '{"type":"assistant","uuid":"b","parentUuid":"a","sessionId":"s","message":{"id":"m","role":'
        '"assistant","content":[{"type":"tool_use","id":"t","name":"n","input":{"odd":VALUE}}]}}'
    ).replace("VALUE", value)
    first = '{"type":"user","uuid":"a","parentUuid":null,"sessionId":"s","message":{"content":"x"}}'
    (arena.work / "t.jsonl").write_bytes(_bytes(f"{first}\n{row}\n"))
    ran = arena.run("parse", "t.jsonl").tidy()
    blocks = [json.loads(line, parse_constant=pytest.fail) for line in ran.raw_out.splitlines()]
    calls = [block for block in blocks if block["type"] == "tool_use"]
    if "duplicate" in odd or "integer" in odd:
        assert ran.code == 0  # decoders take these; `validate` is who looks for them
    elif odd == "raw control":
        assert [block["input"]["odd"] for block in calls] == ["a\x01b"]  # which is what it says
    else:
        assert ran.code == 3 or all("lossy" in block for block in calls), ran
