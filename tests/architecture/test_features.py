"""Every feature that this version promises is named by a test that proves it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import agentsdir
from agentsdir.cli.command_line import COMMANDS

TESTS = Path(__file__).parents[1]

# The features of this version: their ids, and what they say in one line.
FEATURES = {
    "T-01": "four kinds of agent, in the first log record, never derived again",
    "T-02": "both fetch strategies, with every tie broken",
    "T-03": "a person's message finds the agent of connector, user and channel, in order",
    "T-04": "a background subagent with parent and name",
    "T-05": "a subagent's message goes to its parent, any other's to the foreground agent",
    "T-06": "restoring pending work: a person gets one notice, a parent gets one, a schedule none",
    "T-07": "another provider stands in, and each step is logged",
    "T-08": "the four texts for people who get no answer",
    "T-09": "a limit of model calls",
    "T-10": "a subagent's failure reaches its parent once",
    "T-11": "one heartbeat agent, one agent for each task; neither is foreground",
    "G-01": "descriptor.json and state.json exist from creation on",
    "G-02": "history.jsonl holds start and reset markers, and user, assistant and tool records",
    "G-03": "context is what follows the last marker",
    "G-04": "restoring on load: what was pending is shown, and nothing is sent again",
    "G-05": "a subagent gets a new id, never used again",
    "G-06": "the inbox keeps its order",
    "G-07": "load, agent_for(strategy) and post as one object",
    "S-01": "the session record, its four states, and SessionStateError",
    "S-02": "session.json is replaced atomically",
    "S-03": "the provider's blob is a short cut, and every session resumes without it",
    "S-04": "events.jsonl is the truth: the whole conversation is rebuilt from it",
    "S-05": "everything on disk is plain JSON",
    "S-06": "at boot an active session that no process holds becomes suspended",
    "S-07": "slots: put, acquire, release, remove, contains; the least recently used goes",
    "S-08": "a synchronous answer is a turn of its own",
    "S-09": "what a turn spawns is run when it is over",
    "S-10": "the scheduler, and the order of a turn",
    "S-11": "a turn that failed has nothing done after it",
    "S-12": "a session that another process put away meanwhile is taken up again",
    "S-13": "a restored session logs what a fresh one does",
    "B-01": "seven kinds of block",
    "B-02": "saved, runtime and list data of a session",
    "B-03": "raw transcripts are kept whole",
    "B-04": "subagents stand in threads of their own, shown by a block with a status",
    "B-05": "five stream events, each with its conversationId",
    "B-06": "what an adapter offers: paths, transcripts, execution, parsing, streaming",
    "B-07": "a new architecture is one folder, and no condition elsewhere",
    "B-08": "each block is durable as soon as it is complete",
    "B-09": "workspace files in saved session data",
    "B-10": "AgentSession over the stored session; a sandbox that uses the adapter only",
    "A-01": "an app: sessions by name or id, one prompt without, those in memory",
    "A-02": "send, render, queue and spawn as procedures with one handle; from a shell, too",
    "A-03": "status, parent, children, whether it is asked to end, what waits",
    "A-04": "interrupt, clear-abort, close, snapshot, inspect",
    "A-05": "three ways to say what is spawned; side by side",
    "A-06": "a child is apart, ends with its parent, and is at most ten levels down",
    "A-07": "callbacks for each step of a session, which may change, cancel or migrate",
    "A-08": "a runner around the model and its tools, six methods, each at its time",
    "A-09": "a snapshot is saved after each execution; a failure is recorded and blocks nothing",
    "A-10": "a session is restored from a snapshot, or by functions of the program",
    "A-11": "how many sessions are in use, and for how long",
    "A-12": "a limit of the entries that are held and given to a model, never of the log",
    "A-13": "the timeline by limit, tokens and roles, set and updated; a history to read",
    "C-01": "new",
    "C-02": "send",
    "C-03": "suspend",
    "C-04": "resume",
    "C-05": "restore",
    "C-06": "replay",
    "C-07": "parse",
    "C-08": "inspect",
    "C-09": "a JSON Schema for every record and every JSON output",
    "C-10": "adapters can be plugged in",
    "C-11": "one-shot use from scripts",
    "C-12": "output that pipes into jq",
    "C-13": "a prompt to type into",
    "C-15": "SPEC.md",
}


def marked_features(source: str) -> set[str]:
    """Return the ids in `pytest.mark.feature(...)` on tests, their classes and modules."""
    return {
        argument.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.feature"
        for argument in node.args
        if isinstance(argument, ast.Constant)
    }


def marked_tests(path: Path) -> dict[str, set[str]]:
    """Return the tests of a module by name, each with the ids that it is marked with."""
    tree = ast.parse(path.read_text())
    of_module = {
        number
        for one in tree.body
        if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "pytestmark"
        for number in marked_features(ast.unparse(one))
    }
    return {
        one.name: of_module | marked_features("\n".join(map(ast.unparse, one.decorator_list)))
        for one in tree.body
        if isinstance(one, ast.FunctionDef) and one.name.startswith("test_")
    }


PAGE = TESTS.parent / "docs/features.md"
_ROW = re.compile(
    r"^\| (\w-\d\d) \| (.+?) \| (.*?) \| \[(.+?)\]\(\.\./tests/(.+?)\) \|$", re.MULTILINE
)


def test_the_page_of_features_has_each_and_says_what_is_said_here() -> None:
    """In the same order, too."""
    rows = _ROW.findall(PAGE.read_text())
    assert [(number, text) for number, text, *_ in rows] == [*FEATURES.items()]


def test_the_page_of_features_names_a_test_that_is_marked_with_the_feature() -> None:
    """A test that is renamed, moved or no longer marked is noticed."""
    wrong = []
    for number, _, _, name, path in _ROW.findall(PAGE.read_text()):
        test = "test_" + name.replace(" ", "_")
        if number not in marked_tests(TESTS / path).get(test, set()):
            wrong.append(f"{number}: {path}::{test}")
    assert wrong == []


def test_the_page_of_features_names_commands_and_calls_that_are_there() -> None:
    """Each begins with a command, or is a name of the library with an attribute or without."""
    for number, _, calls, *_ in _ROW.findall(PAGE.read_text()):
        for call in re.findall(r"`([^`]+)`", calls):
            if call.startswith("agentsdir "):
                verb, *options = call.split()[1:]
                assert verb in COMMANDS, f"{number}: {call}"
                written = help_of(verb)
                assert [one for one in options if one not in written] == [], f"{number}: {call}"
            else:
                owner, _, attribute = call.partition(".")
                found = getattr(agentsdir, owner)
                assert not attribute or hasattr(found, attribute), f"{number}: {call}"


def help_of(verb: str) -> str:
    """Return what stands in the reference of a command."""
    text = (TESTS.parent / "docs/reference.md").read_text()
    _, _, after = text.partition(f"\n### {verb}\n")
    return after.partition("\n### ")[0]


def test_every_feature_is_named_by_a_test() -> None:
    """No promised feature is without a collected test that is marked with its id."""
    named: set[str] = set()
    for path in TESTS.rglob("test_*.py"):
        named |= marked_features(path.read_text())

    missing = [f"{number}: {text}" for number, text in FEATURES.items() if number not in named]
    assert not missing, "no test carries the mark of\n" + "\n".join(missing)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("@pytest.mark.feature('A-01', 'A-02')\ndef test_x(): ...", {"A-01", "A-02"}),
        ("pytestmark = [pytest.mark.feature('A-03')]", {"A-03"}),
        ("def test_a_01(): ...", set()),
    ],
)
def test_marks_are_found_where_pytest_finds_them(source: str, expected: set[str]) -> None:
    """The search sees marks on functions and modules, and nothing else."""
    assert marked_features(source) == expected
