"""Gemini CLI as the conformance kit asks for it."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import watching
from any_json import AnyRows
from clients import ID, OTHER, Client
from gemini_bench import GeminiBench
from gemini_files import NAME, STUB, TALK, answer, document, header, log, message, prompt
from gemini_reading import FIXTURES, is_record
from hypothesis import strategies as st

from agentsdir.adapters.gemini import ARCHITECTURE
from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source

if TYPE_CHECKING:
    from watching import Blocks

MAIN = f"chats/{NAME}.jsonl"
OLD = f"chats/{NAME}.json"
DOCUMENT = document(prompt("hi"), answer())
CHILD = log(header("a1b2c3", "subagent"), prompt("look"))
FLAT = log(header(kind="subagent"), prompt("look"))
IMAGE = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
SUMMARY = {"$set": {"summary": "Fixing the tests"}}


def _asked(*contents: Any) -> bytes:
    """Return a log with some prompts."""
    return log(header(), *(prompt(text, f"u{at}") for at, text in enumerate(contents)))


def hashed(folder: str) -> str:
    """Return the name of a folder's project in clients before 0.29."""
    return sha256(folder.encode()).hexdigest()


class Watched(watching.Watching):
    """A session of Gemini CLI."""

    def poll(self) -> list[dict[str, Any]]:
        """Look once; return the events, but for those of headers and the like."""
        return [e for e in super().poll() if "block" not in e or not is_record(e["block"])]

    def told(self) -> list[tuple[str, str, list[str]]]:
        """Look once; return the events in short, but for where merely bytes moved."""
        found = [
            (e["type"].removeprefix("block_"), e.get("blockId", ""), sorted(e.get("updates", ())))
            for e in self.poll()
        ]
        return [one for one in found if one[2] != ["source"]]


class Writer(watching.Writer):
    """Writes logs piece by piece, and documents anew."""

    def __init__(self, folder: Path, contents: dict[Path, bytes], data: Any) -> None:
        super().__init__(folder, contents, data)
        self._whole = dict(contents)

    def grow(self, path: Path) -> None:
        """Append to a log; write a document anew."""
        if path.suffix == ".json":
            self._rewrite(path)
        else:
            super().grow(path)

    def rest(self) -> None:
        """Write what is left, and documents to their end."""
        super().rest()
        for path, data in self._whole.items():
            if path.suffix == ".json":
                (self._folder / path).write_bytes(data)

    def _rewrite(self, path: Path) -> None:
        """Write a document anew with some of its messages, and maybe not to its end."""
        try:
            document = json.loads(self._whole[path])
            messages = document["messages"]
        except (ValueError, TypeError, KeyError):
            text = self._whole[path]
        else:
            count = self._draw(st.integers(0, len(messages)), label="messages")
            document["messages"] = messages[:count]
            text = json.dumps(document, indent=2).encode()
        size = self._draw(st.integers(0, len(text)) | st.just(len(text)), label="bytes")
        (self._folder / path).write_bytes(text[:size])


WORDS = """
user gemini info m1 m2 c1 ls ls__c1 success \ud800 invoke_agent 2026-01-01T00:00:00Z
0001-01-01T00:00+23:59
"""
KEYS = """
id type content displayContent timestamp thoughts tokens model toolCalls $set $rewindTo messages
sessionId projectHash kind text thought functionCall functionResponse inlineData response output
error name args result status resultDisplay agentId subject description input total cached data
mimeType startTime role tool_id stats
"""
LOGS = [
    path for path in sorted(FIXTURES.glob("*.jsonl"))
    if path.name.count(".jsonl") == 1 and not path.name.endswith((".blocks.jsonl", ".all.jsonl"))
]  # fmt: skip
TWINS = [{"functionCall": {"id": "x__1", "name": name}} for name in "xy"]


class Gemini(Client):
    """Gemini CLI: a project's folder has a name and a mark; sessions are logs or documents."""

    architecture = ARCHITECTURE
    bench = GeminiBench
    variable = "GEMINI_CLI_HOME"
    elsewhere = "tmp/elsewhere"
    talk = TALK
    more = log(prompt("more", "u2"), answer("done", "g2", model="gemini-3-pro"))
    model = "gemini-3-pro"
    adopted = f"tmp/place/{MAIN}"
    torn = b'{"id":"u3","type":"us'
    child = f"chats/{ID}/a1b2c3.jsonl"
    child_id = "a1b2c3"
    child_alone = ["orphan-subagent"]
    output = f"tool-outputs/session-{ID}/ls__1.txt"
    whole = {
        MAIN: TALK,
        child: CHILD,
        "chats/session-2026-01-02T03-05-6f1b2f4e.jsonl": FLAT,
        output: b"long",
        OLD: DOCUMENT,
    }
    roles = dict(zip(whole, ("main", "subagent", "subagent", "output", "sidecar"), strict=True))
    family = {
        MAIN: TALK,
        child: CHILD,
        "chats/session-2026-01-02T03-05-6f1b2f4e.jsonl": FLAT,
        "chats/session-2026-01-02T03-06-6f1b2f4e.json": document(
            prompt("Your task is to look"), answer()
        ),
    }
    strangers = {
        f"chats/{OTHER}/a1b2c4.jsonl": log(header("a1b2c4", "subagent"), prompt("look")),
        "chats/session-2026-01-02T03-07-0000000a.jsonl": log(
            header(OTHER, "subagent"), prompt("look")
        ),
        "chats/session-2026-01-02T03-08-6f1b2f4e.jsonl": STUB,
        "chats/skill-extraction-0a1b2c3d/b.json": TALK,
    }
    foreign = {
        "chats/session-x.jsonl": log(header(OTHER), prompt("x")),
        f"chats/{OTHER}/a.jsonl": CHILD,
        f"tool-outputs/session-{OTHER}/x.txt": b"x",
        f"tool-outputs/session-{ID}/.hidden": b"x",
        "tool-outputs/ls_1.txt": b"x",
        "logs.json": b"[]",
    }
    beside = {
        "chats/notes.json": TALK,
        "chats/x.jsonl": CHILD,
        "settings.json": TALK,
        "logs.json.bak": TALK,
        "tool-outputs/a.json": TALK,
    }
    others = {
        "a shorter log": ({MAIN: TALK}, MAIN, TALK[:-20]),
        "another log": ({MAIN: TALK}, MAIN, TALK.replace(b"yes", b"no!")),
        "a document of fewer messages": ({OLD: DOCUMENT}, OLD, document(prompt("hi"))),
        "a document of other words": ({OLD: DOCUMENT}, OLD, document(prompt("hi"), answer("no"))),
        "a half document": ({OLD: DOCUMENT}, OLD, DOCUMENT[:-20]),
        "a child": ({MAIN: TALK, child: TALK}, child, STUB),
    }
    grown = {
        "a log": (MAIN, TALK, TALK + log(prompt("more", "u2"))),
        "a document": (
            OLD, DOCUMENT, document(prompt("hi"), answer("yes, and"), prompt("x", "u2"))),
    }  # fmt: skip
    alien = {
        "another session": ("tmp/x/chats/session-y.jsonl", log(header(OTHER), prompt("x"))),
        "another session's folder": (f"tmp/x/chats/{OTHER}/a.jsonl", b"x"),
        "a chat that says nothing": ("tmp/x/chats/session-y.jsonl", b"x"),
        "settings": ("settings.json", TALK),
        "settings below": ("tmp/x/settings.json", TALK),
        "a mark": ("tmp/x/.project_root", b"/etc"),
        "a way out": (f"tmp/x/chats/{ID}/../../../settings.json", b"x"),
        "a way out of the outputs": (f"tmp/x/tool-outputs/session-{ID}/../x", b"x"),
        "a hidden file": (f"tmp/x/tool-outputs/session-{ID}/.x", b"x"),
        "a line in a name": (f"tmp/x/tool-outputs/session-{ID}/a\nb", b"x"),
        "a shared output": ("tmp/x/tool-outputs/ls_1.txt", b"x"),
        "an empty part": (f"tmp/x/chats/{ID}//a.jsonl", b"x"),
        "no transcript among children": (f"tmp/x/chats/{ID}/a.sh", b"x"),
        "a name no client gives": ("tmp/x/chats/x.jsonl", TALK),
        "deeper": (f"tmp/x/chats/{ID}/a/b.jsonl", b"x"),
    }
    no_ids = ("", "../x", "x/y", "a b", "x" * 200)
    titles = {
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
        "after a command": (_asked("/help", "hi"), "hi"),
        "a command alone": (_asked("/help"), "/help"),
        "not a result": (_asked([{"functionResponse": {"id": "a"}}], "hi"), "hi"),
        "not a hook's": (_asked("<hook_context>x</hook_context>", "hi"), "hi"),
        "a restated one": (log(header(), {"$set": {"messages": [prompt("hi"), answer()]}}), "hi"),
        "half a pair": (log(header()) + rb'{"id":"u","type":"user","content":"\ud800b"}', "?b"),
        "an answer alone": (log(header(), answer()), ""),
        "an image in a log": (
            log(header(), prompt([IMAGE]), answer()), ""),
        "an image in a document": (
            document(prompt([IMAGE]), answer()), ""),
    }  # fmt: skip
    unlisted = {
        "a stub": (STUB, True),
        "a header": (log(header()), True),
        "a subagent's": (log(header(kind="subagent"), prompt("x")), False),
        "notices": (log(header(), message("i", "info", "Request cancelled.")), True),
        "an empty list": (document(), True),
    }
    no_transcripts = (
        f"{NAME}.jsonl.unreadable-1", f"{NAME}.jsonl.tmp-1", "copy.jsonl", "session-a.txt",
    )  # fmt: skip
    stores = {
        "by its name": (".gemini", ["oauth_creds.json"], True),
        "moved": ("config", ["oauth_creds.json", "tmp/w/chats/x"], True),
        "moved, and not used": ("config", ["settings.json", "tmp/w/.project_root"], True),
        "any folder": ("config", ["settings.json", "tmp/w/x.json"], False),
        "a project's": ("config", ["tmp/w/chats/x"], False),
    }
    fixtures = sorted(
        path
        for path in FIXTURES.iterdir()
        if (path.is_dir() and path.name.startswith("subagent-"))
        or (
            path.suffix in (".json", ".jsonl")
            and not path.name.endswith((".blocks.jsonl", ".all.jsonl"))
        )
    )
    logs = cut_logs = LOGS
    any_rows = AnyRows(WORDS.split(), KEYS.split(), 25)
    odd_logs = {
        "two calls of one id": [{"id": "m1", "content": TWINS, "type": "gemini"}],
        "a row that is listed": [{"a": 1}, {"$set": {"messages": [{"a": 1}]}}, {"a": 1}],
    }
    # What was replaced under an id, and what stands for an answer that has nothing yet.
    passing = ("", ".*~.*|.*:l")
    single_ids = False
    tries = 120
    examples = 5
    in_order = False

    @property
    def storage(self) -> Path:
        return self.home / ".gemini"

    @property
    def project(self) -> Path:
        return self.storage / "tmp" / "my-work"

    @property
    def hashed(self) -> Path:
        """The same in clients before 0.29."""
        return self.storage / "tmp" / hashed(str(self.cwd.resolve()))

    @property
    def transcript(self) -> str:
        return MAIN

    @property
    def listed_cwd(self) -> str:
        return str(self.cwd.resolve())

    @property
    def marks(self) -> set[Path]:
        return {self.project / ".project_root"}

    def storage_at(self, folder: Path) -> Path:
        return folder / ".gemini"

    def name_of(self, native_id: str) -> str:
        return f"chats/session-{native_id}.jsonl"

    def asked(self, text: str) -> list[bytes]:
        return [_asked(text) + log(answer()), document(prompt(text), answer())]

    def titled(self, title: str) -> bytes:
        return log({"$set": {"summary": title}})

    def long(self, count: int, text: str) -> bytes:
        return _asked(*[text] * count)

    def stand(self, data: bytes, name: str = "", project: Path | None = None) -> Path:
        """Put a file below a project's folder, as the client would, which marks its own."""
        path = super().stand(data, name, project)
        if project in (None, self.project):
            (self.project / ".project_root").write_text(str(self.cwd.resolve()))
        return path

    @classmethod
    def watch(cls, main: Path) -> Watched:
        return Watched(main, cls.read_by().follow(main, hidden=True))

    def writer(self, folder: Path, contents: dict[Path, bytes], data: Any) -> Writer:
        return Writer(folder, contents, data)

    @classmethod
    def laid_out(cls, fixture: Path) -> dict[Path, bytes]:
        if fixture.is_file():
            return {Path(fixture.name): fixture.read_bytes()}
        chats = fixture / "chats"
        files = {
            path.relative_to(chats): path.read_bytes() for path in sorted(chats.rglob("*.json*"))
        }
        main = min(files, key=lambda path: (len(path.parts), path))
        return {main: files.pop(main), **files}

    @classmethod
    def parsed(cls, main: Path) -> Blocks:
        """Read all files beside and below it, whatever they are called, as `parse` does."""
        sources = [Source(str(path), path=path) for path in sorted(main.parent.rglob("*.json*"))]
        found: Blocks = {}
        for session in cls.read_by().discover(sources):
            if session.transcripts[0].source.name == str(main):
                sink = ParseSink(hidden=True)
                cls.read_by().parse_transcripts(session, sink)
                for block in sink.blocks("all"):
                    found.setdefault(block["conversationId"], []).append(block)
        return found
