"""The words of the language, for the parser's messages, the checker and the editors.

Keywords appear again in `grammar/gmi.lark`, which must be readable alone; a test compares the two.
"""

from __future__ import annotations

from typing import Final

KEYWORDS: Final = frozenset(
    (
        "edition",
        "import",
        "as",
        "param",
        "where",
        "record",
        "workflow",
        "target",
        "require",
        "else",
        "range",
        "optional",
        "enum",
        "list",
        "py",
        "simulator",
        "agent",
        "trainer",
        "in",
        "out",
        "auto",
        "true",
        "false",
    )
)
"""Reserved: never the name of anything."""

DECLARATION_KEYWORDS: Final = frozenset(
    ("edition", "import", "param", "record", "workflow", "target", "require", "simulator", "agent", "trainer")
)
"""A top-level declaration starts with one of these."""

ROLES: Final = ("simulator", "agent", "trainer")
AXES: Final = ("env", "time")
DTYPES: Final = ("f32", "f16", "bf16", "i32", "i64", "u8", "bool")
EDITIONS: Final = (1,)

DIMENSIONS: Final[dict[str, str]] = {
    "bytes": "bytes",
    "seconds": "seconds",
    "hertz": "hertz",
    "fraction": "a fraction",
    "bytes_per_second": "bytes per second",
}
"""Names of quantity types, which are also the dimensions, and how messages call them."""

UNITS: Final[dict[str, tuple[str, float]]] = {
    "B": ("bytes", 1),
    "KiB": ("bytes", 2**10),
    "MiB": ("bytes", 2**20),
    "GiB": ("bytes", 2**30),
    "TiB": ("bytes", 2**40),
    "ns": ("seconds", 1e-9),
    "us": ("seconds", 1e-6),
    "ms": ("seconds", 1e-3),
    "s": ("seconds", 1.0),
    "min": ("seconds", 60.0),
    "Hz": ("hertz", 1.0),
    "kHz": ("hertz", 1e3),
    "MHz": ("hertz", 1e6),
    "GHz": ("hertz", 1e9),
    "%": ("fraction", 0.01),
    "MB/s": ("bytes_per_second", 1e6),
    "GB/s": ("bytes_per_second", 1e9),
    "TB/s": ("bytes_per_second", 1e12),
}
"""Unit to dimension and factor to the base unit."""

FUNCTIONS: Final = ("min", "max", "ceil", "floor", "log2")

TERMINALS: Final[dict[str, str]] = {
    "NAME": "a name",
    "INT": "a whole number",
    "FLOAT": "a number",
    "QUANTITY": "a quantity such as `4 GiB`",
    "STRING": "a string in double quotes",
    "DOC": "a `///` comment",
    "COMPARE": "a comparison",
    "_NL": "the end of the line",
    "$END": "the end of the file",
    "LBRACE": "`{`",
    "RBRACE": "`}`",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LSQB": "`[`",
    "RSQB": "`]`",
    "COMMA": "`,`",
    "COLON": "`:`",
    "_DOT": "`.`",
    "DOTDOT": "`..`",
    "ARROW": "`->`",
    "_ASSIGN": "`=`",
    "PLUS": "`+`",
    "MINUS": "`-`",
    "STAR": "`*`",
    "SLASH": "`/`",
    "BANG": "`!`",
    "AND": "`&&`",
    "OR": "`||`",
    "COMMENT": "a comment",
    "CONTINUATION": "a continued line",
    "SPACE": "a space",
    **{name: f"`{name.strip('_').lower()}`" for name in ("SIMULATOR", "AGENT", "TRAINER", "IN", "OUT", "AUTO")},
    **{name: f"`{name.strip('_').lower()}`" for name in ("TRUE", "FALSE", "_EDITION", "_IMPORT", "_AS", "_PARAM")},
    **{name: f"`{name.strip('_').lower()}`" for name in ("_WHERE", "_RECORD", "_WORKFLOW", "_TARGET", "_REQUIRE")},
    **{name: f"`{name.strip('_').lower()}`" for name in ("_ELSE", "_RANGE", "_OPTIONAL", "_ENUM", "_LIST", "_PY")},
}
"""What a message calls each terminal of the grammar."""
