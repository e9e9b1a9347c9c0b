"""How a function is found again in another process: by its module, or by the file it stands in."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import Struct

from retinue.errors import BadInput

__all__ = ["Reference", "reference"]


class Reference(Struct, frozen=True):
    """A function at the top level of a module."""

    module: str
    file: str
    name: str

    def resolve(self) -> Callable[..., Any]:
        """The function, in this process. A script is loaded under another name than `__main__`."""
        return getattr(_module(self.module, self.file), self.name)


def reference(function: Callable[..., object]) -> Reference:
    """What another process needs to find `function`. Raises: BadInput if it would not find it."""
    plain = getattr(function, "__wrapped__", function)
    code = getattr(plain, "__code__", None)
    name = getattr(plain, "__qualname__", "")
    if code is None or not name.isidentifier():
        raise BadInput(
            f"another process cannot find {name or function!r}; the functions of a scenario stand at the top level of "
            "a module"
        )
    return Reference(plain.__module__, str(Path(code.co_filename).absolute()), name)


def _module(name: str, file: str) -> ModuleType:
    if name != "__main__":
        try:
            found = importlib.import_module(name)
        except ImportError:
            found = None  # a test that its runner knows by a name of its own
        if found is not None and Path(found.__file__ or "").absolute() == Path(file):
            return found
    alias = f"crashes:{file}"
    if alias not in sys.modules:
        spec = importlib.util.spec_from_file_location(alias, file)
        if spec is None or spec.loader is None:
            raise BadInput(f"another process cannot load {file!r}; the functions of a scenario stand in a Python file")
        module = sys.modules[alias] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[alias]
