"""Writes a large synthetic Claude Code transcript: `claude_rows.py FILE MEGABYTES [SEED [FILES]]`.

With a number of files, FILE is a folder, and they have so many megabytes together: sessions of
twenty projects, log-normal in size. The same arguments give the same bytes. What matters for a
parser is like in real files: which kinds of row there are, answers split over several rows that
share a message id and its usage, and tool results of 1 to 50 KB, log-normal, that stand twice in
their row.
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
    "a the of for with not from into test file line error value list path module session parse "
    "read write check update index agent tool result message block stream state lock schema field "
    "record replay branch merge change server request queue worker memory buffer string number"
)
WORDS = VOCABULARY.split()
ODDITIES = ("é", "—", "日本語", "🙂", "\x1b[32mok\x1b[0m", '"quoted"', "C:\\dir", "\t")
CWD = "/home/dev/project"
POOL = 300_000


class Rows:
    """One session's rows, one after another."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.begin()
        # Texts are slices of one pool, so that 100 MB are there in a second.
        self._pool = "".join(self._line() for _ in range(POOL // 60))

    def begin(self) -> str:
        """Begin another session; return its id."""
        self._session = self._uuid()
        self._last: str | None = None
        self._time = datetime(2026, 3, 1, 8, tzinfo=UTC)
        return self._session

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
        size = int(min(50_000, max(1_000, self._random.lognormvariate(math.log(4_500), 0.95))))
        return self._text(size, size)

    def _hex(self, digits: int) -> str:
        return f"{self._random.getrandbits(4 * digits):0{digits}x}"

    def _uuid(self) -> str:
        digits = self._hex(32)
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"

    def _row(self, kind: str, **fields: Any) -> bytes:
        self._time += timedelta(milliseconds=self._random.randint(20, 9_000))
        row = {
            "parentUuid": self._last,
            "isSidechain": False,
            "userType": "external",
            "cwd": CWD,
            "sessionId": self._session,
            "version": "2.1.98",
            "gitBranch": "main",
            "type": kind,
            **fields,
            "uuid": self._uuid(),
            "timestamp": self._time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
        self._last = row["uuid"]
        return orjson.dumps(row) + b"\n"

    def _assistant(self, message: dict[str, Any], part: dict[str, Any], stop: str | None) -> bytes:
        whole = {**message, "content": [part], "stop_reason": stop, "stop_sequence": None}
        return self._row("assistant", message=whole, requestId="req_" + message["id"][4:])

    def _message(self) -> dict[str, Any]:
        usage = {
            "input_tokens": self._random.randint(3, 60),
            "cache_creation_input_tokens": self._random.randint(0, 9_000),
            "cache_read_input_tokens": self._random.randint(8_000, 160_000),
            "output_tokens": self._random.randint(1, 1_800),
            "service_tier": "standard",
        }
        model = "claude-sonnet-4-5-20250929"
        identity = {"id": "msg_01" + self._hex(22), "type": "message", "role": "assistant"}
        return {"model": model, **identity, "usage": usage}

    def _call(self) -> tuple[dict[str, Any], str, Any]:
        """Return a tool call, its output, and the output as the client keeps it beside."""
        output = self._output()
        path = f"{CWD}/src/{self._random.choice(WORDS)}.py"
        name = self._random.choices(("Bash", "Read", "Edit", "Grep"), (35, 30, 20, 15))[0]
        if name == "Bash":
            given = {"command": f"grep -rn {self._random.choice(WORDS)} src", "description": "look"}
            kept: Any = {"stdout": output, "stderr": "", "interrupted": False, "isImage": False}
        elif name == "Read":
            given = {"file_path": path}
            file = {"filePath": path, "content": output, "numLines": output.count("\n")}
            kept = {"type": "text", "file": {**file, "startLine": 1}}
        elif name == "Edit":
            quarter = len(output) // 4
            given = {
                "file_path": path,
                "old_string": output[:quarter],
                "new_string": output[quarter:],
            }
            output = f"The file {path} has been updated.\n{output[:1200]}"
            patch = [{"oldStart": 1, "newStart": 1, "lines": output.split("\n")}]
            kept = {"filePath": path, "structuredPatch": patch, "userModified": False}
        else:
            given, kept = {"pattern": self._random.choice(WORDS), "path": CWD}, None
        return {"name": name, "input": given}, output, kept

    def _step(self) -> Iterator[bytes]:
        """Yield one answer of the model and what its tool gave back."""
        message, tool_id = self._message(), "toolu_01" + self._hex(22)
        if self._random.random() < 0.35:
            thought = {"thinking": self._text(80, 2_500), "signature": self._hex(400)}
            yield self._assistant(message, {"type": "thinking", **thought}, None)
        if self._random.random() < 0.45:
            yield self._assistant(message, {"type": "text", "text": self._text(40, 1_200)}, None)
        call, output, kept = self._call()
        yield self._assistant(message, {"type": "tool_use", "id": tool_id, **call}, "tool_use")
        content = output if self._random.random() < 0.8 else [{"type": "text", "text": output}]
        result = {"tool_use_id": tool_id, "type": "tool_result", "content": content}
        if self._random.random() < 0.06:
            result["is_error"], kept = True, "Error: " + output[:2_000]
        extra = {} if kept is None else {"toolUseResult": kept}
        yield self._row("user", message={"role": "user", "content": [result]}, **extra)

    def turn(self) -> Iterator[bytes]:
        """Yield one prompt and everything up to the final answer."""
        prompt = {"role": "user", "content": self._text(20, 900)}
        yield self._row("user", message=prompt, permissionMode="default")
        for _ in range(self._random.randint(1, 14)):
            yield from self._step()
        answer = {"type": "text", "text": self._text(100, 2_500)}
        yield self._assistant(self._message(), answer, "end_turn")
        if self._random.random() < 0.15:
            yield self._row("system", subtype="turn_duration", durationMs=1234, isMeta=False)


def main() -> None:
    """Write rows until the file, or each of several ones, is large enough."""
    path, size = Path(sys.argv[1]), int(float(sys.argv[2]) * 1e6)
    rows = Rows(int(sys.argv[3]) if len(sys.argv) > 3 else 7)
    if len(sys.argv) <= 4:
        write(path, size, rows)
        return
    files = int(sys.argv[4])
    chosen = random.Random(files)
    sizes = [chosen.lognormvariate(0, 0.8) for _ in range(files)]
    for number, share in enumerate(sizes):
        folder = path / f"-w-{number % 20}"
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / f"{rows.begin()}.jsonl", int(size * share / sum(sizes)), rows)


def write(path: Path, size: int, rows: Rows) -> None:
    """Write whole turns of a session until the file has `size` bytes."""
    written = 0
    with path.open("wb") as file:
        while written < size:
            for row in rows.turn():
                written += file.write(row)


if __name__ == "__main__":
    main()
