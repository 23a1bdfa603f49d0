"""No id, name or path leads out of the agent's folder, typed by a person or planted in data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agent_verbs import LEAN, PARENT, READS, WRITES, filled
from arena import Arena, Mould, Ran, rewritten, touched

from agentsdir.formats.ids import short_hash
from agentsdir.formats.store.derived import encode_document

# tests/cli asks for all of the table; here, every verb for what could name something.
CHOSEN = (
    "two dots", "traversal to a sibling", "traversal padded to length", "absolute", "a child",
    "a leading dot slash", "a newline after", "a space after", "full-width letters", "Cyrillic a",
    "right-to-left override", "upper case", "a short option", "a backslash", "a drive letter",
    "percent-encoded traversal", "a tilde", "a command", "a temporary folder", "a dot file",
    "an escape sequence", "bytes that are no UTF-8", "one character long",
)  # fmt: skip
_TABLE: dict[str, str] = json.loads(
    (Path(__file__).parents[1] / "formats" / "hostile_ids.json").read_text(encoding="utf-8")
)
TYPED: dict[str, str] = {
    **{name: _TABLE[name] for name in CHOSEN},
    "at a name": "@victim",
    "the folder of agents": "agents",
    "the folder of agents below": "agents/../..",
    "a path of ours": "../agentsdir.json",
    "a path to the outside": "../../outside/secret.jsonl",
    "a trailing dot": "tz4a98xxat96iws9zmbrgj3a.",
    "trailing dots": "tz4a98xxat96iws9zmbrgj3a..",
    "a division slash": "..\u2215..\u2215outside",
    "full-width dots": "\uff0e\uff0e\uff0foutside",
    "one dot leader": "\u2024\u2024/outside",
    "overlong encoding": "..%c0%af..%c0%afoutside",
    "double encoding": "%252e%252e%252foutside",
    "UNC": "\\\\server\\share",
    "proc": "/proc/self/root",
    "a descriptor": "/dev/fd/0",
    "format string": "{0.__class__}%s%n",
    "C1 control": "\x9b31m",
    "a manifest": "manifest.json",
    "very long": "a" * 4096,
}
VERBS = {**READS, **WRITES, **PARENT}
for _twin in ("replay --events", "inspect", "inspect --saved", "inspect --runtime", "send --json"):
    del VERBS[_twin]
for _reader in ("log", "log --follow", "last"):  # which take a file, too, as parse does
    del VERBS[_reader]


def escapes(ran: Ran, arena: Arena) -> list[str]:
    """Return what a run touched of the arena outside the root and its own working directory.

    What the user allowed, and which hooks there are, is read from the user's own configuration.
    """
    found = [*touched(ran, arena.outside), *touched(ran, arena.home)]
    config = f"{arena.home}/.config/agentsdir"
    return [
        one
        for one in found
        if one not in (f"open {config}/grants.json", f"os.listdir {config}/hooks")
    ]


@pytest.mark.parametrize("verb", VERBS)
def test_a_hostile_reference_reaches_nothing(mould: Mould, tmp_path: Path, verb: str) -> None:
    """Refused as no id or as no agent; what surrounds the root is neither opened nor listed."""
    arena = mould.copy(tmp_path)
    before = arena.tree()
    typed = list(TYPED.items())
    if verb not in ("send", "inspect --json", "restore", "new --parent"):
        typed = typed[list(VERBS).index(verb) % 2 :: 2]
    done = arena.run_all(filled(VERBS[verb], text) for _, text in typed)
    for (name, _), ran in zip(typed, done, strict=True):
        assert ran.tidy().code in (2, 10), (name, ran)
        assert ran.out == "", (name, ran)
        assert ran.raw_err.count(b"\n") == 1, (name, ran)
        assert escapes(ran, arena) == [], name
    assert arena.tree() == before


OPTIONS: dict[str, list[str]] = {
    "--name": [],
    "--cron": ["--type=cron"],
    "--user": ["--connector=x", "--channel=y"],
    "--channel": ["--connector=x", "--user=y"],
    "--connector": ["--user=x", "--channel=y"],
    "--profile": [],
    "--model": [],
    "--type": [],
    "--provider": [],
}


@pytest.mark.parametrize("option", OPTIONS)
def test_a_hostile_option_is_text_or_refused(arena: Arena, option: str) -> None:
    """It makes no folder but the agent's own, whose name is an id whatever was said."""
    outside = arena.tree(arena.outside, arena.home, arena.work)
    # Names and task uids become part of a key, so they are given the whole table.
    table = {**_TABLE, **TYPED} if option in ("--name", "--cron") else TYPED
    typed = list(table.items())[:: 1 if table is not TYPED else 3]
    done = arena.run_all(["new", *OPTIONS[option], f"{option}={text}"] for _, text in typed)
    for (name, _), ran in zip(typed, done, strict=True):
        assert ran.tidy().code in (0, 1, 2, 12), (name, ran)
        assert escapes(ran, arena) == [], name
    assert arena.tree(arena.outside, arena.home, arena.work) == outside
    assert {path.name for path in arena.base.iterdir()} <= {"home", "work", "outside", "root"}
    if arena.root.exists():
        assert {path.name for path in arena.root.iterdir()} == {
            "agents", "agentsdir.json", ".gitignore", ".lock", "index.jsonl"
        }  # fmt: skip
        names = [path.name for path in (arena.root / "agents").iterdir()]
        assert all(24 <= len(name) <= 32 and name.isalnum() and name.isascii() for name in names)
        assert arena.run("list").tidy().code == 0


def planted(field: str) -> Callable[[Any, dict[str, Any]], None]:
    """Return what puts a value in one field of the records that have it."""

    def plant(value: Any, record: dict[str, Any]) -> None:
        data = record["data"]
        if field in ("message_id", "message_ids") and field in data:
            data[field] = [value] if field == "message_ids" else value
        elif record["event"] == "session.created":
            created: dict[str, Callable[[], object]] = {
                "agent_id": lambda: data.update(agent_id=value),
                "parentAgentId": lambda: (
                    data["descriptor"].update(
                        type="subagent", id=data["agent_id"], parentAgentId=value, name="victim"
                    ),
                    data.update(parentAgentId=value),
                ),
                "native.id": lambda: data["native"].update(id=value),
                "native.cwd": lambda: data["native"].update(cwd=value),
                "profile": lambda: data.update(profile=value),
                "provider": lambda: data.update(provider=value),
                "options.file": lambda: data.update(options={"file": value}),
            }
            created.get(field, lambda: None)()
        elif field == "session_id":
            record["session_id"] = value
        elif field == "transcript" and record["event"] == "transcript.synced":
            data["files"][0]["path"] = value
        elif field in ("role", "size", "sha256") and record["event"] == "transcript.synced":
            data["files"][0][field] = value
        if field == "session_id":
            record["session_id"] = value

    return plant


FIELDS = (
    "agent_id", "parentAgentId", "native.id", "native.cwd", "profile", "provider", "options.file",
    "message_id", "message_ids", "session_id", "transcript", "role",
)  # fmt: skip
PATHS = ("agent_id", "parentAgentId", "native.id", "native.cwd", "transcript", "session_id")
# A few of each sort: each is one world to make, and all verbs to run in it.
PLANTED: dict[str, Any] = {
    "outside": "../../../outside/secret.jsonl",
    "absolute": "OUTSIDE",
    "NUL": "a\0b",
    "line feed": "..\n/../b",
    "empty": "",
    "long": "a" * 5000,
}


def spoil(arena: Arena, agent: str, field: str, value: Any, *, derived: bool) -> None:
    """Plant a value in the log, and in each derived file too if they are to be believed."""
    log = arena.folder(agent) / "events.jsonl"
    plant = planted(field)
    log.write_bytes(rewritten(log.read_bytes(), lambda _, record: plant(value, record)))
    for name in ("state.json", "session.json", "history.jsonl", "transcripts/manifest.json"):
        (arena.folder(agent) / name).unlink()
    if derived:
        arena.run("restore", agent)


def run_everything(arena: Arena, mould: Mould) -> dict[str, Ran]:
    """Run all verbs on the victim; the other agent goes on as if nothing were."""
    before = arena.tree(arena.outside, arena.home)
    verbs = {**LEAN, "other": ["send", mould.other, "still here?"]}
    runs = arena.run_all(filled(arguments, mould.victim) for arguments in verbs.values())
    done = dict(zip(verbs, runs, strict=True))
    for name, ran in done.items():
        assert escapes(ran.tidy(), arena) == [], (name, ran)
    assert arena.tree(arena.outside, arena.home) == before
    assert sorted(path.name for path in arena.base.iterdir()) == ["home", "outside", "root", "work"]
    assert done["other"].code == 0
    return done


@pytest.mark.parametrize("field", FIELDS)
def test_a_hostile_value_in_a_log_reaches_nothing(mould: Mould, tmp_path: Path, field: str) -> None:
    """All verbs end by themselves, and neither read nor make anything outside."""
    # The path to the outside where it could become one, and one of the others in turn.
    names = list(PLANTED)[1:]
    chosen = ["outside"] if field in PATHS else []
    for name in (*chosen, names[FIELDS.index(field) % len(names)]):
        value = PLANTED[name]
        base = tmp_path / name.replace(" ", "-")
        base.mkdir()
        arena = mould.copy(base)
        text = str(arena.outside / "secret.jsonl") if value == "OUTSIDE" else value
        if field == "options.file":
            text = text.replace("outside", "nowhere")  # a script may stand anywhere
        spoil(arena, mould.victim, field, text, derived=name == "outside")
        done = run_everything(arena, mould)
        assert not any("canary" in ran.out for ran in done.values())
        inside = {path.name for path in arena.folder(mould.victim).iterdir()}
        assert inside <= {
            "descriptor.json", "session.json", "state.json", "history.jsonl", "events.jsonl",
            "transcripts", "stamps.json", ".lock", ".turn",
        }  # fmt: skip
        (removed,) = arena.run_all([["rm", "--yes", mould.victim]])
        assert (removed.tidy().code, escapes(removed, arena)) == (0, [])
        assert not arena.folder(mould.victim).exists()
        assert arena.folder(mould.other).exists()


def test_a_value_of_another_type_in_a_log_is_no_crash(mould: Mould, tmp_path: Path) -> None:
    """In any of the same fields: damage with a documented exit code."""
    values = (None, {}, 7, [])
    # One more than the values there are, so that each field meets another one.
    fields = (*FIELDS, "size", "sha256")
    for number, field in enumerate(fields):
        value = values[number % len(values)]
        base = tmp_path / field
        base.mkdir()
        arena = mould.copy(base)
        spoil(arena, mould.victim, field, value, derived=False)
        run_everything(arena, mould)


@pytest.mark.parametrize("name", PLANTED)
def test_a_hostile_manifest_or_state_leads_nowhere(mould: Mould, tmp_path: Path, name: str) -> None:
    """Derived files are rebuilt from the log and never followed."""
    arena = mould.copy(tmp_path)
    value = PLANTED[name]
    text = str(arena.outside / "secret.jsonl") if value == "OUTSIDE" else value
    folder = arena.folder(mould.victim)
    manifest = json.loads((folder / "transcripts" / "manifest.json").read_bytes())
    manifest["files"][0]["path"] = text
    (folder / "transcripts" / "manifest.json").write_text(json.dumps(manifest))
    state = json.loads((folder / "state.json").read_bytes())
    state["transcripts"] = {text: next(iter(state["transcripts"].values()))}
    state["agentId"] = state["sessionId"] = text
    state["native"]["id"] = text
    del state["digest"]
    state["digest"] = short_hash(encode_document(state))  # or no reader would believe it
    (folder / "state.json").write_text(json.dumps(state))
    done = run_everything(arena, mould)
    assert not any("canary" in ran.out for ran in done.values())


def test_a_link_out_of_the_root_would_be_noticed(arena: Arena) -> None:
    """The watch can see: a script outside, which a person did name, is noted as read."""
    script = arena.outside / "talk.jsonl"
    script.write_text('{"type": "turn"}\n')
    agent = arena.ok("new", "--provider=script", f"--option=file={script}")
    (ran,) = arena.run_all([["send", agent, "hi"]])
    assert escapes(ran.tidy(), arena)
