"""Sessions of Gemini CLI in whole commands: listed, parsed, followed, adopted, exported."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest

FIXTURES = Path(__file__).parents[2] / "fixtures"
ID = "961e4eb2-3b1e-4420-add5-8cc2a425fc9e"
CHILD = "68eeb1f4-88a2-431d-9923-e0d54e85e137"
MAIN = f"session-2026-11-27T21-31-{ID[:8]}.jsonl"
STUB = f"session-2026-11-27T21-40-{ID[:8]}.jsonl"
CLAUDES = "00000001-0000-4000-8000-000000000001"
SECRETS = (
    "oauth_creds.json",
    "google_accounts.json",
    "settings.json",
    "projects.json",
    "tmp/w/shell_history",
    "tmp/w/logs/session-x.jsonl",
    "history/w/x.json",
)


@pytest.fixture
def store(shell: Any) -> Path:
    """Return a root as a client leaves it: a session with a subagent, its stub, and secrets."""
    root: Path = shell.home / ".gemini"
    chats = root / "tmp" / "w" / "chats"
    shutil.copytree(FIXTURES / "gemini" / "subagent-0.61" / "chats", chats)
    (root / "tmp" / "w" / ".project_root").write_text("/srv/w")
    header = (chats / MAIN).read_bytes().partition(b"\n")[0]
    (chats / STUB).write_bytes(header + b"\n")
    outputs = root / "tmp" / "w" / "tool-outputs" / f"session-{ID}"
    outputs.mkdir(parents=True)
    (outputs / "ls__1.txt").write_text("long")
    for name in SECRETS:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        # Whatever is opened is recognised by its content, and would show.
        shutil.copy(FIXTURES / "gemini" / "era-0.61-tools.jsonl", root / name)
    os.utime(chats / MAIN, (0, 1_700_000_000))
    return root


def last_of_each(rows: list[Any]) -> list[Any]:
    """Return what stands when the last line of an id stands, in the order of the first.

    Without tokens: for these alone no line is printed again.
    """
    return list({row["id"]: {**row, "usage": None} for row in rows}.values())


def test_a_list_has_the_sessions_of_all_clients(shell: Any, store: Path) -> None:
    """The one written last comes first, whosever it is; a stub is none."""
    path = shell.home / ".claude" / "projects" / "-w" / f"{CLAUDES}.jsonl"
    path.parent.mkdir(parents=True)
    shutil.copy(FIXTURES / "claude" / "hello-2.1.98.jsonl", path)
    for age in (-1, 1):
        os.utime(path, (0, 1_700_000_000 + age))
        rows = shell.ok("list", "--native").rows
        found = [(row["adapter"], row["id"]) for row in rows]
        assert sorted(found) == [("claude", CLAUDES), ("gemini", ID)]
        assert found[0][0] == ("claude" if age > 0 else "gemini")
    (row,) = [row for row in rows if row["adapter"] == "gemini"]
    assert row == {
        "type": "native-session",
        "adapter": "gemini",
        "id": ID,
        "file": str(store / "tmp" / "w" / "chats" / MAIN),
        "cwd": "/srv/w",
        "title": "Do it [[plan:inv_custom]]",
        "branch": "",
        "createdAt": row["createdAt"],
        "modifiedAt": "2023-11-14T22:13:20.000000Z",
        "size": (store / "tmp" / "w" / "chats" / MAIN).stat().st_size,
        "agentId": None,
        "process": None,
    }
    assert shell("validate", "-", stdin=shell.ok("list", "--native").out.encode()).code == 0
    table = shell.ok("list", "--native", tty=True).out.splitlines()
    assert [line.split()[0] for line in table] == ["session", CLAUDES[:8], ID[:8]]
    assert ["claude" in table[1], "gemini" in table[2]] == [True, True]


def test_of_a_whole_store_only_transcripts_are_opened(shell: Any, store: Path) -> None:
    """Wherever a walk meets it: not settings, not prompts, not secrets."""
    for folder in (store, shell.home):
        done = shell.ok("parse", "--report", "report.json", str(folder))
        assert {row["sessionId"] for row in done.rows} == {ID, CHILD}


@pytest.mark.parametrize("name", [ID, ID[:8]])
def test_a_session_is_parsed_and_followed_by_its_id(shell: Any, store: Path, name: str) -> None:
    """With its subagent; the stub beside it is newer, and is not taken for it."""
    rows = shell.ok("parse", name).rows
    assert {row["conversationId"] for row in rows} == {"main", CHILD}
    followed = shell.ok("follow", name, "--until-idle", "0").rows
    by_id = {row["id"]: row for row in last_of_each(followed)}
    assert by_id == {row["id"]: row for row in last_of_each(rows)}
    del store


def test_ids_that_begin_alike_are_distinguished_by_what_the_files_say(
    shell: Any, store: Path
) -> None:
    """And two files of one session are no two sessions."""
    twin = f"{ID[:-1]}f"
    chats = store / "tmp" / "w" / "chats"
    data = (chats / MAIN).read_bytes().replace(ID.encode(), twin.encode())
    (chats / f"session-2026-11-27T21-45-{ID[:8]}.jsonl").write_bytes(data)
    done = shell("parse", ID[:8], "--json")
    assert (done.code, done.error["kind"]) == (2, "ambiguous")
    assert ID in done.error["message"]
    assert twin in done.error["message"]
    assert {row["sessionId"] for row in shell.ok("parse", twin).rows} == {twin}


@pytest.mark.parametrize("way", ["id", "prefix", "file", "folder", "project"])
def test_a_session_becomes_an_agent(shell: Any, store: Path, way: str) -> None:
    """Byte for byte, with its history, its subagents, its outputs and its stub."""
    chats = store / "tmp" / "w" / "chats"
    origin = {
        "id": ID,
        "prefix": ID[:8],
        "file": str(chats / MAIN),
        "folder": str(chats),
        "project": str(store),
    }[way]
    # A saved chat is no session that could be gone on with, and stands in no session's way.
    saved = [{"role": "user", "parts": [{"text": "hi"}]}]
    (chats.parent / "checkpoint-x.json").write_bytes(orjson.dumps({"history": saved}))
    agent = shell.ok("new", "--from", origin).out.strip()

    shown = shell.ok("inspect", agent).json
    assert (shown["native"]["id"], shown["sessionId"]) == (ID, ID.replace("-", ""))
    assert (shown["provider"], shown["cwd"]) == ("gemini", "/srv/w")
    parsed = shell.ok("parse", "--view", "all", ID).rows
    lines = (shell.folder(agent) / "events.jsonl").read_bytes().splitlines()
    blocks = [record["data"] for record in map(orjson.loads, lines) if record["event"] == "block"]
    assert {block["turn_id"] for block in blocks} == {None}
    assert [block["block"]["id"] for block in blocks] == [block["id"] for block in parsed]
    done = shell("validate", str(shell.root))
    assert (done.code, done.out) == (0, "")

    shell.ok("export", agent, "out")
    out = shell.cwd / "out"
    taken = {
        p.relative_to(out / "tmp" / "w"): p.read_bytes() for p in out.rglob("*") if p.is_file()
    }
    expected = (
        f"chats/{MAIN}",
        f"chats/{STUB}",
        f"chats/{ID}/{CHILD}.jsonl",
        f"tool-outputs/session-{ID}/ls__1.txt",
    )
    assert taken == {Path(n): (store / "tmp" / "w" / n).read_bytes() for n in expected}


def test_an_id_of_the_users_own_is_no_session_id_of_ours(shell: Any, store: Path) -> None:
    """The agent's session gets one, and the client's keeps its own."""
    chats = store / "tmp" / "w" / "chats"
    data = (chats / MAIN).read_bytes().replace(ID.encode(), b"my-own_id")
    (chats / "session-2026-11-27T21-50-my-own_i.jsonl").write_bytes(data)
    agent = shell.ok("new", "--from", "my-own_id").out.strip()
    shown = shell.ok("inspect", agent).json
    assert shown["native"]["id"] == "my-own_id"
    assert len(shown["sessionId"]) == 32
    assert shell("validate", str(shell.root)).code == 0


def test_a_session_that_is_resumed_stands_where_its_client_looks(shell: Any, store: Path) -> None:
    """In the folder of its new working directory, to the byte, but for the stub."""
    agent = shell.ok("new", "--from", ID).out.strip()
    shell.ok("export", "--bundle", agent, "bundle")
    other = type(shell)(shell.home / "there", shell.cwd, shell.root.with_name("other"))
    work = shell.cwd / "New work"
    for folder in (other.home, work):
        folder.mkdir()
    other.ok("import", "bundle", "--cwd", str(work))

    other.ok("resume", agent)

    top = other.home / ".gemini" / "tmp" / "new-work"
    old = store / "tmp" / "w"
    names = f"chats/{MAIN}", f"chats/{ID}/{CHILD}.jsonl", f"tool-outputs/session-{ID}/ls__1.txt"
    found = {path.relative_to(top): path.read_bytes() for path in top.rglob("*") if path.is_file()}
    assert found.pop(Path(".project_root")) == str(work).encode()
    assert found == {Path(name): (old / name).read_bytes() for name in names}
    assert [row["cwd"] for row in other.ok("list", "--native").rows] == [str(work)]
    assert {p.name for p in (other.home / ".gemini").iterdir()} == {"tmp"}
    # What goes on there is the session; what has changed there is never overwritten.
    (top / "chats" / MAIN).write_bytes(b"{}\n")
    other.ok("suspend", agent)
    done = other("resume", agent, "--json")
    assert (done.code, done.error["kind"]) == (12, "transcript-differs")
    assert (top / "chats" / MAIN).read_bytes() == b"{}\n"


def sound_copy(shell: Any, agent: str) -> str:
    """Hold a copy of the session to it that it is one of its own; return its native id."""
    shown = shell.ok("inspect", agent).json
    native = str(shown["native"]["id"])
    assert native != ID
    top = shell.folder(agent) / "transcripts" / "tmp" / "w"
    taken = {path.relative_to(top).as_posix() for path in top.rglob("*") if path.is_file()}
    assert taken == {
        f"chats/session-2026-11-27T21-31-{native[:8]}.jsonl",
        f"chats/{native}/{CHILD}.jsonl",
        f"tool-outputs/session-{native}/ls__1.txt",
    }
    parsed = shell.ok("parse", str(top / "chats")).rows
    assert {row["sessionId"] for row in parsed} == {native, CHILD}
    done = shell("validate", str(shell.root))
    assert (done.code, done.out) == (0, "")
    return native


def test_a_fork_is_another_session_with_the_same_history(shell: Any, store: Path) -> None:
    """Blocks keep their ids, and the first agent keeps everything."""
    agent = shell.ok("new", "--from", ID).out.strip()
    before = (shell.folder(agent) / "events.jsonl").read_bytes()
    fork = shell.ok("fork", agent).out.strip()
    sound_copy(shell, fork)
    assert (shell.folder(agent) / "events.jsonl").read_bytes() == before
    assert shell.ok("replay", fork).out == shell.ok("replay", agent).out
    del store


def test_an_import_beside_the_original_becomes_another_session(shell: Any, store: Path) -> None:
    """Its ids are taken here."""
    agent = shell.ok("new", "--from", ID).out.strip()
    shell.ok("export", "--bundle", agent, "bundle")
    other = shell("import", "--cwd", ".", "bundle").out.strip()
    sound_copy(shell, other)
    assert other != agent
    assert shell.ok("replay", other).out == shell.ok("replay", agent).out
    del store


def test_a_flat_subagent_stands_once_in_runtime_data_raw_and_with_its_blocks(shell: Any) -> None:
    """The reader names its thread; its file is named as its parent's are."""
    chats = shell.home / ".gemini" / "tmp" / "w" / "chats"
    shutil.copytree(FIXTURES / "gemini" / "subagent-flat" / "chats", chats)
    (chats.parent / ".project_root").write_text("/srv/w")
    agent = shell.ok("new", "--from", "flat-parent-0001", "--cwd", str(shell.cwd)).out.strip()
    runtime = orjson.loads(shell.ok("inspect", agent, "--runtime").out)
    assert len(runtime["subagents"]) == 2
    for thread in runtime["subagents"]:
        assert thread["rawTranscript"]
        assert {block["conversationId"] for block in thread["blocks"]} == {thread["id"]}
