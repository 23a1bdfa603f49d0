"""The control protocol: requests of the client to its host within a turn, and the reverse."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

import orjson

from agentsdir.adapters.protocol import Decision, RuleMeaning, ToolRequest, never
from agentsdir.formats.blocks import MAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agentsdir.adapters.protocol import Content

_NUMBER = re.compile(rb'"request_id"\s*:\s*"([A-Za-z0-9_-]{1,128})"')
_IS_QUESTION = re.compile(rb'"type"\s*:\s*"control_request"')
_INITIALIZE = "initialize"
INITIALIZE = orjson.dumps(
    {
        "type": "control_request",
        "request_id": _INITIALIZE,
        "request": {
            "subtype": "initialize",
            "hooks": {
                "PreToolUse": [
                    # Seconds. Versions that do not know `onFailure` run a call whose hook failed,
                    # so each question is answered.
                    {"hookCallbackIds": ["calls"], "timeout": 86400, "onFailure": "block"}
                ]
            },
        },
    },
    option=orjson.OPT_APPEND_NEWLINE,
)
"""Asks the client to ask about each tool call before it runs it."""
INTERRUPT = (
    b'{"type":"control_request","request_id":"interrupt","request":{"subtype":"interrupt"}}\n'
)


def prompt_line(content: Content, session_id: str, uuid: str) -> dict[str, Any]:
    """Return a prompt as the client takes it; `uuid` becomes that of its row in the transcript."""
    parts = content if isinstance(content, str) else [_part(part) for part in content]
    return {
        "type": "user",
        "message": {"role": "user", "content": parts},
        "parent_tool_use_id": None,
        "session_id": session_id,
        "uuid": uuid,
    }


def _part(part: dict[str, Any]) -> dict[str, Any]:
    source = part.get("source")
    if not isinstance(source, dict) or "mediaType" not in source:
        return part
    renamed = {("media_type" if key == "mediaType" else key): v for key, v in source.items()}
    return {**part, "source": renamed}


def encode(message: dict[str, Any]) -> bytes:
    """Return a message, or a row of the transcript, as one line."""
    try:
        return orjson.dumps(message) + b"\n"
    except TypeError:  # half of a surrogate pair, or a number beyond 64 bits
        return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def initialized(line: bytes) -> bool | None:
    """Return whether a line accepts `INITIALIZE`; None for one that does not answer it."""
    if b'"control_response"' not in line:
        return None
    try:
        said = orjson.loads(line)["response"]
        return said["subtype"] == "success" if said["request_id"] == _INITIALIZE else None
    except (ValueError, KeyError, TypeError):
        return None


def respond(
    line: bytes,
    confirm: Callable[[ToolRequest], Decision],
    has_ended: Callable[[], bool] = never,
    decide: Callable[[ToolRequest], Decision] | None = None,
) -> bytes:
    """Return the response to a request; empty for any other line.

    Args:
        confirm: answers for calls that need permission.
        has_ended: returns whether the client has, while `confirm` waits for a decision.
        decide: answers for all calls, where `INITIALIZE` asked for that.
    """
    if b'"control_request"' not in line:
        return b""
    try:
        # The slower reader, as an approval repeats the input, which must be the same. Python would
        # read a number such as 1e999 as infinity, which is no JSON.
        asked = json.loads(line, parse_float=_finite, parse_constant=_finite)
        if asked["type"] != "control_request":
            return b""
        number, request = asked["request_id"], asked["request"]
        subtype = request["subtype"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return _refusal(line, _DENIED if decide else None)
    if subtype == "hook_callback" and decide is not None:
        return _success(number, _hook_output(decide(_hooked(request, has_ended))))
    if subtype != "can_use_tool":
        said = {"subtype": "error", "request_id": number, "error": f"{subtype} is not supported"}
        return encode({"type": "control_response", "response": said})
    given = request.get("input")
    decision = confirm(
        ToolRequest(
            str(request.get("tool_name")),
            str(request.get("tool_use_id")),
            given,
            str(request.get("agent_id") or MAIN),
            exact_rule(str(request.get("tool_name")), given),
            has_ended,
        )
    )
    return _success(number, _as_response(decision, given))


def _success(number: Any, answer: dict[str, Any]) -> bytes:
    response = {"subtype": "success", "request_id": number, "response": answer}
    return encode({"type": "control_response", "response": response})


def _hooked(request: dict[str, Any], has_ended: Callable[[], bool]) -> ToolRequest:
    """Return what the hook for all calls is asked about."""
    said = request.get("input")
    given: dict[str, Any] = said if isinstance(said, dict) else {}
    return ToolRequest(
        str(given.get("tool_name")),
        str(request.get("tool_use_id") or given.get("tool_use_id")),
        given.get("tool_input"),
        str(given.get("agent_id") or MAIN),
        is_void=has_ended,
    )


def _hook_output(decision: Decision) -> dict[str, Any]:
    """Return a decision that grants nothing: what is not denied needs the permission it would."""
    output: dict[str, Any] = {"hookEventName": "PreToolUse"}
    if not decision.allowed:
        reason = decision.reason or "the call was not carried out"
        output |= {"permissionDecision": "deny", "permissionDecisionReason": reason}
    elif decision.input is not None:
        output["updatedInput"] = decision.input
    else:
        return {}
    return {"hookSpecificOutput": output}


def _finite(number: str) -> float:
    if not math.isfinite(value := float(number)):
        raise ValueError(f"{number:.40} is no number of JSON that can be repeated")
    return value


_DENIED = {
    "behavior": "deny",
    "message": "the call was not understood",
    **_hook_output(Decision(allowed=False, reason="the call was not understood")),
}
"""A no to either question about a call: an error would let a hooked one run."""


def _refusal(line: bytes, answer: dict[str, Any] | None) -> bytes:
    """Answer a request that cannot be decoded, if it has an id: the client may wait for it."""
    found = _NUMBER.search(line)
    if found is None or not _IS_QUESTION.search(line):
        return b""
    if answer is not None:
        return _success(found[1].decode(), answer)
    said = {"subtype": "error", "request_id": found[1].decode(), "error": "not understood"}
    return encode({"type": "control_response", "response": said})


_COMMAND = "Bash"
_SHELLS = frozenset({_COMMAND, "PowerShell", "Monitor", "REPL"})
"""The tools that run any command, or any code. Only of Bash is a whole command a rule."""
_INCIDENTAL = frozenset({"command", "description", "timeout"})


def exact_rule(tool: str, given: Any) -> str:
    """Return the rule that means a tool, or a whole command of Bash and no other.

    It is empty for a call of Bash that says more than a command, such as one without the sandbox,
    and for another tool that runs any command.
    """
    if tool != _COMMAND:
        return "" if tool in _SHELLS else tool
    command = given.get("command") if isinstance(given, dict) else None
    if (
        not isinstance(command, str)
        or not command.strip()
        or any(value for name, value in given.items() if name not in _INCIDENTAL)
    ):
        return ""
    return f"{tool}({command})"


_is_handed = re.compile(
    r"(?!mcp__)[A-Za-z][A-Za-z0-9_-]*|mcp__[A-Za-z0-9_-]+?__[A-Za-z0-9_-]+"
).fullmatch


def handed_tools(rules: Iterable[str]) -> list[str]:
    """Return the rules that the client reads as exactly what they say: names of tools.

    It reads `mcp__server` as all tools of a server, and a command as more than that command: with
    input redirected, in `timeout`, or beside commands that only read. It asks about those, and they
    are compared here.
    """
    return [rule for rule in rules if _is_handed(rule)]


def _as_response(decision: Decision, given: Any) -> dict[str, Any]:
    if not decision.allowed:
        return {"behavior": "deny", "message": decision.reason or "permission was denied"}
    # Some versions take an approval for none unless it repeats the input.
    response = {
        "behavior": "allow",
        "updatedInput": given if decision.input is None else decision.input,
    }
    if tools := handed_tools([decision.rule]):
        rules = [{"toolName": tool} for tool in tools]
        # A session of the client's control protocol is one run of it.
        update = {"type": "addRules", "rules": rules, "behavior": "allow", "destination": "session"}
        response["updatedPermissions"] = [update]
    return response


def read_rule(text: str) -> RuleMeaning:
    """Return what a rule means that a person gave, in the form of the client's own settings."""
    tool, _, content = text.partition("(")
    if not content:
        return RuleMeaning(text, is_wide=text in (*_SHELLS, "*"))
    command = content[:-1]
    if tool != _COMMAND or not content.endswith(")"):
        problem = f"only {_COMMAND} has rules for what it is given, such as {_COMMAND}(git diff)"
        return RuleMeaning(text, problem=problem)
    if command.strip() in ("", "*", ":*"):
        return RuleMeaning(_COMMAND, is_wide=True)
    if command.startswith("*") or command.endswith("*"):
        return RuleMeaning(text, problem="a rule is for one whole command, and this is a pattern")
    return RuleMeaning(text)
