"""A prompt that is killed while much of an answer is on its way leaves no process behind."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from chat_terminal import PROGRAM
from commands import PATIENCE


def test_a_reader_that_goes_before_it_has_read_all_ends_the_process(tmp_path: Path) -> None:
    """Its requests, too, although they have more to say than any pipe holds."""
    variables = {"HOME": str(tmp_path), "AGENTSDIR_PROVIDER": "echo"}
    serving = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "chat", "--jsonl"],
        env=variables,
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert serving.stdin is not None
    assert serving.stdout is not None
    requests = [
        {"id": 1, "verb": "new", "options": {"name": "demo"}},
        {"id": 2, "verb": "send", "args": ["demo"], "stdin": "word " * 100_000},
    ]
    serving.stdin.write(b"".join(json.dumps(one).encode() + b"\n" for one in requests))
    serving.stdin.flush()
    while b"text_delta" not in serving.stdout.readline():
        pass
    time.sleep(3)  # until more waits to be read than is held
    serving.stdout.close()
    assert serving.wait(PATIENCE) == 141
    serving.stdin.close()
