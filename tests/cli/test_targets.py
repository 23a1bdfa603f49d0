"""Whom a command line means: which word is the prompt, and who is found, made or refused."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.cli.environment import Environment
from agentsdir.cli.services import services_of
from agentsdir.cli.targets import TargetOptions, find_target
from agentsdir.formats.errors import UsageError


def environment(shell: Any, turn_of: str = "") -> Environment:
    """Return a command's surroundings, inside a turn of an agent perhaps."""
    variables = {"AGENTSDIR_ROOT": str(shell.root)}
    if turn_of:
        variables |= {"AGENTSDIR_AGENT": turn_of, "AGENTSDIR_TURN": "t" * 24}
    out = io.StringIO()
    return Environment(io.BytesIO(), out, out, variables, shell.cwd, shell.home, login="me")


def found(shell: Any, *words: str, turn_of: str = "", **options: Any) -> str:
    """Return the id of the agent that is meant."""
    env = environment(shell, turn_of)
    env.arguments = ("send", "--", *words)
    return find_target(env, services_of(env), TargetOptions(words, **options)).id


ORDERS = {
    "an agent and a prompt": (("a", "hi"), {}, "", ("a", "hi")),
    "an agent alone": (("a",), {}, "", ("a", "-")),
    "a prompt to an agent": (("hi",), {"to": "a"}, "", ("", "hi")),
    "a prompt for a person": (
        ("hi",),
        {"connector": "c", "user": "u", "channel": "x"},
        "",
        ("", "hi"),
    ),
    "a prompt for a task": (("hi",), {"cron": "nightly"}, "", ("", "hi")),
    "a prompt for the heartbeat": (("hi",), {"heartbeat": True}, "", ("", "hi")),
    "standard input for the heartbeat": ((), {"heartbeat": True}, "", ("", "-")),
    "a prompt for an ephemeral agent": (("hi",), {"ephemeral": True}, "", ("", "hi")),
    "a name and a prompt": (("demo", "hi"), {"create": True}, "", ("demo", "hi")),
    "a name alone": (("demo",), {"create": True, "sender": "a"}, "", ("demo", "-")),
    "a prompt from an agent": (("hi",), {"sender": "a"}, "", ("", "hi")),
    "a prompt in a turn": (("hi",), {}, "a", ("", "hi")),
    "an agent and a prompt in a turn": (("b", "hi"), {}, "a", ("b", "hi")),
}


@pytest.mark.parametrize(("words", "options", "turn_of", "wanted"), ORDERS.values(), ids=ORDERS)
def test_the_first_word_is_the_prompt_where_no_agent_needs_naming(
    shell: Any, words: tuple[str, ...], options: dict[str, Any], turn_of: str, wanted: Any
) -> None:
    """Else it is the agent, and the prompt comes second or from standard input."""
    asked = TargetOptions(words, **options)
    env = environment(shell, turn_of)
    env.arguments = ("send", "--", *words)
    assert asked.agent_and_prompt(env) == wanted


@given(st.lists(st.sampled_from(["", "a", "-", "hi there"]), max_size=4), st.booleans())
def test_no_word_is_ever_dropped(words: list[str], named: bool) -> None:
    """Each is the agent or the prompt, or the command is refused."""
    path = Path("/nowhere")
    out = io.StringIO()
    env = Environment(io.BytesIO(), out, out, {}, path, path)
    asked = TargetOptions(tuple(words), to="b" if named else "")
    if len(words) > (1 if named else 2):
        with pytest.raises(UsageError, match="is too much"):
            asked.agent_and_prompt(env)
    elif not (words or named):
        with pytest.raises(UsageError, match="no agent is named"):
            asked.agent_and_prompt(env)
    else:
        agent, prompt = asked.agent_and_prompt(env)
        spoken = words if named else words[1:]
        assert (agent, prompt) == ("" if named else words[0], (spoken or ["-"])[0])


@pytest.mark.feature("T-03", "T-11")
def test_a_person_a_task_and_the_heartbeat_have_one_agent_each(shell: Any) -> None:
    """Made the first time, with the settings that were given, and found from then on."""
    person = {"connector": "irc", "user": "ada", "channel": "#c"}
    first = found(shell, "hi", **person, system="Be brief.", provider="echo")
    assert found(shell, "hi", **person, system="Be long.") == first
    task = found(shell, "go", cron="nightly")
    assert found(shell, "go", cron="nightly") == task
    pulse = found(shell, "look", heartbeat=True)
    assert found(shell, "look", heartbeat=True) == pulse
    name = found(shell, "demo", "hi", create=True)
    assert found(shell, "demo") == found(shell, "demo", create=True) == name

    rows = {row["agentId"]: row["descriptor"] for row in shell.ok("list").rows}
    assert rows == {
        first: {"type": "user", "connector": "irc", "userId": "ada", "channelId": "#c"},
        task: {"type": "cron", "id": "nightly"},
        pulse: {"type": "heartbeat"},
        name: {"type": "user", "connector": "cli", "userId": "me", "channelId": name},
    }
    log = (shell.folder(first) / "events.jsonl").read_bytes()
    assert (b"Be brief." in log, b"Be long." in log) == (True, False)


def test_an_ephemeral_agent_is_another_one_each_time_and_never_foreground(shell: Any) -> None:
    """It is marked from its first record."""
    one, two = (found(shell, "hi", ephemeral=True) for _ in range(2))
    assert one != two
    assert all(row["ephemeral"] for row in (shell.ok("inspect", id_).json for id_ in (one, two)))
    assert shell("resolve", "most-recent-foreground").code == 10


@pytest.mark.feature("T-05")
def test_in_a_turn_a_message_is_for_the_parent_or_for_the_foreground(shell: Any) -> None:
    """A subagent's for its parent, a task's for the most recent user; `--from` says the same."""
    task = shell.new("--type", "cron", "--cron", "nightly")
    child = shell.new("--type", "subagent", "--parent", task, "--name", "scout")
    user = shell.new()

    assert found(shell, "done", turn_of=child) == task
    assert found(shell, "done", turn_of=task) == user
    assert found(shell, "done", sender=child) == task
    assert found(shell, "done", sender=child, turn_of=task) == task
    assert found(shell, user, "done", turn_of=child) == user
    assert found(shell, "done", to=user, turn_of=child) == user


@pytest.mark.feature("T-02")
def test_the_agent_of_this_folder_is_meant_by_last_and_by_continue(shell: Any) -> None:
    """Wherever an agent is named; `--create` takes the word as a name, and no name begins so."""
    first, second = shell.new(), shell.new()
    shell.ok("send", first, "hi")
    (shell.cwd / "elsewhere").mkdir()

    assert found(shell, "hi", last=True) == found(shell, "@last", "hi") == first
    assert found(shell, "hi", to="@last:echo") == first
    assert shell.ok("tag", "@last", "+here").out == ""
    assert shell.ok("inspect", "@last").json["tags"] == ["here"]
    shell.ok("send", "--continue", "again", "--json")
    shell.ok("rm", "--yes", "@last")
    assert [row["agentId"] for row in shell.ok("list").rows] == [second]
    for words in (("inspect", "@last:claude"), ("send", "@last:gemini", "hi")):
        assert shell(*words).code == 10
    assert shell("inspect", "@later").code == 2
    with pytest.raises(UsageError):
        found(shell, "@last", "hi", create=True)


def test_what_ends_an_agent_means_no_other_one_when_it_is_repeated(shell: Any) -> None:
    """The beginning of a name names an agent elsewhere; not where an archived agent has it."""
    for name in ("deploy", "deploy-prod", "work", "worker"):
        shell.ok("send", "--create", name, "hi")

    assert shell.ok("send", "deploy-", "hi").out == "hi\n"
    shell.ok("archive", "deploy")
    shell.ok("rm", "--yes", "work")
    refused = [
        ("send", "deploy", "hi"),
        ("archive", "deploy"),
        ("close", "deploy-"),
        ("reset", "deploy-"),
        ("rm", "--yes", "work"),
        ("rm", "--yes", "deploy-"),
    ]
    assert {words: shell(*words).code for words in refused} == dict.fromkeys(refused, 10)
    assert "archive --undo" in shell("send", "deploy", "hi").err
    assert sorted(row["name"] for row in shell.ok("list").rows) == ["deploy-prod", "worker"]


REFUSED = {
    "no agent is named": ((), {}, "no agent is named"),
    "a task and the heartbeat": (("x",), {"cron": "c", "heartbeat": True}, "two ways"),
    "an agent and a task": (("x",), {"cron": "c", "to": "a"}, "two ways"),
    "half a conversation": (("x",), {"connector": "c", "user": "u"}, "go together"),
    "a user without a connector": (("x",), {"user": "u"}, "go together"),
    "a name that is not given": ((), {"create": True}, "needs the AGENT's name"),
    "a setting of an agent that is there": (("a", "x"), {"model": "m"}, "may be made here"),
    "a setting that is none": (("x",), {"cron": "c", "option": ("file",)}, "NAME=VALUE"),
    "a provider that is none": (("x",), {"cron": "c", "provider": "nobody"}, "nobody"),
    "a name that is none": (("@x", "hi"), {"create": True}, "no name"),
}


@pytest.mark.parametrize(("words", "options", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_meant_is_refused_and_makes_nothing(
    shell: Any, words: tuple[str, ...], options: dict[str, Any], reason: str
) -> None:
    """Before the disk is touched."""
    with pytest.raises(UsageError, match=reason):
        found(shell, *words, **options)
    assert not shell.root.exists()


def test_a_word_that_was_meant_otherwise_is_named_as_what_it_is_taken_for(shell: Any) -> None:
    """Of a prompt alone the agent, of an agent beside `-c` the prompt."""
    done = shell("send", "what is up", stdin_tty=True)
    assert (done.code, "'what is up' is taken as the agent" in done.err) == (2, True)
    assert "`send -c PROMPT`" in done.err
    done = shell("send", "-c", "fixer", "hi")
    assert (done.code, "the prompt is 'fixer', and 'hi' is too much" in done.err) == (2, True)


def test_a_word_that_names_no_conversation_says_where_there_are_some(shell: Any) -> None:
    """Agents have a list, and so have the sessions of clients, whose ids want eight characters."""
    for verb in ("log", "last"):
        done = shell(verb, "b2ad")
        assert (done.code, "`agentsdir list --native`" in done.err) == (10, True)
        assert "8 characters" in done.err


def test_a_mode_that_new_refuses_is_answered_with_those_that_there_are(shell: Any) -> None:
    """The same list as that of `set`."""
    agent = shell.new("--provider", "claude")
    modes = shell("set", agent, "permission-mode=bogus", "--json").error["hint"]
    done = shell("new", "--provider", "claude", "--permission-mode", "bogus", "--json")
    assert done.code == 2
    assert modes.removeprefix("it has ") in done.error["hint"]
