"""Native sessions: listing a client's own store, and parsing out of it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from agentsdir.schemas import check

FIXTURES = Path(__file__).parents[2] / "fixtures" / "claude"
ONE = "00000001-0000-4000-8000-000000000001"
TWO = "0000000a-0000-4000-8000-000000000002"
SECRETS = (
    ".credentials.json",
    ".claude.json",
    "settings.json",
    "history.jsonl",
    "backups/a.json",
    "file-history/x/0123456789abcdef.jsonl",
    "plugins/store/x.json",
    "sessions/1.json",
    "todos/x.json",
)


@pytest.fixture
def store(shell: Any) -> Path:
    """Return a root as a client leaves it: two sessions, and much that no command may read."""
    root: Path = shell.home / ".claude"
    project = root / "projects" / "-w"
    project.mkdir(parents=True)
    for age, (name, fixture) in enumerate(((ONE, "hello"), (TWO, "tools"))):
        path = project / f"{name}.jsonl"
        shutil.copy(FIXTURES / f"{fixture}-2.1.98.jsonl", path)
        os.utime(path, (0, 1_700_000_000 + age))
    for name in SECRETS:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        # Whatever is opened is recognised by its content, and would show.
        shutil.copy(FIXTURES / "hello-2.1.98.jsonl", root / name)
    return root


def test_a_pipe_gets_json_lines_and_a_terminal_a_table(shell: Any, store: Path) -> None:
    """The session written last comes first."""
    rows = shell.ok("list", "--native").rows
    assert [row["id"] for row in rows] == [TWO, ONE]
    assert all(check("native-session", row) == [] for row in rows)
    assert [row["file"] for row in rows] == [
        str(store / "projects" / "-w" / f"{name}.jsonl") for name in (TWO, ONE)
    ]
    table = shell.ok("list", "--native", tty=True).out.splitlines()
    assert table[0].split() == ["session", "age", "provider", "branch", "folder", "title"]
    assert [line.split()[0] for line in table[1:]] == [TWO[:8], ONE[:8]]
    assert shell.ok("list", "--native", "--json", tty=True).rows == rows


def test_the_store_is_where_the_client_has_it(shell: Any, store: Path) -> None:
    """`CLAUDE_CONFIG_DIR` moves it, and a DIR names another; none at all is an empty list."""
    moved = store.rename(shell.home / "config")
    assert shell.ok("list", "--native").out == ""
    assert len(shell.ok("list", "--native", str(moved)).rows) == 2
    shell.variables["CLAUDE_CONFIG_DIR"] = str(moved)
    assert len(shell.ok("list", "--native").rows) == 2
    assert shell.ok("parse", TWO[:8]).rows


def test_a_folder_belongs_to_native(shell: Any, store: Path) -> None:
    """It could not mean anything else, and must be there."""
    for arguments in (["list", str(store)], ["list", "--native", "nowhere"]):
        done = shell(*arguments)
        assert (done.code, done.err.count("\n")) == (2, 1)


def test_a_list_says_whose_a_session_is_and_that_a_client_has_it_open(
    shell: Any, store: Path
) -> None:
    """Of an agent by its name, or by its id; open only while that client runs."""
    named = shell.ok("new", "--from", ONE, "--name", "mine").out.strip()
    rows = {row["id"]: row for row in shell.ok("list", "--native").rows}
    assert [rows[one]["agentId"] for one in (ONE, TWO)] == [named, None]
    assert [rows[one]["process"] for one in (ONE, TWO)] == [None, None]
    (store / "sessions" / "2.json").write_text(json.dumps({"sessionId": TWO, "pid": os.getpid()}))
    (store / "sessions" / "3.json").write_text(json.dumps({"sessionId": ONE, "pid": 2**22 + 1}))

    rows = {row["id"]: row for row in shell.ok("list", "--native").rows}
    assert rows[TWO]["process"]["pid"] == os.getpid()
    assert rows[ONE]["process"] is None
    assert all(check("native-session", row) == [] for row in rows.values())
    shell.variables["COLUMNS"] = "100"
    table = shell.ok("list", "--native", tty=True).out.splitlines()
    assert table[0].split()[:3] == ["session", "agent", "state"]
    assert [line.split()[:2] for line in table[1:]] == [[TWO[:8], "open"], [ONE[:8], "mine"]]

    shell.ok("archive", "mine")
    assert {row["agentId"] for row in shell.ok("list", "--native").rows} == {None}


def test_the_session_of_an_agent_is_of_the_agents_folder(shell: Any, store: Path) -> None:
    """Its first rows name the folder in which it began, and which may be gone."""
    shell.ok("new", "--from", ONE, "--name", "mine")
    moved = shell.home / "moved"
    moved.mkdir()
    shell.ok("set", "mine", f"cwd={moved}")
    cwds = {row["id"]: row["cwd"] for row in shell.ok("list", "--native").rows}
    assert cwds == {ONE: str(moved), TWO: "/w"}
    shell.cwd = moved
    assert [row["id"] for row in shell.ok("list", "--native", "--here").rows] == [ONE]


def test_native_sessions_are_chosen_by_folder_client_and_time(shell: Any, store: Path) -> None:
    """What only agents have cannot be asked for."""
    project = store / "projects" / "-w" / f"{ONE}.jsonl"
    data = project.read_text().replace('"cwd":"/w"', f'"cwd":{json.dumps(str(shell.cwd))}')
    project.write_text(data)
    os.utime(project, (0, 1_700_000_000))

    def ids(*options: str) -> list[str]:
        return [row["id"] for row in shell.ok("list", "--native", *options).rows]

    assert ids("--here") == [ONE]
    assert ids("--provider", "claude") == [TWO, ONE]
    assert ids("--provider", "gemini") == []
    assert ids("--since", "2023-11-14T22:13:21Z") == [TWO]
    assert ids("--since", "1h") == []
    for options in (("--all",), ("--tag", "x"), ("--state", "active"), ("--tree",)):
        assert shell("list", "--native", *options).code == 2


def test_a_root_that_cannot_be_read_hides_no_native_session(shell: Any, store: Path) -> None:
    """It owns none then."""
    shell.new()
    (shell.root / "agentsdir.json").write_text('{"format": "agentsdir", "version": 99}')
    assert [row["agentId"] for row in shell.ok("list", "--native").rows] == [None, None]


def test_titles_are_inert_on_a_terminal(shell: Any, store: Path) -> None:
    """A transcript holds what any program printed."""
    path = store / "projects" / "-w" / f"{ONE}.jsonl"
    title = {"type": "custom-title", "customTitle": "\x1b]0;owned\x07\u202ex", "sessionId": ONE}
    path.write_text(path.read_text() + json.dumps(title) + "\n")
    shown = shell.ok("list", "--native", tty=True).out
    assert "\\x1b]0;owned\\x07\\u202ex" in shown
    assert not set(shown) & set("\x1b\x07\u202e")


def test_a_title_that_is_a_message_of_an_agent_has_no_tag(shell: Any, store: Path) -> None:
    """JSON keeps it as the client has it."""
    title = '<system_message origin="fox">Red.</system_message>'
    row = {"type": "custom-title", "customTitle": title, "sessionId": ONE}
    with (store / "projects" / "-w" / f"{ONE}.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    assert "from an agent: Red.\n" in shell.ok("list", "--native", tty=True).out
    assert title in [row["title"] for row in shell.ok("list", "--native").rows]


def test_a_file_that_cannot_be_read_is_named_and_exits_3(shell: Any, store: Path) -> None:
    """The others are listed."""
    loop = store / "projects" / "-w" / "00000003-0000-4000-8000-000000000003.jsonl"
    loop.symlink_to(loop)
    done = shell("list", "--native")
    assert (done.code, len(done.rows), done.err.count("\n")) == (3, 2, 1)
    assert str(loop) in done.err


def test_a_session_is_parsed_by_its_id_with_its_subagents(shell: Any, store: Path) -> None:
    """Or by the beginning of its id, where no other begins so; a FILE stays alone."""
    main = store / "projects" / "-w" / f"{TWO}.jsonl"
    side = main.with_suffix("") / "subagents"
    side.mkdir(parents=True)
    child = {
        "parentUuid": None, "isSidechain": True, "agentId": "a1", "type": "user",
        "sessionId": TWO, "uuid": "00000009-0000-4000-8000-000000000009",
        "message": {"role": "user", "content": "look"}, "timestamp": "2026-01-02T03:04:05.678Z",
    }  # fmt: skip
    (side / "agent-a1.jsonl").write_text(json.dumps(child) + "\n")

    whole = shell.ok("parse", TWO).rows

    assert {row["conversationId"] for row in whole} == {"main", "a1"}
    assert shell.ok("parse", TWO[:8]).rows == whole
    alone = shell.ok("parse", str(main)).rows
    assert [row["id"] for row in whole if row["conversationId"] == "main"] == [
        row["id"] for row in alone
    ]


def test_an_id_that_nothing_has_or_several_begin_with_is_refused(shell: Any, store: Path) -> None:
    """With what to do next."""
    missing = shell("parse", "deadbeef", "--json")
    assert (missing.code, missing.error["kind"]) == (10, "no-such-session")
    twin = "00000001-0000-4000-8000-00000000000f"
    shutil.copy(
        store / "projects" / "-w" / f"{ONE}.jsonl", store / "projects" / "-w" / f"{twin}.jsonl"
    )
    done = shell("parse", ONE[:8], "--json")
    assert (done.code, done.error["kind"]) == (2, "ambiguous")
    assert ONE in done.error["message"]
    assert twin in done.error["message"]
    assert shell("parse", "0000000").code == 2


def test_of_a_whole_store_only_transcripts_are_opened(shell: Any, store: Path) -> None:
    """Wherever a walk meets it: not settings, not prompts, not secrets."""
    for folder in (store, shell.home):
        done = shell.ok("parse", "--report", "report.json", str(folder))
        assert {row["sessionId"] for row in done.rows}
        assert len(done.rows) == len(shell.ok("parse", ONE).rows) + len(shell.ok("parse", TWO).rows)
        assert json.loads((shell.cwd / "report.json").read_text())["findings"] == []


def test_hidden_files_are_not_opened_by_a_walk(shell: Any) -> None:
    """Where a client keeps secrets beside no projects at all."""
    shutil.copy(FIXTURES / "hello-2.1.98.jsonl", shell.cwd / "a.jsonl")
    shutil.copy(FIXTURES / "hello-2.1.98.jsonl", shell.cwd / ".claude.json")
    assert shell.ok("parse", ".").rows == shell.ok("parse", "a.jsonl").rows


def test_an_agent_names_its_session_to_parse_and_to_new(shell: Any, store: Path) -> None:
    """By its name or id, in the client's store, and in the agents directory without it."""
    agent = shell.new("--from", ONE, "--name", "bob", "--cwd", str(shell.cwd))
    whole = shell.ok("parse", ONE).rows
    assert shell.ok("parse", "bob").rows == shell.ok("parse", agent).rows == whole
    assert shell.ok("new", "--from", "bob", "--get").out.strip() == agent
    (store / "projects" / "-w" / f"{ONE}.jsonl").unlink()
    kept = [{**row, "source": None} for row in shell.ok("parse", "bob").rows]
    assert kept == [{**row, "source": None} for row in whole]
    unknown = shell("parse", "missing")
    assert (unknown.code, "missing" in unknown.err) == (2, True)
    silent = shell.new("--provider", "echo", "--name", "parrot")
    assert f"agentsdir replay {silent}" in shell("parse", "parrot").err


def test_a_session_that_an_agent_has_is_found_with_get_and_refused_without(
    shell: Any, store: Path
) -> None:
    """The refusal names the agent, in words and in JSON."""
    asked = ("new", "--from", ONE, "--cwd", str(shell.cwd), "--get")
    agent = shell.ok(*asked).out.strip()
    assert shell.ok(*asked).out.strip() == agent
    again = shell("new", "--from", ONE, "--cwd", str(shell.cwd), "--json")
    error = json.loads(again.err.splitlines()[-1])
    assert (again.code, error["kind"]) == (1, "already-exists")
    assert agent in error["message"]
    del store


def test_a_transcript_outside_the_clients_store_chooses_no_folder(shell: Any, store: Path) -> None:
    """A stranger wrote it: the agent works where the command runs, or in --cwd, which is said."""
    file = shell.cwd / f"{ONE}.jsonl"
    (store / "projects" / "-w" / f"{ONE}.jsonl").rename(file)

    made = shell("new", "--from", file.name)
    agent = made.out.strip()

    assert (made.code, made.err.count("\n")) == (0, 1)
    assert f"works in {shell.cwd}, not in /w as its transcript says" in made.err
    shown = shell.ok("inspect", agent).json
    assert shown["cwd"] == str(shell.cwd)
    shell.ok("rm", "--yes", agent)
    (shell.cwd / "other").mkdir()
    agent = shell.ok("new", "--from", str(file), "--cwd", "other").out.strip()
    assert shell.ok("inspect", agent).json["cwd"] == str(shell.cwd / "other")


def test_a_link_to_a_strangers_transcript_does_not_make_it_the_clients(
    shell: Any, store: Path
) -> None:
    """Where the file stands decides, not the path by which it is named; and the other way round."""
    inside = store / "projects" / "-w" / f"{TWO}.jsonl"
    (shell.cwd / "mine.jsonl").symlink_to(inside)
    agent = shell.ok("new", "--from", "mine.jsonl").out.strip()
    assert shell.ok("inspect", agent).json["cwd"] == "/w"

    shell.ok("rm", "--yes", agent)
    outside = shell.cwd / "theirs.jsonl"
    linked = store / "projects" / "-w" / f"{ONE}.jsonl"
    linked.rename(outside)
    linked.symlink_to(outside)
    made = shell("new", "--from", str(linked))
    assert shell.ok("inspect", made.out.strip()).json["cwd"] == str(shell.cwd)
