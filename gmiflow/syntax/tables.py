"""The parser's tables: built from the grammar, or loaded from where a build left them.

A wheel carries the tables as `_data/gmi.tables`, made by `write_tables` when it was built. A checkout keeps
them in the user's cache folder, which only the user can write (tables are a pickle: reading them from
a place that others can write would run their code). A file is used only when it was made from exactly
this grammar by this version of Lark; otherwise the grammar is compiled again (about 0.15 s).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import pickle
import stat
from pathlib import Path
from typing import Any, cast

import lark
from lark import Lark

from gmiflow import resources
from gmiflow.cache import user_cache

STARTS = ("start", "item", "value")
"""Start symbols: a file, one declaration, one expression."""


def build(grammar: str, lexer: str = "basic") -> Lark:
    """Compile the grammar.

    The basic lexer is the default: keywords are reserved, so that the contextual one accepts the same
    language (a test compares the trees), starts four times slower and explains mistakes less well.
    """
    return Lark(
        grammar,
        parser="lalr",
        lexer=lexer,
        start=list(STARTS),
        keep_all_tokens=True,
        maybe_placeholders=True,
        propagate_positions=False,
    )


def write_tables(path: Path) -> None:
    """Compile the grammar and write the tables to ``path``; for the wheel's build."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_serialise(resources.grammar_path().read_text(encoding="utf-8")))


def load() -> Lark:
    """The parser, from tables when there are any for this grammar."""
    grammar = resources.grammar_path().read_text(encoding="utf-8")
    packaged = resources.DATA / "gmi.tables"
    if packaged.exists() and (parser := _read(packaged, grammar)):
        return parser
    folder = _cache_folder()
    if folder is None:
        return build(grammar)
    cached = folder / f"{_key(grammar).hex()[:32]}.tables"
    if cached.exists() and (parser := _read(cached, grammar)):
        return parser
    data = _serialise(grammar)
    _write_atomically(cached, data)
    return _deserialise(data, grammar) or build(grammar)


def _key(grammar: str) -> bytes:
    """32 bytes that change whenever the tables would."""
    return hashlib.sha256(f"gmiflow tables 1\n{lark.__version__}\n{grammar}".encode()).digest()


def _serialise(grammar: str) -> bytes:
    content = io.BytesIO()
    cast("Any", build(grammar)).save(content)
    return _key(grammar) + content.getvalue()


def _deserialise(data: bytes, grammar: str) -> Lark | None:
    if data[:32] != _key(grammar):
        return None
    tables: dict[str, Any] = pickle.loads(data[32:])
    return Lark.load(tables)  # type: ignore[arg-type]  # a dict is accepted, and saves a second pass over the file


def _read(path: Path, grammar: str) -> Lark | None:
    try:
        return _deserialise(path.read_bytes(), grammar)
    except (OSError, pickle.UnpicklingError, EOFError, KeyError, AttributeError):
        return None  # a damaged file is as good as none


def _cache_folder() -> Path | None:
    """A folder that this user owns and nobody else can write, or None."""
    if not hasattr(os, "getuid"):
        return None
    cache = user_cache()
    if cache is None:
        return None
    folder = cache / "gmiflow"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return None
    private = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
    return folder if private else None


def _write_atomically(path: Path, data: bytes) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    except OSError:  # a cache that cannot be written costs time, nothing else
        with contextlib.suppress(OSError):
            partial.unlink()
