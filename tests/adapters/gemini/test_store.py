"""The client's own store: what is a session there, what a list shows of it, where an id is."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from gemini_files import (
    ID,
    NAME,
    OTHER,
    STUB,
    TALK,
    answer,
    context,
    document,
    header,
    log,
    message,
    prompt,
)

from agentsdir.adapters.contract import NativeSession
from agentsdir.adapters.gemini import ARCHITECTURE
from agentsdir.adapters.sides import StoreReader

GIBIBYTE = 1 << 30


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a client's root with one project folder in it."""
    root = tmp_path / ".gemini"
    (root / "tmp" / "w" / "chats").mkdir(parents=True)
    (root / "tmp" / "w" / ".project_root").write_text("/srv/w")
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


def put(
    root: Path, data: bytes = TALK, name: str = f"{NAME}.jsonl", project: str = "w", age: int = 0
) -> Path:
    """Write a session's file."""
    path = root / "tmp" / project / "chats" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (0, 1_700_000_000 - age))
    return path


def test_a_list_says_what_the_file_and_its_folder_say(store: Path) -> None:
    """The working directory stands in the folder's mark: the transcript does not say it."""
    path = put(store, log(header(), context(), prompt("fix the tests\n please"), answer()))
    assert listed(store) == [
        NativeSession(
            id=ID,
            file=path,
            cwd="/srv/w",
            title="fix the tests please",
            branch="",
            created="2026-01-02T03:04:05.678Z",
            modified="2023-11-14T22:13:20.000000Z",
            size=path.stat().st_size,
        )
    ]


def test_the_folder_of_a_session_is_told_by_mark_registry_or_hash(store: Path) -> None:
    """And is unknown where none of them says it."""
    hashed = sha256(b"/srv/registered").hexdigest()
    (store / "projects.json").write_text(
        json.dumps({"projects": {"/srv/registered": "registered", "/srv/stale": "w"}})
    )
    for number, project in enumerate(("w", "registered", hashed, "unknown", "ab" * 32)):
        native = f"{number:08}-0000-4000-8000-000000000000"
        put(
            store,
            log(header(native), prompt("x")),
            f"session-a-{native[:8]}.jsonl",
            project,
            number,
        )
    assert [session.cwd for session in listed(store)] == [
        "/srv/w",
        "/srv/registered",
        "/srv/registered",
        "",
        "",
    ]


@pytest.mark.parametrize(
    "registry",
    ["", "{", "[]", '{"projects": []}', '{"projects": {"/x": 1, "/y": "../z"}}'],
)
def test_a_broken_registry_hides_no_session(store: Path, registry: str) -> None:
    """The client takes it for an empty one, too."""
    put(store)
    (store / "projects.json").write_text(registry)
    assert [session.cwd for session in listed(store)] == ["/srv/w"]


SUMMARY = {"$set": {"summary": "Fixing the tests"}}
TITLES = {
    "the client's own": (log(header(), prompt("hi"), answer(), SUMMARY), "Fixing the tests"),
    "the client's last": (
        log(header(summary="old"), prompt("hi"), answer(), {"$set": {"summary": "new"}}),
        "new",
    ),
    "a document's": (document(prompt("hi"), summary="Fixing"), "Fixing"),
    "a document's in one line": (
        json.dumps({**header(), "messages": [prompt("hi")], "summary": "Fixing"}).encode(),
        "Fixing",
    ),
    "a prompt": (TALK, "hi"),
    "a prompt that is a string": (document(message("u", "user", "hi")), "hi"),
    "as it was typed": (log(header(), prompt("hi @a: text", displayContent="hi @a")), "hi @a"),
    "after a command": (log(header(), prompt("/help"), prompt("hi", "u2")), "hi"),
    "a command alone": (log(header(), prompt("/help")), "/help"),
    "not a result": (
        log(header(), prompt([{"functionResponse": {"id": "a"}}]), prompt("hi", "u2")),
        "hi",
    ),
    "not a hook's": (
        log(header(), prompt("<hook_context>x</hook_context>"), prompt("hi", "u2")), "hi"),
    "a restated one": (log(header(), {"$set": {"messages": [prompt("hi"), answer()]}}), "hi"),
    "half a pair": (log(header()) + rb'{"id":"u","type":"user","content":"\ud800b"}', "?b"),
    "an answer alone": (log(header(), answer()), ""),
}  # fmt: skip


@pytest.mark.parametrize(("data", "title"), TITLES.values(), ids=TITLES)
def test_a_session_is_called_what_it_is_about(store: Path, data: bytes, title: str) -> None:
    """By the client's own title, else by the first thing that a person typed."""
    put(store, data)
    (session,) = listed(store)
    assert session.title == title


@pytest.mark.parametrize("data", [
    log(header(), context(), prompt("Über \\ \U0001f914 " * 20_000), answer()),
    document(prompt("Über \\ \U0001f914 " * 20_000), answer()),
])  # fmt: skip
def test_a_prompt_longer_than_the_head_still_names_its_session(store: Path, data: bytes) -> None:
    """Its beginning is enough, and escapes are decoded."""
    put(store, data)
    (session,) = listed(store)
    assert session.title.startswith("Über \\ \U0001f914 Über")
    assert len(session.title) == 200


HIDDEN = {
    "a stub": STUB,
    "a header": log(header()),
    "a subagent's": log(header(kind="subagent"), prompt("x")),
    "notices": log(header(), message("i", "info", "Request cancelled.")),
    "an empty list": document(),
}


@pytest.mark.parametrize("data", HIDDEN.values(), ids=HIDDEN)
def test_what_nobody_speaks_in_is_not_listed(store: Path, data: bytes) -> None:
    """Its id leads there all the same, unless it is a subagent's."""
    path = put(store, data)
    assert listed(store) == []
    assert reader().locate(store, ID) == ([] if b'"subagent"' in data else [path])


def test_other_files_beside_the_sessions_are_none(store: Path) -> None:
    """Not what an interrupted rewrite left, a link to nothing, or what is no regular file."""
    folder = put(store).parent
    for name in (
        f"{NAME}.jsonl.unreadable-1",
        f"{NAME}.jsonl.tmp-1",
        "copy.jsonl",
        "session-a.txt",
    ):
        (folder / name).write_bytes(TALK)
    (folder / "session-b.jsonl").write_bytes(b"")
    (folder / "session-c.jsonl").write_text("no session\n")
    (folder / "session-d.jsonl").mkdir()
    os.mkfifo(folder / "session-e.jsonl")
    assert [session.file.name for session in listed(store)] == [f"{NAME}.jsonl"]


def test_a_link_under_a_transcripts_name_is_not_among_the_transcripts(store: Path) -> None:
    """It may lead to the client's secrets, which stand in the same folder."""
    path = put(store)
    secret = store / "oauth_creds.json"
    secret.write_bytes(b"{}")
    (path.parent / "session-z.json").symlink_to(secret)
    assert list(reader().transcripts(store, pytest.fail)) == [path]


def test_a_session_of_two_ages_is_one_row_and_the_log_is_the_session(store: Path) -> None:
    """The document that it was resumed from, and the stub of the resume, are not told apart."""
    old = put(store, document(prompt("hi"), answer()), f"{NAME}.json")
    new = put(store, age=5)
    stub = put(store, STUB, "session-2026-02-02T00-00-6f1b2f4e.jsonl", age=-10)
    assert [session.file for session in listed(store)] == [new]
    assert reader().locate(store, ID) == [new, old, stub]
    new.write_bytes(STUB)
    assert reader().locate(store, ID)[0] == old


def test_a_copy_in_the_same_projects_other_folder_is_no_other_session(store: Path) -> None:
    """A client that names folders anew copies the old ones."""
    put(store, project=sha256(b"/srv/w").hexdigest(), age=5)
    new = put(store)
    moved = put(store, project="elsewhere", age=9)
    assert [session.file for session in listed(store)] == [new, moved]


def test_sessions_that_all_have_one_id_are_listed_each(store: Path) -> None:
    """Some clients give all of theirs the same."""
    for number in range(3):
        data = log(header("a2a-server"), prompt(str(number)))
        put(store, data, f"session-{number}-a2a-serv.jsonl", age=number)
    assert [session.title for session in listed(store)] == ["0", "1", "2"]
    assert reader().locate(store, "a2a-server")[0].name == "session-0-a2a-serv.jsonl"


def test_an_id_is_what_the_header_says(store: Path) -> None:
    """Whatever the file is called; the name holds 8 characters at most."""
    path = put(store, name="session-2026-01-02T03-04-ffffffff.jsonl")
    assert reader().locate(store, ID) == [path]
    assert reader().locate(store, "ffffffff") == []
    assert reader().native_id(path) == ID


def test_the_beginning_of_an_id_finds_all_that_begin_so(store: Path) -> None:
    """From 8 characters on; a whole id may be shorter, and finds itself alone."""
    one, two = f"{OTHER[:-1]}c", f"{OTHER[:-1]}d"
    for age, native in enumerate((one, two, "my-own")):
        put(store, log(header(native), prompt("x")), f"session-{age}.jsonl", age=age)
    assert [path.name for path in reader().locate(store, OTHER[:8])] == [
        "session-0.jsonl",
        "session-1.jsonl",
    ]
    assert reader().locate(store, OTHER[:7]) == []
    assert [path.name for path in reader().locate(store, "my-own")] == ["session-2.jsonl"]
    put(store, log(header(one + "f"), prompt("x")), "session-4.jsonl")
    assert [path.name for path in reader().locate(store, one)] == ["session-0.jsonl"]


@pytest.mark.parametrize("native", ["", "../../../etc", "a/b", "x" * 200, "[a-z]*"])
def test_what_cannot_be_an_id_is_not_looked_for(store: Path, native: str) -> None:
    """Nothing but a plain word names a session."""
    put(store)
    assert reader().locate(store, native) == []


def test_a_file_that_cannot_be_read_is_told_and_the_others_are_listed(store: Path) -> None:
    """A loop of links, for one."""
    put(store)
    loop = store / "tmp" / "w" / "chats" / "session-loop.jsonl"
    loop.symlink_to(loop)
    refused: list[OSError] = []
    assert len(list(reader().sessions(store, refused.append))) == 1
    assert [error.filename for error in refused] == [str(loop)]


@pytest.mark.parametrize("place", ["", "tmp", "tmp/w", "tmp/w/chats"])
def test_a_store_is_listed_from_any_folder_of_it(store: Path, place: str) -> None:
    """The root, all projects, one of them, or its chats."""
    path = put(store)
    assert [session.file for session in listed(store / place)] == [path]
    assert reader().locate(store / place, ID) == [path]


def test_a_huge_file_is_read_at_its_ends_alone(store: Path) -> None:
    """A hole of a gibibyte costs nothing."""
    path = put(store, TALK)
    with path.open("ab") as file:
        file.truncate(GIBIBYTE)
        file.seek(GIBIBYTE)
        file.write(b"\n" + log(SUMMARY))
    (session,) = listed(store)
    assert (session.title, session.size > GIBIBYTE) == ("Fixing the tests", True)


def test_a_session_is_read_with_its_children(store: Path) -> None:
    """Those in its own folder, and flat ones that bear its id and say what they are."""
    main = put(store)
    child = log(header("a1b2c3", "subagent"), prompt("look"))
    flat = log(header(kind="subagent"), prompt("look"))
    oldest = document(prompt("Your task is to look"), answer())
    put(store, child, f"{ID}/a1b2c3.jsonl")
    put(store, flat, "session-2026-01-02T03-05-6f1b2f4e.jsonl")
    put(store, oldest, "session-2026-01-02T03-06-6f1b2f4e.json")
    put(store, child, f"{OTHER}/a1b2c4.jsonl")
    another = log(header(OTHER, "subagent"), prompt("look"))
    put(store, another, "session-2026-01-02T03-07-0000000a.jsonl")
    put(store, STUB, "session-2026-01-02T03-08-6f1b2f4e.jsonl")
    found = reader().files(main).transcripts
    assert [one.source.path and one.source.path.name for one in found] == [
        f"{NAME}.jsonl",
        "a1b2c3.jsonl",
        "session-2026-01-02T03-05-6f1b2f4e.jsonl",
        "session-2026-01-02T03-06-6f1b2f4e.json",
    ]
    assert [one.role for one in found] == ["main", *["subagent"] * 3]
    assert [session.file for session in listed(store)] == [main]


def test_a_walk_finds_every_transcript_and_nothing_else(store: Path) -> None:
    """Sessions, then children; orphans, too."""
    names = [f"{NAME}.jsonl", f"{ID}/a.jsonl", "skill-extraction-0a1b2c3d/b.json"]
    for name in names:
        put(store, name=name)
    for name in ("settings.json", "logs.json.bak", "tool-outputs/a.json", "chats/notes.json"):
        path = store / "tmp" / "w" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(TALK)
    folder = store / "tmp" / "w" / "chats"
    assert list(reader().transcripts(store, fail)) == [folder / name for name in names]


STORES: dict[str, tuple[str, list[str], bool]] = {
    "by its name": (".gemini", ["oauth_creds.json"], True),
    "moved": ("config", ["oauth_creds.json", "tmp/w/chats/x"], True),
    "moved, and not used": ("config", ["settings.json", "tmp/w/.project_root"], True),
    "any folder": ("config", ["settings.json", "tmp/w/x.json"], False),
    "a project's": ("config", ["tmp/w/chats/x"], False),
}


@pytest.mark.parametrize(("name", "files", "expected"), STORES.values(), ids=STORES)
def test_a_store_is_known_by_what_stands_in_it(
    tmp_path: Path, name: str, files: list[str], expected: Any
) -> None:
    """Where secrets may stand, nothing but transcripts is opened."""
    for file in files:
        path = tmp_path / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    assert reader().is_storage(tmp_path / name) is expected


def _chat(store: Path, name: str, data: bytes) -> None:
    folder = store / "tmp" / "rim" / "chats"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def _rows(*rows: Any) -> bytes:
    return b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows)


RIM = {"sessionId": "11111111-2222-4333-8444-555555555555", "projectHash": "ab" * 32}
SAID = {"id": "g", "type": "gemini", "timestamp": "2026-01-02T03:04:05.000Z", "content": "A cat."}


def test_a_stub_whose_head_ends_within_a_second_header_is_not_listed(store: Path) -> None:
    """A resume in one minute after another leaves the context twice, and nothing else."""
    text = "<session_context>" + "x" * 65_182 + "</session_context>"
    context = {"id": "c", "type": "user", "timestamp": SAID["timestamp"]}
    change = {"$set": {"messages": [{**context, "content": [{"text": text}]}]}}
    once = _rows(RIM, change)
    assert 64 * 1024 - len(_rows(RIM)) < len(once) < 64 * 1024
    _chat(store, "session-1-11111111.jsonl", once + _rows(RIM, change))
    assert [row.id for row in listed(store) if row.file.parent.parent.name == "rim"] == []


@pytest.mark.parametrize("suffix", ["json", "jsonl"])
def test_a_session_that_begins_with_an_image_is_not_titled_by_its_answer(
    store: Path, suffix: str
) -> None:
    """The answer is nobody's prompt."""
    image = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    prompt = {"id": "u", "type": "user", "timestamp": SAID["timestamp"], "content": [image]}
    document = json.dumps({**RIM, "messages": [prompt, SAID]}, indent=2).encode()
    data = document if suffix == "json" else _rows(RIM, prompt, SAID)
    _chat(store, f"session-1-11111111.{suffix}", data)
    (row,) = [row for row in listed(store) if row.file.parent.parent.name == "rim"]
    assert (row.id, row.title) == (RIM["sessionId"], "")


def test_a_log_without_its_header_is_listed_under_its_files_name(store: Path) -> None:
    """An empty id names no session."""
    _chat(store, "session-1-11111111.jsonl", _rows(SAID))
    (row,) = [row for row in listed(store) if row.file.parent.parent.name == "rim"]
    assert row.id == "session-1-11111111"
    assert reader().locate(store, row.id) == [row.file]


def test_an_id_that_stands_deeper_is_not_the_sessions(store: Path) -> None:
    """What a text search finds counts only where it is the header's own."""
    inner = {"sessionId": "other", "kind": "subagent", "startTime": "2020-01-01T00:00:00Z"}
    _chat(store, "session-1-11111111.jsonl", _rows({"x": inner, **RIM}, SAID))
    (row,) = [row for row in listed(store) if row.file.parent.parent.name == "rim"]
    assert (row.id, row.created) == (RIM["sessionId"], None)
