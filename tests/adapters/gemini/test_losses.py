"""Whatever a client does to its log, the whole view keeps what was ever written to it."""

from __future__ import annotations

import json
from typing import Any

from gemini_oracle import missing
from gemini_reading import read_bytes
from hypothesis import given, settings
from hypothesis import strategies as st

HEADER = {"sessionId": "s", "projectHash": "h", "startTime": "2026-01-01T00:00:00.000Z"}
DEEDS = (
    "ask", "answer", "call", "result", "note", "edit", "restate", "compress", "rewind", "resume",
)  # fmt: skip


class Client:
    """Writes a log as clients do, each text a new one; `choose` decides between messages."""

    def __init__(self, choose: Any) -> None:
        self.rows: list[dict[str, Any]] = [HEADER]
        self.history: list[dict[str, Any]] = []
        self.spent: dict[str, int] = {}
        self._choose = choose
        self._count = 0

    def _new(self, word: str) -> str:
        self._count += 1
        return f"<{word}-{self._count}>"

    def _write(self, message: dict[str, Any]) -> None:
        self.rows.append(message)
        ids = [one["id"] for one in self.history]
        if message["id"] in ids:
            self.history[ids.index(message["id"])] = message
        else:
            self.history.append(message)

    def ask(self) -> None:
        """Take a prompt, with what was typed or an image beside it at times."""
        content = [{"text": self._new("prompt")}]
        message = {"id": self._new("u"), "type": "user", "content": content}
        extra = self._choose(3)
        if extra == 1:
            message["displayContent"] = [{"text": self._new("typed")}]
        elif extra == 2:
            data = self._new("image")
            content.append({"inlineData": {"mimeType": "image/png", "data": data}})  # type: ignore[dict-item]
        self._write(message)

    def answer(self) -> None:
        """Take an answer with a thought and counts."""
        name, total = self._new("g"), self._choose(9) + 2
        thought = {"subject": self._new("subject"), "description": self._new("description")}
        self.spent[name] = total
        self._write(
            {
                "id": name,
                "type": "gemini",
                "content": self._new("answer"),
                "thoughts": [thought],
                "tokens": {"input": total - 1, "output": 1, "cached": 0, "thoughts": 0,
                           "tool": 0, "total": total},
            }
        )  # fmt: skip

    def call(self) -> None:
        """Write the last answer again, with calls and their results."""
        if not self.history or self.history[-1]["type"] != "gemini":
            return
        last = self.history[-1]
        if not isinstance(last["content"], str):
            return
        calls = [
            {
                "id": f"ls__{self._new('c')}",
                "name": "ls",
                "args": {"path": self._new("path")},
                "status": "success",
                "result": [{"text": self._new("output")}],
                "resultDisplay": self._new("shown"),
            }
            for _ in range(self._choose(2) + 1)
        ]
        for one in calls:
            response = {"id": one["id"], "name": "ls", "response": {"output": self._new("output")}}
            one["result"] = [{"functionResponse": response}]
        self._write({**last, "toolCalls": calls})

    def result(self) -> None:
        """Write the results of the last calls as a turn of their own."""
        last = self.history[-1] if self.history else {}
        parts = [part for one in last.get("toolCalls", ()) for part in one["result"]]
        if parts:
            self._write({"id": self._new("u"), "type": "user", "content": parts})

    def note(self) -> None:
        """Say something to the user, which is no part of the history."""
        kind = ("info", "warning", "error")[self._choose(3)]
        self.rows.append({"id": self._new("i"), "type": kind, "content": self._new("note")})

    def edit(self) -> None:
        """Write another text in the place of one."""
        if self.history:
            at = self._choose(len(self.history))
            if "functionResponse" not in json.dumps(self.history[at]["content"]):
                content = [{"text": self._new("edited")}]
                self._write({**self.history[at], "content": content})

    def restate(self) -> None:
        """Write the whole history, as poor as a resume does, some of it left out."""
        kept = self.history[: len(self.history) - self._choose(2)]
        self._list([_poorer(one) for one in kept])

    def compress(self) -> None:
        """Put a summary in the place of the history, and restate its end under new ids."""
        tail = [{**_poorer(one), "id": self._new("n")} for one in self.history[-2:]]
        text = {"text": f"<state_snapshot>{self._new('summary')}</state_snapshot>"}
        self._list([{"id": self._new("u"), "type": "user", "content": [text]}, *tail])

    def rewind(self) -> None:
        """Go back to a message, or to one that is not in the history."""
        at = self._choose(len(self.history) + 1)
        target = self.history[at]["id"] if at < len(self.history) else "nobody"
        self.rows.append({"$rewindTo": target})
        self.history = self.history[: at if at < len(self.history) else 0]

    def resume(self) -> None:
        """Begin anew in the same minute: a second header, and a list of the client's own."""
        self.rows.append(HEADER)
        context = {
            "id": "d0",
            "type": "user",
            "content": [{"text": "<session_context>c</session_context>"}],
        }
        self._list([context])

    def _list(self, messages: list[dict[str, Any]]) -> None:
        self.rows.append({"$set": {"messages": messages}})
        self.history = list(messages)


def _poorer(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message as a resume restates it."""
    if message["type"] != "gemini" or not isinstance(message["content"], str):
        return {key: message[key] for key in ("id", "type", "content")}
    parts: list[dict[str, Any]] = [
        {"text": f"**{one['subject']}** {one['description']}", "thought": True}
        for one in message["thoughts"]
    ]
    parts.append({"text": message["content"]})
    for one in message.get("toolCalls", ()):
        call = {"id": one["id"].removeprefix("ls__"), "name": "ls", "args": one["args"]}
        parts.append({"functionCall": call})
    return {"id": message["id"], "type": "gemini", "content": parts}


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(DEEDS), min_size=8, max_size=24), st.data())
def test_nothing_is_lost_and_tokens_count_once_whatever_a_client_does(
    deeds: list[str], data: st.DataObject
):
    """Prompts, answers, thoughts, calls, results and notes, over rewinds, resumes and lists."""
    client = Client(lambda count: data.draw(st.integers(0, count - 1)))
    for deed in deeds:
        getattr(client, deed)()
    log = b"".join(json.dumps(row).encode() + b"\n" for row in client.rows)
    reading = read_bytes(log)
    assert missing(log, reading.blocks("all")) == []
    used = sum(sink.usage()["totalTokens"] for sink in reading.sinks)
    assert used == sum(client.spent.values())
    blocks = reading.blocks("all")
    for kind, most in (("tool_use", 1), ("tool_result", 1)):
        named = [block["toolUseId"] for block in blocks if block["type"] == kind]
        assert len(named) <= most * len(set(named))
