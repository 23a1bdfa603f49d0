"""Rules for tools: said once, kept in the user's configuration, and holding for nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from stub_client import published
from typist import Typist

from agentsdir.adapters.claude.control import exact_rule, handed_tools, read_rule
from agentsdir.adapters.protocol import ToolRequest
from agentsdir.cli.environment import Environment
from agentsdir.cli.grants import (
    ALL_TOOLS,
    Grants,
    Mode,
    Rule,
    Scope,
    decode_grants,
    encode_grants,
    kept_rule,
    rules_allowing,
)
from agentsdir.cli.questions import Answer, Question, call_lines
from agentsdir.schemas import check

# A provider whose client asks about each call of Bash that a prompt names, one a line.
ASKING = """
import json
from agentsdir.adapters.claude.control import exact_rule, read_rule
from agentsdir.adapters.protocol import Architecture, ToolRequest
from agentsdir.adapters.recorded import RecordedReader, RecordedTranscript
from agentsdir.formats import blocks as stream


class Session(StubSession):
    def __init__(self, spec):
        super().__init__(spec)
        self.transcript = RecordedTranscript(spec)

    def send(self, content):
        spec, host = self.spec, self.spec.host
        yield self.transcript.prompt(content, spec.now())
        decisions = []
        for number, command in enumerate(content.split("%%")):
            tool, given = "Bash", {"command": command}
            if command.startswith("{"):
                given = json.loads(command)
                tool = given.pop("tool")
            asked = ToolRequest(tool, f"t{number}", given, "main", exact_rule(tool, given))
            decisions.append(host.confirm(asked))
        told = {
            "allowed": [one.allowed for one in decisions],
            "reasons": [one.reason for one in decisions],
            "rules": [one.rule for one in decisions],
            "handed": host.allowed,
        }
        block = self.transcript.block("assistant_text", "a", spec.now(), content=json.dumps(told))
        yield stream.block_complete("a", block)


class Provider(StubProvider):
    def create(self, spec):
        return Session(spec)

    def read_rule(self, text):
        return read_rule(text)


ARCHITECTURE = Architecture("asking", "asking-cli", "a test's", RecordedReader(), Provider())
"""


class User:
    """A command line whose questions about tools a test answers."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.answer: Callable[[Question], Answer | None] = lambda _question: None
        self.asked: list[Question] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.shell, name)

    def __call__(self, *arguments: str, **options: Any) -> Any:
        """Run one command."""
        return self.shell(*arguments, **options)

    def sends(self, agent: str, *commands: str, root: Path | None = None) -> Any:
        """Send an agent these commands; return what became of them. `asked` has the questions."""
        self.asked = []
        options = ("--root", str(root)) if root else ()
        done = self(*options, "send", "--json", agent, "%%".join(commands))
        assert done.code == 0, done
        return orjson.loads(done.json["response"])


@pytest.fixture
def user(shell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[User]:
    """Return the command line of a user who is asked, with the provider above."""
    user = User(shell)

    def ask(question: Question) -> Answer | None:
        user.asked.append(question)
        return user.answer(question)

    monkeypatch.setattr(Environment, "ask", staticmethod(ask))
    user.variables["AGENTSDIR_PROVIDER"] = "asking"
    with published(tmp_path / "site", monkeypatch, "asking", ASKING):
        yield user


def grants(user: User) -> Path:
    """Return the path of the user's grants."""
    return user.home / ".config" / "agentsdir" / "grants.json"


def nothing_is_asked(_question: Question) -> Answer | None:
    """Answer no question."""
    raise AssertionError("this was allowed already")


# What a yes keeps.


def test_a_yes_once_is_for_one_call(user: User) -> None:
    """The same call a moment later is asked about again, and nothing is written."""
    agent = user.new()
    user.answer = lambda _question: Answer(allowed=True)
    found = user.sends(agent, "make", "make")
    assert (found["allowed"], found["rules"], len(user.asked)) == ([True, True], ["", ""], 2)
    assert not grants(user).exists()


def test_a_yes_for_the_turn_ends_with_it(user: User) -> None:
    """It is not asked again in the turn, and the client may follow it."""
    agent = user.new()
    user.answer = lambda _question: Answer(allowed=True, keep="turn")
    found = user.sends(agent, "make", "make", "make -j")
    assert (found["allowed"], len(user.asked)) == ([True, True, True], 2)
    assert found["rules"] == ["Bash(make)", "", "Bash(make -j)"]
    user.sends(agent, "make")
    assert len(user.asked) == 1
    assert not grants(user).exists()


def test_a_yes_for_the_agent_is_for_it_alone(user: User) -> None:
    """In later turns too; another agent in the folder is asked about."""
    agent, other = user.new(), user.new()
    user.answer = lambda _question: Answer(allowed=True, keep="agent")
    user.sends(agent, "make")
    user.answer = lambda _question: None
    assert user.sends(agent, "make") == {
        "allowed": [True], "reasons": [""], "rules": [""], "handed": ["Bash(make)"],
    }  # fmt: skip
    assert user.asked == []
    assert user.sends(other, "make")["allowed"] == [False]


def test_a_yes_for_the_folder_is_for_agents_made_there(user: User) -> None:
    """Also for later ones, and not for those of another folder, or of one below it."""
    agent = user.new()
    user.answer = lambda _question: Answer(allowed=True, keep="folder")
    user.sends(agent, "make")
    below = user.cwd / "below"
    below.mkdir()
    user.answer = lambda _question: None
    assert user.sends(user.new(), "make")["allowed"] == [True]
    assert user.sends(user.new("--cwd", str(below)), "make")["allowed"] == [False]
    link = user.home / "link"
    link.symlink_to(user.cwd)
    assert user.sends(user.new("--cwd", str(link)), "make")["allowed"] == [True]


def test_a_no_with_a_reason_reaches_the_model(user: User) -> None:
    """And no answer is a no."""
    agent = user.new()
    user.answer = lambda _question: Answer(allowed=False, reason="use ninja")
    assert user.sends(agent, "make")["reasons"] == ["the user said no: use ninja"]
    user.answer = lambda _question: None
    found = user.sends(agent, "make")
    assert (found["allowed"], found["reasons"]) == ([False], ["the question was not answered"])


def test_a_question_says_who_which_tool_where_and_what_would_be_kept(user: User) -> None:
    """As an object for what asks in place of the terminal."""
    agent = user.new("--name", "fixer")
    user.sends(agent, "make")
    (question,) = user.asked
    assert question.as_json() == {
        "agentId": agent, "name": "fixer", "provider": "asking", "root": str(user.root),
        "folder": str(user.cwd), "conversationId": "main", "toolName": "Bash", "toolUseId": "t0",
        "input": {"command": "make"}, "rule": "Bash(make)",
        "keeps": ["once", "turn", "agent", "folder"],
    }  # fmt: skip


def test_an_answer_that_was_not_offered_keeps_nothing(user: User) -> None:
    """A call that no rule means is allowed once at most."""
    agent = user.new()
    user.answer = lambda _question: Answer(allowed=True, keep="folder")
    unboxed = json.dumps({"tool": "Bash", "command": "make", "dangerouslyDisableSandbox": True})
    found = user.sends(agent, unboxed)
    assert (found["allowed"], user.asked[0].keeps) == ([True], ("once",))
    assert not grants(user).exists()


def test_a_rule_that_cannot_be_kept_is_named_and_the_call_runs(user: User) -> None:
    """The user said yes to it."""
    agent = user.new()
    grants(user).with_name(".lock").mkdir(parents=True)
    user.answer = lambda _question: Answer(allowed=True, keep="agent")
    done = user("send", "--json", agent, "make")
    assert orjson.loads(done.json["response"])["allowed"] == [True]
    assert "it is allowed for this turn, and not kept" in done.err


# Attacks: what was not said is not allowed.

BEGINNINGS = [
    "git diff; rm -r x", "git diff --output=x", "git diff && rm x", "git diff\nrm x", "git  diff",
    " git diff", "git diff ", "git diff)", "git diff*", "git diff:*", "GIT_PAGER=x git diff",
    "git diff | sh", "git dif", "git", "", "git diff > x", "git diff\u00a0", "git diff\0",
]  # fmt: skip


def test_a_command_that_only_begins_like_an_allowed_one_is_asked_about(user: User) -> None:
    """A rule is one whole command."""
    agent = user.new()
    user.ok("permissions", "allow", agent, "Bash(git diff)")
    for command in BEGINNINGS:
        request = json.dumps({"tool": "Bash", "command": command})
        assert user.sends(agent, request)["allowed"] == [False], command
        assert len(user.asked) == 1
    assert user.sends(agent, "git diff")["allowed"] == [True]


def test_the_same_words_to_another_tool_are_another_call(user: User) -> None:
    """A rule of a command is no rule of a tool that has its name, or that has such an input."""
    agent = user.new()
    user.ok("permissions", "allow", agent, "Bash(make)")
    for tool in ("Bash(make)", "bash", "Shell", "*", "", "Bash "):
        asked = json.dumps({"tool": tool, "command": "make"})
        assert user.sends(agent, asked)["allowed"] == [False], tool


def test_a_copy_of_a_root_has_no_rules(user: User, tmp_path: Path) -> None:
    """It has the same ids and logs, in another place."""
    agent = user.new()
    user.ok("permissions", "allow", agent, "Bash(make)")
    shutil.copytree(user.root, tmp_path / "clone")
    assert user.sends(agent, "make", root=tmp_path / "clone")["allowed"] == [False]
    assert user.sends(agent, "make")["allowed"] == [True]


@pytest.mark.parametrize("remove", [True, False], ids=["back", "beside"])
def test_an_import_has_no_rules_until_they_are_said_again(user: User, *, remove: bool) -> None:
    """Also one that comes back under its own id into its own root, and one of a folder."""
    agent = user.new()
    user.ok("permissions", "allow", agent, "Bash(make)")
    user.ok("permissions", "allow", "--here", "Bash(make)")
    user.ok("export", "--bundle", agent, "bundle.tar")
    if remove:
        user.ok("rm", "--yes", agent)
    imported = user("import", "bundle.tar").out.strip()
    assert (imported == agent) is remove
    assert user.sends(imported, "make")["allowed"] == [False]
    assert "folder" not in user.asked[0].keeps
    user.ok("permissions", "allow", imported, "Bash(make)")
    assert user.sends(imported, "make")["allowed"] == [True]

    user.ok("export", "--bundle", imported, "again.tar")
    user.ok("rm", "--yes", imported)
    again = user.ok("import", "again.tar").out.strip()
    assert user.sends(again, "make")["allowed"] == [False]


def test_a_link_in_place_of_a_folder_has_no_rules(user: User) -> None:
    """It may have been made to lead to a folder where more is allowed."""
    user.ok("permissions", "allow", "--here", "Bash(make)")
    other = user.home / "other"
    other.mkdir()
    agent = user.new("--cwd", str(other))
    other.rmdir()
    other.symlink_to(user.cwd)
    assert user.sends(agent, "make")["allowed"] == [False]
    assert "folder" not in user.asked[0].keeps


def test_a_fork_has_no_rules(user: User) -> None:
    """Neither the agent's nor those of the folder."""
    agent = user.new()
    user.ok("permissions", "allow", agent, "Bash(make)")
    user.ok("permissions", "allow", "--here", "Bash(make)")
    assert user.sends(user.ok("fork", agent).out.strip(), "make")["allowed"] == [False]


def test_a_subagent_has_only_rules_that_were_said_for_it(user: User) -> None:
    """Not its parent's, not the folder's; and no user is asked for it."""
    user.answer = nothing_is_asked
    parent = user.new()
    child = user.new("--type", "subagent", "--parent", parent, "--name", "child")
    for whom in (parent, "--here"):
        user.ok("permissions", "allow", whom, "Bash(make)")
    assert user.sends(child, "make")["allowed"] == [False]
    assert user.sends(child, "make")["handed"] == []
    user.ok("permissions", "allow", child, "Bash(make)")
    assert user.sends(child, "make", "make x")["allowed"] == [True, False]


def test_agents_that_speak_with_strangers_have_no_rules_of_a_folder(user: User) -> None:
    """Nor has one that a schedule runs."""
    user.ok("permissions", "allow", "--here", "Bash(make)")
    person = ("--connector", "telegram", "--user", "1", "--channel", "2")
    for kind in (person, ("--type", "cron", "--cron", "nightly"), ("--type", "heartbeat")):
        assert user.sends(user.new(*kind), "make")["allowed"] == [False], kind


def test_a_rule_is_for_one_provider(user: User) -> None:
    """A stand-in's client may mean another thing by it."""
    agent = user.new()
    user.ok("permissions", "allow", "--provider", "claude", agent, "Bash(make)")
    assert user.sends(agent, "make")["allowed"] == [False]


@pytest.mark.parametrize(
    "line",
    [
        ["permissions"], ["permissions", "rm", "x"],
        ["permissions", "allow", "--here", "Bash(make)"],
        ["trust"], ["trust", "--list"], ["config", "max_slots=3"],
        ["config", "--user", "provider=echo"], ["set", "AGENT", "permission-mode=plan"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_turn_grants_nothing(user: User, line: list[str], tmp_path: Path) -> None:
    """A tool call is refused, also where it names another root."""
    agent = user.new()
    user.variables.update({
        "AGENTSDIR_ROOT": str(user.root), "AGENTSDIR_AGENT": agent, "AGENTSDIR_TURN": "t",
    })  # fmt: skip
    for options in ((), ("--root", str(tmp_path / "elsewhere"))):
        done = user(*options, *line, "--json")
        assert (done.code, done.error["kind"]) == (13, "in-turn"), done
    assert not (user.home / ".config").exists()


# The hook goes first.


def hook(user: User, answer: str) -> None:
    """Put a tool-confirmation hook there that prints an answer."""
    folder = user.home / ".config" / "agentsdir" / "hooks"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tool-confirmation"
    path.write_text(f"#!/bin/sh\necho '{answer}'\n")
    path.chmod(0o700)


def test_the_no_of_a_hook_is_final(user: User) -> None:
    """Whatever rules there are; and the client is handed none, so that it asks."""
    agent = user.new()
    user.ok("permissions", "allow", agent, "Bash(make)", "WebFetch")
    assert user.sends(agent, "make")["handed"] == ["Bash(make)", "WebFetch"]
    hook(user, '{"behavior": "deny", "message": "no"}')
    found = user.sends(agent, "make")
    assert (found["allowed"], found["reasons"], found["handed"]) == ([False], ["no"], [])
    child = user.new("--type", "subagent", "--parent", agent, "--name", "child")
    user.ok("permissions", "allow", child, "Bash(make)")
    assert user.sends(child, "make")["allowed"] == [False]
    assert user.asked == []


def test_a_hook_may_leave_it_to_the_rules_and_the_user(user: User) -> None:
    """It is asked about each call, so what the user says is not handed to the client."""
    hook(user, '{"behavior": "ask"}')
    agent = user.new()
    user.ok("permissions", "allow", agent, "Bash(make)")
    user.answer = lambda _question: Answer(allowed=True, keep="turn")
    found = user.sends(agent, "make", "ls")
    assert (found["allowed"], found["rules"], found["handed"]) == ([True, True], ["", ""], [])
    assert [one.rule for one in user.asked] == ["Bash(ls)"]


# The command.


def test_permissions_are_listed_and_taken_back(user: User) -> None:
    """As a table, as JSON with a schema, by agent and by folder; what is gone does not hold."""
    agent = user.new("--name", "fixer")
    rows = user.ok("permissions", "allow", "fixer", "Bash(make)", "WebFetch").rows
    (here,) = user.ok("permissions", "allow", "--here", "Read").rows
    assert user.ok("permissions").rows == [*rows, here]
    assert user.ok("permissions", "list", agent).rows == rows
    assert user.ok("permissions", "list", "--here").rows == [here]
    assert all(check("permission", row) == [] and row["holds"] for row in (*rows, here))
    table = user.ok("permissions", tty=True).out.splitlines()
    assert [line.split()[1] for line in table] == ["allows", "Bash(make)", "WebFetch", "Read"]
    assert table[0].split()[-1] == "age"
    assert all(line.endswith(("now", " ago")) and len(line) <= 80 for line in table[1:])

    user.ok("permissions", "rm", rows[0]["id"])
    assert user.sends(agent, "make")["allowed"] == [False]
    assert user("permissions", "rm", rows[0]["id"]).code == 1
    user.ok("rm", "--yes", agent)
    assert [row["holds"] for row in user.ok("permissions").rows] == [False, True]


def test_a_rule_that_is_said_twice_stands_once(user: User) -> None:
    """Under the same id."""
    agent = user.new()
    first = user.ok("permissions", "allow", agent, "Read").rows
    second = user.ok("permissions", "allow", agent, "Read").rows
    assert first[0]["id"] == second[0]["id"]
    assert len(user.ok("permissions").rows) == 1


OTHER_SHELLS = ["PowerShell", "Monitor", "REPL"]


@pytest.mark.parametrize("tool", OTHER_SHELLS)
def test_another_tool_that_runs_any_command_is_asked_about_each_time(user: User, tool: str) -> None:
    """No answer allows it for good; a rule of it does, and is asked about twice."""
    agent = user.new()
    user.answer = lambda _question: Answer(allowed=True, keep="agent")
    user.sends(agent, json.dumps({"tool": tool, "command": "make"}))
    assert (user.asked[0].rule, user.asked[0].keeps) == ("", ("once",))
    assert not grants(user).exists()
    done = user("permissions", "allow", agent, tool, "--json")
    assert (done.code, done.error["kind"]) == (2, "any-command")
    user.ok("permissions", "allow", "-yy", agent, tool)
    user.asked.clear()
    found = user.sends(agent, json.dumps({"tool": tool, "command": "make"}))
    assert (found["allowed"], user.asked) == ([True], [])


def test_what_would_make_the_file_too_large_is_not_kept(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is as it was: one that is too large grants nothing."""
    agent = user.new()
    user.ok("permissions", "allow", agent, "Bash(first)")
    before = grants(user).read_bytes()
    monkeypatch.setattr("agentsdir.cli.grants.MAX_SIZE", len(before) + 1000)
    done = user("permissions", "allow", agent, f"Bash({'x' * 2000})", "--json")
    assert (done.code, done.error["kind"]) == (12, "grants-full")
    user.answer = lambda _question: Answer(allowed=True, keep="agent")
    sent = user("send", "--json", agent, "y" * 2000)
    assert orjson.loads(sent.json["response"])["allowed"] == [True]
    assert "not kept" in sent.err
    assert grants(user).read_bytes() == before
    user.ok("permissions", "allow", agent, "Bash(second)")
    assert len(user.ok("permissions").rows) == 2


WIDE = ["Bash", "Bash(*)", "Bash(:*)", "Bash( * )", "Bash()", "*"]


@pytest.mark.parametrize("rule", WIDE)
def test_a_rule_that_would_allow_everything_is_asked_about_twice(user: User, rule: str) -> None:
    """Without a terminal it takes --yes twice."""
    agent = user.new()
    for yes in ((), ("--yes",)):
        done = user("permissions", "allow", *yes, agent, rule, "--json")
        assert (done.code, done.error["kind"]) == (2, "any-command")
    with Typist(b"y\n", b"n\n") as person:
        user.shell.terminal = person.terminal
        done = user("permissions", "allow", agent, rule, "--json", stdin_tty=True)
        assert (done.code, done.error["kind"]) == (1, "declined")
    assert not grants(user).exists()
    with Typist(b"y\n", b"y\n") as person:
        user.shell.terminal = person.terminal
        user.ok("permissions", "allow", agent, rule, stdin_tty=True)
    assert user.sends(agent, "rm -r x", "make")["allowed"] == [True, True]
    user.ok("permissions", "allow", "--here", "-yy", rule)


@pytest.mark.parametrize(
    "rule",
    [
        "git diff", "", "Bash(git diff:*)", "Bash(git *)", "Bash(**)", "Bash(ls*)", "Bash(* x)",
        "Write(x)", "Bash(ls", "Read(/etc/**)",
        "a" * 5000, "Bash(\udcff)", "-x", "Ba sh",
    ],
)  # fmt: skip
def test_what_is_no_rule_is_refused(user: User, rule: str) -> None:
    """A pattern above all: it would be read as one command, and allow nothing that was meant."""
    agent = user.new()
    done = user("permissions", "allow", "--json", "--", agent, rule)
    assert (done.code, done.error["kind"]) == (2, "usage"), done
    assert not grants(user).exists()


def test_a_provider_that_asks_nothing_has_no_permissions(user: User) -> None:
    """Echo runs no tool; Gemini CLI takes names of tools alone."""
    assert user("permissions", "allow", user.new("--provider", "echo"), "Read").code == 2
    agent = user.new("--provider", "gemini")
    user.ok("permissions", "allow", agent, "write_file")
    for rule in ("run_shell_command(git)", "*", "write_*"):
        done = user("permissions", "allow", agent, rule)
        assert done.code == 2, rule
    for shell in ("run_shell_command", "ShellTool"):
        done = user("permissions", "allow", agent, shell, "--json")
        assert (done.code, done.error["kind"]) == (2, "any-command")
        done = user("permissions", "allow", agent, f"{shell}(git)", "--json")
        assert (done.code, done.error["kind"]) == (2, "usage")


# The file.

DAMAGED = [
    b"", b"{", b"[]", b"\0", b"{}", b'{"version": true}', b'{"version": 1}',
    b'{"version": 1, "rules": [1], "modes": []}',
    b'{"version": 1, "rules": [{"for": {}, "provider": "p", "rule": "*", "at": ""}], "modes": []}',
    b'{"version": 1, "rules": [], "modes": [{"for": {"folder": 1}, "provider": "p", "at": ""}]}',
    b" " * (1024 * 1024 + 1),
]  # fmt: skip


@pytest.mark.parametrize("data", DAMAGED, ids=range(len(DAMAGED)))
def test_damaged_grants_are_set_aside_and_stop_nothing(user: User, data: bytes) -> None:
    """They are named, and grant nothing; each is kept under a name of its own."""
    agent = user.new()
    user.ok("permissions", "allow", agent, "Bash(make)")
    for number in (1, 2):
        grants(user).write_bytes(data)
        done = user("send", "--json", agent, "make")
        assert done.code == 0
        assert orjson.loads(done.json["response"])["allowed"] == [False]
        assert f"{grants(user)} " in done.err
        aside = grants(user).with_name(f"grants.json.damaged-{number}")
        assert str(aside) in done.err
        assert aside.read_bytes() == data
        assert not grants(user).exists()
    user.ok("permissions", "allow", agent, "Bash(make)")
    grants(user).write_bytes(data)
    done = user("permissions", "allow", agent, "Bash(ls)")
    assert (done.code, len(done.rows)) == (0, 1)
    assert len(user.ok("permissions").rows) == 1


@pytest.mark.parametrize("how", ["written by all", "newer", "a folder", "another's"])
def test_grants_that_are_not_ours_to_use_grant_nothing_and_stay(user: User, how: str) -> None:
    """They are named wherever they are read; a change is refused."""
    agent = user.new()
    user.ok("permissions", "allow", agent, "Bash(make)")
    if how == "written by all":
        grants(user).chmod(0o666)
    elif how == "newer":
        grants(user).write_bytes(
            grants(user).read_bytes().replace(b'"version": 1', b'"version": 2')
        )
    elif how == "a folder":
        grants(user).unlink()
        grants(user).mkdir()
    elif os.geteuid() == 0:
        os.chown(grants(user), 4711, -1)
    else:
        pytest.skip("only root can give files away")
    assert user.sends(agent, "make")["allowed"] == [False]
    done = user("permissions", "allow", agent, "Read", "--json")
    assert (done.code, done.error["kind"]) == (12, "bad-grants")
    assert grants(user).exists()


def test_grants_are_private_and_in_no_root(user: User) -> None:
    """0600, whatever the umask; a link, as dotfiles often are, stays one."""
    old = os.umask(0)
    try:
        user.ok("permissions", "allow", "--here", "Read")
        assert stat.S_IMODE(grants(user).stat().st_mode) == 0o600
        elsewhere = user.home / "dotfiles"
        grants(user).rename(elsewhere)
        grants(user).symlink_to(elsewhere)
        user.ok("permissions", "allow", "--here", "WebFetch")
    finally:
        os.umask(old)
    assert grants(user).is_symlink()
    assert len(user.ok("permissions").rows) == 2


def test_grants_that_are_written_at_once_are_all_kept(user: User) -> None:
    """Each writer has the lock while it reads, changes and writes."""
    user.new()
    at_once = [
        user.start("permissions", "allow", "--here", "--provider", "claude", f"Bash(make {n})")
        for n in range(8)
    ]
    for process in at_once:
        assert process.wait(60) == 0, process.communicate()
        process.communicate()
    rules = {row["rule"] for row in user.ok("permissions").rows}
    assert rules == {f"Bash(make {n})" for n in range(8)}


# Rules, for any command.

TEXTS = st.text(max_size=40)


@given(one=TEXTS, other=TEXTS)
def test_two_commands_have_one_rule_only_if_they_are_one(one: str, other: str) -> None:
    """And a command's rule is no tool's name."""
    rules = [exact_rule("Bash", {"command": command}) for command in (one, other)]
    assert (rules[0] == rules[1]) is (one == other or not (one.strip() or other.strip()))
    for command, rule in zip((one, other), rules, strict=True):
        allowing = rules_allowing(ToolRequest("Bash", "t", {"command": command}, "main", rule))
        assert allowing == {rule, "Bash", ALL_TOOLS} - {""}


@given(command=TEXTS.filter(str.strip))
def test_what_is_handed_to_the_client_names_tools_alone(command: str) -> None:
    """No command is, however it is spelled: the client would read it as more."""
    assert handed_tools([f"Bash({command})"]) == []
    for tool in ("Read", "mcp__server__tool", "Bash"):
        assert handed_tools([tool]) == [tool]
    for tool in ("mcp__server", "mcp__server__*", "*", "Read,Bash", "Read Bash", "--x", ""):
        assert handed_tools([tool]) == []


@given(command=TEXTS.filter(str.strip))
def test_a_rule_that_a_person_types_is_the_one_of_its_command(command: str) -> None:
    """Where it is neither a pattern nor all commands."""
    meaning = read_rule(f"Bash({command})")
    if not meaning.problem and not meaning.is_wide:
        assert meaning.rule == exact_rule("Bash", {"command": command})


NAMES = st.text(min_size=1, max_size=20)
NONE = st.just("")
SCOPES = st.builds(Scope, NAMES, NAMES, NAMES, NONE) | st.builds(Scope, NONE, NONE, NONE, NAMES)
RULES = st.lists(st.builds(Rule, SCOPES, NAMES, NAMES, NAMES), max_size=5)
MODES = st.lists(st.builds(Mode, SCOPES, NAMES, NAMES, NAMES), max_size=5)


@given(rules=RULES, modes=MODES)
def test_grants_are_read_as_they_were_written(rules: list[Rule], modes: list[Mode]) -> None:
    """Whatever is in them; each once, and gone once it is taken back."""
    grants = Grants()
    for rule in rules:
        grants = grants.with_rule(rule).with_rule(rule)
    for mode in modes:
        grants = grants.with_mode(mode)
    assert decode_grants(encode_grants(grants)) == grants
    assert len({rule.key for rule in grants.rules}) == len(grants.rules)
    assert grants.without([*rules, *modes]) == Grants()
    assert grants.without(grants.rules).modes == grants.modes


# What a question shows.


@given(
    st.dictionaries(
        st.sampled_from(["command", "file_path", "old_string", "new_string", "content", "edits"]),
        st.one_of(TEXTS, st.integers(), st.lists(st.dictionaries(TEXTS, TEXTS), max_size=3)),
    )
)
def test_all_of_a_call_is_shown_and_none_of_it_acts(given_input: dict[str, Any]) -> None:
    """Whatever shape it has; a line break in it is one of ours."""
    lines = call_lines(given_input)
    assert lines
    for line in lines:
        assert not any(ord(one) < 32 and one != "\t" for one in line), line
        assert not any(0x7F <= ord(one) <= 0x9F for one in line), line
    shown = "".join(lines)
    for value in given_input.values():
        if isinstance(value, str) and value.isalnum() and not NO_INK.search(value):
            assert value in shown


NO_INK = re.compile("[\u115f\u1160\u3164\uffa0]")  # letters that show nothing
FRAGMENTS = st.lists(
    st.sampled_from(
        ["a", "x", "1b", "u200b", "\\", "\x1b", "\u200b", "\u200d", "\ud800", "\u3164", " "]
    )
    | st.characters(exclude_characters="\n")
).map("".join)


@given(FRAGMENTS, FRAGMENTS)
@example("echo \\x1b", "echo \x1b")
@example("\\\x1b", "\\\\x1b")
@example("rm a", "rm a\u200b")
@example("echo \ud800", "echo ?")
@example("rm a b", "rm a\xa0b")
def test_two_inputs_that_differ_are_shown_differently(one: str, other: str) -> None:
    """A yes for "exactly this command" is for what was seen."""
    for make in (
        lambda text: {"command": text},
        lambda text: {"x": text},
        lambda text: {"x": [text]},
    ):
        shown = [call_lines(make(text)) for text in (one, other)]
        assert (shown[0] == shown[1]) == (one == other)
        assert all(c.isprintable() or c == "\t" for lines in shown for line in lines for c in line)


def test_no_rule_is_offered_that_cannot_be_kept() -> None:
    """Half of a pair of surrogates cannot be written."""
    given_input = {"command": "echo \ud800"}
    assert kept_rule(ToolRequest("Bash", "t", given_input, "main", "Bash(echo a)"))
    assert not kept_rule(ToolRequest("Bash", "t", given_input, "main", "Bash(echo \ud800)"))


def test_an_edit_is_a_diff_and_a_file_its_lines() -> None:
    """With what the call says beside it."""
    edit = {"file_path": "/w/a", "old_string": "a\nb", "new_string": "a\nc", "replace_all": False}
    assert call_lines(edit) == ["/w/a", " a", "-b", "+c", "", "replace_all: false"]
    assert call_lines({"file_path": "/w/a", "content": "x\x1b\ny"}) == ["/w/a", "+x\\x1b", "+y"]
    several = {"file_path": "/w/a", "edits": [{"old_string": "a", "new_string": "b"}]}
    assert call_lines(several) == ["/w/a", "@@", "-a", "+b"]
    assert call_lines({"command": "git diff;\n rm", "timeout": 5}) == [
        "git diff;", " rm", "", "timeout: 5",
    ]  # fmt: skip
    unseen = {"file_path": "/w/a", "old_string": "a\x1b", "new_string": "a\\x1b"}
    assert call_lines(unseen) == ["/w/a", "-a\\x1b", "+a\\\\x1b"]
