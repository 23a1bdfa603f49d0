"""Errors: their exit codes, their one line, and what they leave on the disk."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from agentsdir.cli.exits import CODES, Exit, code_of
from agentsdir.formats import errors
from agentsdir.formats.store import locks

HOSTILE: dict[str, str] = json.loads(
    (Path(__file__).parents[1] / "formats" / "hostile_ids.json").read_text(encoding="utf-8")
)
# Every place where an agent can be named.
PLACES = [
    ["send", "REFERENCE", "hi"],
    ["send", "--messages", "m.json", "REFERENCE"],
    ["suspend", "REFERENCE"],
    ["resume", "REFERENCE"],
    ["restore", "REFERENCE"],
    ["archive", "REFERENCE"],
    ["archive", "--undo", "REFERENCE"],
    ["rm", "--yes", "REFERENCE"],
    ["replay", "REFERENCE"],
    ["inspect", "REFERENCE"],
    ["inspect", "--runtime", "REFERENCE"],
    ["new", "--type", "subagent", "--name", "x", "--parent", "REFERENCE"],
]


def test_no_hostile_id_gets_past_any_verb(shell: Any) -> None:
    """A usage error or an unknown agent: one printable line, no traceback, not a byte written.

    The verbs take turns at the ids; tests/security gives each verb a choice of them.
    """
    agent = shell.new()
    (shell.cwd / "m.json").write_text('"hi"')
    shell.ok("send", agent, "hi")
    (shell.root / ".lock").touch()
    before = shell.tree()
    for (name, text), arguments in zip(HOSTILE.items(), cycle(PLACES), strict=False):
        words: list[str] = []
        for word in arguments:
            # What begins with a dash is an option, unless two dashes come first.
            words += ["--", text] if word == "REFERENCE" and "new" not in arguments else [word]
        done = shell(*[text if word == "REFERENCE" else word for word in words])
        assert done.code in (2, 10), name
        assert done.out == "", name
        assert done.err.count("\n") == 1, name
        assert done.err.rstrip("\n").isprintable(), name
        assert "Traceback" not in done.err, name
    after = shell.tree()
    assert {path: data for path, (_, data) in after.items()} == {
        path: data for path, (_, data) in before.items()
    }


def script(shell: Any, *lines: dict[str, Any]) -> str:
    """Create an agent that plays these lines."""
    path = shell.home / "s.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(shell.script(str(path)))


def partial(shell: Any) -> Any:
    """Read a damaged log."""
    agent = shell.new()
    with (shell.folder(agent) / "events.jsonl").open("ab") as log:
        log.write(b"#\n")
    return shell("inspect", agent, "--json")


def locked(shell: Any) -> Any:
    """Meet a running turn."""
    agent = shell.new()
    with locks.hold(shell.folder(agent) / ".turn"):
        return shell("send", agent, "x", "--wait", "0", "--json")


def invalid(shell: Any) -> Any:
    """Name an agent without a log."""
    agent = shell.new()
    (shell.folder(agent) / "events.jsonl").unlink()
    return shell("inspect", agent, "--json")


def not_recorded(shell: Any) -> Any:
    """Write where a file stands in place of the root."""
    (shell.cwd / "file").write_text("x")
    return shell("--root", "file", "new", "--json")


EXITS: dict[str, tuple[Exit, str, Any]] = {
    "done": (Exit.OK, "", lambda shell: shell("new", "--json")),
    "failed": (
        Exit.FAILED,
        "already-exists",
        lambda shell: [shell("new", "--name", "x"), shell("new", "--name", "x", "--json")][1],
    ),
    "usage": (Exit.USAGE, "usage", lambda shell: shell("send", "--nope", "--json")),
    "bad id": (Exit.USAGE, "bad-id", lambda shell: shell("inspect", "../x", "--json")),
    "partial": (Exit.PARTIAL, "", partial),
    "no such agent": (
        Exit.NO_SUCH_AGENT,
        "no-such-agent",
        lambda shell: shell("send", "nobody", "x", "--json"),
    ),
    "locked": (Exit.LOCKED, "locked", locked),
    "invalid": (Exit.INVALID, "invalid", invalid),
    "state": (
        Exit.STATE,
        "session-state",
        lambda shell: shell("suspend", shell.new(), "--json"),
    ),
    "provider": (
        Exit.PROVIDER,
        "provider-failed",
        lambda shell: shell("send", script(shell, {"type": "error"}), "x", "--json"),
    ),
    "a provider's own kind": (
        Exit.PROVIDER,
        "rate-limited",
        lambda shell: shell("send", shell.script("fails.jsonl"), "x", "--json"),
    ),
    "not recorded": (Exit.NOT_RECORDED, "not-recorded", not_recorded),
}


@pytest.mark.parametrize(("code", "kind", "act"), EXITS.values(), ids=EXITS)
def test_each_exit_code_comes_with_its_kind_of_error(
    shell: Any, code: Exit, kind: str, act: Any
) -> None:
    """Under --json one object on stderr, with the code it exits with."""
    done = act(shell)
    assert done.code == code
    if kind:
        assert done.out == ""
        assert list(done.error) == ["type", "kind", "message", "hint", "exitCode"]
        assert (done.error["type"], done.error["kind"], done.error["exitCode"]) == (
            "error",
            kind,
            code,
        )


def test_every_exit_code_is_reached_by_a_test() -> None:
    """Signals and pipes by processes of their own (below, and elsewhere), the others above."""
    elsewhere = {Exit.HUNG_UP, Exit.INTERRUPTED, Exit.TERMINATED, Exit.CLOSED_PIPE, Exit.TIMED_OUT}
    assert {code for code, _, _ in EXITS.values()} | elsewhere == set(Exit)


def test_every_error_has_exactly_one_exit_code_and_a_kebab_case_kind() -> None:
    """A subclass has its base's."""
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.AgentsdirError)
    ]
    assert len({kind.kind for kind in kinds}) == len(kinds)
    for kind in kinds:
        assert kind.kind == kind.kind.lower().replace("_", "-")
        assert isinstance(code_of(kind("x")), Exit)
    assert set(CODES) <= set(kinds)


def test_errors_for_people_are_one_line_with_the_hint(shell: Any) -> None:
    """Beginning with the program's name."""
    done = shell("send", "nobody", "x")
    assert done.err == (
        f"agentsdir: no agent 'nobody' in {shell.root} (`agentsdir list` shows them)\n"
    )


@pytest.mark.parametrize(
    "arguments", [["nope"], ["--nope"], ["new", "extra"], ["send"], ["list", "-x"]]
)
def test_a_command_line_that_means_nothing_is_a_usage_error(
    shell: Any, arguments: list[str]
) -> None:
    """One line, exit 2, nothing made."""
    done = shell(*arguments)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert not shell.root.exists()


@pytest.mark.parametrize(
    "arguments",
    [["send", "a", "b", "--timeout", "nan"], ["send", "a", "b", "--wait", "nan"],
     ["spawn", "x", "--parent", "a", "--timeout", "nan"], ["follow", "f", "--until-idle", "nan"],
     ["suspend", "a", "--wait", "nan"]],
    ids=" ".join,
)  # fmt: skip
def test_no_time_is_nan(shell: Any, arguments: list[str]) -> None:
    """It would neither pass nor be over."""
    shell.ok("new", "--name", "a")
    done = shell(*arguments)
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert "seconds" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sned", "a", "b"], "Did you mean 'send'?"),
        (["send", "a", "b", "--root", "r"], "`agentsdir --root DIR` goes before the command"),
        (["send", "a", "- first\n- second"], "`--` goes before words that begin with a dash"),
        (["send", "a", "-1"], "`--` goes before words that begin with a dash"),
        (["send", "a", "--no-such"], "see `agentsdir send --help`"),
        (["--root"], "requires an argument"),
        (["send"], "no agent is named"),
    ],
)
def test_a_slip_is_met_with_what_was_probably_meant(
    shell: Any, arguments: list[str], said: str
) -> None:
    """A mistyped command, an option in the wrong place, no agent and nothing on stdin."""
    done = shell(*arguments)

    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert said in done.err


@pytest.mark.parametrize(
    "arguments",
    [["--option", "file"], ["--option", "=x"], ["--option", "file=x"], ["--type", "robot"]],
)
def test_new_refuses_what_it_cannot_mean(shell: Any, arguments: list[str]) -> None:
    """One line, exit 2."""
    done = shell("new", *arguments)
    assert (done.code, done.err.count("\n")) == (2, 1)


@pytest.mark.parametrize("verb", ["send", "suspend", "resume", "restore", "new", "archive", "rm"])
def test_no_writing_verb_touches_a_root_with_an_unknown_feature(shell: Any, verb: str) -> None:
    """Reading works."""
    agent = shell.new()
    shell.ok("send", agent, "x")
    document = {"format": "agentsdir", "version": 1, "features": ["shards"]}
    (shell.root / "agentsdir.json").write_text(json.dumps(document))
    before = shell.tree()
    arguments = {"new": ["new"], "send": ["send", agent, "x"], "rm": ["rm", "--yes", agent]}
    done = shell(*arguments.get(verb, [verb, agent]), "--json")
    assert (done.code, done.error["kind"]) == (12, "unknown-version")
    assert "shards" in done.error["message"]
    assert shell.tree() == before
    for reading in (["list"], ["inspect", agent], ["replay", agent]):
        shell.ok(*reading)


@pytest.mark.parametrize("verb", ["send", "inspect", "list", "replay", "restore", "new"])
def test_no_verb_touches_a_root_of_an_unknown_version(shell: Any, verb: str) -> None:
    """Not even to read."""
    agent = shell.new()
    (shell.root / "agentsdir.json").write_text('{"format":"agentsdir","version":2}')
    before = shell.tree()
    arguments = {"new": ["new"], "list": ["list"], "send": ["send", agent, "x"]}
    done = shell(*arguments.get(verb, [verb, agent]))
    assert (done.code, done.out, done.err.count("\n")) == (12, "", 1)
    assert shell.tree() == before


READING = [
    ["list"],
    ["list", "--json"],
    ["inspect", "AGENT"],
    ["inspect", "AGENT", "--saved"],
    ["inspect", "AGENT", "--runtime"],
    ["replay", "AGENT"],
    ["replay", "AGENT", "--events"],
    ["parse", "TRANSCRIPT"],
    ["parse", "TRANSCRIPTS"],
    ["adapters"],
]


@pytest.mark.parametrize("sound", [True, False], ids=["sound", "damaged"])
@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_reading_verbs_change_and_create_nothing(
    shell: Any, arguments: list[str], sound: bool
) -> None:
    """No byte, no name, no time; also when derived files are missing or a log is damaged."""
    agent = shell.new()
    shell.ok("send", agent, "x")
    transcript = str(shell.transcript(agent))
    if not sound:
        (shell.folder(agent) / "state.json").unlink()
        with (shell.folder(agent) / "events.jsonl").open("ab") as log:
            log.write(b"#\ntorn")
    before = shell.tree()
    words = {
        "AGENT": agent,
        "TRANSCRIPT": transcript,
        "TRANSCRIPTS": str(Path(transcript).parent),
    }
    done = shell(*[words.get(word, word) for word in arguments])
    assert done.code in ((0,) if sound else (0, 3))
    assert shell.tree() == before


UNREADABLE = """
import os, sys
from pathlib import Path
from agentsdir.cli.environment import Environment
from agentsdir.cli.command_line import run
env = Environment.of_process()
with open(os.devnull, "w") as nowhere:
    # Whatever is imported must be so before the rights are given up.
    run(["list"], Environment(env.stdin, nowhere, nowhere, env.variables, env.cwd, env.home))
os.chmod(sys.argv[1], 0)
if os.geteuid() == 0:
    os.seteuid(65534)
code = run(["list"], env)
sys.stdout.flush()
os._exit(code)
"""


def test_an_agent_that_may_not_be_read_does_not_hide_the_others(shell: Any) -> None:
    """Not even from a process that is not root."""
    good, bad = shell.new(), shell.new()
    for path in [*shell.root.parents, *shell.root.rglob("*"), shell.root]:
        if path.is_relative_to(shell.root.parents[2]):
            path.chmod(0o777)
    done = subprocess.run(
        [sys.executable, "-c", UNREADABLE, str(shell.folder(bad))],
        env=shell.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    (shell.folder(bad)).chmod(0o700)
    assert done.returncode == 3, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["agentId"]: "error" in row for row in rows} == {good: False, bad: True}
    assert "Traceback" not in done.stderr


@pytest.mark.feature("C-11", "C-12")
def test_the_one_liner_of_the_issue_works_as_it_stands(shell: Any) -> None:
    """Make an agent, send it a prompt, take its events apart with jq."""
    done = shell.sh(
        "id=$(agentsdir new) && agentsdir send $id 'fix the tests' && "
        "agentsdir send $id --events 'go on' | jq -r 'select(.type==\"text_delta\").delta' && "
        "agentsdir parse $AGENTSDIR_ROOT/agents/$id/transcripts/*.jsonl | "
        "jq -r 'select(.type==\"assistant_text\").content' && "
        "agentsdir suspend $id && agentsdir inspect $id | jq -r .state && agentsdir resume $id"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "fix the tests\ngo \non\nfix the tests\ngo on\nsuspended\n"


@pytest.mark.parametrize(
    ("closed", "code"), [("<&-", 0), (">&-", 0), ("2>&-", 0), ("<&- >&- 2>&-", 0)]
)
def test_a_closed_standard_stream_is_no_traceback(shell: Any, closed: str, code: int) -> None:
    """Nor does a log end up where standard output was."""
    agent = shell.new()
    done = shell.sh(f"agentsdir send {agent} hi {closed}")
    assert done.returncode == code
    assert done.stderr == ""
    assert shell.ok("replay", agent).out == "> hi\n\nhi\n\n"
    assert shell.sh("agentsdir new <&-").returncode == 0


def test_a_working_directory_that_is_gone_does_not_matter_to_a_named_root(shell: Any) -> None:
    """Commands that need none work."""
    agent = shell.new()
    gone = shell.cwd / "gone"
    gone.mkdir()
    done = shell.sh(f"cd gone && rmdir ../gone && agentsdir send {agent} hi && agentsdir list")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("hi\n")


def test_json_is_utf_8_whatever_the_locale(shell: Any) -> None:
    """Also in the C locale, and with Python told otherwise."""
    agent = shell.new()
    environment = {**shell.environment(), "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-m", "agentsdir.cli.main", "send", agent, "grün 🌱"],
        env=environment,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "grün 🌱\n".encode())
