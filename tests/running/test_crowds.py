"""Two hundred agents, eight senders, four slots; then the same while senders are killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from house import House, say, sleep
from oracle import faults

CROWD = Path(__file__).with_name("crowd.py")
SLOTS = 4
# How a send may end: done, no slot free (so the message stays queued), or, where senders are
# killed, in a turn that died with another one.
ENDS = {0: {0, 11}, 50: {0, 11, 14}}


@pytest.mark.parametrize(("kills", "messages"), [(0, 25), (50, 20)], ids=["alive", "killed"])
@pytest.mark.feature("S-07", "G-06")
def test_no_message_is_lost_and_no_slot_taken_twice(
    house: House, kills: int, messages: int
) -> None:
    """Whichever sender dies: each message once and in order, and never a fifth turn."""
    house.settle(max_slots=SLOTS)
    notes = house.folder / "notes"
    notes.mkdir()
    job = {
        "script": house.script("turn", [say("heard"), sleep(0.02), say("done")]).partition("=")[2],
        "agents": 200, "workers": 8, "messages": messages, "kills": kills, "seed": kills,
        "notes": str(notes),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(CROWD), json.dumps(job)],
        env=house.environment, cwd=house.work, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    told = [json.loads(line) for path in sorted(notes.glob("worker-*"))
            for line in path.read_text().splitlines()]  # fmt: skip
    assert len(told) >= 8 * messages
    assert [one for one in told if one["code"] not in ENDS[kills]] == []
    assert _every_message_is_there_once(house, told) <= kills
    assert faults(house, SLOTS) == []
    assert house.most_at_once() == SLOTS


def _every_message_is_there_once(house: House, told: list[dict[str, Any]]) -> int:
    """A sender's messages to an agent are in its log as they were sent; 0 means completed.

    Returns how many there are that no sender lived to tell of.
    """
    logs = house.logs()
    unknown = 0
    for agent in {one["agent"] for one in told}:
        arrived = [r["data"]["message_id"] for r in logs[agent] if r["event"] == "message.enqueued"]
        outcomes = {r["data"]["message_id"]: r["data"]["outcome"] for r in logs[agent]
                    if r["event"] == "message.delivered"}  # fmt: skip
        for worker in {one["message"][:4] for one in told}:
            sent = [one for one in told if one["agent"] == agent and one["message"][:4] == worker]
            known = [one["message"] for one in sent]
            theirs = [message for message in arrived if message[:4] == worker]
            assert [message for message in theirs if message in known] == known
            unknown += len(theirs) - len(known)
            for one in sent:
                if one["code"] == 0 and one["way"] != "queued":
                    assert outcomes[one["message"]] == "completed"
    return unknown
