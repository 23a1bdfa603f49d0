"""`agentsdir archive`: agents are put away with every byte, and come back so."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from agentsdir.formats.store import locks
from agentsdir.schemas import check


def files(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def archived(shell: Any, agent: str) -> Path:
    """Return the folder of an archived agent."""
    folder: Path = shell.root / "archive" / agent
    assert folder.is_dir()
    assert not shell.folder(agent).exists()
    return folder


def test_an_archived_agent_keeps_every_byte_and_is_in_no_list(shell: Any) -> None:
    """One that is suspended already is not written to at all."""
    agent, other = shell.new("--name", "demo"), shell.new()
    shell.ok("send", agent, "hi")
    shell.ok("suspend", agent)
    before = files(shell.folder(agent))

    assert shell.ok("archive", "demo").out == ""

    assert files(archived(shell, agent)) == before
    assert [row["agentId"] for row in shell.ok("list").rows] == [other]
    for reference in (agent, "demo", agent[:6]):
        assert shell("inspect", reference).code == 10
    assert [row["agentId"] for row in shell.ok("restore", "--json").rows] == [other]
    assert stat.S_IMODE((shell.root / "archive").stat().st_mode) == 0o700
    assert shell("validate").out == ""


def test_an_active_session_is_suspended_before_it_is_put_away(shell: Any) -> None:
    """With the reason in the log; the session record says suspended too."""
    agent = shell.new()
    shell.ok("send", agent, "hi")
    log = (shell.folder(agent) / "events.jsonl").read_bytes()

    (row,) = shell.ok("archive", "--json", agent).rows

    wanted = {"type": "archived", "agentId": agent, "state": "suspended", "durability": "always"}
    assert row == wanted
    assert check("archived", row) == []
    kept = (archived(shell, agent) / "events.jsonl").read_bytes()
    assert kept.startswith(log)
    assert kept[len(log) :].count(b"\n") == 1
    assert b'"to":"suspended","reason":"archive"' in kept[len(log) :]
    assert b'"suspended"' in (archived(shell, agent) / "session.json").read_bytes()
    assert shell("validate").out == ""


def test_what_was_put_away_comes_back_as_it_was(shell: Any) -> None:
    """To the byte, and its session goes on with its context."""
    agent = shell.new("--name", "demo")
    shell.ok("send", agent, "hi")
    shell.ok("archive", agent)
    before = files(archived(shell, agent))

    (row,) = shell.ok("archive", "--undo", "--json", agent).rows

    wanted = {"type": "unarchived", "agentId": agent, "state": "suspended", "durability": "always"}
    assert row == wanted
    assert check("archived", row) == []
    assert files(shell.folder(agent)) == before
    assert list((shell.root / "archive").iterdir()) == []
    assert shell.ok("send", "demo", "again").out == "again\n"
    assert shell("validate").out == ""


def test_archived_agents_are_listed_like_the_others(shell: Any) -> None:
    """Rows in a pipe, a table on a terminal, and none where there is no archive."""
    assert shell.ok("archive", "--list").out == ""
    agent, _ = shell.new("--name", "demo"), shell.new()
    shell.ok("archive", agent)

    (row,) = shell.ok("archive", "--list").rows
    assert (row["agentId"], row["name"], row["status"]) == (agent, "demo", "idle")
    assert check("session-list", row) == []
    table = shell.ok("archive", "--list", tty=True).out.splitlines()
    assert [line.split()[0] for line in table] == ["agent", agent[:8]]


@pytest.mark.parametrize("by", ["id", "name", "session id", "dashed session id"])
def test_a_command_for_an_archived_agent_says_how_to_get_it_back(shell: Any, by: str) -> None:
    """By its exact id, session id or name; a prefix could be another agent's."""
    agent = shell.new("--name", "demo")
    seen = shell.ok("inspect", agent).json
    shell.ok("archive", agent)
    names = {
        "id": agent,
        "name": "demo",
        "session id": seen["sessionId"],
        "dashed session id": seen["native"]["id"],
    }

    done = shell("send", "--json", names[by], "hi")

    assert done.code == 10
    wanted = f"it is archived; `agentsdir archive --undo {agent}` brings it back"
    assert done.error["hint"] == wanted
    hint = shell("send", "--json", agent[:8], "hi").error["hint"]
    assert hint == "`agentsdir list` shows them"


def test_several_agents_are_archived_at_once(shell: Any) -> None:
    """One at work is refused, the others go, and the exit code tells."""
    busy, one, two = shell.new(), shell.new(), shell.new()
    with locks.hold(shell.folder(busy) / ".turn"):
        done = shell("archive", "--json", one, busy, two, one)

    assert (done.code, done.error["kind"]) == (11, "locked")
    assert [row["agentId"] for row in done.rows] == [one, two]
    assert [path.name for path in (shell.root / "agents").iterdir()] == [busy]
    assert shell("archive", busy, "nobody").code == 10
    assert shell.folder(busy).exists()


def test_siblings_of_another_parent_may_have_the_name(shell: Any) -> None:
    """Names are unique among siblings, when agents come back too."""
    parents = [shell.new(), shell.new()]
    child = shell.new("--type", "subagent", "--parent", parents[0], "--name", "kid")
    shell.ok("archive", child)
    shell.new("--type", "subagent", "--parent", parents[1], "--name", "kid")

    shell.ok("archive", "--undo", child)


def test_an_id_is_archived_once(shell: Any) -> None:
    """The second agent of an id is not put on top of the first."""
    agent = shell.new("--type", "cron", "--cron", "c" * 24)
    shell.ok("archive", agent)
    before = files(archived(shell, agent))
    assert shell.new("--type", "cron", "--cron", "c" * 24) != agent
    shutil.copytree(shell.root / "archive" / agent, shell.folder(agent))

    done = shell("archive", "--json", agent)

    assert (done.code, done.error["kind"]) == (1, "already-exists")
    assert files(shell.root / "archive" / agent) == before
    assert shell.folder(agent).exists()


def test_a_damaged_agent_is_moved_as_it_is(shell: Any) -> None:
    """There and back, named each time."""
    agent = shell.new()
    (shell.folder(agent) / "events.jsonl").unlink()
    before = files(shell.folder(agent))

    done = shell("archive", "--json", agent)

    assert done.code == 3
    assert [row["state"] for row in done.rows] == [None]
    assert "was moved as it is" in done.err
    assert before.items() <= files(archived(shell, agent)).items()
    listed = shell("archive", "--list")
    assert (listed.code, listed.rows[0]["error"]["kind"]) == (3, "invalid")
    assert shell("archive", "--undo", agent).code == 3
    assert shell.folder(agent).is_dir()


def test_archived_agents_are_validated_like_the_others(shell: Any) -> None:
    """By the same words, and with their modes."""
    agent = shell.new()
    shell.ok("archive", agent)
    (shell.root / "archive" / "notes.txt").touch()
    with (shell.root / "archive" / agent / "events.jsonl").open("ab") as log:
        log.write(b"#\n")
    (shell.root / "archive").chmod(0o755)

    lines = shell("validate").out.splitlines()

    root = f"{shell.root}/archive"
    assert lines[0] == f"{root}: wide-mode: the mode is 0755, not 0700"
    assert any(line.startswith(f"{root}/{agent}/events.jsonl:2: ") for line in lines)
    assert f"{root}/notes.txt: foreign-entry: its name is no agent id" in lines


def test_children_and_parents_are_archived_one_by_one(shell: Any) -> None:
    """A child stays usable without its parent, and its parent can come back to it."""
    parent = shell.new()
    child = shell.new("--type", "subagent", "--parent", parent, "--name", "kid")
    shell.ok("archive", parent)

    shell.ok("send", child, "hi")
    assert shell("validate").code == 0
    shell.ok("archive", "--undo", parent)
    assert shell.ok("inspect", child).json["descriptor"]["parentAgentId"] == parent


@pytest.mark.parametrize("arguments", [[], ["--undo"], ["--list", "x"], ["--list", "--undo"]])
def test_options_that_do_not_go_together_are_refused(shell: Any, arguments: list[str]) -> None:
    """Before anything is looked at."""
    done = shell("archive", *arguments)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert not shell.root.exists()


def test_a_setting_that_is_not_known_is_named_once_and_not_refused(shell: Any) -> None:
    """A misspelt one would change nothing in silence; what a stranger wrote prints inertly."""
    shell.new("--name", "demo")
    keys = ["max_slot", '"a\\u001b[31m"', "b", "c", "d", "e.f"]
    (shell.root / "settings.toml").write_text("".join(f"{key} = 1\n" for key in keys))

    done = shell("send", "demo", "hi")

    assert (done.code, done.out) == (0, "hi\n")
    assert done.err == (
        f"agentsdir: {shell.root}/settings.toml sets 'a\\x1b[31m', 'b', 'c', 'd', 'e' and 1 more, "
        "which is no setting\n"
    )
    assert shell.ok("list").rows


@pytest.mark.parametrize(
    ("text", "id_"),
    [
        (b'durability = "batch"\n', None),
        (b'durability = "batch"\nother = 1\n', "unknown-setting"),
        (b'durability = "sometimes"\n', "bad-settings"),
        (b"durability = [\n", "bad-settings"),
        (b"\xff", "bad-settings"),
        (b"a = " + b"[" * 100_000, "bad-settings"),
        (b"a = " + b"9" * 10_000, "bad-settings"),
    ],
)
def test_settings_are_validated(shell: Any, text: bytes, id_: str | None) -> None:
    """What the writers would refuse is named; so is what they do not know, which is no error."""
    shell.new()
    path = shell.root / "settings.toml"
    path.write_bytes(text)
    path.chmod(0o600)

    done = shell("validate", "--json")

    assert [row["id"] for row in done.rows] == ([id_] if id_ else [])
    assert done.code == (1 if id_ == "bad-settings" else 0)
    path.chmod(0o644)
    assert "wide-mode" in [row["id"] for row in shell("validate", "--json").rows]
