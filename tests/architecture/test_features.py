"""Every feature that this version promises is named by a test that proves it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

# The features of this version: their ids, and what they say in one line.
FEATURES = {
    "T-01": "four kinds of agent, in the first log record, never derived again",
    "T-06": "restoring pending work: a person is told once, a parent is told, a schedule is not",
    "G-01": "descriptor.json and state.json exist from creation on",
    "G-02": "history.jsonl holds start and reset markers, and user, assistant and tool records",
    "G-03": "context is what follows the last marker",
    "G-04": "restoring on load: what was pending is shown, and nothing is sent again",
    "G-05": "a subagent gets a new id, never used again",
    "S-01": "the session record, its four states, and SessionStateError",
    "S-02": "session.json is replaced atomically",
    "S-03": "the provider's blob is a short cut, and every session resumes without it",
    "S-04": "events.jsonl is the truth: the whole conversation is rebuilt from it",
    "S-05": "everything on disk is plain JSON",
    "S-06": "at boot an active session that nobody holds becomes suspended",
    "B-01": "seven kinds of block",
    "B-02": "saved, runtime and list data of a session",
    "B-05": "five stream events, each with its conversationId",
    "B-06": "what an adapter offers: paths, transcripts, execution, parsing, streaming",
    "B-07": "a new architecture is one folder, and no condition elsewhere",
    "B-08": "each block is durable as soon as it is complete",
    "B-09": "workspace files in saved session data",
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
