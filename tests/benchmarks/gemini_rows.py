"""Writes a large synthetic Gemini CLI session: `gemini_rows.py FILE MEGABYTES [MIX] [SEED]`.

A FILE that ends in `.json` is one document as clients up to 0.38 write it; any other is a log as
0.61 does. The same arguments give the same bytes. What matters for a parser is like in real
files: in a log, each message with tools stands there twice (before and after they ran), their
results once more in a user turn, and a `$set` behind each new message; displays of edits hold the
file's body twice. The mixes differ in how much a tool returns:

usual    1 to 50 KB, log-normal with a median of 4.5 KB, as in the Claude transcripts here
small    some 100 bytes, as in the recordings of short scripted sessions
resumed  as usual, and after each third of the file a resume restates all messages
turns    as usual, and each turn begins with a resume, which restates the last messages: the client
         has compressed the others
"""

from __future__ import annotations

import math
import random
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator

VOCABULARY = (
    "a the of for with not from into test file line error list value path module session parse "
    "read write check update index agent tool result message block stream state lock schema field "
    "record replay branch merge change server request queue worker memory buffer string number"
)
WORDS = VOCABULARY.split()
ODDITIES = ("é", "—", "日本語", "🙂", "\x1b[32mok\x1b[0m", '"quoted"', "C:\\dir", "\t")
CWD = "/home/dev/project"
POOL = 300_000
RESUMES = 2
HISTORY = 200
"""How many messages a resume restates where the client has compressed the others: some 2 MB."""
CONTEXT = {
    "id": "d04923d38bb0f6017037e74183378ef4",
    "type": "user",
    "content": [{"text": f"<session_context>\nWorkspace: {CWD}\n</session_context>"}],
}


class Session:
    """One session's messages, one after another, as either family writes them."""

    def __init__(self, mix: str, seed: int) -> None:
        self._random = random.Random(seed)
        self._small = mix == "small"
        self._time = datetime(2026, 3, 1, 8, tzinfo=UTC)
        # Texts are slices of one pool, so that 50 MB are there in a second.
        self._pool = "".join(self._line() for _ in range(POOL // 60))
        project = f"{self._random.getrandbits(256):064x}"
        self.header: dict[str, Any] = {"sessionId": self._uuid(), "projectHash": project}
        self.header |= {"startTime": self.now(), "lastUpdated": self.now()}

    def _line(self) -> str:
        words = self._random.choices(WORDS, k=self._random.randint(4, 14))
        if self._random.random() < 0.1:
            words.append(self._random.choice(ODDITIES))
        return " " * (4 * self._random.randint(0, 3)) + " ".join(words) + "\n"

    def _text(self, low: int, high: int) -> str:
        size = self._random.randint(low, high)
        start = self._random.randrange(len(self._pool) - size)
        return self._pool[start : start + size]

    def _output(self) -> str:
        if self._small:
            return self._text(20, 400)
        size = int(min(50_000, max(1_000, self._random.lognormvariate(math.log(4_500), 0.95))))
        return self._text(size, size)

    def _uuid(self) -> str:
        digits = f"{self._random.getrandbits(128):032x}"
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"

    def now(self) -> str:
        """Return the next moment of the session."""
        self._time += timedelta(milliseconds=self._random.randint(20, 9_000))
        return self._time.strftime("%Y-%m-%dT%H:%M:%S.") + f"{self._time.microsecond // 1000:03}Z"

    def _message(self, kind: str, content: Any) -> dict[str, Any]:
        return {"id": self._uuid(), "timestamp": self.now(), "type": kind, "content": content}

    def _answer(self, low: int, high: int) -> dict[str, Any]:
        message = self._message("gemini", self._text(low, high) if high else "")
        message["thoughts"] = [
            {
                "subject": self._text(10, 40).strip(),
                "description": self._text(60, 400).strip(),
                "timestamp": message["timestamp"],
            }
            for _ in range(self._random.choice((0, 0, 1, 1, 2)))
        ]
        sent, got = self._random.randint(8_000, 300_000), self._random.randint(10, 1_800)
        thought = self._random.randint(0, 900)
        message["tokens"] = {
            "input": sent,
            "output": got,
            "cached": sent // 2,
            "thoughts": thought,
            "tool": 0,
            "total": sent + got + thought,
        }
        return {**message, "model": "gemini-3.8-flash"}

    def _call(self, number: int) -> dict[str, Any]:
        output = self._output()
        word = self._random.choice(WORDS)
        path = f"{CWD}/src/{word}.py"
        name = self._random.choices(
            ("run_shell_command", "read_file", "replace", "grep_search", "list_directory"),
            (30, 32, 14, 16, 8),
        )[0]
        display: Any = ""
        if name == "run_shell_command":
            given = {"command": f"grep -rn {word} src", "description": "look"}
            display = output
            output = f"<untrusted_context>\nOutput: {output}\n</untrusted_context>"
        elif name == "replace":
            quarter = len(output) // 4
            old, new = output[:quarter], output[quarter : 2 * quarter]
            given = {"file_path": path, "instruction": "change it", "old_string": old}
            given["new_string"] = new
            diff = "".join(f"-{line}\n" for line in old.split("\n"))
            display = {
                "fileDiff": f"Index: {word}.py\n--- {word}.py\tCurrent\n@@ -1,1 +1,1 @@\n{diff}",
                "fileName": f"{word}.py",
                "filePath": path,
                "originalContent": output,
                "newContent": output.replace(old, new, 1),
                "diffStat": {"model_added_lines": 1, "model_removed_lines": 1},
                "isNewFile": False,
            }
            output = f"Successfully modified file: {path} (1 replacements)."
        elif name == "grep_search":
            given = {"pattern": word, "dir_path": "."}
            display = f"Found {self._random.randint(1, 90)} matches"
        elif name == "list_directory":
            given = {"dir_path": "."}
            files = [f"{word}.txt" for word in self._random.sample(WORDS, 8)]
            display = {"summary": f"Found {len(files)} item(s).", "files": files}
            output = f"Directory listing for {CWD}:\n" + "\n".join(files)
        else:
            given = {"file_path": path}
        failed = self._random.random() < 0.05
        call_id = f"{name}__{name}_{int(self._time.timestamp() * 1000)}_{number}"
        response = {"error": output[:500]} if failed else {"output": output}
        answer = {"id": call_id, "name": name, "response": response}
        return {
            "id": call_id,
            "name": name,
            "args": given,
            "result": [{"functionResponse": answer}],
            "status": "error" if failed else "success",
            "timestamp": self.now(),
            "resultDisplay": display,
            "description": f"src/{word}.py",
            "displayName": name.title(),
            "renderOutputAsMarkdown": True,
        }

    def results(self, calls: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the user turn that gives the model what its calls gave."""
        return self._message("user", [part for call in calls for part in call["result"]])

    def turn(self) -> Iterator[dict[str, Any]]:
        """Yield one prompt and everything up to the final answer; calls with their results."""
        yield self._message("user", [{"text": self._text(20, 900)}])
        for _ in range(self._random.randint(1, 14)):
            message = self._answer(*self._random.choice(((0, 0), (40, 600))))
            calls = [self._call(at) for at in range(self._random.choice((1, 1, 1, 2)))]
            yield {**message, "toolCalls": calls}
        yield self._answer(100, 2_500)


class Log:
    """Writes messages as an append-only log, and restates them as a resume does."""

    def __init__(self, session: Session, *, resumes: bool) -> None:
        """`resumes` is whether there are any, for which messages are kept."""
        self._session = session
        self._resumes = resumes
        self._said: list[dict[str, Any]] = []

    def start(self) -> Iterator[bytes]:
        """Yield the rows that every start of the client writes."""
        now = self._session.now()
        yield _row({**self._session.header, "lastUpdated": now, "kind": "main"})
        yield self._set(messages=[{**CONTEXT, "timestamp": now}])

    def _set(self, **fields: Any) -> bytes:
        return _row({"$set": {**fields, "lastUpdated": self._session.now()}})

    def message(self, message: dict[str, Any]) -> Iterator[bytes]:
        """Yield the rows of one message: before and after its tools ran, and what they gave."""
        rows = [message]
        calls = message.get("toolCalls", [])
        if calls:
            rows.insert(0, {name: value for name, value in message.items() if name != "toolCalls"})
        yield _row(rows[0])
        yield self._set()
        if calls:
            yield _row(message)
            rows = [message, self._session.results(calls)]
            yield _row(rows[1])
            yield self._set()
        if self._resumes:
            self._said += rows

    def turn(self) -> Iterator[bytes]:
        """Yield what the client appends when it is started for one turn."""
        yield from self.start()
        self._said = self._said[-HISTORY:]
        yield from self.resume()
        for message in self._session.turn():
            yield from self.message(message)

    def resume(self) -> Iterator[bytes]:
        """Yield what a resume in a later minute appends: every message anew, contents as parts."""
        restated = [{**CONTEXT, "timestamp": self._session.now()}]
        for message in self._said:
            if message["type"] != "gemini":
                restated.append(message)
                continue
            parts: list[dict[str, Any]] = [
                {"text": f"**{one['subject']}** {one['description']}", "thought": True}
                for one in message["thoughts"]
            ]
            if message["content"]:
                parts.append({"text": message["content"]})
            calls = message.get("toolCalls", [])
            for call in calls:
                made = {name: call[name] for name in ("id", "name", "args")}
                parts.append({"functionCall": made})
            restated.append({**message, "content": parts})
            if calls:
                again = self._session.results(calls)
                restated.append({**again, "id": f"{message['id']}_response"})
        yield self._set(messages=restated)


def _row(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)


def log(session: Session, size: int, *, resumes: int) -> Iterator[bytes]:
    """Yield the rows of a log of about `size` bytes."""
    writer, written = Log(session, resumes=resumes > 0), 0
    fresh = 0
    # What was said by then stands once more in each resume.
    share = size // ((resumes + 1) * (resumes + 2) // 2) if resumes else size

    def counted(rows: Iterator[bytes]) -> Iterator[bytes]:
        nonlocal written
        for row in rows:
            written += len(row)
            yield row

    yield from counted(writer.start())
    while written < size:
        before = written
        for message in session.turn():
            yield from counted(writer.message(message))
        fresh += written - before
        if resumes and fresh >= share:
            yield from counted(writer.resume())
            resumes, fresh = resumes - 1, 0


def write_turns(path: Path, size: int, writer: Log) -> None:
    """Write whole turns of a session until the file has `size` bytes."""
    written = 0
    with path.open("wb") as file:
        while written < size:
            for row in writer.turn():
                written += file.write(row)


def document(session: Session, size: int) -> Iterator[bytes]:
    """Yield the pieces of an indented document of about `size` bytes."""
    head = orjson.dumps(session.header, option=orjson.OPT_INDENT_2)[:-2]
    yield head + b',\n  "messages": [\n    '
    written = 0
    between = b""
    while written < size:
        for message in session.turn():
            text = orjson.dumps(message, option=orjson.OPT_INDENT_2).replace(b"\n", b"\n    ")
            written += len(text)
            yield between + text
            between = b",\n    "
    yield b'\n  ],\n  "kind": "main"\n}'


def main() -> None:
    """Write the session."""
    path, size = Path(sys.argv[1]), int(float(sys.argv[2]) * 1e6)
    mix = sys.argv[3] if len(sys.argv) > 3 else "usual"
    session = Session(mix, int(sys.argv[4]) if len(sys.argv) > 4 else 7)
    if mix == "turns":
        write_turns(path, size, Log(session, resumes=True))
        return
    if path.suffix == ".json":
        pieces = document(session, size)
    else:
        pieces = log(session, size, resumes=RESUMES if mix == "resumed" else 0)
    with path.open("wb") as file:
        for piece in pieces:
            file.write(piece)


if __name__ == "__main__":
    main()
