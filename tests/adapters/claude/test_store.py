"""The client's own store: what is a session there, what a list shows of it, where an id is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from claude_support import SESSION, lines, row

from agentsdir.adapters.claude import ARCHITECTURE
from agentsdir.adapters.contract import NativeSession
from agentsdir.adapters.sides import StoreReader

OTHER = "00000002-0000-4000-8000-000000000002"
END = 64 * 1024
THIRD = "00000003-0000-4000-8000-000000000003"
GIBIBYTE = 1 << 30


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a client's root with one project folder in it."""
    root = tmp_path / ".claude"
    (root / "projects" / "-w").mkdir(parents=True)
    return root


def reader() -> StoreReader:
    """Return the reader under test."""
    assert isinstance(ARCHITECTURE.reader, StoreReader)
    return ARCHITECTURE.reader


def fail(error: OSError) -> None:
    """Take a refusal where none may come."""
    raise error


def listed(root: Path) -> list[NativeSession]:
    """Return what a list shows; nothing may be refused."""
    return list(reader().sessions(root, fail))


def put(root: Path, *rows: dict[str, Any], name: str = SESSION, project: str = "-w") -> Path:
    """Write a session's file."""
    path = root / "projects" / project / f"{name}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(lines(*rows))
    return path


def prompt(text: Any, **more: Any) -> dict[str, Any]:
    """Return a row in which somebody says something."""
    return row("user", "u1", None, message={"role": "user", "content": text}, **more)


def title_of(root: Path) -> str:
    """Return the title of the only session that a list shows."""
    (session,) = listed(root)
    return session.title


def test_a_list_says_what_the_rows_say(store: Path) -> None:
    """The working directory stands in the rows: a folder's name cannot be turned back."""
    path = put(
        store,
        {"type": "mode", "sessionId": SESSION, "mode": "default"},
        prompt("fix the tests\n please", cwd="/w/my_app", gitBranch="main"),
        row("assistant", "u2", "u1", cwd="/w/my_app/sub", gitBranch="topic", message={}),
    )
    os.utime(path, (0, 1_700_000_000))

    assert listed(store) == [
        NativeSession(
            id=SESSION,
            file=path,
            cwd="/w/my_app",
            title="fix the tests please",
            branch="topic",
            created="2026-01-02T03:04:05.678Z",
            modified="2023-11-14T22:13:20.000000Z",
            size=path.stat().st_size,
        )
    ]


TITLES = {
    "mine": ("custom-title", "customTitle"),
    "the model's": ("ai-title", "aiTitle"),
    "a summary": ("summary", "summary"),
}


def title_row(title: str, said: str | None = None) -> dict[str, Any]:
    """Return a row that gives a title of the kind that `title` has in `TITLES`."""
    kind, field = TITLES[title]
    return {"type": kind, field: title if said is None else said, "sessionId": SESSION}


@pytest.mark.parametrize("count", range(1, len(TITLES) + 1))
def test_the_most_telling_title_wins(store: Path, count: int) -> None:
    """A person's own, then the model's, a summary, and at last the first prompt.

    Wherever they stand, and the last of each kind.
    """
    names = list(TITLES)[-count:]
    old = [title_row(name, "old") for name in reversed(names)]
    put(store, *old, prompt("the first"), *map(title_row, names))
    assert title_of(store) == names[0]


def test_a_title_that_was_cleared_is_none(store: Path) -> None:
    """The client clears one by an empty row."""
    put(store, title_row("mine"), prompt("the first"), title_row("mine", ""))
    assert title_of(store) == "the first"


SPOKEN = {
    "a person": (prompt("hello"), "hello"),
    "parts": (prompt([{"type": "text", "text": "hello"}]), "hello"),
    "an editor before": (prompt("<ide_selection>x</ide_selection>hello"), "hello"),
    "a caveat": (prompt("Caveat: x", isMeta=True), "second"),
    "an editor beside": (
        prompt(
            [
                {"type": "text", "text": "<ide_opened_file>x</ide_opened_file>"},
                {"type": "text", "text": "hello"},
            ]
        ),
        "hello",
    ),
    "a tag that may be typed": (prompt("<goal>x</goal>"), "<goal>x</goal>"),
    "a result": (prompt([{"type": "tool_result", "tool_use_id": "t", "content": "x"}]), "second"),
    "a compaction": (prompt("This session is being continued", isCompactSummary=True), "second"),
    "an interruption": (prompt("[Request interrupted by user]"), "second"),
    "a command": (prompt("<command-name>/clear</command-name>"), "second"),
    "a typed tag": (prompt("<tick> is a tag", promptSource="typed"), "<tick> is a tag"),
    "half a pair": (prompt("a\ud800b"), "a?b"),
    "a clearing": (
        prompt("<command-name>/clear</command-name>\n<command-args></command-args>"),
        "second",
    ),
    "a result with text beside it": (
        prompt(
            [
                {"type": "tool_result", "tool_use_id": "t", "content": "of a tool"},
                {"type": "text", "text": "beside"},
            ]
        ),
        "second",
    ),
    "a word of bookkeeping": (
        prompt('say "custom-title" and "summary"'),
        'say "custom-title" and "summary"',
    ),
}


@pytest.mark.parametrize(("first", "title"), SPOKEN.values(), ids=SPOKEN)
def test_the_first_prompt_is_what_a_person_typed(
    store: Path, first: dict[str, Any], title: str
) -> None:
    """Tags of the client's are none, unless the row says that somebody typed them."""
    put(store, first, {**prompt("second"), "uuid": "u3"})
    assert title_of(store) == title


def test_a_command_is_a_title_where_nothing_else_is(store: Path) -> None:
    """As it was typed."""
    put(store, prompt("<command-name>/review</command-name><command-args>all</command-args>"))
    assert title_of(store) == "/review all"


def test_a_session_in_which_only_clear_was_said_is_not_listed(store: Path) -> None:
    """The command begins a conversation, and says nothing of it."""
    put(store, prompt("<command-name>/clear</command-name>"))
    assert listed(store) == []


@pytest.mark.parametrize(
    ("model", "count"), [("claude-x", 1), ("<synthetic>", 0)], ids=["the model", "the client"]
)
@pytest.mark.parametrize("part", ["image", "tool_result"])
def test_a_session_without_words_is_listed_where_the_model_answered(
    store: Path, part: str, model: str, count: int
) -> None:
    """It has no title; what the client answers itself says nothing."""
    answer = row("assistant", "a1", "u1", message={"model": model, "content": "a cat"})
    put(store, prompt([{"type": part}]), answer)
    assert [one.title for one in listed(store)] == [""] * count


def test_the_last_prompt_is_the_title_only_where_no_prompt_is_found(store: Path) -> None:
    """The first one is what a person looks for; the client notes the last one at the end."""
    noted = {"type": "last-prompt", "lastPrompt": "the last", "sessionId": SESSION}
    put(store, prompt("the first"), noted)
    assert title_of(store) == "the first"
    filling = [row("system", f"s{n}", None, content="x" * 1000) for n in range(80)]
    put(store, *filling, prompt("far behind"), noted)
    assert title_of(store) == "far behind"
    put(store, *filling, noted)
    assert title_of(store) == "the last"


def test_the_text_of_a_result_that_is_longer_than_the_head_is_no_title(store: Path) -> None:
    """A row that the head cuts off is read to its end: only then can anybody tell what it is."""
    result = [{"type": "tool_result", "tool_use_id": "t", "content": "of a tool " * 10_000}]
    put(store, prompt(result))
    assert listed(store) == []
    put(store, prompt(result), {**prompt("typed"), "uuid": "u3"})
    assert title_of(store) == "typed"


def test_a_prompt_longer_than_the_head_still_names_its_session(store: Path) -> None:
    """Its beginning is enough, and escapes are decoded."""
    put(store, prompt("Über \\ \U0001f914 " * 20_000))
    title = title_of(store)
    assert title.startswith("Über \\ \U0001f914 Über")
    assert len(title) == 200


HIDDEN = {
    "a subagent's": [prompt("x", isSidechain=True, agentId="a1")],
    "old titles only": [title_row("a summary")],
    "bookkeeping only": [{"type": "mode", "sessionId": SESSION}, title_row("mine")],
    "nothing said": [row("system", "u1", None, subtype="init")],
    "no rows of ours": [{"a": 1}],
}


@pytest.mark.parametrize("rows", HIDDEN.values(), ids=HIDDEN)
def test_what_a_list_need_not_show_is_found_by_its_id_all_the_same(
    store: Path, rows: list[dict[str, Any]]
) -> None:
    """Subagents' files under a session's name, and files in which nobody speaks."""
    path = put(store, *rows)
    assert listed(store) == []
    assert reader().locate(store, SESSION) == [path]


def test_only_files_named_by_an_id_are_sessions(store: Path) -> None:
    """Not subagents, copies, indexes, or what stands deeper."""
    folder = put(store, prompt("x")).parent
    good = (folder / f"{SESSION}.jsonl").read_bytes()
    for name in (
        "agent-a1b2c3d.jsonl",
        "copy.jsonl",
        f"{SESSION}.jsonl.bak",
        "sessions-index.json",
    ):
        (folder / name).write_bytes(good)
    (folder / OTHER).mkdir()
    (folder / OTHER / f"{OTHER}.jsonl").write_bytes(good)
    (folder / f"{OTHER}.jsonl").mkdir()
    os.mkfifo(folder / f"{THIRD}.jsonl")
    refused: list[OSError] = []
    sessions = reader().sessions(store, refused.append)
    assert [session.id for session in sessions] == [SESSION]
    in_place_of_a_file = {folder / f"{OTHER}.jsonl", folder / f"{THIRD}.jsonl"}
    assert {Path(str(error.filename)) for error in refused} == in_place_of_a_file


def test_the_same_id_in_two_projects_is_listed_twice_newest_first(store: Path) -> None:
    """And an empty file says that the session is not here, however new it is."""
    old = put(store, prompt("old"))
    new = put(store, prompt("new"), project="-moved")
    empty = put(store, project="-resumed")
    for age, path in enumerate((empty, new, old)):
        os.utime(path, (0, 1_700_000_000 - age))
    assert [session.title for session in listed(store)] == ["new", "old"]
    assert reader().locate(store, SESSION) == [new, old]


def test_links_are_followed_once(store: Path, tmp_path: Path) -> None:
    """A project's folder may be a link; a link back up, or a second one, shows nothing twice."""
    elsewhere = tmp_path / "elsewhere"
    (store / "projects" / "-w").rename(elsewhere)
    projects = store / "projects"
    (projects / "-w").symlink_to(elsewhere)
    (projects / "-w2").symlink_to(elsewhere)
    (projects / "-up").symlink_to(projects)
    (projects / "-gone").symlink_to(tmp_path / "gone")
    put(store, prompt("x"))
    assert [session.title for session in listed(store)] == ["x"]
    assert len(reader().locate(store, SESSION)) == 1
    assert len(list(reader().transcripts(store, fail))) == 1


@pytest.mark.parametrize("below", ["", "projects", "projects/-w"])
def test_a_root_its_projects_or_one_of_them_can_be_named(store: Path, below: str) -> None:
    """All three are folders in which people keep sessions."""
    put(store, prompt("x"))
    assert [session.id for session in listed(store / below)] == [SESSION]


def test_ids_are_found_whole_or_by_their_beginning(store: Path) -> None:
    """From eight characters on, and nothing that could leave the folder."""
    first, second = put(store, prompt("x")), put(store, prompt("y"), name=OTHER)
    locate = reader().locate
    assert locate(store, "00000001") == [first]
    assert set(locate(store, OTHER[:8])) == {second}
    assert locate(store, SESSION[:7]) == []
    assert locate(store, "../-w/0000") == []
    assert locate(store, "0" * 36) == []


def test_a_huge_file_is_listed_from_its_two_ends(store: Path) -> None:
    """A terabyte costs 128 KiB of reading, by the system's own count."""
    path = put(store, prompt("the first", cwd="/w"))
    tail = lines({"type": "x"}, {"type": "ai-title", "aiTitle": "huge", "sessionId": SESSION})
    with path.open("r+b") as file:
        file.seek(1024 * GIBIBYTE)
        file.write(b"\n" + tail)

    before = read_so_far()
    (session,) = listed(store)
    spent = read_so_far() - before

    assert (session.title, session.cwd) == ("huge", "/w")
    assert session.size > 1024 * GIBIBYTE
    assert spent < 2 * END + 4096


def read_so_far() -> int:
    """Return how many bytes this process has read, or skip where the system does not count."""
    counts = Path("/proc/self/io")
    if not counts.exists():
        pytest.skip("the system does not count what a process reads")
    return int(counts.read_text().split("rchar:")[1].split()[0])


def test_what_the_system_refuses_is_named_and_stops_no_other(store: Path) -> None:
    """A link that leads in a circle, for one, which even root cannot read."""
    put(store, prompt("x"))
    loop = store / "projects" / "-w" / f"{OTHER}.jsonl"
    loop.symlink_to(loop)
    refused: list[OSError] = []
    assert [one.title for one in reader().sessions(store, refused.append)] == ["x"]
    assert [error.filename for error in refused] == [str(loop)]


def test_a_session_comes_with_its_children_in_every_layout(store: Path) -> None:
    """In its side folder however deep, and flat beside it where the rows say whose they are."""
    main = put(store, prompt("x"))
    child = prompt("y", isSidechain=True, agentId="a1")
    places = [
        f"{SESSION}/subagents/agent-a1.jsonl",
        f"{SESSION}/subagents/workflows/r1/agent-a2.jsonl",
        "agent-a3.jsonl",
    ]
    strangers = [f"{OTHER}/subagents/agent-a4.jsonl", "agent-a5.jsonl"]
    for place in (*places, *strangers):
        path = main.parent / place
        path.parent.mkdir(parents=True, exist_ok=True)
        session = OTHER if place in strangers else SESSION
        path.write_bytes(lines({**child, "sessionId": session, "agentId": path.stem[6:]}))
    (main.parent / SESSION / "subagents" / "workflows" / "r1" / "journal.jsonl").write_text("{}\n")
    (main.parent / SESSION / "subagents" / "agent-a1.meta.json").write_text("{}")

    session = reader().files(main)

    found = [
        str(one.source.path.relative_to(main.parent))
        for one in session.transcripts
        if one.source.path
    ]
    assert found == [main.name, *places]
    assert [one.role for one in session.transcripts] == ["main", *["subagent"] * 3]
    assert session.transcripts[1].sidecar is not None


def test_a_folder_with_settings_beside_its_projects_is_a_store(store: Path, tmp_path: Path) -> None:
    """In any place: `CLAUDE_CONFIG_DIR` may name it."""
    assert reader().is_storage(store)
    other = tmp_path / "config"
    (other / "projects").mkdir(parents=True)
    assert not reader().is_storage(other)
    (other / ".claude.json").write_text("{}")
    assert reader().is_storage(other)
