"""What an agent or a file says never drives the reader's terminal."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.cli.terminal import inert

EVIL = (
    "\x1b[2J\x1b]0;title\x07\x1b]52;c;aGk=\x07\x1bP1;1|x\x1b\\\x9b31m\x90x\x9c\b\x08\r\x00\x0e\x7f"
    "\u202eright\u202c\u2066x\u2069\u061c\u200e\u200f\u2028\u2029\ufeff\U000e0041"
)
FORBIDDEN = {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))} - {"\n", "\t"}
FORBIDDEN |= set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u061c\u200e\u200f")
FORBIDDEN |= set("\u2028\u2029\ufeff")


def clean(text: str) -> bool:
    """Tell whether nothing in `text` drives a terminal."""
    return not set(text) & FORBIDDEN and not any("\U000e0000" <= c <= "\U000e007f" for c in text)


@given(st.text(st.characters() | st.sampled_from(sorted(FORBIDDEN))))
def test_inert_text_holds_no_control_character_but_line_feed_and_tab(text: str) -> None:
    """Each is shown as its escape; all other text is untouched."""
    shown = inert(text)
    assert clean(shown)
    assert not [c for c in shown if unicodedata.category(c) == "Cc" and c not in "\n\t"]
    if clean(text):
        assert shown == text
    assert inert(shown) == shown


def test_escapes_are_shown_and_not_dropped() -> None:
    """A reader sees that something was there."""
    assert inert("a\x1b[0m\u202eb") == "a\\x1b[0m\\u202eb"


VERBS: list[list[str]] = [
    ["send", "AGENT", EVIL.replace("\0", "")],
    ["send", "AGENT", "x", "--events"],
    ["send", "AGENT", "x", "--json"],
    ["replay", "AGENT"],
    ["replay", "AGENT", "--events"],
    ["inspect", "AGENT"],
    ["inspect", "AGENT", "--json"],
    ["inspect", "AGENT", "--saved"],
    ["inspect", "AGENT", "--runtime"],
    ["list"],
    ["list", "--json"],
    ["suspend", "AGENT", "--json"],
    ["restore"],
    ["restore", "--json"],
]


@pytest.mark.parametrize("arguments", VERBS, ids=lambda value: " ".join(value)[:24])
def test_no_verb_lets_an_escape_sequence_through_to_a_terminal(
    shell: Any, tmp_path: Any, arguments: list[str]
) -> None:
    """From prompts, answers, titles, tools, damage; and JSON decodes to the exact text."""
    script = tmp_path / "s.jsonl"
    said = [
        {"type": "assistant_text", "id": "a", "content": EVIL},
        {"type": "thinking", "id": "k", "content": EVIL},
        {"type": "system", "id": "s", "message": EVIL, "subtype": "log"},
    ]
    tool = {"type": "tool_use", "id": "t", "toolName": EVIL, "toolUseId": "t", "status": "success"}
    result = {"type": "tool_result", "id": "r", "toolUseId": "t", "output": EVIL, "isError": False}
    lines = [
        {"type": "block_complete", "blockId": block["id"], "block": block}
        for block in (*said, {**tool, "input": {EVIL: EVIL}}, result)
    ]
    script.write_text("".join(json.dumps(line) + "\n" for line in lines))
    agent = shell.script(str(script))
    shell.ok("send", agent, stdin=EVIL.encode())
    done = shell(*[agent if word == "AGENT" else word for word in arguments], tty=True)
    assert done.code == 0
    assert clean(done.out)
    assert clean(done.err)
    if "--json" in arguments and arguments[0] == "inspect":
        assert done.json["title"] == shell.ok("inspect", agent).json["title"]
    if "--saved" in arguments:
        assert done.json["rawTranscript"].encode() == shell.transcript(agent).read_bytes()


def test_an_answer_in_a_pipe_is_exact(shell: Any) -> None:
    """Only terminals are protected: a script gets the bytes."""
    assert shell.ok("send", shell.new(), stdin=EVIL.encode()).out == EVIL + "\n"


@pytest.mark.parametrize("verb", ["inspect", "send", "replay", "suspend", "parse"])
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_no_error_lets_an_escape_sequence_through(shell: Any, verb: str, form: list[str]) -> None:
    """Whatever name was given."""
    for tty in (True, False):
        done = shell(verb, "x" + EVIL.replace("\0", ""), *form, stdin=b"x", tty=tty)
        assert done.code != 0
        assert done.err.count("\n") == 1
        if tty or not form:
            assert clean(done.err)


def test_a_damaged_log_of_evil_names_is_named_in_inert_text(shell: Any) -> None:
    """Findings repeat no bytes of the file raw."""
    agent = shell.new()
    with (shell.folder(agent) / "events.jsonl").open("ab") as log:
        log.write(b"\x1b[2J\x9b\n")
    for verb in ("inspect", "replay", "restore"):
        done = shell(verb, agent, tty=True)
        assert done.code == 3
        assert clean(done.out)
        assert clean(done.err)
