"""Loads what a command imports sooner than Python would by itself (decision D37).

Of the time that a small command takes, a tenth goes into searches for modules of this program,
which stand where they stand.
"""

from __future__ import annotations

import os
import sys
from _frozen_importlib import ModuleSpec  # what importlib.machinery has, and is there at the start
from _frozen_importlib_external import MAGIC_NUMBER, PathFinder, SourceFileLoader
from _imp import _fix_co_filename  # type: ignore[attr-defined]
from marshal import loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, ModuleType
    from typing import Any

_PACKAGE = "agentsdir."
_BY_TIME = MAGIC_NUMBER + bytes(4)  # the flags: it says by time and size which source it is of
_HEADER = 16
_LARGEST = 64 * 1024
"""Bytes: no module of this program has half as many, and a larger read is slower."""


def load_sooner() -> None:
    """Have modules of this program found where their compiled form stands, without a search.

    Only what Python's search would find, too: the compiled form of that very source. The rest is
    left to that search: packages, and modules that are not compiled yet, were changed since, or are
    damaged. Whoever has put a finder of their own before it goes first.
    """
    if not sys.flags.optimize and sys.pycache_prefix is None and PathFinder in sys.meta_path:
        sys.meta_path.insert(sys.meta_path.index(PathFinder), _Compiled)


class _Compiled:
    """Finds the modules of this program that are compiled. No package is named as one is."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not (name.startswith(_PACKAGE) and path and path[0].startswith("/")):
            return None
        folder, module = path[0], name.rpartition(".")[2]
        source = f"{folder}/{module}.py"
        compiled = f"{folder}/__pycache__/{module}.{sys.implementation.cache_tag}.pyc"
        try:
            code = _code(source, compiled)
        except OSError:
            return None
        if code is None:
            return None
        spec = ModuleSpec(name, _Loaded(name, source, code), origin=source)
        spec.has_location = True
        spec.cached = compiled
        return spec


class _Loaded(SourceFileLoader):
    """Python's own loader, with the code in hand."""

    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self._code: CodeType | None = code

    def get_code(self, fullname: str) -> CodeType | None:
        code, self._code = self._code, None
        return code or super().get_code(fullname)


def _code(source: str, compiled: str) -> CodeType | None:
    """Return a module's code; None where the compiled form is not surely that of the source."""
    descriptor = os.open(compiled, os.O_RDONLY)
    try:
        data = os.read(descriptor, _LARGEST)
    finally:
        os.close(descriptor)
    about = os.stat(source)  # noqa: PTH116, pathlib is not loaded yet
    of_it = _four_bytes(int(about.st_mtime)) + _four_bytes(about.st_size)
    if len(data) == _LARGEST or data[:_HEADER] != _BY_TIME + of_it:
        return None
    code: CodeType = loads(memoryview(data)[_HEADER:])  # noqa: S302, as Python itself does
    if type(code) is not type(_code.__code__):
        return None
    _fix_co_filename(code, source)  # it may have been compiled elsewhere, and moved
    return code


def _four_bytes(number: int) -> bytes:
    return (number & 0xFFFFFFFF).to_bytes(4, "little")


def load_pathlib() -> None:
    """Import `pathlib` less what it imports for URLs, patterns and Windows, until Python 3.13.

    That takes longer than the rest of it, and a small command as long as ten modules of ours.
    Whoever needs it gets it.
    """
    if sys.version_info >= (3, 13) or "pathlib" in sys.modules:
        return
    names = {"fnmatch", "ntpath", "urllib.parse", "warnings"} - sys.modules.keys()
    stand_ins = {name: _Later(name) for name in names}
    sys.modules.update(stand_ins)
    try:
        import pathlib  # noqa: F401
    finally:
        for name, stand_in in stand_ins.items():
            if sys.modules[name] is stand_in:
                del sys.modules[name]


class _Later(type(sys)):  # type: ignore[misc]  # the type of modules
    """Stands in for a module until something of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:  # while it stands in: of a `from … import`
            return lambda *given: self._later(name)(*given)
        return self._later(name)

    def _later(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(__import__(self.__name__, fromlist=[name]), name)
