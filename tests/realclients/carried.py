"""What both clients' tests of `inspect --saved` and `import` hold an agent to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import orjson
from desk import Desk

CLI = Path(sys.executable).with_name("agentsdir")


def goes_on_from_a_document(any_desk: Desk[Any], there: Desk[Any]) -> None:
    """Carry an agent, and the one that it spawned, to another home as one JSON document.

    All that is known of them is the same there, and the client goes on with each.
    """
    parent = any_desk.new("--name", "parent")
    any_desk.ok("send", parent, any_desk.ask("spawner", cli=CLI))
    (child,) = {path.name for path in (any_desk.root / "agents").iterdir()} - {parent}
    before = orjson.loads(any_desk.ok("inspect", "--runtime", parent).out)
    document = there.folder / "parent.json"
    document.write_text(any_desk.ok("inspect", "--saved", parent).out)

    moved = there.ok("import", str(document), "--cwd", str(there.work)).out.strip()

    after = orjson.loads(there.ok("inspect", "--runtime", moved).out)
    changed = {name for name in before if after[name] != before[name]}
    assert (moved, changed) == (parent, {"cwd", "state", "suspendedAt"})
    for agent in (parent, child):
        assert there.stored_files(agent) == any_desk.stored_files(agent)
    for agent, known in ((parent, "The helper has answered."), (child, "Good day.")):
        done = there("send", agent, there.ask("again"))
        assert (done.code, done.out) == (0, "This is the next turn.\n"), done
        assert there.api.of("again")[-1].texts.count(known) == 1
    there.quiet()
    assert there("validate", "--modes", str(there.root)).out == ""
