"""Which provider an agent gets that is made without one (docs/configuration.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def undecided(shell: Any, tmp_path: Path) -> Any:
    """Return a user who set no provider, and whose search path has no client."""
    shell.variables["AGENTSDIR_PROVIDER"] = ""
    shell.variables["PATH"] = str(tmp_path / "bin")
    return shell


def install(shell: Any, *names: str) -> None:
    """Put programs on the search path."""
    folder = Path(shell.variables["PATH"])
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\nexit 1\n")
        (folder / name).chmod(0o755)


def configure(shell: Any, text: str) -> None:
    """Write the user's config.toml."""
    path = shell.home / ".config/agentsdir/config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    path.chmod(0o600)


def provider_of(shell: Any, agent: str) -> str:
    """Return the provider that an agent was made with."""
    return str(shell.log(agent)[0]["data"]["provider"])


@pytest.mark.parametrize("name", ["claude", "gemini"])
def test_the_one_client_on_the_search_path_is_taken(undecided: Any, name: str) -> None:
    """Nothing is said of it: it is what was wanted."""
    install(undecided, name)
    assert provider_of(undecided, undecided.new()) == name


def test_of_two_clients_none_is_taken(undecided: Any) -> None:
    """The error names both, and nothing is made; a name decides, once or for good."""
    install(undecided, "claude", "gemini")
    done = undecided("new", "--json")
    assert (done.code, done.error["kind"]) == (2, "which-provider")
    assert "claude and gemini" in done.error["message"]
    assert not undecided.root.exists()
    assert provider_of(undecided, undecided.new("--provider", "gemini")) == "gemini"
    configure(undecided, 'provider = "claude"\n')
    assert provider_of(undecided, undecided.new()) == "claude"


def test_without_a_client_it_is_echo_and_a_note_says_so(undecided: Any) -> None:
    """A file that is no program, and a folder of the name, are no client."""
    install(undecided)
    folder = Path(undecided.variables["PATH"])
    (folder / "claude").write_text("")
    (folder / "gemini").mkdir()
    done = undecided("new")
    assert done.code == 0
    assert "not on your search path" in done.err
    assert "echo" in done.err
    assert provider_of(undecided, done.out.strip()) == "echo"


def test_the_command_of_config_toml_counts_as_the_client(undecided: Any, tmp_path: Path) -> None:
    """Wherever it is; a client whose command is gone is not there."""
    install(undecided, "claude", "wrapper")
    configure(
        undecided,
        '[providers.claude]\ncommand = "gone"\n[providers.gemini]\ncommand = ["wrapper", "-x"]\n',
    )
    assert provider_of(undecided, undecided.new()) == "gemini"


@pytest.mark.parametrize("entry", ["", ".", "bin"])
def test_a_program_in_the_current_folder_is_no_client(
    undecided: Any, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    """Nor one that a relative or empty entry of PATH finds: the folder may be a stranger's."""
    undecided.variables["PATH"] = str(undecided.cwd / entry)
    install(undecided, "claude")
    undecided.variables["PATH"] = f"{entry}:/nowhere"
    monkeypatch.chdir(undecided.cwd)
    assert provider_of(undecided, undecided("new").out.strip()) == "echo"


def test_what_is_nearer_decides(undecided: Any) -> None:
    """The option, the variable, settings.toml, config.toml, in this order."""
    undecided.new("--provider", "echo")
    settings = undecided.root / "settings.toml"
    configure(undecided, 'provider = "gemini"\n')
    settings.write_text('provider = "claude"\n')
    settings.chmod(0o600)
    assert provider_of(undecided, undecided.new()) == "claude"
    undecided.variables["AGENTSDIR_PROVIDER"] = "echo"
    assert provider_of(undecided, undecided.new()) == "echo"
    assert provider_of(undecided, undecided.new("--provider", "gemini")) == "gemini"
    undecided.variables["AGENTSDIR_PROVIDER"] = ""
    settings.unlink()
    assert provider_of(undecided, undecided.new()) == "gemini"


def test_an_agent_that_is_there_needs_no_choice(undecided: Any) -> None:
    """A schedule that made its agent before a second client was installed goes on."""
    agent = undecided.new("--provider", "echo", "--name", "nightly")
    install(undecided, "claude", "gemini")
    assert undecided.ok("send", "--create", "nightly", "hi").out == "hi\n"
    assert undecided.ok("new", "--name", "nightly", "--get").out.strip() == agent
    assert undecided("send", "--ephemeral", "hi").code == 2
