"""A hundred threads and eight processes on one root, with four slots."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from house import House, say, shell, sleep
from oracle import call_faults, faults

THRONG = Path(__file__).with_name("throng.py")
SLOTS = 4
CLOSED = {"closed", "session-state"}
# Another thread may run the message, and be the one that is asked to end its turn.
ABORTED = {"interrupted", "turn-aborted"}
# Of 108 workers on a machine that does other work, one may wait too long for a lock.
BUSY = {"locked"}
ENDS = {
    "send": {"", *ABORTED, *CLOSED},
    "hasty": {"", *ABORTED, "slots-full", *CLOSED},
    "stop": {"", *ABORTED, "stopped", *CLOSED},
    "queue": {"", *CLOSED},
    "interrupt": {"", "not-running", *CLOSED},
    "spawn": {"", *ABORTED, *CLOSED, *BUSY},
    "close": {"", *BUSY},
}
"""How each may end."""


@pytest.mark.feature("S-07", "G-06")
def test_no_message_is_lost_whatever_threads_and_processes_do(house: House) -> None:
    """Each message once and in order, never a fifth turn, and no wait without an end."""
    house.settle(max_slots=SLOTS)
    notes = house.folder / "notes"
    notes.mkdir()
    calls = [say("I look."), shell("c1", "first"), shell("c2", "second"), say("I saw.")]
    job = {
        "calls": house.script("calls", calls).partition("=")[2],
        "script": house.script("turn", [say("heard"), sleep(0.02), say("done")]).partition("=")[2],
        "agents": 100, "threads": 100, "processes": 8, "messages": 4, "mortal": 10, "seed": 1,
        "notes": str(notes),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(THRONG), json.dumps(job)],
        env=house.environment, cwd=house.work, capture_output=True, text=True, timeout=100,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    told = [json.loads(line) for path in sorted(notes.iterdir())
            for line in path.read_text().splitlines()]  # fmt: skip
    assert len(told) == 108 * 4
    ends = Counter((one["way"], one["end"]) for one in told)
    assert {end: count for end, count in ends.items() if end[1] not in ENDS[end[0]]} == {}
    _every_message_is_there_once(house, told)
    assert len((house.home / "calls").read_text().splitlines()) > 50
    assert call_faults(house) == []
    assert faults(house, SLOTS) == []


def _every_message_is_there_once(house: House, told: list[dict[str, Any]]) -> None:
    """A worker's messages to an agent are in its log as they were sent, and ended as told."""
    logs = house.logs()
    for agent in {one["agent"] for one in told}:
        arrived = [r["data"]["message_id"] for r in logs[agent] if r["event"] == "message.enqueued"]
        outcomes = {r["data"]["message_id"]: r["data"]["outcome"] for r in logs[agent]
                    if r["event"] == "message.delivered"}  # fmt: skip
        sent = [one for one in told if one["agent"] == agent and one["message"] in arrived]
        for worker in {one["message"][:4] for one in sent}:
            theirs = [one["message"] for one in sent if one["message"][:4] == worker]
            assert theirs == [message for message in arrived if message[:4] == worker]
        for one in told:
            if one["agent"] == agent and one["way"] in ("send", "hasty", "stop", "queue"):
                if one["end"] == "":
                    assert one["message"] in outcomes
                if one["end"] == "" and one["way"] != "queue":
                    assert outcomes[one["message"]] == "completed"
