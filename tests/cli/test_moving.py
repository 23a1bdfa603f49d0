"""`fork`, `export`, `import`, `new --from`, and the files of a working directory."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tarfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import pytest

ID = "00000001-0000-4000-8000-000000000001"
FIXTURES = Path(__file__).parents[2] / "fixtures" / "claude"


@pytest.fixture
def talk(shell: Any) -> str:
    """Return an agent that has talked twice."""
    agent = shell.new("--name", "talk")
    shell.ok("send", "--record", agent, "one")
    shell.ok("send", agent, "two")
    return agent


def is_sound(shell: Any, *arguments: str) -> bool:
    """Tell whether `validate` has nothing to say."""
    done = shell("validate", *arguments)
    return (done.code, done.out) == (0, "")


def other_root(shell: Any) -> Any:
    """Return the same command line with another agents directory."""
    return type(shell)(shell.home, shell.cwd, shell.root.with_name("other"))


def files(folder: Path) -> dict[str, bytes]:
    """Return the files below a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in (".lock", ".turn", "stamps.json")
    }


# Forks.


def test_a_fork_has_the_history_and_goes_on_alone(shell: Any, talk: str) -> None:
    """Both are shown alike, and what is said to one is not said to the other."""
    before = files(shell.folder(talk))

    fork = shell.ok("fork", talk, "--name", "second").out.strip()

    assert shell.ok("replay", fork).out == shell.ok("replay", talk).out
    assert files(shell.folder(talk)) == before
    shell.ok("send", fork, "three")
    assert files(shell.folder(talk)) == before
    created = shell.log(fork)[0]["data"]
    assert isinstance(created, dict)
    assert created["forked_from"] == {
        "agent_id": talk,
        "session_id": shell.log(talk)[0]["session_id"],
        "native_id": shell.transcript(talk).stem,
        "seq": shell.log(talk)[-1]["seq"],
    }
    assert created["descriptor"]["channelId"] == fork
    assert shell.ok("inspect", fork).json["title"] == "one"
    assert is_sound(shell)


def test_a_fork_goes_on_in_the_script(shell: Any, tmp_path: Path) -> None:
    """It knows how far the script was played."""
    turns = [
        [{"type": "turn"}],
        [
            {"type": "block_start", "blockId": "a", "block": {"type": "assistant_text", "id": "a",
             "content": ""}},
            {"type": "text_delta", "blockId": "a", "delta": "TEXT"},
            {"type": "block_complete", "blockId": "a", "block": {"type": "assistant_text",
             "id": "a", "content": "TEXT"}},
        ],
    ]  # fmt: skip
    lines = [orjson.dumps(line) for text in ("first", "second") for part in turns for line in part]
    script = tmp_path / "talk.jsonl"
    texts = iter([b"first"] * 4 + [b"second"] * 4)
    script.write_bytes(b"\n".join(line.replace(b"TEXT", next(texts)) for line in lines) + b"\n")
    agent = shell.new("--provider", "script", "--option", f"file={script}")
    assert shell.ok("send", agent, "hi").out == "first\n"

    fork = shell.ok("fork", agent).out.strip()

    assert shell.ok("send", fork, "hi").out == "second\n"
    assert shell.ok("send", agent, "hi").out == "second\n"


@pytest.mark.parametrize("kind", [["cron", "--cron", "nightly"], ["heartbeat"]])
def test_what_there_is_one_of_is_forked_to_a_users_agent(shell: Any, kind: list[str]) -> None:
    """A task and the heartbeat have one agent each."""
    agent = shell.new("--type", *kind)

    fork = shell.ok("fork", agent).out.strip()

    assert shell.ok("inspect", fork).json["descriptor"] == {
        "type": "user", "connector": "cli", "userId": "me", "channelId": fork
    }  # fmt: skip


def test_a_forked_subagent_is_another_one(shell: Any) -> None:
    """Of the same parent, under a name that is free."""
    parent = shell.new()
    agent = shell.new("--type", "subagent", "--parent", parent, "--name", "child")

    names = [shell.ok("inspect", shell.ok("fork", agent).out.strip()).json for _ in range(2)]

    assert [row["descriptor"]["name"] for row in names] == ["child-2", "child-3"]
    assert {row["descriptor"]["parentAgentId"] for row in names} == {parent}
    assert [row["descriptor"]["id"] == row["agentId"] for row in names] == [True, True]


def test_a_name_that_is_taken_makes_no_fork(shell: Any, talk: str) -> None:
    """And leaves nothing behind."""
    done = shell("fork", talk, "--name", "talk", "--json")

    assert (done.code, done.error["kind"]) == (1, "already-exists")
    assert [path.name for path in (shell.root / "agents").iterdir()] == [talk]


def test_an_agent_at_work_is_forked_as_of_its_last_turn(shell: Any, talk: str) -> None:
    """What an open turn has said by now is not part of it."""
    path = shell.folder(talk) / "events.jsonl"
    whole = path.read_bytes().splitlines(keepends=True)
    starts = [at for at, line in enumerate(whole) if b'"turn.start"' in line]
    path.write_bytes(b"".join(whole[: starts[1] + 3]))
    (shell.folder(talk) / "state.json").unlink()
    transcript = shell.transcript(talk).read_bytes()

    fork = shell.ok("fork", talk).out.strip()

    assert "two" not in shell.ok("replay", fork).out
    assert transcript.startswith(shell.transcript(fork).read_bytes())
    assert shell.log(fork)[0]["data"]["forked_from"]["seq"] < starts[1] + 1


def test_a_full_disk_is_not_the_providers_fault(
    shell: Any, talk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the disk refuses while a fork is made is said as ever, and leaves nothing."""

    def full(*_arguments: Any, **_options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("agentsdir.formats.store.agent.UnpublishedAgent.store", full)
    before = shell.tree()

    done = shell("fork", talk, "--json")

    assert (done.code, done.error["kind"]) == (15, "not-recorded")
    assert {*shell.tree()} - {*before} <= {".lock"}


def test_damage_in_the_source_is_said(shell: Any, talk: str) -> None:
    """A stored transcript that was changed is no source for a fork."""
    shell.transcript(talk).write_bytes(b"x")

    done = shell("fork", talk, "--json")

    assert (done.code, done.error["kind"]) == (12, "transcript-damaged")


# Export and import.


def test_exported_transcripts_are_the_stored_bytes(shell: Any, talk: str) -> None:
    """Under their native paths, private, and without the streams, which are ours."""
    shell.ok("export", talk, "out/there")

    stored = shell.transcript(talk)
    assert files(shell.cwd / "out" / "there") == {stored.name: stored.read_bytes()}
    for path in (shell.cwd / "out" / "there").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("dest", ["out.tar", "out.tar.gz", "out.tgz"])
def test_a_bundle_has_the_same_bytes_each_time(shell: Any, talk: str, dest: str) -> None:
    """Nothing of the time, the place or the user goes into it."""
    shell.ok("export", "--bundle", talk, dest)
    first = (shell.cwd / dest).read_bytes()
    (shell.cwd / dest).unlink()
    os.utime(shell.folder(talk) / "events.jsonl", (1, 1))
    shell.ok("export", "--bundle", talk, dest)

    assert (shell.cwd / dest).read_bytes() == first
    with tarfile.open(shell.cwd / dest) as archive:
        members = archive.getmembers()
    assert [m.name for m in members] == sorted({m.name for m in members}) or members
    assert {(m.uid, m.gid, m.uname, m.gname) for m in members} == {(0, 0, "", "")}
    assert {m.mode for m in members} == {0o600, 0o700}


def test_a_folder_bundle_is_an_agents_directory_of_one(shell: Any, talk: str) -> None:
    """`validate` and `inspect` work on it, and the derived files are what the log says."""
    shell.ok("export", "--bundle", talk, "bundle")

    assert is_sound(shell, "bundle", "--modes")
    assert shell.ok("--root", "bundle", "inspect", "talk").json["counters"]["turns"] == 2
    shell.ok("--root", "bundle", "replay", "--check", "talk")
    names = {path.name for path in (shell.cwd / "bundle").rglob("*") if path.is_file()}
    assert not {name for name in names if name.startswith(".")}


@pytest.mark.parametrize("dest", ["there.tar", "full"])
def test_nothing_is_exported_over_what_is_there(shell: Any, talk: str, dest: str) -> None:
    """A file, or a folder with something in it, is left."""
    (shell.cwd / "there.tar").write_bytes(b"mine")
    (shell.cwd / "full").mkdir()
    (shell.cwd / "full" / "x").write_bytes(b"mine")

    assert shell("export", talk, dest).code == 2
    assert (shell.cwd / "there.tar").read_bytes() == (shell.cwd / "full" / "x").read_bytes()


def test_an_agent_without_transcripts_exports_none(shell: Any) -> None:
    """And says so."""
    done = shell("export", shell.new(), "out", "--json")

    assert (done.code, done.error["kind"]) == (1, "nothing-to-export")


@pytest.mark.parametrize("dest", ["bundle", "bundle.tgz"])
def test_an_import_into_another_root_is_the_same_agent(shell: Any, talk: str, dest: str) -> None:
    """With its ids and every byte of its log, transcripts and streams; and it goes on."""
    shell.ok("suspend", talk)
    shell.ok("export", "--bundle", talk, dest)
    there = other_root(shell)

    assert there.ok("import", dest).out.strip() == talk

    derived = ("events.jsonl", "state.json")
    kept, sent = files(there.folder(talk)), files(shell.folder(talk))
    assert {name: kept[name] for name in kept if not name.endswith(derived)} == {
        name: sent[name] for name in sent if not name.endswith(derived)
    }
    *before, marked = there.log(talk)
    assert before == shell.log(talk)
    assert (marked["event"], marked["data"]) == (
        "agent.set", {"values": {"cwd": str(shell.cwd)}, "reason": "import"}
    )  # fmt: skip
    assert there.ok("replay", "--events", talk).out == shell.ok("replay", "--events", talk).out
    there.ok("send", talk, "three")
    assert is_sound(there)


@pytest.mark.parametrize(
    ("whole", "cut"),
    [(True, None), (True, -1), (True, 1), (False, None), (False, 1)],
    ids=["missing", "stale", "empty", "missing, with a stub", "stale, with a stub"],
)
def test_an_import_has_the_history_that_its_log_says(
    shell: Any, talk: str, whole: bool, cut: int | None
) -> None:
    """Not that of the bundle, where that is older than the log; and not where lines are stubs."""
    shell.ok("suspend", talk)
    if not whole:
        with (shell.folder(talk) / "events.jsonl").open("ab") as log:
            log.write(b'{"seq": 9 \n')
        shell.ok("tag", talk, "+x")
    shell.ok("export", "--bundle", talk, "bundle")
    history = shell.cwd / "bundle" / "agents" / talk / "history.jsonl"
    wanted = history.read_bytes()
    lines = wanted.splitlines(keepends=True)
    if cut is None:
        history.unlink()
    else:
        history.write_bytes(b"".join(lines[:cut]))
    there = other_root(shell)

    there.ok("import", "bundle")

    assert (there.folder(talk) / "history.jsonl").read_bytes() == wanted
    assert there("replay", "--check", talk).code == 0


def test_an_active_agent_arrives_suspended(shell: Any, talk: str) -> None:
    """No process uses it there; the log before is the same."""
    shell.ok("export", "--bundle", talk, "bundle.tar")
    there = other_root(shell)
    there.ok("import", "bundle.tar")

    last = there.log(talk)[-1]
    assert last["data"] == {"from": "active", "to": "suspended", "reason": "import"}
    assert there.log(talk)[-2]["event"] == "agent.set"
    assert there.log(talk)[:-2] == shell.log(talk)
    there.ok("resume", talk)


def test_a_clash_makes_another_agent(shell: Any, talk: str) -> None:
    """In the same root: new ids, a log that holds together, the same history, and its own key."""
    shell.ok("export", "--bundle", talk, "bundle.tar")

    made = shell("import", "bundle.tar").out.strip()

    assert made != talk
    assert is_sound(shell)
    assert shell.ok("replay", made).out == shell.ok("replay", talk).out
    old, new = shell.log(talk)[0], shell.log(made)[0]
    assert new["data"]["imported_from"]["agent_id"] == talk
    assert new["data"]["descriptor"]["channelId"] == made
    assert "name" not in new["data"]
    assert (new["ts"], new["session_id"] != old["session_id"]) == (old["ts"], True)
    assert shell.transcript(made).read_bytes() == shell.transcript(talk).read_bytes()
    assert shell.transcript(made).stem != shell.transcript(talk).stem
    shell.ok("send", made, "three")
    assert "three" not in shell.ok("replay", talk).out


@pytest.mark.parametrize(
    "kind", [["cron", "--cron", "nightly"], ["heartbeat"], ["user", "--connector", "x", "--user",
    "y", "--channel", "z"]],
)  # fmt: skip
def test_a_key_that_is_taken_is_given_up(shell: Any, kind: list[str]) -> None:
    """The agent that is here keeps it; the one that comes is a user's."""
    agent = shell.new("--type", *kind)
    shell.ok("export", "--bundle", agent, "bundle.tar")
    shell.ok("rm", "--yes", agent)
    shell.new("--type", *kind)

    made = shell("import", "bundle.tar").out.strip()

    assert made != agent
    assert shell.ok("inspect", made).json["descriptor"]["connector"] == "cli"


def test_a_key_that_is_free_is_kept(shell: Any) -> None:
    """An archived agent has the id, and no agent the key."""
    agent = shell.new("--type", "cron", "--cron", "nightly")
    shell.ok("export", "--bundle", agent, "bundle.tar")
    shell.ok("archive", agent)

    made = shell("import", "bundle.tar").out.strip()

    assert made != agent
    assert shell.ok("inspect", made).json["descriptor"] == {"type": "cron", "id": "nightly"}


def test_an_import_can_be_given_another_folder(shell: Any, talk: str) -> None:
    """The log says so, and the next turn works there."""
    shell.ok("export", "--bundle", talk, "bundle.tar")
    (shell.cwd / "new").mkdir()
    there = other_root(shell)
    there.ok("import", "bundle.tar", "--cwd", "new")

    shown = there.ok("inspect", talk).json
    assert shown["cwd"] == shown["native"]["cwd"] == str(shell.cwd / "new")
    assert "agent.set" in [record["event"] for record in there.log(talk)]


def test_a_bundle_comes_through_a_pipe(shell: Any, talk: str) -> None:
    """From one root into another, without a file between them."""
    done = shell.sh(f"agentsdir export --bundle {talk} - | agentsdir --root other import - --json")

    assert orjson.loads(done.stdout) == {
        "type": "agent", "agentId": talk, "durability": "always"
    }  # fmt: skip


def test_a_large_agent_moves_within_a_bound(shell: Any, tmp_path: Path) -> None:
    """Adopted, exported, imported and forked: what it needs does not grow with the session."""
    row = orjson.loads((FIXTURES / "hello-2.1.98.jsonl").read_bytes().splitlines()[2])
    path = tmp_path / f"{ID}.jsonl"
    with path.open("wb") as stream:
        for number in range(24_000):
            said = {"role": "user", "content": f"{number} " + "x" * 1000}
            changed = {"uuid": f"{number:08}", "parentUuid": None, "message": said}
            stream.write(orjson.dumps({**row, **changed, "type": "user"}) + b"\n")
    there = "there"
    commands = (
        ["new", "--from", str(path), "--name", "large", "--cwd", "."],
        ["export", "--bundle", "large", "large.tar"],
        ["--root", there, "import", "large.tar", "--cwd", "."],
        ["--root", there, "fork", "large"],
    )
    for command in commands:
        probe = (
            "import resource, sys; from agentsdir.cli.main import main\n"
            "limit = 160 * 1024 * 1024\n"
            "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
            "sys.argv[0] = 'agentsdir'; main()"
        )
        done = subprocess.run(
            [sys.executable, "-c", probe, *command],
            env=shell.environment(),
            cwd=shell.cwd,
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b""), command


def test_an_open_turn_is_closed_where_it_arrives(shell: Any, talk: str) -> None:
    """What a crash left open is ended by the first writer there."""
    path = shell.folder(talk) / "events.jsonl"
    whole = path.read_bytes().splitlines(keepends=True)
    starts = [at for at, line in enumerate(whole) if b'"turn.start"' in line]
    path.write_bytes(b"".join(whole[: starts[1] + 2]))
    (shell.folder(talk) / "state.json").unlink()
    shell.ok("export", "--bundle", talk, "bundle.tar")
    there = other_root(shell)

    there.ok("import", "bundle.tar")

    there.ok("send", talk, "three")
    assert "turn.aborted" in [record["event"] for record in there.log(talk)]
    assert is_sound(there)


# Workspace files.


def work_on(folder: Path) -> None:
    """Put files of all kinds into a working directory."""
    (folder / "notes.txt").write_text("notes")
    (folder / "bin").mkdir()
    (folder / "bin" / "run").write_text("#!/bin/sh\n")
    (folder / "bin" / "run").chmod(0o755)
    (folder / "current").symlink_to("bin")
    (folder / "out").symlink_to("../outside")
    (folder / "node_modules" / "x").mkdir(parents=True)
    (folder / "node_modules" / "x" / "y.js").write_text("x")
    (folder / ".gitignore").write_text("*.key\n/build/\n!important\n")
    (folder / "secret.key").write_text("s")
    (folder / "build").mkdir()
    (folder / "build" / "big").write_text("s")
    os.mkfifo(folder / "pipe")


@pytest.mark.feature("B-09")
def test_captured_files_are_in_the_saved_session(shell: Any, talk: str) -> None:
    """What is taken, what is passed over and why, and what the log says."""
    work_on(shell.cwd)

    done = shell("suspend", "--capture", talk)

    assert done.code == 0
    for word in ("out: a link that leads out", "pipe: neither", "'!important' is not understood"):
        assert word in done.err
    saved = shell.ok("inspect", "--saved", talk).json["workspaceFiles"]
    contents = {".gitignore": b"*.key\n/build/\n!important\n", "bin/run": b"#!/bin/sh\n",
                "notes.txt": b"notes"}  # fmt: skip
    assert [entry["path"] for entry in saved] == sorted({*contents, "current"})
    assert saved[2] == {"path": "current", "link": "bin"}
    for entry in (saved[0], saved[1], saved[3]):
        data = contents[entry["path"]]
        digest = sha256(data).hexdigest()
        mode = stat.S_IMODE((shell.cwd / entry["path"]).stat().st_mode)
        assert entry == {"path": entry["path"], "mode": f"0{mode:o}", "size": len(data),
                         "sha256": digest}  # fmt: skip
        assert (shell.folder(talk) / "workspace" / "blobs" / digest).read_bytes() == data
    assert shell.log(talk)[-1]["event"] == "workspace.captured"
    assert is_sound(shell)


@pytest.mark.feature("B-09")
def test_captured_files_come_back(shell: Any, talk: str) -> None:
    """Those that are missing, with mode and link; what was removed since is remembered."""
    work_on(shell.cwd)
    shell("suspend", "--capture", talk)
    for name in ("notes.txt", "bin/run", "current"):
        (shell.cwd / name).unlink()

    done = shell("resume", "--workspace", talk)

    assert (done.code, done.err.splitlines()) == (
        0,
        [f"agentsdir: written: {shell.cwd / name}" for name in ("bin/run", "current", "notes.txt")],
    )
    assert (shell.cwd / "notes.txt").read_text() == "notes"
    assert stat.S_IMODE((shell.cwd / "bin" / "run").stat().st_mode) == 0o755
    assert (shell.cwd / "current").readlink() == Path("bin")
    (shell.cwd / "notes.txt").unlink()
    shell("suspend", "--capture", talk)
    manifest = orjson.loads((shell.folder(talk) / "workspace" / "manifest.json").read_bytes())
    assert {"path": "notes.txt", "deleted": True} in manifest["files"]
    assert len(list((shell.folder(talk) / "workspace" / "blobs").iterdir())) == 2


def test_another_file_in_the_way_stops_all_of_it(shell: Any, talk: str) -> None:
    """Nothing is written, and the session is not taken up."""
    work_on(shell.cwd)
    shell("suspend", "--capture", talk)
    (shell.cwd / "notes.txt").write_text("mine")
    (shell.cwd / "bin" / "run").unlink()

    done = shell("resume", "--workspace", talk, "--json")

    assert (done.code, done.error["kind"]) == (12, "workspace-differs")
    assert not (shell.cwd / "bin" / "run").exists()
    assert shell.ok("inspect", talk).json["state"] == "suspended"


def test_an_agent_moves_with_its_files(shell: Any, talk: str) -> None:
    """`export --workspace` and `import --workspace`: it works there, on the same files."""
    work_on(shell.cwd)
    assert shell("export", "--workspace", talk, "../bundle.tar.gz").code == 0
    there = other_root(shell)

    done = there("import", "../bundle.tar.gz", "--workspace", "../elsewhere")

    assert (done.code, done.err.count("agentsdir: written: ")) == (0, 4)
    elsewhere = shell.cwd.parent / "elsewhere"
    assert sorted(path.name for path in elsewhere.iterdir()) == [
        ".gitignore", "bin", "current", "notes.txt"
    ]  # fmt: skip
    assert there.ok("inspect", talk).json["cwd"] == str(elsewhere)
    assert is_sound(there)


def test_nothing_is_captured_where_nothing_may_be_written(shell: Any, talk: str) -> None:
    """An agents directory that needs what this program does not know is not written to."""
    (shell.root / "agentsdir.json").write_bytes(
        b'{"format": "agentsdir", "version": 1, "features": ["later"]}'
    )
    before = shell.tree()

    done = shell("export", "--workspace", "--json", talk, "out")

    assert (done.code, done.error["kind"]) == (12, "unknown-version")
    assert shell.tree() == before


def test_settings_that_execute_are_neither_captured_nor_put_back(shell: Any, talk: str) -> None:
    """Nor is a file whose name is no text; both are named."""
    for name in (
        ".claude/settings.json",
        ".claude/hooks/run",
        "sub/.mcp.json",
        ".claude/agents/a.md",
    ):
        (shell.cwd / name).parent.mkdir(parents=True, exist_ok=True)
        (shell.cwd / name).write_text("{}")
    (shell.cwd / os.fsdecode(b"bad\xff")).write_text("x")
    done = shell("suspend", "--capture", talk)
    assert done.code == 0
    assert done.err.count("settings that can execute") == 3
    assert "no name that every system takes" in done.err
    manifest = shell.folder(talk) / "workspace" / "manifest.json"
    kept = orjson.loads(manifest.read_bytes())["files"]
    assert [entry["path"] for entry in kept] == [".claude/agents/a.md"]
    data = manifest.read_bytes().replace(b".claude/agents/a.md", b".claude/hooks/a.mdx")
    manifest.write_bytes(data)
    shell("resume", "--workspace", talk)
    assert not (shell.cwd / ".claude" / "hooks" / "a.mdx").exists()


def test_folders_that_are_not_looked_into_are_named(shell: Any, talk: str) -> None:
    """What is not kept is not passed over in silence."""
    (shell.cwd / ".tmp-mine").mkdir()
    (shell.cwd / ".tmp-mine" / "notes.txt").write_text("notes")

    done = shell("suspend", "--capture", talk)

    assert done.code == 0
    assert ".tmp-mine: a folder that is not looked into" in done.err


def test_a_capture_that_is_too_large_takes_nothing(
    shell: Any, talk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says how large, and what the limit is."""
    monkeypatch.setattr("agentsdir.formats.store.workspace.MAX_SIZE", 3)
    (shell.cwd / "notes.txt").write_text("notes")

    done = shell("suspend", "--capture", talk, "--json")

    assert done.error["kind"] == "workspace-too-large"
    assert not (shell.folder(talk) / "workspace").exists()


# Adopting.


def native(shell: Any, name: str = ID) -> Path:
    """Put a session into the client's store; return its transcript."""
    folder = shell.home / ".claude" / "projects" / "-w"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.jsonl"
    path.write_bytes((FIXTURES / "hello-2.1.98.jsonl").read_bytes())
    return path


@pytest.mark.parametrize("way", ["id", "prefix", "file", "folder"])
def test_a_native_session_becomes_an_agent(shell: Any, way: str) -> None:
    """By its id, its file or its folder: byte for byte, with its history, and in its folder."""
    path = native(shell)
    origin = {"id": ID, "prefix": ID[:8], "file": str(path), "folder": str(path.parent)}[way]

    agent = shell.ok("new", "--from", origin).out.strip()

    shown = shell.ok("inspect", agent).json
    parsed = [orjson.loads(line) for line in shell.ok("parse", str(path)).out.splitlines()]
    stored = shell.folder(agent) / "transcripts" / "projects" / "-w" / path.name
    assert stored.read_bytes() == path.read_bytes()
    assert (shown["native"]["id"], shown["sessionId"]) == (ID, ID.replace("-", ""))
    assert shown["provider"] == "claude"
    assert shown["cwd"] == next(
        row["cwd"] for row in map(orjson.loads, path.read_bytes().splitlines()) if "cwd" in row
    )
    assert (shown["title"], shown["counters"]["blocks"]) == (
        parsed[0]["content"].splitlines()[0] if isinstance(parsed[0]["content"], str) else
        shown["title"],
        len(parsed),
    )  # fmt: skip
    blocks = [record["data"] for record in shell.log(agent) if record["event"] == "block"]
    assert {block["turn_id"] for block in blocks} == {None}
    assert [block["block"]["id"] for block in blocks] == [block["id"] for block in parsed]
    assert shell.ok("inspect", ID).json["agentId"] == agent
    assert is_sound(shell)


def test_an_archived_agent_does_not_come_back_to_a_session_that_is_another_ones(
    shell: Any,
) -> None:
    """It was free to be adopted meanwhile."""
    native(shell)
    first = shell.ok("new", "--from", ID).out.strip()
    shell.ok("archive", first)
    second = shell.ok("new", "--from", ID).out.strip()

    done = shell("archive", "--undo", "--json", first)

    assert (done.code, done.error["kind"]) == (1, "already-exists")
    assert second in done.error["message"]
    shell.ok("rm", "--yes", second)
    shell.ok("archive", "--undo", first)


def test_a_fork_of_an_adopted_agent_was_not_adopted(shell: Any) -> None:
    """It says of what it was made, and that alone."""
    native(shell)
    agent = shell.ok("new", "--from", ID).out.strip()

    created = shell.log(shell.ok("fork", agent).out.strip())[0]["data"]

    assert created["forked_from"]["agent_id"] == agent
    assert "adopted_from" not in created


def test_what_is_said_goes_before_what_the_rows_say(shell: Any) -> None:
    """A name, a model and a folder can be given."""
    native(shell)
    agent = shell.new("--from", ID, "--name", "mine", "--model", "m", "--cwd", ".")

    shown = shell.ok("inspect", "mine").json
    assert (shown["agentId"], shown["model"], shown["cwd"]) == (agent, "m", str(shell.cwd))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--from", "nothing-there"], 10),
        (["--from", "0000000f-0000-4000-8000-00000000000f"], 10),
        (["--from", "text.txt"], 12),
        (["--from", "."], 2),
        (["--from", ID, "--provider", "claude"], 2),
    ],
)
def test_what_is_no_session_is_refused(shell: Any, arguments: list[str], code: int) -> None:
    """With the reason, and without an agent."""
    (shell.cwd / "text.txt").write_text("no transcript")
    for name in ("a", "b"):
        (shell.cwd / f"{name}.jsonl").write_bytes(native(shell).read_bytes())

    assert shell("new", *arguments).code == code
    assert list((shell.root / "agents").glob("*") if shell.root.exists() else []) == []


def test_a_damaged_session_is_adopted_with_its_damage(shell: Any) -> None:
    """The bytes are kept, what can be read is history, and the rest is named."""
    path = native(shell)
    path.write_bytes(path.read_bytes() + b'{"torn')

    done = shell("new", "--from", ID)

    assert (done.code, "torn-tail" in done.err) == (3, True)
    stored = shell.folder(done.out.strip()) / "transcripts" / "projects" / "-w" / path.name
    assert stored.read_bytes() == path.read_bytes()
