"""A program of `examples/` with a real client."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"


def check(desk: Any) -> None:
    """Have the bot answer two users at once, and one of them again, each in their own session."""
    hello, again = desk.ask("hello"), desk.ask("again")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / "bot.py")],
        env={**desk.environment, "AGENTSDIR_PROVIDER": desk.provider},
        cwd=desk.work,
        input=f"ada: {hello}\nbob: {hello}\nada: {again}\n",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    said = sorted(done.stdout.splitlines())
    assert said == ["@ada Good day.", "@ada This is the next turn.", "@bob Good day."], done.stderr
    ids = {row["name"]: row["agentId"] for row in desk.ok("list", "--json").rows}
    assert desk.said(ids["bot-ada"]) == ["Good day.", "This is the next turn."]
    assert desk.said(ids["bot-bob"]) == ["Good day."]
    for agent in ids.values():
        desk.sound(agent)
    desk.quiet()
