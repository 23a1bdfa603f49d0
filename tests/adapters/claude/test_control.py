"""What the client asks in the middle of a turn, and how it is answered."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.adapters.claude import control
from agentsdir.adapters.protocol import Decision, ToolRequest

ASKED: dict[str, Any] = {
    "request_id": "r-1",
    "request": {
        "subtype": "can_use_tool",
        "tool_name": "Write",
        "tool_use_id": "toolu_1",
        "input": {"file_path": "/w/a", "content": "x"},
    },
    "type": "control_request",
}


def never(request: ToolRequest) -> Decision:
    """Answer no request."""
    raise AssertionError(f"no user is asked about {request}")


def answered(asked: Any, decision: Decision) -> Any:
    """Return the answer to a request, decoded."""
    return orjson.loads(control.respond(orjson.dumps(asked) + b"\n", lambda _: decision))


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity"])
def test_a_number_that_cannot_be_repeated_is_refused(number: str) -> None:
    """An approval of it would be for another input than the one that was asked about."""
    line = orjson.dumps(ASKED).replace(b'"x"', number.encode())
    said = orjson.loads(control.respond(line, never))["response"]
    assert (said["subtype"], said["request_id"]) == ("error", "r-1")


def test_an_approval_repeats_the_input_for_versions_that_want_it() -> None:
    """2.1.98 takes one without for none."""
    said = answered(ASKED, Decision(allowed=True))["response"]
    assert (said["subtype"], said["request_id"]) == ("success", "r-1")
    given_back = ASKED["request"]["input"]
    assert said["response"] == {"behavior": "allow", "updatedInput": given_back}


def test_an_approval_may_change_the_input() -> None:
    """Even to nothing."""
    said = answered(ASKED, Decision(allowed=True, input={}))["response"]
    assert said["response"] == {"behavior": "allow", "updatedInput": {}}


@pytest.mark.parametrize(("reason", "message"), [("no", "no"), ("", "permission was denied")])
def test_a_refusal_always_has_a_message(reason: str, message: str) -> None:
    """The model gets the reason."""
    said = answered(ASKED, Decision(allowed=False, reason=reason))["response"]
    assert said["response"] == {"behavior": "deny", "message": message}


def test_who_is_asked_hears_what_the_tool_would_do_and_for_whom() -> None:
    """A subagent's call says whose it is."""
    heard: list[ToolRequest] = []

    def hear(request: ToolRequest) -> Decision:
        heard.append(request)
        return Decision(allowed=False)

    control.respond(orjson.dumps(ASKED), hear)
    theirs = {**ASKED["request"], "agent_id": "a9"}
    control.respond(orjson.dumps({**ASKED, "request": theirs}), hear)
    assert [(one.tool_name, one.tool_use_id, one.conversation) for one in heard] == [
        ("Write", "toolu_1", "main"),
        ("Write", "toolu_1", "a9"),
    ]
    assert heard[0].input == {"file_path": "/w/a", "content": "x"}


def test_a_request_without_a_handler_is_refused_and_never_left_waiting() -> None:
    """A client waits for ever for an answer that does not come."""
    asked = {**ASKED, "request": {"subtype": "elicitation"}}
    said = orjson.loads(control.respond(orjson.dumps(asked), never))["response"]
    assert (said["subtype"], said["request_id"]) == ("error", "r-1")
    assert "elicitation" in said["error"]


@pytest.mark.parametrize(
    "request_",
    [b"null", b"{}", b"[" * 5000, b'{"subtype":"can_use_tool"', b'{"subtype":"mcp"} junk'],
)
def test_a_question_that_cannot_be_read_is_refused_by_its_number(request_: bytes) -> None:
    """Who asks may be a client that is newer than we are."""
    line = b'{"type":"control_request","request_id":"r-9","request":' + request_ + b"}\n"
    said = orjson.loads(control.respond(line, never))["response"]
    assert (said["subtype"], said["request_id"]) == ("error", "r-9")


@pytest.mark.parametrize("value", [r'"half \ud83d of it"', "12345678901234567890123", '"\\u0000"'])
def test_an_approval_repeats_an_input_that_few_can_write(value: str) -> None:
    """A client takes another input for the one that was approved."""
    given = '{"content":' + value + "}"
    line = '{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool","input":'
    said = control.respond(
        (line + given + "}}\n").encode(), lambda _request: Decision(allowed=True)
    )
    assert json.loads(said)["response"]["response"]["updatedInput"] == json.loads(given)


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"assistant","message":{"content":"control_request"}}\n',
        b'{"type":"user","message":{"content":[{"text":"say \\"control_request\\""}]}}\n',
        b'{"type":"control_response","response":{"subtype":"success"}}\n',
        b'{"type":"control_request"\n',
        b"",
    ],
)
def test_other_lines_ask_nothing(line: bytes) -> None:
    """Also when they speak of asking."""
    assert control.respond(line, never) == b""


def test_a_prompt_has_the_id_that_its_row_will_have() -> None:
    """And the session's."""
    line = orjson.loads(control.encode(control.prompt_line("hi", "s-1", "u-1")))
    assert line == {
        "type": "user",
        "message": {"role": "user", "content": "hi"},
        "parent_tool_use_id": None,
        "session_id": "s-1",
        "uuid": "u-1",
    }


def test_an_image_is_spelled_as_the_api_does() -> None:
    """Only the name of the media type differs."""
    source = {"type": "base64", "mediaType": "image/png", "data": "AA=="}
    parts = [{"type": "text", "text": "see"}, {"type": "image", "source": source}]
    sent = control.prompt_line(parts, "s", "u")["message"]["content"]
    spelled = {"type": "base64", "media_type": "image/png", "data": "AA=="}
    assert sent == [{"type": "text", "text": "see"}, {"type": "image", "source": spelled}]


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=50))
def test_every_prompt_is_one_line(text: str) -> None:
    """Whatever is in it, half of a surrogate pair too."""
    line = control.encode(control.prompt_line(text, "s", "u"))
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert json.loads(line)["message"]["content"] == text


HOOKED: dict[str, Any] = {
    "request_id": "r-2",
    "type": "control_request",
    "request": {
        "subtype": "hook_callback",
        "callback_id": "calls",
        "tool_use_id": "toolu_2",
        "input": {
            "hook_event_name": "PreToolUse",
            "tool_name": "Read",
            "tool_input": {"file_path": "/w/a"},
            "agent_id": "a9",
        },
    },
}


@pytest.mark.parametrize(
    ("decision", "output"),
    [
        (Decision(allowed=True), None),
        (Decision(allowed=True, input={}), {"updatedInput": {}}),
        (
            Decision(allowed=False, reason="in the sandbox"),
            {"permissionDecision": "deny", "permissionDecisionReason": "in the sandbox"},
        ),
        (
            Decision(allowed=False),
            {
                "permissionDecision": "deny",
                "permissionDecisionReason": "the call was not carried out",
            },
        ),
    ],
)
def test_the_hook_for_all_calls_grants_nothing(decision: Decision, output: Any) -> None:
    """What it does not deny needs the permission that it would need without it."""
    heard: list[ToolRequest] = []

    def decide(request: ToolRequest) -> Decision:
        heard.append(request)
        return decision

    line = control.respond(orjson.dumps(HOOKED), never, decide=decide)
    said = orjson.loads(line)["response"]
    assert (said["subtype"], said["request_id"]) == ("success", "r-2")
    own = {"hookEventName": "PreToolUse"}
    assert said["response"] == ({} if output is None else {"hookSpecificOutput": {**own, **output}})
    ((tool, use, given, conversation, *_),) = heard
    assert (tool, use, given, conversation) == ("Read", "toolu_2", {"file_path": "/w/a"}, "a9")


def test_a_hook_that_nothing_asked_for_is_refused() -> None:
    """As any request of a kind that is not known."""
    said = orjson.loads(control.respond(orjson.dumps(HOOKED), never))["response"]
    assert said["subtype"] == "error"


@pytest.mark.parametrize("asked", [HOOKED, ASKED])
def test_a_call_that_cannot_be_understood_does_not_run_in_a_runner(asked: dict[str, Any]) -> None:
    """An error would be a failed hook, which lets the call run in some versions."""
    line = orjson.dumps(asked).replace(b'"/w/a"', b"1e999")
    said = orjson.loads(control.respond(line, never, decide=never))["response"]
    assert said["subtype"] == "success"
    answer = said["response"]
    assert answer["behavior"] == "deny"
    assert answer["hookSpecificOutput"]["permissionDecision"] == "deny"


@pytest.mark.parametrize(
    ("line", "accepted"),
    [
        (b'{"type":"control_response","response":{"subtype":"success","request_id":"x"}}', None),
        (b'{"type":"control_response","response":[]}', None),
        (b'{"type":"control_response"', None),
        (b'{"type":"assistant"}', None),
        (b'{"response":{"subtype":"success","request_id":"initialize"},"type":"control_response"}',
         True),
        (b'{"response":{"subtype":"error","request_id":"initialize"},"type":"control_response"}',
         False),
    ],
)  # fmt: skip
def test_only_the_answer_to_our_request_says_that_calls_are_asked_about(
    line: bytes, accepted: bool | None
) -> None:
    """Nothing else that a client says does."""
    assert control.initialized(line) is accepted
