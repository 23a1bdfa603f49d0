"""Where Claude Code keeps its transcripts, and how it names a project's folder."""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

from agentsdir.adapters.contract import Paths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentsdir.adapters.contract import Host

MAX_NAME = 200
_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"


def claude_paths(home: Path, cwd: Path, env: Mapping[str, str]) -> Paths:
    """Return the client's root and the folder of the transcripts made in `cwd`.

    `cwd` must be resolved: the client names the folder after the real path.
    """
    configured = env.get("CLAUDE_CONFIG_DIR")
    root = Path(unicodedata.normalize("NFC", configured)) if configured else home / ".claude"
    return Paths(storage=root, transcripts=root / "projects" / munge(str(cwd)))


def host_paths(host: Host, cwd: str) -> Paths:
    """Return the same for a client that runs on `host`, in whatever home its settings give it."""
    variables = {**host.variables, **host.environment}
    home = Path(variables.get("HOME") or host.home)
    return claude_paths(home, Path(os.path.realpath(cwd)), variables)


def munge(cwd: str) -> str:
    """Return the folder name for a working directory. It cannot be turned back.

    The client replaces UTF-16 units, so a character beyond the BMP gives two hyphens. Names
    over 200 are cut and get a hash, which differs between the client's runtimes: this is Node's.
    """
    units = unicodedata.normalize("NFC", cwd).encode("utf-16-le", "surrogatepass")
    codes = [int.from_bytes(units[at : at + 2], "little") for at in range(0, len(units), 2)]
    name = re.sub("[^A-Za-z0-9]", "-", "".join(chr(code) if code < 128 else "-" for code in codes))
    if len(name) <= MAX_NAME:
        return name
    return f"{name[:MAX_NAME]}-{_hash(codes)}"


def _hash(codes: list[int]) -> str:
    value = 0
    for code in codes:
        value = (value * 31 + code) & 0xFFFFFFFF
    rest = abs(value - 2**32 if value >= 2**31 else value)
    digits = ""
    while rest:
        rest, digit = divmod(rest, 36)
        digits = _BASE36[digit] + digits
    return digits or "0"
