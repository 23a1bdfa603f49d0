"""When one copy of a session's file goes on from another."""

from __future__ import annotations

from typing import Any

import pytest
from gemini_files import TALK, answer, document, log, message, prompt

from agentsdir.adapters.gemini.moving import is_continuation
from agentsdir.formats.source import Source

CALL = {"id": "ls__1", "name": "ls", "result": "long", "status": "success"}
DOCUMENT = document(prompt("hi"), answer("yes", toolCalls=[CALL]))


def tell(saved: bytes, present: bytes) -> bool:
    """Return whether the second goes on from the first."""
    return is_continuation(Source("a", data=saved), Source("b", data=present))


GOES_ON: dict[str, tuple[bytes, bytes]] = {
    "itself": (DOCUMENT, DOCUMENT),
    "a damaged one itself": (DOCUMENT[:-9], DOCUMENT[:-9]),
    "another message": (
        DOCUMENT,
        document(prompt("hi"), answer("yes", toolCalls=[CALL]), prompt("x", "u2")),
    ),
    "more text": (DOCUMENT, document(prompt("hi"), answer("yes, and", toolCalls=[CALL]))),
    "another call": (
        DOCUMENT,
        document(prompt("hi"), answer("yes", toolCalls=[CALL, {**CALL, "id": "ls__2"}])),
    ),
    "a masked result": (
        DOCUMENT,
        document(prompt("hi"), answer("yes", toolCalls=[{**CALL, "result": "<masked>"}])),
    ),
    "tokens and a title": (
        DOCUMENT,
        document(prompt("hi"), answer("yes", toolCalls=[CALL], tokens={}), summary="Greeting"),
    ),
    "no message yet": (document(), DOCUMENT),
    "messages of one id": (
        document(prompt("a"), prompt("b")),
        document(prompt("a"), prompt("b"), answer()),
    ),
    "messages without an id": (
        document({"type": "user", "content": "a"}, {"type": "user", "content": "b"}),
        document({"type": "user", "content": "a"}, {"type": "user", "content": "b"}, answer()),
    ),
    "half a pair": (
        document(message("u", "user", "x")).replace(b'"x"', rb'"\ud800"'),
        document(message("u", "user", "x"), answer()).replace(b'"x"', rb'"\ud800"'),
    ),
    "the rest of a half": (DOCUMENT[:-9], DOCUMENT),
    "a log": (TALK, TALK + log(answer())),
    "a log with its end": (TALK[:-1], TALK),
}


@pytest.mark.parametrize(("saved", "present"), GOES_ON.values(), ids=GOES_ON)
def test_what_became_of_a_file_goes_on_from_it(saved: bytes, present: bytes) -> None:
    """Whatever its client added, and also where it masked what a call gave."""
    assert tell(saved, present)


DIFFERS: dict[str, tuple[Any, Any]] = {
    "another order": (
        document(prompt("a"), answer("b")),
        document(answer("b"), prompt("a"), answer("c", "g2")),
    ),
    "one of two of an id": (document(prompt("a"), prompt("b")), document(prompt("b"), answer())),
    "a message less": (DOCUMENT, document(prompt("hi"))),
    "other words": (DOCUMENT, document(prompt("hi"), answer("no", toolCalls=[CALL]))),
    "other parts": (document(prompt("hi")), document(prompt("ho"))),
    "a call less": (DOCUMENT, document(prompt("hi"), answer())),
    "another's message": (document(prompt("hi")), document(answer("hi", "u1"))),
    "a half": (DOCUMENT, DOCUMENT[:-9]),
    "no list": (DOCUMENT, document(messages={})),
    "no messages": (DOCUMENT, document(messages=[1])),
    "a log of a document": (DOCUMENT, TALK),
    "a document of a log": (TALK, DOCUMENT),
    "another log": (TALK, TALK.replace(b"hi", b"ho")),
    "nothing": (TALK, b""),
}


@pytest.mark.parametrize(("saved", "present"), DIFFERS.values(), ids=DIFFERS)
def test_what_lost_or_changed_anything_does_not(saved: bytes, present: bytes) -> None:
    """Nothing says then which of the two is right."""
    assert not tell(saved, present)
