"""Claude Code as the conformance kit asks for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from any_json import AnyRows
from claude_bench import ClaudeBench
from claude_support import FIXTURES, SINGLE, lines, row, said, user
from clients import ID, OTHER, Client

from agentsdir.adapters.claude import ARCHITECTURE
from agentsdir.adapters.claude.store import project_folder_name


def _of(session: str, *rows: dict[str, Any]) -> bytes:
    return lines(*({**one, "sessionId": session} for one in rows))


def _talk(text: Any, *more: dict[str, Any], **fields: Any) -> bytes:
    """Return a session's transcript with a first prompt."""
    return _of(ID, user("u1", None, text, **fields), *more)


def _child(name: str, session: str = ID) -> bytes:
    return _of(session, user(f"c-{name}", None, "look", isSidechain=True, agentId=name))


def _title(kind: str, field: str, title: str) -> dict[str, Any]:
    return {"type": kind, field: title, "sessionId": OTHER}


def _mine(title: str = "mine") -> dict[str, Any]:
    return _title("custom-title", "customTitle", title)


def _models(title: str = "the model's") -> dict[str, Any]:
    return _title("ai-title", "aiTitle", title)


def _summary(title: str = "a summary") -> dict[str, Any]:
    return _title("summary", "summary", title)


ASKED = user("u1", None, "hi", cwd="/old/place", gitBranch="main", promptId="p1")
ANSWERED = {**said("a1", "u1", "yes", model="m-1"), "cwd": "/old/place/sub", "gitBranch": "topic"}
SECOND = user("u3", "u1", "second")
FILLING = [row("system", f"s{n}", None, content="x" * 1000) for n in range(80)]
LAST = {"type": "last-prompt", "lastPrompt": "the last"}
LONG_RESULT = [{"type": "tool_result", "tool_use_id": "t", "content": "of a tool " * 10_000}]
RESULT = {"type": "tool_result", "tool_use_id": "t", "content": "of a tool"}
IMAGE = {"type": "image"}
BY_CLIENT = row("assistant", "a1", "u1", message={"model": "<synthetic>", "content": "a cat"})
BY_MODEL = row("assistant", "a1", "u1", message={"model": "claude-x", "content": "a cat"})
CLEAR = "<command-name>/clear</command-name>"
OLD_TITLES = (_summary("old"), _models("old"), _mine("old"))
MAIN = f"{ID}.jsonl"
TALK = _of(ID, ASKED, ANSWERED)


WORDS = """
user assistant system attachment progress queue-operation last-prompt result summary text thinking
tool_use tool_result image init compact_boundary api_error local_command enqueue dequeue remove
popAll queued_command agent_progress Task Agent Bash main t1 t2 a1 a2 abc task_started
task_notification human task-notification <synthetic> completed <task-notification> <command-name>
"""
KEYS = """
type uuid parentUuid logicalParentUuid isSidechain agentId sessionId session_id timestamp message
content id name input text thinking signature tool_use_id is_error toolUseResult usage input_tokens
stop_reason model subtype attachment prompt commandMode operation leafUuid data parentToolUseID
parent_tool_use_id origin kind promptSource isMeta status isCompactSummary version error errors
result hookErrors task_id duration_ms source
"""
FIELDS = """
uuid parentUuid message subtype operation content attachment isSidechain agentId sessionId
session_id parent_tool_use_id toolUseResult data origin usage
"""
ENDED = {"type": "result", "subtype": "success", "result": "x", "session_id": "s", "uuid": "r1"}
CUT = ("hello-2.1.98", "parallel-2.1.98", "tools-1.0.128", "subagent-1.0.128")


class Claude(Client):
    """Claude Code: a project's folder is named after its path, and the rows say everything."""

    architecture = ARCHITECTURE
    bench = ClaudeBench
    variable = "CLAUDE_CONFIG_DIR"
    elsewhere = "projects/-some-other-place"
    talk = TALK
    more = _of(ID, user("u2", "a1", "more"), said("a2", "u2", "done", model="m-2"))
    model = "m-2"
    adopted = f"projects/-old-place/{MAIN}"
    torn = b'{"type":"user","mess'
    branch = "topic"
    child = f"{ID}/subagents/agent-a1.jsonl"
    child_id = "a1"
    output = f"{ID}/tool-results/t1.txt"
    whole = {
        MAIN: TALK,
        child: _child("a1"),
        f"{ID}/subagents/agent-a1.meta.json": b"{}",
        output: b"long",
        "agent-0a1b2c3.jsonl": _child("0a1b2c3"),
    }
    roles = dict(zip(whole, ("main", "subagent", "sidecar", "output", "subagent"), strict=True))
    family = {
        MAIN: TALK,
        child: _child("a1"),
        f"{ID}/subagents/workflows/r1/agent-a2.jsonl": _child("a2"),
        "agent-a3.jsonl": _child("a3"),
    }
    strangers = {
        f"{OTHER}/subagents/agent-a4.jsonl": _child("a4", OTHER),
        "agent-a5.jsonl": _child("a5", OTHER),
    }
    foreign = {
        f"{OTHER}.jsonl": TALK.replace(ID.encode(), OTHER.encode()),
        **strangers,
        "memory/note.md": b"x",
    }
    beside = {
        f"{ID}/subagents/workflows/r1/journal.jsonl": b"{}\n",
        f"{ID}/subagents/agent-a1.meta.json": b"{}",
    }
    others = {
        "a shorter log": ({MAIN: TALK}, MAIN, TALK[:-20]),
        "another log": ({MAIN: TALK}, MAIN, TALK.replace(b"yes", b"no!")),
        "a child": ({MAIN: TALK, child: TALK}, child, _child("a1")),
    }
    grown = {"a log": (MAIN, TALK, TALK + _of(ID, user("u2", "a1", "more")))}
    alien = {
        "another session": (f"projects/x/{OTHER}.jsonl", TALK),
        "settings": (f"settings/{MAIN}", TALK),
        "a way out": (f"projects/x/{ID}/../../../settings.json", b"x"),
        "a hidden file": (f"projects/x/{ID}/.hidden", b"x"),
        "a line in a name": (f"projects/x/{ID}/a\nb", b"x"),
        "a note": ("projects/x/memory/note.md", b"x"),
        "a way out of the children": ("projects/x/agent-../x.jsonl", b"x"),
        "an empty part": (f"projects/x/{ID}//a", b"x"),
    }
    no_ids = ("", "../x", "x", ID.upper())
    titles = {
        "mine": (_of(ID, *OLD_TITLES, ASKED, _mine(), _models(), _summary()), "mine"),
        "the model's": (_of(ID, *OLD_TITLES[:2], ASKED, _models(), _summary()), "the model's"),
        "a summary": (_of(ID, OLD_TITLES[0], ASKED, _summary()), "a summary"),
        "one that was cleared": (_talk("hi", _mine(), _mine("")), "hi"),
        "a person": (_talk("hi"), "hi"),
        "parts": (_talk([{"type": "text", "text": "hi"}]), "hi"),
        "an editor before": (_talk("<ide_selection>x</ide_selection>hi"), "hi"),
        "an editor beside": (
            _talk([{"type": "text", "text": "<ide_opened_file>x</ide_opened_file>"},
                   {"type": "text", "text": "hi"}]),
            "hi",
        ),
        "a tag that may be typed": (_talk("<goal>x</goal>", SECOND), "<goal>x</goal>"),
        "a typed tag": (
            _talk("<tick> is a tag", SECOND, promptSource="typed"), "<tick> is a tag"),
        "half a pair": (_talk("a\ud800b"), "a?b"),
        "words of bookkeeping": (
            _talk('say "custom-title" and "summary"'), 'say "custom-title" and "summary"'),
        "after a caveat": (_talk("Caveat: x", SECOND, isMeta=True), "second"),
        "after a result": (_talk([RESULT], SECOND), "second"),
        "after a result with text beside it": (
            _talk([RESULT, {"type": "text", "text": "beside"}], SECOND), "second"),
        "after a result longer than the head": (_talk(LONG_RESULT, SECOND), "second"),
        "after a compaction": (
            _talk("This session is being continued", SECOND, isCompactSummary=True), "second"),
        "after an interruption": (_talk("[Request interrupted by user]", SECOND), "second"),
        "after a command": (_talk("<command-name>/help</command-name>", SECOND), "second"),
        "after a clearing": (
            _talk(f"{CLEAR}\n<command-args></command-args>", SECOND), "second"),
        "a command alone": (
            _talk("<command-name>/review</command-name><command-args>all</command-args>"),
            "/review all",
        ),
        "the first prompt before the last": (_talk("hi", LAST), "hi"),
        "a prompt far behind": (_of(ID, *FILLING, user("u1", None, "hi"), LAST), "hi"),
        "the last prompt alone": (_of(ID, *FILLING, LAST), "the last"),
        "an image": (_talk([IMAGE], BY_MODEL), ""),
        "a result that was answered": (_talk([RESULT], BY_MODEL), ""),
    }  # fmt: skip
    unlisted = {
        "a subagent's": (_child("a1"), True),
        "old titles only": (_of(ID, _summary()), True),
        "bookkeeping only": (_of(ID, {"type": "mode", "mode": "default"}, _mine()), True),
        "nothing said": (_of(ID, row("system", "u1", None, subtype="init")), True),
        "no rows of the client's": (b'{"a": 1}\n', True),
        "a clearing": (_talk(CLEAR), True),
        "a result longer than the head": (_talk(LONG_RESULT), True),
        "an image that the client answered": (_talk([IMAGE], BY_CLIENT), True),
        "a result that the client answered": (_talk([RESULT], BY_CLIENT), True),
    }
    no_transcripts = (
        "agent-a1b2c3d.jsonl", "copy.jsonl", f"{ID}.jsonl.bak", "sessions-index.json",
        f"{OTHER}/{OTHER}.jsonl",
    )  # fmt: skip
    stores = {
        "by its name": (".claude", ["projects/-w/x"], True),
        "moved": ("config", ["projects/-w/x", ".claude.json"], True),
        "any folder": ("config", ["projects/-w/x"], False),
        "no projects": (".claude", [".claude.json"], False),
    }
    fixtures = SINGLE
    logs = [path for path in SINGLE if path.is_file()]
    cut_logs = [FIXTURES / f"{name}.jsonl" for name in CUT]
    any_rows = AnyRows(WORDS.split(), KEYS.split(), 12).with_fields("type", *FIELDS.split())
    odd_logs = {
        "a result that is there twice": [ENDED, ENDED],
        "a row with the uuid of a result": [ENDED, user("r1", None, "hi")],
        "a result with the uuid of a row": [user("r1", None, "hi"), ENDED],
        "a row of no session behind a title of one": [_mine(), {**ASKED, "sessionId": None}],
    }
    # A prompt that waits in the queue goes when the row that takes it out is there, too.
    passing = ("h.*", "h.*")
    single_ids = True
    tries = 200
    examples = 15
    in_order = True

    @property
    def storage(self) -> Path:
        return self.home / ".claude"

    @property
    def project(self) -> Path:
        return self.storage / "projects" / project_folder_name(str(self.cwd.resolve()))

    @property
    def transcript(self) -> str:
        return f"{self.native_id}.jsonl"

    @property
    def listed_cwd(self) -> str:
        return "/old/place"

    def storage_at(self, folder: Path) -> Path:
        return folder

    def name_of(self, native_id: str) -> str:
        return f"{native_id}.jsonl"

    def asked(self, text: str) -> list[bytes]:
        return [_talk(text)]

    def titled(self, title: str) -> bytes:
        return _of(ID, {"type": "x"}, _models(title))

    def long(self, count: int, text: str) -> bytes:
        return _of(ID, *(user(f"u{n}", f"u{n - 1}" if n else None, text) for n in range(count)))

    @classmethod
    def laid_out(cls, fixture: Path) -> dict[Path, bytes]:
        if fixture.is_file():
            return {Path(fixture.name): fixture.read_bytes()}
        files = {
            path.relative_to(fixture): path.read_bytes()
            for path in sorted(fixture.rglob("*"))
            if path.is_file()
            and path.name.endswith((".jsonl", ".meta.json"))
            and not path.name.endswith(".blocks.jsonl")
        }
        main = next(
            path for path in files if len(path.parts) == 1 and not path.name.startswith("agent-")
        )
        return {main: files.pop(main), **files}
