"""`list`: its options, its table on terminals of several widths, and what it does to a terminal."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agentsdir.cli.agent_table import age, branches, cost, folder_text, tokens
from agentsdir.cli.environment import Environment
from agentsdir.formats.times import to_text
from agentsdir.schemas import check

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a clock of all commands, which `tick` puts forward."""

    class Clock:
        moment = NOW - timedelta(days=3)
        made = 0

        def now(self) -> str:
            return to_text(self.moment)

        def tick(self, **by: float) -> None:
            self.moment += timedelta(**by)

        def agent(self) -> str:
            self.made += 1
            return f"{'abcdefghij'[self.made % 10]}{self.made:07}{'x' * 16}"

        def session(self) -> str:
            return f"{self.made:032x}"

    clock = Clock()
    monkeypatch.setattr(Environment, "overrides", {"now": clock.now, "ids": clock})
    return clock


@pytest.fixture
def crowd(shell: Any, clock: Any) -> Any:
    """Return a command line with agents of several states, folders and names."""
    shell.ok("new", "--name", "planner")
    shell.ok("send", "planner", "Plan the release, and write down what is left to do")
    clock.tick(days=1)
    (shell.cwd / "deep" / "er").mkdir(parents=True)
    project = str(shell.cwd / "deep" / "er")
    shell.ok("new", "--name", "资料整理", "--cwd", project)
    shell.ok("tag", "资料整理", "+docs")
    shell.ok("send", "资料整理", "把所有资料整理成一份清单然后写一个摘要")
    clock.tick(hours=30)
    shell.ok("spawn", "read the notes", "--parent", "planner", "--name", "reader", "--no-stdin")
    clock.tick(hours=10)
    shell.ok("close", "reader")
    shell.ok("suspend", "资料整理")
    shell.ok("new", "--name", "evil", "--cwd", str(shell.cwd))
    shell.ok("send", "evil", "\x1b]0;owned\x07 \u202etitle\n* with\ttabs")
    clock.tick(minutes=3)
    shell.ok("new")
    clock.tick(seconds=12)
    return shell


def table(shell: Any, width: int, *options: str) -> str:
    """Return the table on a terminal of some columns, with the folder of the test left out."""
    shell.variables["COLUMNS"] = str(width)
    home = shell.home.parent
    shell.home = home
    shown: str = shell("list", *options, tty=True).out
    assert max(map(len, shown.splitlines())) <= width
    return shown


@pytest.mark.feature("C-12")
@pytest.mark.parametrize("width", [120, 80, 20])
def test_the_table_fits_the_terminal(crowd: Any, width: int, snapshot: Any) -> None:
    """A narrow one has fewer columns; nothing that a transcript says acts on it."""
    shown = table(crowd, width)
    assert not set(shown) & set("\x1b\x07\u202e\t")
    assert shown == snapshot


def test_a_tree_has_closed_subagents_below_their_parents(crowd: Any, snapshot: Any) -> None:
    """In a pipe the rows come in the same order."""
    assert table(crowd, 80, "--tree") == snapshot
    rows = crowd.ok("list", "--tree").rows
    assert [row["name"] for row in rows] == [None, "evil", "资料整理", "planner", "reader"]
    assert rows[-1]["descriptor"]["parentAgentId"] == rows[-2]["agentId"]


def test_a_terminal_without_a_size_or_with_a_lie_has_80_columns(crowd: Any) -> None:
    """It may say 0, or nothing that is a number."""
    wide = table(crowd, 80)
    for said in ("0", "-3", "many"):
        crowd.variables["COLUMNS"] = said
        assert crowd("list", tty=True).out == wide


def test_a_pipe_gets_the_newest_row_first(crowd: Any) -> None:
    """With the folder; closed agents are left out, as on a terminal."""
    rows = crowd.ok("list").rows
    assert [row["name"] for row in rows] == [None, "evil", "资料整理", "planner"]
    assert [check("session-list", row) for row in rows] == [[]] * 4
    assert rows[2]["cwd"] == str(crowd.cwd / "deep" / "er")
    assert rows[0]["question"] is None


def test_closed_agents_are_named_on_a_terminal_and_shown_when_asked_for(crowd: Any) -> None:
    """By `--all` and by `--state terminated`."""
    done = crowd("list", tty=True)
    assert (done.code, done.err) == (
        0, "agentsdir: 1 closed agent left out (--all shows them)\n",
    )  # fmt: skip
    assert len(crowd.ok("list", "--all").rows) == 5
    assert [row["name"] for row in crowd.ok("list", "--state", "terminated").rows] == ["reader"]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (("--here",), [None, "evil", "planner"]),
        (("--state", "suspended"), ["资料整理"]),
        (("--state", "created", "--state", "suspended"), [None, "资料整理"]),
        (("--tag", "docs"), ["资料整理"]),
        (("--tag", "docs", "--tag", "code"), []),
        (("--provider", "claude"), []),
        (("--provider", "claude", "--provider", "echo", "--here"), [None, "evil", "planner"]),
        (("--since", "5m"), [None, "evil"]),
        (("--since", "1d"), [None, "evil"]),
        (("--since", "1w"), [None, "evil", "资料整理", "planner"]),
        (("--since", "2026-11-28T12:00:00Z"), [None, "evil"]),
        (("--since", "2026-11-27"), [None, "evil", "资料整理"]),
    ],
)
def test_options_choose_agents(crowd: Any, options: tuple[str, ...], names: list[Any]) -> None:
    """All that is given must fit."""
    assert [row["name"] for row in crowd.ok("list", *options).rows] == names


def test_here_is_the_real_folder(crowd: Any) -> None:
    """A link to it is the same."""
    link = crowd.home / "link"
    link.symlink_to(crowd.cwd / "deep" / "er")
    crowd.cwd = link
    assert [row["name"] for row in crowd.ok("list", "--here").rows] == ["资料整理"]


@pytest.mark.parametrize(
    "options",
    [
        ("--state", "asleep"), ("--since", "soon"), ("--since", "5"), ("--since", "999999w"),
        ("--since", "2026-13-01"), ("--color", "red"),
    ],
)  # fmt: skip
def test_a_value_that_means_nothing_is_refused(shell: Any, options: tuple[str, ...]) -> None:
    """Exit 2, and one line says what could be meant."""
    done = shell("list", *options)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)


def test_nothing_to_show_is_said_on_a_terminal(shell: Any) -> None:
    """On stderr, without a table."""
    done = shell("list", tty=True)
    assert (done.code, done.out, done.err) == (0, "", "agentsdir: there are no agents\n")
    shell.new()
    assert shell("list", "--tag", "x", tty=True).err == "agentsdir: there is no such agent\n"


def test_colours_are_ours_alone(crowd: Any) -> None:
    """What foreign text says in escape sequences is shown as text."""
    shown = crowd.ok("list", "--all", "--color", "always", tty=True).out
    assert "\x1b[1mevil\x1b[m" in shown
    assert not set(re.sub(r"\x1b\[[0-9;]*m", "", shown)) & set("\x1b\x07\u202e")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-3600, "2026-11-29"), (-30, "now"), (0, "now"), (4, "now"), (5, "5 s ago"),
        (59, "59 s ago"), (60, "1 min ago"), (3599, "59 min ago"), (3600, "1 h ago"),
        (86_399, "23 h ago"), (86_400, "1 d ago"), (30 * 86_400, "30 d ago"),
        (31 * 86_400, "2026-10-29"),
    ],
)  # fmt: skip
def test_an_age_is_put_in_words(seconds: int, said: str) -> None:
    """After a month, and for a time to come, as a day."""
    assert age(to_text(NOW - timedelta(seconds=seconds)), NOW) == said
    assert age("", NOW) == ""


def test_numbers_are_short() -> None:
    """Tokens in thousands and millions, cost in dollars and cents."""
    counts = (0, 7, 999, 1000, 99_949, 99_950, 999_499, 999_500, 12_345_678, 2**53)
    assert [*map(tokens, counts)] == [
        "", "7", "999", "1.0k", "99.9k", "100k", "999k", "1.0M", "12.3M", "9.0P",
    ]  # fmt: skip
    assert [*map(cost, (None, 0, 0.004, 0.125, 12))] == ["", "$0.00", "<$0.01", "$0.12", "$12.00"]
    assert [folder_text(path, "/home/me") for path in ("/home/me", "/home/me/x", "/home/men")] == [
        "~", "~/x", "/home/men",
    ]  # fmt: skip
    assert branches((True, False, True)) == "│     ├─ "
