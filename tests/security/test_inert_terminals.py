"""On a real terminal, no text of an agent or a file drives it; in a pipe, nothing is lost."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from agent_verbs import LEAN, PARENT, READS, WHOLE, WRITES, filled
from arena import Arena, Ran

CORPUS: dict[str, str] = {
    "CSI clears": "\x1b[2J\x1b[H",
    "CSI colour": "\x1b[31mred\x1b[0m",
    "CSI asks": "\x1b[6n\x1b[c",
    "OSC 0 title": "\x1b]0;owned\x07",
    "OSC 8 link": "\x1b]8;;https://example.invalid\x1b\\here\x1b]8;;\x1b\\",
    "OSC 52 clipboard": "\x1b]52;c;cm0gLXJmIC8K\x07",
    "OSC 1337 file": "\x1b]1337;File=name=eA==;inline=1:AAAA\x07",
    "DCS": "\x1bP1;1|17/ab\x1b\\",
    "APC and PM": "\x1b_x\x1b\\\x1b^y\x1b\\",
    "reset": "\x1bc",
    "BEL": "\x07",
    "C1 CSI": "\x9b31m",
    "C1 OSC and DCS": "\x9d0;t\x9c\x90q\x9c",
    "NEL and IND": "a\x85b\x84c",
    "CR": "shown\rhidden",
    "BS": "no\b\b\bok",
    "DEL": "a\x7fb",
    "VT and FF": "a\x0bb\x0cc",
    "SO and SI": "\x0eqqq\x0f",
    "bidi override": "\u202eevil\u202c",
    "bidi isolates": "\u2066a\u2067b\u2068c\u2069",
    "bidi embeddings": "\u202aa\u202bb\u202dc\u202c",
    "bidi marks": "\u200ea\u200fb\u061cc",
    "line separators": "a\u2028b\u2029c",
    "tags": "\U000e0041\U000e007f\U000e0001",
    "BOM inside": "a\ufeffb",
    "markup": "[red]x[/red][link=https://example.invalid]y[/link]",
    "fine": "Grüße, 世界, \U0001f600 ś",
}
EVIL = " ".join(CORPUS.values()) + " end"
FORBIDDEN = {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))} - {"\n", "\t"}
FORBIDDEN |= {chr(code) for code in (*range(0x2028, 0x202F), *range(0x2066, 0x206A))}
FORBIDDEN |= {"\u061c", "\u200e", "\u200f", "\ufeff"}
FORBIDDEN |= {chr(code) for code in range(0xE0000, 0xE0080)}
# Bytes of C1 that are no UTF-8, as `Ran.out` decodes them.
FORBIDDEN |= {chr(0xDC00 + code) for code in range(0x80, 0xA0)}


def assert_inert(ran: Ran, label: object = None) -> Ran:
    """Assert that neither stream holds what drives a terminal, and return the run."""
    for text in (ran.tidy().out, ran.err):
        driving = sorted(set(text) & FORBIDDEN)
        assert driving == [], (label, ran.arguments, driving, text[-600:])
    return ran


def block(kind: str, **fields: Any) -> dict[str, Any]:
    """Return the line of a script that completes a block."""
    name = fields.pop("id", kind)
    return {
        "type": "block_complete",
        "blockId": name,
        "block": {"type": kind, "id": name, **fields},
    }


def talk(evil: str) -> list[dict[str, Any]]:
    """Return one turn in which every part of every block is hostile."""
    return [
        {
            "type": "block_start",
            "blockId": "s",
            "block": {"type": "assistant_text", "id": "s" + evil, "content": ""},
        },
        {"type": "text_delta", "blockId": "s", "delta": evil},
        block("assistant_text", id="s", content=evil + "!", model=evil),
        block("thinking", content=evil, summary=evil),
        block("tool_use", toolName=evil, toolUseId=evil, input={evil: evil}, status="success"),
        block("tool_result", toolUseId=evil, output=[{"type": "text", "text": evil}], isError=True),
        block("system", subtype="log", message=evil, metadata={evil: evil}),
        block("subagent", subagentId=evil, name=evil, input=evil, status="error", output=evil),
        {**block("assistant_text", id="child", content=evil), "conversationId": "x" + evil},
        {"type": "metadata_update", "metadata": {"stopReason": evil}},
    ]


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> tuple[Arena, dict[str, str]]:
    """Return a world where everything that a user, a provider or a file can say is hostile."""
    arena = Arena.make(tmp_path_factory.mktemp("evil"))
    home = arena.work / ("cwd" + EVIL.replace("/", "|").replace("\n", " ")[:60])
    home.mkdir()
    script = arena.script("talk.jsonl", *talk(EVIL))
    fails = arena.script("fails.jsonl", {"type": "error", "kind": EVIL, "message": EVIL})
    common = ["--provider=script", f"--model={EVIL}", f"--system={EVIL}", f"--profile={EVIL}"]
    agents = {
        "AGENT": arena.ok("new", *common, script, f"--cwd={home}"),
        "FAILS": arena.ok("new", *common, fails),
        "USER": arena.ok("new", "--connector=" + EVIL, "--user=" + EVIL, "--channel=" + EVIL),
        "DAMAGED": arena.ok("new"),
    }
    for agent in agents.values():
        arena.run("send", agent, stdin=EVIL.encode())
    (stored,) = (arena.folder(agents["AGENT"]) / "transcripts").glob("*.jsonl")
    (arena.work / "recorded.jsonl").write_bytes(stored.read_bytes())
    log = arena.folder(agents["DAMAGED"]) / "events.jsonl"
    with log.open("ab") as stream:
        stream.write(b"\x9b31m\x1b[2J" + EVIL.encode() + b"\n")
        stream.write(json.dumps({"seq": 99, "event": EVIL, "data": {EVIL: EVIL}}).encode() + b"\n")
    return arena, agents


VERBS = {**READS, **WHOLE, **PARENT, **WRITES, "rm": ["rm", "AGENT"]}  # the answer is no


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_drives_the_terminal(evil: tuple[Arena, dict[str, str]], verb: str) -> None:
    """With hostile prompts, answers, tools, models, folders, failures and logs."""
    arena, agents = evil
    names = agents if "AGENT" in " ".join(VERBS[verb]) else {"": ""}
    for name, agent in names.items():
        arguments = [EVIL if word == "hi" else word for word in filled(VERBS[verb], agent)]
        assert_inert(arena.run(*arguments, tty=True, stdin=b"n\n"), name)
        if verb == "archive":
            assert_inert(arena.run("archive", "--list", tty=True), name)
            assert_inert(arena.run("archive", "--undo", agent, tty=True), name)


EXACT = (
    ["list", "--json"],
    ["replay", "--events", "AGENT"],
    ["replay", "--events", "FAILS"],
    ["inspect", "--json", "AGENT"],
    ["inspect", "--json", "USER"],
    ["inspect", "--saved", "AGENT"],
    ["inspect", "--runtime", "AGENT"],
    ["validate", "--json"],
    ["parse", "recorded.jsonl"],
    ["parse", "--hidden", "--view=all", "claude.jsonl"],
    ["parse", "--report=-", "claude.jsonl"],
    ["adapters", "--json"],
    ["schema", "--json"],
    ["schema", "block"],
)


@pytest.mark.parametrize("arguments", EXACT, ids=" ".join)
def test_json_on_a_terminal_is_the_json_of_the_pipe(
    evil: tuple[Arena, dict[str, str]], arguments: list[str]
) -> None:
    """Escaped so that it is inert, and the same value once it is decoded, on both streams."""
    arena, agents = evil
    (arena.work / "claude.jsonl").write_bytes(claude(EVIL))
    words = [agents.get(word, word) for word in arguments]
    shown, piped = arena.run(*words, tty=True), arena.run(*words)
    assert_inert(shown)
    assert shown.code == piped.code
    assert values(shown.out) == values(piped.out)
    assert values(shown.out) or arguments[:2] == ["validate", "--json"]
    if "--report=-" in arguments:
        assert values(shown.err) == values(piped.err) != []


def values(text: str) -> list[Any]:
    """Return the JSON values that stand one after the other in a text."""
    decoder, found, at = json.JSONDecoder(), [], 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        value, at = decoder.raw_decode(text, at)
        found.append(value)
    return found


def claude(evil: str) -> bytes:
    """Return a transcript of Claude Code in which all that is free text is hostile."""
    common = {"sessionId": evil, "version": evil, "cwd": evil, "gitBranch": evil}
    rows = [
        {"type": "summary", "summary": evil, "leafUuid": "a"},
        {
            "type": "user",
            "uuid": "a",
            "parentUuid": None,
            "message": {"role": "user", "content": evil},
        },
        {
            "type": "assistant",
            "uuid": "b",
            "parentUuid": "a",
            "message": {
                "id": evil,
                "role": "assistant",
                "model": evil,
                "content": [
                    {"type": "text", "text": evil},
                    {"type": "tool_use", "id": evil, "name": evil, "input": {evil: evil}},
                ],
            },
        },
        {"type": evil, "uuid": evil, "parentUuid": evil, "subtype": evil, "content": evil},
    ]
    lines = [json.dumps({**common, **row}).encode() for row in rows]
    return b"\n".join([*lines, b"\x9b\x1b[2J" + evil.encode(), b'{"torn": "\x1b]0;'])


def test_each_of_the_corpus_is_shown_and_not_dropped(arena: Arena) -> None:
    """An answer with it: the terminal shows as much text, the pipe gives it byte for byte."""
    for name, text in CORPUS.items():
        agent = arena.ok("new")
        shown = assert_inert(arena.run("send", agent, tty=True, stdin=text.encode()), name)
        piped = text + "\n"
        assert len(shown.out) >= len(piped)
        if name in ("markup", "fine"):
            assert shown.out == piped
    ran = arena.run("send", arena.ok("new"), stdin=EVIL.encode())
    assert ran.raw_out == EVIL.encode() + b"\n"


WRONG: tuple[list[str], ...] = (
    ["EVIL"],
    ["--EVIL"],
    ["-EVIL"],
    ["list", "EVIL"],
    ["list", "--EVIL"],
    ["--root", "EVIL", "validate"],
    ["new", "--provider", "EVIL"],
    ["new", "--type", "EVIL"],
    ["new", "--name", "EVIL"],
    ["new", "--cwd", "EVIL"],
    ["new", "--option", "EVIL"],
    ["new", "--option", "EVIL=EVIL"],
    ["new", "--provider=script", "--option=EVIL=x"],
    ["new", "--type=subagent", "--name=x", "--parent", "EVIL"],
    ["send", "EVIL", "x"],
    ["send", "AGENT", "--wait", "EVIL"],
    ["send", "AGENT", "--messages", "EVIL"],
    ["send", "AGENT", "--EVIL"],
    ["inspect", "EVIL"],
    ["restore", "EVIL", "EVIL"],
    ["replay", "EVIL"],
    ["suspend", "EVIL"],
    ["resume", "EVIL"],
    ["rename", "EVIL", "x"],
    ["rename", "AGENT", "EVIL"],
    ["tag", "AGENT", "EVIL"],
    ["resolve", "EVIL"],
    ["outbox", "EVIL"],
    ["outbox", "AGENT", "--done", "EVIL"],
    ["send", "--create", "EVIL", "x"],
    ["send", "--to", "EVIL", "x"],
    ["schema", "EVIL"],
    ["validate", "EVIL"],
    ["validate", "--kind", "EVIL", "talk.jsonl"],
    ["parse", "EVIL"],
    ["parse", "--adapter", "EVIL", "talk.jsonl"],
    ["parse", "--view", "EVIL", "talk.jsonl"],
    ["parse", "--report", "EVIL/EVIL", "talk.jsonl"],
)


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_no_error_drives_the_terminal(evil: tuple[Arena, dict[str, str]], form: list[str]) -> None:
    """Whatever argument was wrong; as one line, or as one JSON object."""
    arena, agents = evil
    for arguments in WRONG:
        words = [agents.get(word, word.replace("EVIL", EVIL)) for word in arguments]
        ran = assert_inert(arena.run(*words, *form, tty=True, stdin=b"x"), arguments)
        assert ran.code not in (0, 3), ran
        # What `validate` checked is a line of its own.
        lines = [line for line in ran.err.splitlines() if "checked:" not in line]
        assert len(lines) == 1, ran
        if form and "validate" not in words:
            assert json.loads(ran.err)["exitCode"] == ran.code


def test_no_file_name_drives_the_terminal(arena: Arena) -> None:
    """Names of bytes that are no UTF-8 too; for whole files, damaged ones and none at all."""
    names = [os.fsencode(text.replace("/", "|"))[:200] + b".jsonl" for text in CORPUS.values()]
    names += [b"\x9b31m\x1b[2J.jsonl", b"\xff\xfe.jsonl"]
    for number, name in enumerate(names):
        path = Path(os.fsdecode(os.fsencode(arena.work) + b"/" + name))
        data = (claude("x"), b"", b"\xff\x00", b'{"type": "text_delta"}\n')[number % 4]
        path.write_bytes(data)
    operands = [os.fsdecode(name) for name in names]
    for arguments in (
        ["parse", "."],
        ["parse", "--report=-", "."],
        ["parse", *operands],
        ["validate", "."],
        ["validate", "--json", "."],
        ["validate", *operands],
        *(["parse", operand] for operand in operands[::4]),
        *(["validate", operand] for operand in operands[1::4]),
    ):
        assert_inert(arena.run(*arguments, tty=True))


def test_a_line_feed_in_a_file_name_makes_no_line_of_ours(arena: Arena) -> None:
    """What a name says cannot look like another message, or another problem."""
    name = "x\nagentsdir: all is well\nfine.jsonl:1: schema: no.jsonl"
    (arena.work / name).write_bytes(claude("x"))
    (arena.work / "session.json").write_text(
        '{"id": "x", "state": "\\n", "provider_name": "\\ny: z"}'
    )
    for arguments in (["parse", name], ["parse", "."], ["validate", "."], ["validate", name]):
        ran = arena.run(*arguments).tidy()
        said = ran.err.splitlines()
        assert all(line.startswith("agentsdir: ") for line in said), ran
        assert not any(line.startswith("agentsdir: all is well") for line in said), ran
        if arguments[0] == "validate":
            shown = ran.out.splitlines()
            assert all(line.startswith("./session.json:") for line in shown), ran


def test_a_folder_with_a_hostile_name_as_root_is_shown_inert(arena: Arena) -> None:
    """In every message that names a path."""
    base = arena.base / EVIL.replace("/", "|")[:80]
    base.mkdir()
    (base / "agents").write_text("no folder")
    arena.variables["AGENTSDIR_ROOT"] = str(base)
    for arguments in (*WHOLE.values(), *(filled(LEAN[verb], "nobody") for verb in LEAN)):
        assert_inert(arena.run(*arguments, tty=True))


def test_an_escape_sequence_would_be_noticed(arena: Arena) -> None:
    """The terminal is real: what a program without `escape_controls` prints is seen."""

    def spoil() -> None:
        from agentsdir.cli import output, turn_printer

        turn_printer.escape_controls = output.escape_controls = lambda text: text

    agent = arena.ok("new")
    ran = arena.run("send", agent, tty=True, stdin=EVIL.encode(), before=spoil)
    assert set(ran.out) & FORBIDDEN
