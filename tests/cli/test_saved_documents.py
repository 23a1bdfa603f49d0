"""`inspect --saved` carries all that an agent has, and `import` takes it back."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest
from saved_documents import carried

from agentsdir.cli.output import document_pieces
from agentsdir.formats.errors import Invalid
from agentsdir.formats.source import Source
from agentsdir.formats.store.agent import write_agent
from agentsdir.formats.store.layout import AgentPaths
from agentsdir.formats.store.saved_files import file_entries
from agentsdir.formats.store.transcripts import beginning


def other_root(shell: Any, name: str = "other") -> Any:
    """Return the same command line with another agents directory."""
    return type(shell)(shell.home, shell.cwd, shell.root.with_name(name))


def saved(shell: Any, agent: str) -> dict[str, Any]:
    """Return the document of `inspect --saved`."""
    found: dict[str, Any] = shell.ok("inspect", "--saved", agent).json
    return found


def moved(shell: Any, agent: str, name: str = "other") -> Any:
    """Pipe `inspect --saved` of an agent into `import -` of an empty root; return that."""
    there = other_root(shell, name)
    document = shell.ok("inspect", "--saved", agent).out.encode()
    done = there("import", "-", stdin=document)
    assert (done.code, done.out, done.err) == (0, f"{agent}\n", "")
    return there


@pytest.fixture
def family(shell: Any) -> tuple[str, str, str]:
    """Return an agent that has spawned, was reset, and has outputs; its child, and that one's."""
    (shell.cwd / "notes").mkdir()
    (shell.cwd / "notes" / "é.txt").write_text("a note\n")
    (shell.cwd / "bytes.bin").write_bytes(bytes(range(256)))
    parent = shell.new("--name", "boss")
    shell.ok("send", "--record", parent, "before the reset")
    shell.ok("reset", parent)
    shell.ok("send", "--record", parent, "Ω after it")
    shell.ok("spawn", "--parent", parent, "--name", "kid", "count")
    rows = {row["name"]: row["agentId"] for row in shell.ok("list", "--json").rows}
    shell.ok("spawn", "--parent", rows["kid"], "--name", "grandkid", "deeper")
    shell.ok("wait", parent)
    shell.ok("suspend", "--capture", parent)
    rows = {row["name"]: row["agentId"] for row in shell.ok("list", "--json").rows}
    return parent, rows["kid"], rows["grandkid"]


def test_a_document_has_every_file_that_the_agents_have(shell: Any, family: Any) -> None:
    """Of all native sessions and of those that were spawned, but what the log says anyway."""
    document = saved(shell, family[0])

    on_disk = {
        path.relative_to(shell.root).as_posix(): path.read_bytes()
        for folder in [shell.root / "agents" / agent for agent in family]
        for path in folder.rglob("*")
        if path.is_file()
    }
    derived = ("descriptor.json", "session.json", "state.json", "history.jsonl", "stamps.json",
               "checkpoint.json", "transcripts/manifest.json", ".lock", ".turn")  # fmt: skip
    files = carried(document)
    head = {"format": "agentsdir", "version": 1, "features": []}
    assert orjson.loads(files.pop("agentsdir.json")) == head
    assert files == {name: data for name, data in on_disk.items() if not name.endswith(derived)}
    assert sum(name.endswith(".stream") for name in files) == 2
    texts = {file["path"]: "text" in file for file in document["files"]}
    assert not all(texts.values())
    assert all(texts[f"agents/{agent}/events.jsonl"] for agent in family)


@pytest.mark.feature("B-02", "B-09")
def test_what_comes_back_says_the_same_and_has_the_same_bytes(shell: Any, family: Any) -> None:
    """`--runtime` to the letter; each file to the byte, and the log as far as it was carried."""
    parent = family[0]
    before, runtime = saved(shell, parent), shell.ok("inspect", "--runtime", parent).out

    there = moved(shell, parent)

    assert there.ok("inspect", "--runtime", parent).out == runtime
    assert (there("validate", "--modes").code, there("validate").out) == (0, "")
    after = saved(there, parent)
    assert {**after, "files": None} == {**before, "files": None}
    old, new = carried(before), carried(after)
    logs = {name for name in old if name.endswith("events.jsonl")}
    assert {name: new[name] for name in new if name not in logs} == {
        name: old[name] for name in old if name not in logs
    }
    for name in logs:
        assert new[name].startswith(old[name])
        said = [orjson.loads(line)["event"] for line in new[name][len(old[name]) :].splitlines()]
        assert said in (["agent.set"], ["agent.set", "session.state"])


def test_what_an_import_changes_is_where_it_runs_and_that_it_is_suspended(shell: Any) -> None:
    """Of a session that was active, and with another folder; all else is the same."""
    agent = shell.new()
    shell.ok("send", agent, "hi")
    before = shell.ok("inspect", "--runtime", agent).json
    (shell.cwd / "there").mkdir()
    there = other_root(shell)
    document = shell.ok("inspect", "--saved", agent).out.encode()

    assert there("import", "-", "--cwd", "there", stdin=document).code == 0

    after = there.ok("inspect", "--runtime", agent).json
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"state", "suspendedAt", "cwd"}


def test_a_document_that_has_moved_twice_still_says_the_same(shell: Any, family: Any) -> None:
    """Also of the subagents, which go on from where they were."""
    parent, kid, _ = family

    there = moved(moved(shell, parent), parent, "third")

    runtime = [one("inspect", "--runtime", parent).out for one in (shell, there)]
    assert runtime[0] == runtime[1]
    assert there.ok("send", kid, "and on").out == "and on\n"
    assert there.ok("send", parent, "me too").out == "me too\n"


@pytest.mark.parametrize("layout", [["-S", "."], ["-c", "."], ["--tab", "."]])
def test_what_another_program_has_formatted_is_taken(
    shell: Any, family: Any, layout: list[str]
) -> None:
    """Keys in another order, another white space: a value is what counts."""
    document = saved(shell, family[0])
    indent = orjson.OPT_INDENT_2 if "--tab" in layout else 0
    sort = orjson.OPT_SORT_KEYS if "-S" in layout else 0
    there = other_root(shell)

    done = there("import", "-", stdin=b" \r\n\t" + orjson.dumps(document, option=indent | sort))

    assert (done.code, done.err) == (0, "")
    assert carried(saved(there, family[0])).keys() == carried(document).keys()


def test_a_document_in_a_file_is_taken_as_well(shell: Any) -> None:
    """Whatever its name is; and the ids are free again once the agent is gone."""
    agent = shell.new()
    shell.ok("send", agent, "hi")
    (shell.cwd / "talk.tar").write_text(shell.ok("inspect", "--saved", agent).out)
    shell.ok("rm", agent, "--yes")

    assert shell.ok("import", "talk.tar").out.strip() == agent


def test_an_agent_that_is_here_already_becomes_another_without_those_it_spawned(
    shell: Any, family: Any
) -> None:
    """As a fork does, and stderr says it; nothing that is here changes."""
    document = shell.ok("inspect", "--saved", family[0]).out.encode()
    before = {row["agentId"] for row in shell.ok("list", "--json").rows}

    done = shell("import", "-", stdin=document)

    assert (done.code, "spawned agents that are not taken: 2;" in done.err) == (0, True)
    (made,) = {row["agentId"] for row in shell.ok("list", "--json").rows} - before
    assert made == done.out.strip()


def test_a_spawned_agent_that_is_here_is_left_as_it_is(shell: Any, family: Any) -> None:
    """The rest comes, and finds it."""
    parent, kid, grandkid = family
    there = moved(shell, kid)
    there.ok("send", kid, "said here")
    log = there.folder(kid) / "events.jsonl"
    before = log.read_bytes()

    done = there("import", "-", stdin=shell.ok("inspect", "--saved", parent).out.encode())

    assert (done.code, "not taken: 2;" in done.err) == (0, True)
    assert log.read_bytes() == before
    threads = there.ok("inspect", "--runtime", parent).json["subagents"]
    assert "said here" in [block.get("content") for block in threads[-1]["blocks"]]
    assert {row["agentId"] for row in there.ok("list", "--json").rows} == {parent, kid, grandkid}


def test_a_bundle_has_the_spawned_agents_too(shell: Any, family: Any) -> None:
    """A tar and a document are the same agents; the folder is an agents directory in order."""
    parent = family[0]
    shell.ok("export", "--bundle", parent, "bundle")
    shell.ok("export", "--bundle", parent, "bundle.tar.gz")
    assert (shell("validate", "--modes", "bundle").code, shell("validate", "bundle").out) == (0, "")
    found = {
        path.relative_to(shell.cwd / "bundle").as_posix(): path.read_bytes()
        for path in (shell.cwd / "bundle").rglob("*")
        if path.is_file()
    }
    files = carried(saved(shell, parent))
    assert {name: found.get(name) for name in files} == files

    there = other_root(shell)
    assert there.ok("import", "bundle.tar.gz").out.strip() == parent

    runtime = [one.ok("inspect", "--runtime", parent).out for one in (shell, there)]
    assert runtime[0] == runtime[1]


def full_at_the_third_rename(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the disk be full when the third agent of an import is to appear."""
    rename = Path.rename
    made = []

    def full(path: Path, target: Any) -> Any:
        if path.name.startswith(".tmp-") and path.parent.name == "agents":
            made.append(path)
            if len(made) == 3:
                raise OSError(28, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", full)


def test_an_import_that_fails_midway_leaves_no_agent(
    shell: Any, family: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that had come already are taken away again."""
    document = shell.ok("inspect", "--saved", family[0]).out.encode()
    there = other_root(shell)
    full_at_the_third_rename(monkeypatch)

    done = there("import", "-", "--json", stdin=document)

    assert (done.code, done.error["kind"]) == (15, "not-recorded")
    assert list((there.root / "agents").iterdir()) == []
    monkeypatch.undo()
    assert there("import", "-", stdin=document).code == 0


def test_an_import_that_was_killed_midway_is_run_again(
    shell: Any, family: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agents that it left are those that the agent spawned, which finds them."""
    parent = family[0]
    document = shell.ok("inspect", "--saved", parent).out.encode()
    there = other_root(shell)
    full_at_the_third_rename(monkeypatch)
    monkeypatch.setattr("shutil.rmtree", lambda *_arguments, **_options: None)
    assert there("import", "-", stdin=document).code == 15
    monkeypatch.undo()
    assert {path.name for path in (there.root / "agents").glob("[!.]*")} == {*family[1:]}

    done = there("import", "-", stdin=document)

    assert (done.code, done.out) == (0, f"{parent}\n")
    runtime = [one.ok("inspect", "--runtime", parent).out for one in (shell, there)]
    assert runtime[0] == runtime[1]


def test_a_document_of_an_earlier_version_is_refused(shell: Any) -> None:
    """It has no log; the hint says what can be had of it. So has `--runtime`."""
    agent = shell.new()
    shell.ok("send", agent, "hi")
    document = saved(shell, agent)
    del document["files"]
    runtime = shell.ok("inspect", "--runtime", agent).json

    for data in (document, runtime):
        done = other_root(shell)("import", "-", "--json", stdin=orjson.dumps(data))
        assert (done.code, done.error["kind"]) == (12, "no-files")
        assert "new --from" in done.error["hint"]


def test_a_damaged_agent_is_printed_as_it_stands_and_not_taken(shell: Any) -> None:
    """Nothing that is there is left out, and stderr names the damage."""
    agent = shell.new()
    shell.ok("send", agent, "hello")
    path = shell.transcript(agent)
    path.write_bytes(path.read_bytes().replace(b"hello", b"hallo"))

    done = shell("inspect", "--saved", agent)

    assert (done.code, "is not what was synced" in done.err) == (3, True)
    assert path.read_bytes() in carried(done.json).values()
    refused = other_root(shell)("import", "-", "--json", stdin=done.out.encode())
    assert (refused.code, refused.error["kind"]) == (12, "bad-bundle")


@pytest.mark.parametrize("where", ["transcripts", "workspace", "workspace/manifest.json"])
def test_a_link_in_place_of_a_file_is_not_followed(shell: Any, family: Any, where: str) -> None:
    """What it leads to is in no document, nor is anything printed."""
    secret = shell.cwd / "secret"
    secret.write_bytes(b"secret")
    place = shell.folder(family[0]) / where
    if where == "transcripts":
        place = next(place.glob("*.jsonl"))
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink()
    place.symlink_to(secret)

    done = shell("inspect", "--saved", "--json", family[0])

    assert (done.code, done.out, done.error["kind"]) == (12, "", "unsafe-path")


@pytest.mark.parametrize(
    ("data", "is_text"),
    [
        (b"", True), ("é\U0001f980\r\n\x01\x7f\ufeff\u2028\"\\".encode(), True), (b"a\0b", False),
        (b"\xff", False), (b"\xed\xa0\x80", False), (b"\xc3", False),
    ],
)  # fmt: skip
def test_bytes_are_text_where_every_reader_of_json_gets_them_back(
    data: bytes, is_text: bool
) -> None:
    """UTF-8 without a NUL; all else is base64."""
    document = {"files": file_entries({"x": Source("x", data=data)})}

    (file,) = orjson.loads(b"".join(document_pieces(document)))["files"]

    assert file == (
        {"path": "x", "text": data.decode()}
        if is_text
        else {"path": "x", "base64": base64.b64encode(data).decode()}
    )


def test_a_file_that_changes_while_it_is_printed_gives_no_whole_document(tmp_path: Path) -> None:
    """Nor one that looks whole and is shorter."""
    path = tmp_path / "file"
    for before, after in ((b"text", b"tex"), (b"text", b"\xff\xff\xff\xff"), (b"\0" * 9, b"\0")):
        path.write_bytes(before)
        entries = file_entries({"x": beginning(path, len(before), "x")})
        path.write_bytes(after)
        with pytest.raises(Invalid) as caught:
            b"".join(document_pieces(entries))
        assert caught.value.kind == "changed-meanwhile"


def test_a_log_with_a_line_that_is_no_record_is_carried_to_the_byte(shell: Any) -> None:
    """And a tail that a writer has not finished is not."""
    agent = shell.new()
    shell.ok("send", agent, "hello")
    path = shell.folder(agent) / "events.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"half')

    done = shell("inspect", "--saved", agent)

    assert carried(done.json)[f"agents/{agent}/events.jsonl"] == whole
    assert other_root(shell)("import", "-", stdin=done.out.encode()).code == 0


def test_more_than_an_import_takes_is_refused_before_the_first_byte(shell: Any) -> None:
    """It fails and never shortens; a folder has no limit."""
    agent = shell.new()
    shell.ok("send", agent, "hello")
    path = shell.folder(agent) / "transcripts" / "big"
    with path.open("wb") as stream:
        stream.truncate(4 * 1024**3 + 1)
    entry = {"path": "big", "role": "sidecar", "size": 4 * 1024**3 + 1, "sha256": "0" * 64}
    with write_agent(AgentPaths(shell.folder(agent), agent)) as writer:
        at = "2026-01-02T03:04:05.678900Z"
        writer.append("transcript.synced", {"files": [entry]}, at)

    done = shell("inspect", "--saved", "--json", agent)

    assert (done.code, done.out, done.error["kind"]) == (12, "", "saved-too-large")
    assert "export --bundle" in done.error["hint"]


def test_a_waiting_message_is_named_of_spawned_agents_too(shell: Any, family: Any) -> None:
    """The next `send` would run it."""
    kid = family[1]
    with write_agent(AgentPaths(shell.folder(kid), kid)) as writer:
        said = [{"type": "text", "text": "later"}]
        data = {"message_id": "m" * 24, "sender": "cli", "kind": "user", "content": said}
        writer.append("message.enqueued", data, "2026-01-02T03:04:05.678900Z")

    done = other_root(shell)(
        "import", "-", stdin=shell.ok("inspect", "--saved", family[0]).out.encode()
    )

    assert (done.code, "messages that wait in it: 1" in done.err) == (0, True)


def test_captured_files_are_put_into_a_folder(shell: Any, family: Any) -> None:
    """With `--workspace`, as from a bundle."""
    document = shell.ok("inspect", "--saved", family[0]).out.encode()
    shutil.rmtree(shell.cwd / "notes")

    done = other_root(shell)("import", "-", "--workspace", "put", stdin=document)

    assert done.code == 0
    assert (shell.cwd / "put" / "notes" / "é.txt").read_text() == "a note\n"
    assert (shell.cwd / "put" / "bytes.bin").read_bytes() == bytes(range(256))
