"""Any agent goes through `inspect --saved | import -` without a loss.

Its history is a random one: sessions of both clients with their damage, spawns, resets, forks,
captured files of any bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from saved_documents import carried

FIXTURES = Path(__file__).parents[2] / "fixtures"
SESSIONS = sorted(
    path
    for folder in ("claude", "claude/damaged", "gemini")
    for path in (FIXTURES / folder).iterdir()
    if not {".blocks", ".all"} & {*path.suffixes} and path.name != "damaged"
)
NUMBERS = itertools.count()


def comes_back(shell: Any, agent: str) -> None:
    """Move an agent to an empty root, and compare what it has there, and what is said of it."""
    before = shell.ok("inspect", "--runtime", agent).json
    saved = shell.ok("inspect", "--saved", agent)
    there = type(shell)(shell.home, shell.cwd, shell.root.with_name(f"to-{next(NUMBERS)}"))

    done = there("import", "-", "--cwd", before["cwd"], stdin=saved.out.encode())

    assert (done.code, done.out) == (0, f"{agent}\n"), done
    after = there.ok("inspect", "--runtime", agent).json
    changed = ("state", "suspendedAt")
    assert {**after, **dict.fromkeys(changed)} == {**before, **dict.fromkeys(changed)}
    old, new = carried(saved.json), carried(there.ok("inspect", "--saved", agent).json)
    assert new.keys() == old.keys()
    for name, data in old.items():
        assert new[name] == data or (name.endswith("events.jsonl") and new[name].startswith(data))
    history = "agents", agent, "history.jsonl"
    assert there.root.joinpath(*history).read_bytes() == shell.root.joinpath(*history).read_bytes()
    checked = there("validate", "--modes")
    assert (checked.code, checked.out) == (0, "")


def adopted(shell: Any, session: Path) -> str | None:
    """Return an agent that goes on with a session; None for a file that is none."""
    done = shell("new", "--from", str(session), "--cwd", str(shell.cwd))
    return done.out.strip() if done.code in (0, 3) and done.out else None


def fresh(shell: Any) -> Any:
    """Return a new agents directory, working directory and home, which no other example has.

    A client's store in a home may have more of a session than a fixture, of which it is no export.
    """
    folder = shell.root.parent / f"from-{next(NUMBERS)}"
    for name in ("work", "home"):
        (folder / name).mkdir(parents=True)
    return type(shell)(folder / "home", folder / "work", folder / "root")


@pytest.mark.parametrize("session", SESSIONS, ids=lambda path: path.name)
def test_a_session_of_a_client_comes_back(shell: Any, session: Path) -> None:
    """With its subagents, large results and every damaged line of it."""
    agent = adopted(shell, session)
    if agent is not None:
        comes_back(shell, agent)


def test_most_of_these_files_are_sessions() -> None:
    """So that the test above is about something."""
    assert len(SESSIONS) > 100


def send(shell: Any, agent: str, text: str) -> str:
    """Say something."""
    shell("send", "--record", agent, "--", f"say {text}")
    return agent


def reset(shell: Any, agent: str, _text: str) -> str:
    """Begin another native session."""
    shell.ok("reset", agent)
    return agent


def spawn(shell: Any, agent: str, text: str) -> str:
    """Spawn an agent."""
    shell.ok("spawn", "--parent", agent, "--provider", "echo", "--", f"count {text}")
    return agent


def spawn_and_forget(shell: Any, agent: str, text: str) -> str:
    """Spawn an agent that is removed when it is done."""
    shell.ok("spawn", "--ephemeral", "--parent", agent, "--provider", "echo", "--", f"count {text}")
    return agent


def go_down(shell: Any, agent: str, _text: str) -> str:
    """Go on with an agent that this one has spawned, which spawns others."""
    rows = shell.ok("list", "--json").rows
    below = [row for row in rows if row["descriptor"].get("parentAgentId") == agent]
    if below:
        spawn(shell, below[0]["agentId"], "deeper")
    return agent


def fork(shell: Any, agent: str, _text: str) -> str:
    """Go on with a fork."""
    made: str = shell("fork", agent).out.strip()
    return made or agent


def capture(shell: Any, agent: str, text: str) -> str:
    """Capture files whose names and bytes are of any kind."""
    for number, data in enumerate((text.encode(), bytes(range(256)), b"\0" * 1000, b"")):
        (shell.cwd / f"ü {number}.bin").write_bytes(data)
    shell("suspend", "--capture", agent)
    return agent


def resume(shell: Any, agent: str, _text: str) -> str:
    """Make the session active."""
    shell("resume", agent)
    return agent


STEPS: list[Callable[[Any, str, str], str]] = [
    send, reset, spawn, spawn_and_forget, go_down, fork, capture, resume,
]  # fmt: skip
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.none() | st.sampled_from(SESSIONS),
    st.lists(st.tuples(st.sampled_from(STEPS), TEXT), max_size=7),
)
def test_any_agent_comes_back(
    shell: Any, session: Path | None, steps: list[tuple[Callable[[Any, str, str], str], str]]
) -> None:
    """Also what it was in a session before a reset, and what it has spawned."""
    here = fresh(shell)
    agent = (session and adopted(here, session)) or here.new()
    can_send = orjson.loads(here.ok("inspect", agent, "--json").out)["provider"] == "echo"
    for step, text in steps:
        if can_send or step is not send:
            agent = step(here, agent, text)
    comes_back(here, agent)
