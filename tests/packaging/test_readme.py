"""What the README and the pages in docs/ show is what happens."""

from __future__ import annotations

import difflib
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from agentsdir.cli.command_line import read_command
from agentsdir.formats.errors import UsageError

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "docs/tour.md"]
HOWTOS = sorted(f"docs/howto/{path.name}" for path in (ROOT / "docs/howto").glob("*.md"))
END = "\x1e"

# What differs from run to run, and from machine to machine.
CHANGING = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"), "TIME"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "SESSION"),
    (re.compile(r"\b[a-z][a-z0-9]{23}\b"), "AGENT"),
    (re.compile(r"^[a-z][a-z0-9]{7}(?=  )", re.MULTILINE), "SHORT"),
    (re.compile(r"(?<=  )(now|\d+ (s|min) ago)(?=  )"), "AGE"),
    (re.compile(r"(?<=\S)  +(?=\S)"), "  "),  # columns of a table
)


class Example(NamedTuple):
    """One command of a page and what it is said to print."""

    command: str
    output: str

    @property
    def needs_jq(self) -> bool:
        """Whether it runs only where jq is installed."""
        return "jq " in self.command


def fences(page: str, language: str) -> list[str]:
    """Return the fenced pieces of a page in one language."""
    text = (ROOT / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def examples(page: str) -> list[Example]:
    """Return the commands of every `console` fence, in order."""
    found = []
    for fence in fences(page, "console"):
        for piece in re.split(r"^\$ ", fence, flags=re.MULTILINE)[1:]:
            command, _, output = piece.partition("\n")
            found.append(Example(command, output))
    return found


def on_a_terminal(commands: list[str], env: dict[str, str]) -> list[str]:
    """Run commands in one shell on a terminal of their own; return what each printed."""
    ours, theirs = pty.openpty()
    script = "stty -onlcr\n" + "".join(f"{line}\nprintf '{END}'\n" for line in commands)
    with subprocess.Popen(
        ["bash", "-c", script],
        cwd=ROOT,
        env=env,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ):
        os.close(theirs)
        printed = b""
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # the last process has let go of the terminal
                break
            if not chunk:
                break
            printed += chunk
    os.close(ours)
    return printed.decode().split(END)[:-1]


# What a turn took; the pages say that they leave it out.
TAKEN = re.compile(
    r"^\n(\d+ tool calls? · )?\d+(\.\d+)? s( · .*)?\n|^\d+(\.\d+)? s\n", re.MULTILINE
)


def normal(text: str, home: Path) -> str:
    """Return output with ids, times and places made alike."""
    text = TAKEN.sub("", text)
    text = text.replace(str(home), "/home/me").replace(str(ROOT), "/home/me/project")
    # In a table the beginning of a long path is left out.
    cut = re.search(r"…(/?\S+)", text)
    if cut and str(ROOT).endswith(cut[1]):
        text = text.replace(cut[0], "/home/me/project")
    for pattern, name in CHANGING:
        text = pattern.sub(name, text)
    return text


def check(chosen: list[Example], home: Path) -> None:
    """Run examples, and compare what they print with what the page says."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {
        "HOME": str(home),
        "USER": "me",
        "PATH": path,
        "AGENTSDIR_PROVIDER": "echo",
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
    }
    printed = on_a_terminal([example.command for example in chosen], env)

    shown = "".join(f"$ {one.command}\n{normal(one.output, home)}" for one in chosen)
    pairs = zip(chosen, printed, strict=True)
    seen = "".join(f"$ {one.command}\n{normal(text, home)}" for one, text in pairs)
    lines = (shown.splitlines(), seen.splitlines(), "the page", "what happens")
    difference = "\n".join(difflib.unified_diff(*lines, n=2, lineterm=""))
    assert not difference, difference


@pytest.mark.feature("C-01", "C-02", "C-03", "C-04", "C-05", "C-06", "C-07", "C-08")
@pytest.mark.parametrize(("page", "at_least"), [("README.md", 8), ("docs/tour.md", 20)])
def test_the_tour_prints_what_it_shows(tmp_path: Path, page: str, at_least: int) -> None:
    """Every example that needs nothing but agentsdir prints exactly what the page says."""
    chosen = [example for example in examples(page) if not example.needs_jq]

    assert len(chosen) >= at_least
    check(chosen, tmp_path)


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@pytest.mark.feature("C-07", "C-12")
@pytest.mark.parametrize("page", PAGES)
def test_the_examples_with_jq_print_what_they_show(tmp_path: Path, page: str) -> None:
    """With jq, every example prints exactly what the page says, pipes included."""
    chosen = examples(page)

    assert any(example.needs_jq for example in chosen)
    check(chosen, tmp_path)


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@pytest.mark.parametrize("page", HOWTOS)
def test_the_examples_of_a_how_to_print_what_they_show(tmp_path: Path, page: str) -> None:
    """Each page begins anew, in a directory without agents."""
    chosen = examples(page)

    assert chosen
    check(chosen, tmp_path)


ALL_PAGES = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md"))]
ENDS_COMMAND = re.compile(r"[|&;()<>]+")


def command_lines(page: str) -> list[list[str]]:
    """Return the words after `agentsdir` of each command in the `sh` fences of a page."""
    found = []
    for fence in fences(page, "sh"):
        text = re.sub(r"(^|\s)#.*", "", fence, flags=re.MULTILINE)
        text = text.replace("\\\n", " ").replace("\n", " ; ")
        words: list[str] | None = None
        lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        for token in lexer:
            if ENDS_COMMAND.fullmatch(token):
                words = None
            elif words is not None:
                words.append(token)
            elif token == "agentsdir":
                words = []
                found.append(words)
    return [words for words in found if words and not words[0].startswith("-")]


@pytest.mark.parametrize("page", ALL_PAGES)
def test_what_a_page_has_you_type_is_a_command_line(page: str) -> None:
    """Also where it needs a client, and is not run: its verb and its options are there."""
    for words in command_lines(page):
        read_command(words)


def test_the_pages_have_command_lines_and_a_wrong_one_is_noticed() -> None:
    """The search above finds them, quoted words and continued lines too."""
    assert sum(len(command_lines(page)) for page in ALL_PAGES) > 50
    assert ["list", "--native"] in command_lines("README.md")
    with pytest.raises(UsageError):
        read_command(["list", "--nativ"])


def test_a_wrong_example_is_noticed(tmp_path: Path) -> None:
    """The comparison above can fail."""
    with pytest.raises(AssertionError):
        check([Example("agentsdir list", "nothing like this\n")], tmp_path)


def test_it_opens_with_the_two_commands() -> None:
    """The first two shell pieces are one line each: run the main job, run the tests."""
    main_job, tests = fences("README.md", "sh")[:2]

    assert (main_job.count("\n"), tests.count("\n")) == (1, 1)
    for word in ("new", "send", "suspend", "resume", "replay", "parse fixtures/"):
        assert f"agentsdir {word}" in main_job
    assert "pytest" in tests


def test_it_is_short() -> None:
    """What it is for, two commands, a tour and links; the rest stands in docs/."""
    assert (ROOT / "README.md").read_text().count("\n") <= 150


@pytest.mark.feature("B-06", "C-10")
def test_the_adapter_of_the_documents_works_when_installed(tmp_path: Path) -> None:
    """The one of docs/adapters.md, published by its entry point, reads a chat and is listed."""
    page = "docs/adapters.md"
    (code, _), (published,) = fences(page, "python"), fences(page, "toml")
    (tmp_path / "chat_adapter.py").write_text(code)
    information = tmp_path / "chat_adapter-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: chat-adapter\nVersion: 1\n")
    entry = published.splitlines()[1].replace('"', "")
    (information / "entry_points.txt").write_text(f"[agentsdir.adapters]\n{entry}\n")
    talk = '{"who":"me","id":"1","text":"hi"}\n{"who":"it","id":"2","text":"hello"}\n'
    (tmp_path / "talk.chat").write_text(talk)

    def run(*arguments: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "agentsdir.cli.main", *arguments],
            cwd=tmp_path,
            env={"HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout

    parsed = run("parse", "--adapter", "chat", "talk.chat")
    assert re.findall(r'"type":"(\w+)"', parsed) == ["user_message", "assistant_text"]
    assert re.findall(r'"content":"(\w+)"', parsed) == ["hi", "hello"]
    assert '"name":"chat"' in run("adapters", "--json")
