"""What is loaded sooner is what Python would have loaded (decision D37)."""

from __future__ import annotations

import compileall
import json
import marshal
import os
import py_compile
import shutil
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

TIMEOUT = 60
WORD = "agentsdir.sample.word"
# Imports the module, and says which loader it came by and what it says of itself.
PROGRAM = f"""
import json, os, sys
from agentsdir.cli.loading import load_sooner
if sys.argv[1:]:
    load_sooner()
open_before = os.listdir("/proc/self/fd")
import {WORD} as word
spec = word.__spec__
code = word.__loader__.get_code
json.dump(
    {{
        "said": word.said(),
        "left open": len(os.listdir("/proc/self/fd")) - len(open_before),
        "sooner": type(word.__loader__).__module__ == "agentsdir.cli.loading",
        "module": [word.__name__, word.__package__, word.__file__, word.__cached__, word.__doc__],
        "spec": [spec.name, spec.parent, spec.origin, spec.cached, spec.has_location],
        "source": word.__loader__.get_source(word.__name__),
        "again": [code(word.__name__).co_filename, code(word.__name__) is code(word.__name__)],
        "code": [word.said.__code__.co_filename, word.said.__code__.co_firstlineno],
    }},
    sys.stdout,
)
"""


@pytest.fixture
def word(tmp_path: Path) -> Path:
    """Return a module that is compiled, in a package that stands beside the program's own."""
    source = tmp_path / "agentsdir" / "sample" / "word.py"
    source.parent.mkdir(parents=True)
    source.with_name("__init__.py").touch()
    say(source, "one")
    assert compileall.compile_dir(source.parent, quiet=2)
    return source


def say(source: Path, said: str) -> None:
    """Write the module anew."""
    source.write_text(f'"""Says it."""\n\n\ndef said():\n    return "{said}"\n')


def compiled(source: Path) -> Path:
    """Return where its compiled form stands."""
    return Path(cache_from_source(str(source)))


def load(
    source: Path, *options: str, sooner: bool = True, cwd: Path | None = None
) -> dict[str, object]:
    """Import the module in a new process; return what that says of it."""
    done = subprocess.run(
        [sys.executable, *options, "-c", PROGRAM, *(["sooner"] if sooner else [])],
        env={"PYTHONPATH": str(source.parents[2]), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=True,
        timeout=TIMEOUT,
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_a_compiled_module_is_loaded_sooner_and_is_the_same(word: Path) -> None:
    """It knows its files, its source and its lines as any other does."""
    sooner, later = load(word), load(word, sooner=False)

    assert sooner.pop("sooner")
    assert not later.pop("sooner")
    assert sooner == later


@pytest.mark.parametrize("said", ["two", "three"], ids=["of the same size", "of another size"])
def test_a_changed_source_counts_at_once(word: Path, said: str) -> None:
    """The compiled form says which source it is of: when that was written, and its size."""
    before = word.stat()
    say(word, said)
    if word.stat().st_size == before.st_size:
        os.utime(word, (before.st_atime, before.st_mtime + 1))
    else:
        os.utime(word, (before.st_atime, before.st_mtime))

    found = load(word)

    assert (found["said"], found["sooner"]) == (said, False)


@pytest.mark.parametrize("seconds", [-2, 2**32 + 7], ids=["before 1970", "after 2106"])
def test_the_time_of_a_source_may_be_any(word: Path, seconds: int) -> None:
    """Of its seconds 32 bits are compared, as Python has it."""
    os.utime(word, (seconds, seconds))
    py_compile.compile(str(word))

    assert load(word)["sooner"]


def test_what_was_compiled_elsewhere_and_moved_says_where_it_is(word: Path, tmp_path: Path) -> None:
    """As `pip install --target` and a copied environment do: tracebacks name the file that ran."""
    moved = tmp_path / "moved" / "agentsdir" / "sample" / word.name
    shutil.copytree(word.parents[1], moved.parents[1])
    shutil.rmtree(word.parents[1])

    sooner, later = load(moved), load(moved, sooner=False)

    assert sooner.pop("sooner")
    assert not later.pop("sooner")
    assert sooner == later


def test_a_source_that_is_gone_takes_its_compiled_form_with_it(word: Path) -> None:
    """As ever: else a module that was removed would go on working where it once ran."""
    word.unlink()

    with pytest.raises(subprocess.CalledProcessError) as failed:
        load(word)

    assert "ModuleNotFoundError" in failed.value.stderr


def remove(source: Path) -> None:
    """Not compiled yet."""
    compiled(source).unlink()


def name_by_hash(source: Path) -> None:
    """Compiled reproducibly: another form, which Python checks in another way."""
    py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)


def say_so_by_a_flag(source: Path) -> None:
    """Compiled reproducibly, by a hash that looks like a time and a size."""
    data = compiled(source).read_bytes()
    compiled(source).write_bytes(data[:4] + b"\x01\0\0\0" + data[8:])


def be_of_another_python(source: Path) -> None:
    """Compiled by another version."""
    data = compiled(source).read_bytes()
    compiled(source).write_bytes(b"\0\0" + data[2:])


def be_empty(source: Path) -> None:
    """Cut at the start."""
    compiled(source).write_bytes(b"")


def be_large(source: Path) -> None:
    """Compiled, and larger than any module of the program."""
    source.write_text(source.read_text() + f"\nLARGE = {'x' * 70_000!r}\n")
    py_compile.compile(str(source))


@pytest.mark.parametrize(
    "change",
    [remove, name_by_hash, say_so_by_a_flag, be_of_another_python, be_empty, be_large],
    ids=lambda change: str(change.__doc__),
)
def test_whatever_else_there_is_is_left_to_python(word: Path, change: object) -> None:
    """It is loaded all the same."""
    assert callable(change)
    change(word)

    found = load(word)

    assert (found["said"], found["sooner"]) == ("one", False)


@pytest.mark.parametrize(
    ("body", "said"),
    [(None, "EOFError"), (42, "ImportError: Non-code"), ("print('ran')", "ImportError: Non-code")],
    ids=["cut", "a number", "a text"],
)
def test_a_damaged_compiled_form_fails_as_it_does_without(
    word: Path, body: object, said: str
) -> None:
    """Python says so itself, and nothing of it is run."""
    data = compiled(word).read_bytes()
    damaged = data[:40] if body is None else data[:16] + marshal.dumps(body)
    compiled(word).write_bytes(damaged)
    found = []

    for sooner in (True, False):
        with pytest.raises(subprocess.CalledProcessError) as failed:
            load(word, sooner=sooner)
        found.append((failed.value.stdout, failed.value.stderr.splitlines()[-1]))

    assert found[0] == found[1]
    assert found[0][0] == ""
    assert found[0][1].startswith(said)


def test_a_finder_that_somebody_put_first_goes_first() -> None:
    """As tools do that look at what is imported."""
    program = """
import sys
from agentsdir.cli.loading import load_sooner
class Theirs:
    def find_spec(self, name, path=None, target=None):
        asked.append(name)
asked = []
sys.meta_path.insert(0, Theirs())
load_sooner()
import agentsdir.cli.exits
assert "agentsdir.cli.exits" in asked, asked
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=TIMEOUT)


def test_options_that_name_other_compiled_forms_are_heeded(word: Path, tmp_path: Path) -> None:
    """`-O` has compiled forms of its own, and `pycache_prefix` has them elsewhere."""
    elsewhere = f"pycache_prefix={tmp_path / 'elsewhere'}"

    assert not load(word, "-O")["sooner"]
    assert not load(word, "-X", elsewhere)["sooner"]


def test_nothing_is_loaded_from_where_the_command_is_run(word: Path, tmp_path: Path) -> None:
    """A path that is no absolute one, as editable installations have, is left to Python."""
    program = """
import sys
from agentsdir.cli import loading
assert loading._Compiled.find_spec("agentsdir.sample.word", [sys.argv[1]]) is not None
assert loading._Compiled.find_spec("agentsdir.sample.word", ["agentsdir/sample"]) is None
assert loading._Compiled.find_spec("agentsdir.sample.word", []) is None
assert loading._Compiled.find_spec("agentsdir.sample.word", None) is None
assert loading._Compiled.find_spec("elsewhere.word", [sys.argv[1]]) is None
"""
    subprocess.run(
        [sys.executable, "-c", program, str(word.parent)], cwd=tmp_path, check=True, timeout=TIMEOUT
    )


def test_the_modules_of_a_turn_are_loaded_sooner() -> None:
    """All that are no packages, once they are compiled."""
    program = """
import sys
from agentsdir.cli.loading import load_sooner
before = set(sys.modules)
load_sooner()
import agentsdir.cli.sending, agentsdir.engine.turns, agentsdir.adapters.echo.provider
for name in sorted(sys.modules.keys() - before):
    module = sys.modules[name]
    if name.startswith("agentsdir.") and not hasattr(module, "__path__"):
        print(type(module.__loader__).__module__)
"""
    for _ in range(2):  # the first compiles what nobody has used yet
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={}, capture_output=True, text=True, check=True, timeout=TIMEOUT,
        )  # fmt: skip

    loaders = done.stdout.split()
    assert len(loaders) > 40
    assert set(loaders) == {"agentsdir.cli.loading"}


def test_the_way_to_a_url_is_loaded_when_it_is_asked_for() -> None:
    """`pathlib` is loaded without it."""
    program = """
import sys
before = "pathlib" in sys.modules
from agentsdir.cli.loading import load_pathlib
load_pathlib()
from pathlib import Path
assert before or "urllib.parse" not in sys.modules or sys.version_info >= (3, 13)
print(Path("/a b").as_uri())
import urllib.parse
print(urllib.parse.quote("a b"))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=TIMEOUT
    )
    assert done.stdout.split() == ["file:///a%20b", "a%20b"]
