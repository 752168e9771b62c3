"""Which code of the user's is at work: a digest of every module that is neither Python's, installed, nor Calipers' own.

What an audit or a training keeps for later belongs to the code that made it. A function calls others, which stand in
other files; so all modules of the user's that are loaded count, and those that they would import when they are called.
`__main__` does not: whoever goes on with something edits the script that says so. What is taken from the script itself
is known by its own text (`calipers.auditing.targets.source_digest`, `calipers.training.fingerprint`).

Two sessions may load different modules, so only those that both have can be compared. A module that is imported by a
name that is computed, and data that code reads, are not seen here: what was kept is therefore also played again.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import site
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

MAIN = "__main__"
_SCRIPT = (MAIN, "__mp_main__")  # the second is how processes of `multiprocessing` call it
_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


def user_modules() -> dict[str, str]:
    """The SHA-256 of the file of each module of the user's, by the module's name.

    Returns:
        One entry for every module that is loaded, or that a statement in one of these (or in the script) would import.
    """
    waiting = [(name, path) for name, module in list(sys.modules.items()) if (path := _file_of(module)) is not None]
    found: dict[str, str] = {}
    while waiting:
        name, path = waiting.pop()
        if name in found:
            continue
        try:
            content = Path(path).read_bytes()
        except OSError:
            continue
        found[name] = hashlib.sha256(content).hexdigest()
        if path.endswith(".py"):
            package = name if Path(path).name == "__init__.py" else name.rpartition(".")[0]
            waiting += [one for one in _imported(content, package) if one[0] not in found]
    return {name: found[name] for name in sorted(found) if name not in _SCRIPT}


def changed_modules(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The modules that both have, with another digest; in order."""
    return sorted(name for name, digest in before.items() if now.get(name, digest) != digest)


def is_users(path: str | None) -> bool:
    """Whether a file is neither Python's, nor installed, nor one of Calipers."""
    if path is None or _is_others(path) or not os.path.isfile(path):
        return False
    return not _is_others(os.path.realpath(path))


def _is_others(path: str) -> bool:
    return any(part in path for part in _INSTALLED) or path.startswith(_others())


@cache
def _others() -> tuple[str, ...]:
    """The folders of Python itself, of what is installed, and of Calipers, as they are called and as they are."""
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    installed = [sysconfig.get_path(kind) for kind in kinds] + [*site.getsitepackages(), site.getusersitepackages()]
    own = [str(Path(__file__).parent), str(Path(__file__).parent.with_name("calipers_verify"))]
    folders = {way(folder) for folder in [*installed, *own] if folder for way in (os.path.abspath, os.path.realpath)}
    return tuple(os.path.join(folder, "") for folder in folders)


def _file_of(module: ModuleType | None) -> str | None:
    path = getattr(module, "__file__", None)
    return path if isinstance(path, str) and is_users(path) else None


def _imported(content: bytes, package: str) -> Iterator[tuple[str, str]]:
    """The modules of the user's that the statements of a file would import, wherever they stand in it."""
    for name in _named(content, package):
        yield from _found(name)


@lru_cache(maxsize=512)
def _named(content: bytes, package: str) -> tuple[str, ...]:
    """The names in these statements; audits that train hundreds of models ask again for every one."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom) and (base := _absolute(node, package)):
            names += [base, *(f"{base}.{one.name}" for one in node.names)]
    return tuple(dict.fromkeys(names))


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    try:
        return importlib.util.resolve_name("." * node.level + (node.module or ""), package)
    except ImportError:
        return ""


def _found(name: str) -> Iterator[tuple[str, str]]:
    """A module of the user's and the packages around it, looked for without importing anything."""
    folders = None
    parts = name.split(".")
    if parts[0] in sys.stdlib_module_names or parts[0] in ("calipers", "calipers_verify"):
        return
    for end in range(1, len(parts) + 1):
        whole = ".".join(parts[:end])
        try:
            spec = PathFinder.find_spec(whole, folders)
        except (ImportError, ValueError, OSError):
            return
        if spec is None:
            return
        if is_users(spec.origin):
            yield whole, str(spec.origin)
        elif spec.origin is not None:
            return
        folders = list(spec.submodule_search_locations or ())
        if not folders:
            return
