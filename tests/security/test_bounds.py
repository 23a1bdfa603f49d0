"""Hostile sizes: depth, width, length and number cost what they must, and no more."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from arena import Arena, Mould

from agentsdir.formats.store.log import line_hash

MEBIBYTE = 1024 * 1024
# What a child may take beyond what it has when it starts, to read what is larger.
ROOM = 24 * MEBIBYTE
DEPTHS = (128, 129, 255, 1025, 100_000)  # ours, beyond it, what is written, what is read


def nested(depth: int, opening: str = "[", closing: str = "]", inside: str = "") -> str:
    """Return that many levels of JSON."""
    return opening * depth + inside + closing * depth


BOMBS: dict[str, Callable[[int], str]] = {
    "lists": nested,
    "objects": lambda depth: nested(depth, '{"a":', "}", "1"),
    "opened only": lambda depth: "[" * depth,
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_depth_bomb_in_an_agent_is_damage_and_no_crash(
    mould: Mould, tmp_path: Path, bomb: str
) -> None:
    """In the log, in a document, in a transcript; `validate` names it, the others go on."""
    for depth in (129, 1025, 100_000) if bomb == "lists" else DEPTHS[-1:]:
        for name in (
            "events.jsonl",
            "state.json",
            "descriptor.json",
            "history.jsonl",
            "TRANSCRIPT",
        ):
            base = tmp_path / f"{depth}-{name}"
            base.mkdir()
            arena = mould.copy(base)
            folder = arena.folder(mould.victim)
            path = folder / name
            if name == "TRANSCRIPT":
                path = folder / "transcripts" / mould.transcript
            data = f'{{"type": "x", "bomb": {BOMBS[bomb](depth)}}}\n'.encode()
            path.write_bytes((path.read_bytes() if path.suffix == ".jsonl" else b"") + data)
            runs = arena.run_all(
                [
                    ["validate", "--json"],
                    ["replay", mould.victim],
                    ["inspect", "--runtime", mould.victim],
                    ["restore", mould.victim],
                    ["send", mould.other, "hi"],
                ]
            )
            for ran in runs:
                ran.tidy()
            problems = {row["id"] for row in runs[0].rows}
            if name != "TRANSCRIPT":
                assert (runs[0].code, problems - {"derived-stale"}) != (0, set()), (depth, name)
            assert runs[-1].code == 0


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_depth_bomb_in_an_operand_is_no_crash(arena: Arena, bomb: str) -> None:
    """For `parse`, `validate`, `send --messages` and scripts, alone and among good lines."""
    good = '{"type":"user","uuid":"a","sessionId":"s","parentUuid":null,"message":{"content":"x"}}'
    agent = arena.ok("new")
    for depth in DEPTHS if bomb == "lists" else DEPTHS[-1:]:
        text = BOMBS[bomb](depth)
        (arena.work / "m.json").write_text(text)
        row = f'{{"type":"user","uuid":"b","sessionId":"s","message":{{"content":{text}}}}}'
        (arena.work / "t.jsonl").write_text(f"{good}\n{row}\n{text}\n{good}\n")
        (arena.work / "whole.json").write_text(f'{{"sessionId":"s","messages":{text}}}')
        script = arena.script("s.jsonl", f'{{"type":"turn","x":{text}}}'.encode())
        played = arena.ok("new", "--provider=script", script)
        lines = [
            ["parse", "t.jsonl"],
            ["parse", "whole.json"],
            ["parse", "--adapter=gemini", "whole.json"],
            ["validate", "t.jsonl", "--kind=block"],
            ["validate", "m.json", "--kind=block"],
            ["send", agent, "--messages", "m.json"],
            ["send", played, "hi"],
        ]
        for ran in arena.run_all(lines):
            ran.tidy()
        assert arena.run("send", agent, "--messages", "m.json").code == 2


def image(value: str) -> str:
    """Return a prompt of one image part with a value of its own."""
    return f'[{{"type":"image","source":{{"type":"url","data":"u","n":{value}}}}}]'


MESSAGES = {
    "beyond 2^53": image("9007199254740993"),
    "beyond 2^64": image("18446744073709551617"),
    "negative": image("-9007199254740993"),
    "endless digits": image("1" + "0" * 5000),
    "too large a float": image("1e999"),
    "NaN": image("NaN"),
    "duplicate key": '{"content":"one","content":"two"}',
    "duplicate key inside": '[{"type":"text","text":"one","text":"two"}]',
    "duplicate key by escape": '[{"type":"text","text":"one","t\\u0065xt":"two"}]',
    "lone surrogate": '"\\ud800"',
    "BOM": '\ufeff"hi"',
    "129 levels": image(nested(126)),
    "a record of 129 levels": image(nested(124)),
    "NUL": '"a\0b"',
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_prompt_that_cannot_be_kept_exactly_is_refused(arena: Arena, name: str) -> None:
    """Before anything is recorded, and never rounded, cut or merged in silence."""
    agent = arena.ok("new")
    log = (arena.folder(agent) / "events.jsonl").read_bytes()
    (arena.work / "m.json").write_text(MESSAGES[name])
    ran = arena.run("send", agent, "--messages", "m.json").tidy()
    assert (ran.code in (2, 12), ran.out) == (True, ""), ran
    assert (arena.folder(agent) / "events.jsonl").read_bytes() == log


@pytest.mark.parametrize("number", ["9007199254740991", "-9007199254740991", "0", "1.5", "1e3"])
def test_a_number_that_can_be_kept_is_kept(arena: Arena, number: str) -> None:
    """The border itself is within."""
    agent = arena.ok("new")
    (arena.work / "m.json").write_text(image(number))
    arena.run("send", agent, "--messages", "m.json", "--json")
    for row in arena.run("replay", agent, "--events").rows:
        if row.get("block", {}).get("type") == "user_message":
            assert row["block"]["content"][0]["source"]["n"] == json.loads(number)
            break
    else:
        pytest.fail("the prompt is not there")


NUMBERS = ("9007199254740993", "18446744073709551617", "1" + "0" * 5000, "1e999", "NaN")


@pytest.mark.parametrize("number", NUMBERS, ids=lambda text: text[:24])
def test_a_number_in_a_script_is_exact_marked_or_refused(arena: Arena, number: str) -> None:
    """In usage and in a tool's input: what the log holds is the number, or nothing of it."""
    call = (
        '{"type":"block_complete","blockId":"t","block":{"type":"tool_use","id":"t","toolName":"n",'
        '"toolUseId":"u","status":"success","input":{"n":NUMBER}}}'
    )
    usage = '{"type":"metadata_update","metadata":{"usage":{"inputTokens":NUMBER}}}'
    for line in (call, usage):
        option = arena.script("s.jsonl", line.replace("NUMBER", number).encode())
        agent = arena.ok("new", "--provider=script", option)
        ran = arena.run("send", agent, "hi").tidy()
        log = (arena.folder(agent) / "events.jsonl").read_text()
        blocks = [json.loads(text)["data"].get("block", {}) for text in log.splitlines()]
        told = [block for block in blocks if block.get("type") == "tool_use"]
        assert ran.code == 14 or all("lossy" in block for block in told), ran
        for rounded in ("9007199254740992", "1.8446744073709552e19", "1e5000", "Infinity"):
            assert rounded not in log
        assert arena.run("list").tidy().code == 0


def test_a_megabyte_of_name_is_refused_and_of_title_is_cut(arena: Arena) -> None:
    """And a long text anywhere else is kept as it is."""
    long = "x" * MEBIBYTE
    assert arena.run("new", "--name", long).tidy().code == 2
    agent = arena.ok("new", "--system", long, "--profile", long, "--model", long)
    assert arena.run("send", agent, stdin=long.encode()).out == long + "\n"
    (row,) = arena.run("list", "--json").rows
    assert row["title"] == "x" * 120
    assert row["model"] == long
    assert len(arena.run("list", tty=True).out) < 2000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Arena, str]:
    """Return an agent whose log has many small records, and files of many small lines."""
    arena = Arena.make(tmp_path_factory.mktemp("large"))
    agent = arena.ok("new")
    log = arena.folder(agent) / "events.jsonl"
    first = log.read_bytes()
    session = json.loads(first)["session_id"]
    previous = line_hash(first)
    with log.open("ab") as stream:
        for seq in range(2, 40_000):
            line = (
                f'{{"seq":{seq},"ts":"2026-01-02T03:04:05.678900Z","event":"x.{seq % 7}",'
                f'"session_id":"{session}","data":{{}},"prev":"{previous}"}}\n'
            ).encode()
            stream.write(line)
            previous = line_hash(line)
    row = (
        b'{"type":"user","uuid":"a","sessionId":"s","parentUuid":null,"message":{"content":"x"}}\n'
    )
    (arena.work / "rows.jsonl").write_bytes(row + b'{"type":"mode"}\n' * 300_000)
    with (arena.work / "line.jsonl").open("wb") as stream:
        stream.write(row)
        stream.truncate(400 * MEBIBYTE)  # a line of nothing but NUL, and no LF
    return arena, agent


@pytest.mark.parametrize("verb", ["list", "replay", "inspect", "parse", "parse a line"])
def test_memory_does_not_grow_with_the_file(large: tuple[Arena, str], verb: str) -> None:
    """Many lines in less room than it takes to hold them; one endless line in its limit."""
    arena, agent = large
    arguments = {
        "list": ["list"],
        "replay": ["replay", agent],
        "inspect": ["inspect", agent],
        "parse": ["parse", "rows.jsonl"],
        "parse a line": ["parse", "--report=-", "line.jsonl"],
    }[verb]
    # A line is read up to 64 MiB before it is passed over.
    room = 320 * MEBIBYTE if verb == "parse a line" else ROOM
    ran = arena.run(*arguments, memory=room).tidy()
    if verb == "parse a line":
        assert "oversize" in ran.err
        assert ran.code == 3
    else:
        assert (ran.code, ran.err) == (0, "")


def test_too_little_room_would_be_noticed(large: tuple[Arena, str]) -> None:
    """The limit binds: a child that takes more than it dies of it."""
    arena, _ = large

    def hoard() -> None:
        bytearray(4 * ROOM)  # one piece, so that no freed memory of this process can hold it

    assert arena.run("list", memory=ROOM, before=hoard).code == 99


def calls(arena: Arena, *arguments: str) -> int:
    """Return how many calls one command makes, of Python functions and of C's."""
    counter = arena.base / "calls"

    def count() -> None:
        made = [0]

        def note(_frame: Any, event: str, _what: Any) -> None:
            made[0] += event in ("call", "c_call")

        def leave(*_: Any) -> None:
            sys.setprofile(None)
            counter.write_text(str(made[0]))

        import agentsdir.cli.main as program

        real = program._exit
        program._exit = lambda code: (leave(), real(code))
        sys.setprofile(note)

    arena.run(*arguments, before=count).tidy()
    return int(counter.read_text())


def grow_folder(arena: Arena, size: int) -> list[str]:
    """Make many files for `parse`."""
    (arena.work / "many").mkdir(exist_ok=True)
    for number in range(size):
        row = {"type": "user", "uuid": f"u{number}", "sessionId": f"s{number}"}
        text = json.dumps({**row, "parentUuid": None, "message": {"content": "x"}}) + "\n"
        (arena.work / "many" / f"{number}.jsonl").write_text(text)
    return ["parse", "many"]


def grow_session(arena: Arena, size: int) -> list[str]:
    """Make one session of rows that each go on from the last."""
    rows = [
        {
            "type": "user",
            "uuid": f"u{number}",
            "parentUuid": f"u{number - 1}" if number else None,
            "sessionId": "s",
            "message": {"role": "user", "content": "x"},
        }
        for number in range(size)
    ]
    (arena.work / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ["parse", "t.jsonl"]


def grow_damage(arena: Arena, size: int) -> list[str]:
    """Make one line in which a record could begin everywhere."""
    (arena.work / "t.jsonl").write_text(
        '{"type":"text_delta","conversationId":"main"}\n' + '{"a":' * size
    )
    return ["parse", "t.jsonl"]


def grow_glue(arena: Arena, size: int) -> list[str]:
    """Make one line of many records."""
    (arena.work / "t.jsonl").write_text('{"type":"user","uuid":"u","sessionId":"s"}' * size)
    return ["parse", "t.jsonl"]


def grow_values(arena: Arena, size: int) -> list[str]:
    """Make a document of many values, with a key twice."""
    text = '{"id":"x","id":"x","state":"x","provider_name":[' + ",".join(["1"] * size) + "]}"
    (arena.work / "session.json").write_text(text)
    return ["validate", "session.json"]


def grow_agents(arena: Arena, size: int) -> list[str]:
    """Make many entries among the agents that are none."""
    for number in range(size):
        (arena.root / "agents" / f"none{number}").mkdir(parents=True, exist_ok=True)
    return ["list"]


SHAPES = {
    grow.__name__: grow
    for grow in (grow_folder, grow_session, grow_damage, grow_glue, grow_values, grow_agents)
}


@pytest.mark.parametrize("shape", SHAPES)
def test_twice_the_input_is_twice_the_work(arena: Arena, shape: str) -> None:
    """Counted in calls, not in seconds: what grows with the square more than doubles."""
    arena.ok("new")
    none, some, twice = (calls(arena, *SHAPES[shape](arena, size)) for size in (4, 200, 400))
    assert (twice - none) < 2.5 * (some - none) + 2000
