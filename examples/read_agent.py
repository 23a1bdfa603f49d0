"""Print the conversation of an agent: python3 read_agent.py ROOT/agents/AGENT/events.jsonl."""

import hashlib
import json
import sys
from pathlib import Path


def read_log(data: bytes) -> tuple[list[dict], list[str]]:
    """Return the records of a log, and what is wrong with its lines (SPEC.md, "The log")."""
    records, problems, last, before = [], [], 0, "0" * 16
    *lines, tail = data.split(b"\n")  # only LF ends a line
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line.decode())
            seq, prev, *_ = (record[key] for key in ("seq", "prev", "event", "data"))
        except (ValueError, TypeError, LookupError, RecursionError):
            problems.append(f"line {number}: " + ("stub" if line.endswith(b" ") else "unreadable"))
        else:
            problems += [f"line {number}: seq-gap"] * (seq != last + 1)
            problems += [f"line {number}: chain-break"] * (prev != before)
            records.append(record)
            last = seq
        before = hashlib.sha256(line).hexdigest()[:16]
    return records, problems + [f"line {len(lines) + 1}: torn-tail"] * bool(tail)


def conversation(records: list[dict], name: str = "main") -> list[dict]:
    """Return the blocks that stand: each where its id was first seen, as it was last recorded."""
    blocks = [record["data"].get("block", {}) for record in records if record["event"] == "block"]
    last = {block["id"]: block for block in blocks if block.get("conversationId") == name}
    return [block for block in last.values() if not block.get("superseded")]


if __name__ == "__main__":
    records, problems = read_log(Path(*sys.argv[1:2] or sys.exit(__doc__)).read_bytes())
    for block in (one for one in conversation(records) if not one.get("hidden")):
        said = map(block.get, ("content", "toolName", "input", "output", "message"))
        print(f"{block['type']}:", *(part for part in said if part is not None))
    sys.exit("\n".join(problems) or 0)
