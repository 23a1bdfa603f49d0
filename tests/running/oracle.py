"""What must be true of an agents directory after whatever happened in it, from its logs alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from house import House, Record

ENDS = {"turn.complete": "completed", "turn.error": "failed", "turn.aborted": "aborted"}
AFTER_CLOSE = {*ENDS, "block", "message.delivered", "transcript.synced"}
TOLD_BY_OTHERS = ("parent", "close")
"""Why a turn is aborted of which no agent gets a notice."""


@dataclass
class Turn:
    """One turn of a log: `reason` is why it failed, empty for one that did not."""

    id: str
    message: str
    end: str = ""
    reason: str = ""
    response: str = ""


@dataclass
class Life:
    """What one log says; `dropped` are messages that senders have taken back."""

    agent: str
    log: list[Record]
    dropped: Collection[str] = ()
    faults: list[str] = field(default_factory=list)
    messages: dict[str, Any] = field(default_factory=dict)
    turns: dict[str, Turn] = field(default_factory=dict)
    delivered: dict[str, str] = field(default_factory=dict)
    asked: dict[str, str] = field(default_factory=dict)
    closed: bool = False

    def __post_init__(self) -> None:
        self.descriptor = self.log[0]["data"]["descriptor"]
        state, open_turn = "created", ""
        for number, record in enumerate(self.log, 1):
            event, data = record["event"], record["data"]
            if record["seq"] != number:
                self.fault(f"record {number} has the number {record['seq']}")
            if self.closed and event not in AFTER_CLOSE:
                self.fault(f"{event} after it was closed")
            if event == "session.state":
                if data["from"] != state:
                    self.fault(f"{data['from']} → {data['to']} of a session that is {state}")
                state = data["to"]
                self.closed = state == "terminated"
            elif event == "message.enqueued":
                if data["message_id"] in self.messages:
                    self.fault(f"message {data['message_id']} was enqueued twice")
                self.messages[data["message_id"]] = data
            elif event == "turn.start":
                open_turn = self._start(data, open_turn)
            elif event == "abort.requested":
                self.asked[data["turn_id"]] = data["reason"]
            elif event in ENDS:
                self._end(event, data, open_turn)
                open_turn = ""
            elif event == "message.delivered":
                self._deliver(data)
        if open_turn:
            self.fault(f"turn {open_turn} has no end")

    def fault(self, text: str) -> None:
        """Note what is wrong."""
        self.faults.append(f"{self.agent}: {text}")

    def _start(self, data: dict[str, Any], open_turn: str) -> str:
        if open_turn:
            self.fault(f"turn {data['turn_id']} starts in turn {open_turn}")
        for message in data["message_ids"]:
            if message not in self.messages:
                self.fault(f"message {message} was started and never enqueued")
            if message in self.delivered:
                self.fault(f"message {message} was started after it was delivered")
        if any(turn.message in data["message_ids"] for turn in self.turns.values()):
            self.fault(f"message {data['message_ids']} was started twice")
        turn = Turn(data["turn_id"], next(iter(data["message_ids"]), ""))
        self.turns[turn.id] = turn
        return turn.id

    def _end(self, event: str, data: dict[str, Any], open_turn: str) -> None:
        if data["turn_id"] != open_turn:
            self.fault(f"{event} of {data['turn_id']} while {open_turn or 'none'} is open")
            return
        turn = self.turns[open_turn]
        turn.end = ENDS[event]
        turn.reason = data.get("reason") or data.get("kind") or ""
        turn.response = data.get("response", "")
        if turn.reason == "crash":
            turn.end = "failed"

    def _deliver(self, data: dict[str, Any]) -> None:
        message, outcome = data["message_id"], data["outcome"]
        if message in self.delivered:
            self.fault(f"message {message} was delivered twice")
        if message not in self.messages:
            self.fault(f"message {message} was delivered and never enqueued")
        self.delivered[message] = outcome
        ends = [turn.end for turn in self.turns.values() if turn.message == message]
        may_have_none = outcome == "aborted" and (self.closed or message in self.dropped)
        if ends != [outcome] and not (may_have_none and not ends):
            self.fault(f"message {message} is delivered as {outcome}, and its turns are {ends}")

    def check_order(self) -> None:
        """Hold the turns to the order of the messages, and every message to its end."""
        started = [turn.message for turn in self.turns.values() if turn.message]
        if started != [message for message in self.messages if message in set(started)]:
            self.fault("messages were reordered")
        for message in self.messages:
            if message not in self.delivered:
                self.fault(f"message {message} was never delivered")

    def failures_to_report(self) -> list[Turn]:
        """Return the turns whose failure has to be reported."""
        return [
            turn
            for turn in self.turns.values()
            if turn.end in ("failed", "aborted") and turn.reason not in TOLD_BY_OTHERS
            and self.asked.get(turn.id) not in TOLD_BY_OTHERS
        ]  # fmt: skip


def faults(house: House, slots: int, dropped: Collection[str] = ()) -> list[str]:
    """Return everything that is wrong in a house in which nothing runs nor waits any more.

    Args:
        dropped: messages that may have no turn, as their senders have taken them back.
    """
    found = faults_of(house.logs(), slots, dropped)
    if (most := house.most_at_once()) > slots:
        found.append(f"{most} turns at once, by the provider's count, on {slots} slots")
    return [*found, *flaws(house.do("validate").out)]


def call_faults(house: House) -> list[str]:
    """Return what is wrong with the tool calls that `throng.carry_out` has noted.

    Each is carried out once, and its result is in the log of its turn, but where the turn was ended
    before.
    """
    lines = (house.home / "calls").read_text().splitlines()
    calls = {(turn, call) for turn, call in map(str.split, lines)}
    found = [f"{line} was carried out {count} times" for line, count in Counter(lines).items()
             if count > 1]  # fmt: skip
    records = [record for log in house.logs().values() for record in log]
    results = {
        (record["data"]["turn_id"], record["data"]["block"]["toolUseId"].rpartition(":")[2])
        for record in records
        if record["event"] == "block" and record["data"]["block"]["type"] == "tool_result"
        and not record["data"]["block"].get("synthetic")
    }  # fmt: skip
    aborted = {r["data"]["turn_id"] for r in records if r["event"] == "turn.aborted"}
    found += [f"{call} of {turn} has no result" for turn, call in calls - results
              if turn not in aborted]  # fmt: skip
    return [*found, *(f"{call} of {turn} was not made" for turn, call in results - calls)]


def flaws(validated: str) -> list[str]:
    """Return what `validate` printed, but for what a crash leaves of an unneeded stream."""
    lines = validated.splitlines()
    return [line for line in lines if ".stream: transcript-unlisted" not in line]


def faults_of(
    logs: dict[str, list[Record]], slots: int, dropped: Collection[str] = ()
) -> list[str]:
    """Return what is wrong with the logs themselves."""
    lives = {agent: Life(agent, log, dropped) for agent, log in logs.items()}
    found: list[str] = []
    for life in lives.values():
        life.check_order()
        for rule in (_notices, _outgoing, _replies, _spawns):
            for text in rule(life, lives):
                life.fault(text)
        found += life.faults
    return [*found, *_slots(lives, slots)]


def _text(message: dict[str, Any]) -> str:
    return "".join(part.get("text", "") for part in message["content"])


def _notices(life: Life, lives: dict[str, Life]) -> Iterator[str]:
    """A parent gets one notice of each failure of its subagent."""
    parent = lives.get(life.descriptor.get("parentAgentId", ""))
    if parent is None:
        return
    begins = f"Subagent {life.descriptor['name']} ({life.agent}) failed: "
    told = [
        message
        for message in parent.messages.values()
        if message["sender"] == life.agent and _text(message).startswith(begins)
    ]
    wanted = len(life.failures_to_report())
    # Closed by itself, not with its parent, it cannot answer any more: its parent gets a notice.
    given_up = life.closed and any(message.get("spawn") for message in life.messages.values())
    most = wanted + ("close" in life.asked.values() or (given_up and not life.turns))
    if not wanted <= len(told) <= most and not (parent.closed and len(told) < wanted):
        yield f"it failed {wanted} times, and its parent got {len(told)} notices"
    if not all(message["kind"] == "system" and message.get("notice") for message in told):
        yield "its parent got a failure in something that is no notice"


def _outgoing(life: Life, _lives: dict[str, Life]) -> Iterator[str]:
    """A person behind a connector gets one answer to each message, unless they stopped it."""
    sent = [r["data"] for r in life.log if r["event"] == "outgoing"]
    for message, count in Counter(data["in_reply_to"] for data in sent).items():
        if count > 1:
            yield f"message {message} was answered {count} times"
    if life.descriptor["type"] != "user" or life.descriptor["connector"] == "cli":
        if sent:
            yield "it has something outgoing, and no person to get it"
        return
    answered = {data["in_reply_to"] for data in sent}
    for turn in life.turns.values():
        wanted = turn.end == "failed" or bool(turn.response)
        if wanted != (turn.message in answered):
            yield f"turn {turn.id} is {turn.end}, and answered: {turn.message in answered}"
    ids = [data["message_id"] for data in sent]
    done = [r["data"]["message_id"] for r in life.log if r["event"] == "outgoing.delivered"]
    if len(set(done)) != len(done) or not set(done) <= set(ids):
        yield "outgoing.delivered of what was not outgoing, or twice"


def _replies(life: Life, lives: dict[str, Life]) -> Iterator[str]:
    """Who sent a message and wants the answer has it, once."""
    for id_, message in life.messages.items():
        sender = lives.get(message["sender"])
        if sender is None or not (message.get("sync") or message.get("spawn")):
            continue
        replies = [one for one in sender.messages.values() if one.get("reply_to") == id_]
        if any(one["sender"] != life.agent or one["kind"] != "system" for one in replies):
            yield f"the reply to {id_} is from another agent"
        runs = [turn for turn in life.turns.values() if turn.message == id_]
        # A child that was dropped, or ended with its parent's turn, is in the parent's log;
        # no sender was promised more.
        ended_together = not runs or runs[0].reason in TOLD_BY_OTHERS
        due = message.get("sync") and not (message.get("spawn") and ended_together)
        due = due and not sender.closed
        if len(replies) > 1 or (due and not replies):
            yield f"message {id_} has {len(replies)} replies"


def _spawns(life: Life, _lives: dict[str, Life]) -> Iterator[str]:
    """Each child's block goes forward only, and it ends once, as the events say."""
    steps = ("pending", "running", "success", "error")
    children: dict[str, list[str]] = {}
    last: dict[str, Any] = {}
    for record in life.log:
        block = record["data"].get("block", {})
        if record["event"] == "block" and str(block.get("id")).startswith("spawn:"):
            # What a process did that died in the middle of it may be done again.
            if block != last.get(block["id"]):
                children.setdefault(block["subagentId"], []).append(block["status"])
            last[block["id"]] = block
    ended: dict[str, list[str]] = {}
    for record in life.log:
        data = record["data"]
        if record["event"] == "spawn.dropped":
            ended.setdefault(data["child"], []).append("error")
        if record["event"] == "agent.spawned" and data["status"] != "running":
            ended.setdefault(data["child"], []).append(data["status"])
    for child, seen in children.items():
        if [steps.index(one) for one in seen] != sorted({steps.index(one) for one in seen}):
            yield f"the block of {child} went {seen}"
        if ended.get(child) != seen[-1:]:
            yield f"the block of {child} went {seen}, and the events say {ended.get(child)}"
    if set(ended) != set(children):
        yield f"children {sorted(set(ended) ^ set(children))} have events or a block, not both"


def _slots(lives: dict[str, Life], slots: int) -> Iterator[str]:
    """There are never more active sessions than slots."""
    changes = sorted(
        (record["ts"], +1 if record["data"]["to"] == "active" else -1)
        for life in lives.values()
        for record in life.log
        if record["event"] == "session.state" and "active" in (record["data"]["to"],
                                                               record["data"]["from"])
    )  # fmt: skip
    active = 0
    for when, change in changes:
        active += change
        if active > slots:
            yield f"{active} sessions are active on {slots} slots at {when}"
