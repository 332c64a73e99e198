"""Highlighting of `.gmi` for Pygments, so for Sphinx, MkDocs and `pygmentize`.

Keywords, types, functions and units come from `gmiflow.syntax.words`, as the parser's and the checker's do.
Pygments finds this lexer through the `pygments.lexers` entry point; gmiflow itself never imports it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from pygments.lexer import RegexLexer, bygroups, words
from pygments.token import (
    Comment,
    Keyword,
    Name,
    Number,
    Operator,
    Punctuation,
    String,
    Whitespace,
)

from gmiflow.syntax.words import AXES, DECLARATION_KEYWORDS, DIMENSIONS, DTYPES, FUNCTIONS, KEYWORDS, UNITS

__all__ = ["GmiLexer"]

CONSTANTS = ("true", "false", "auto")
TYPES = (*DTYPES, *DIMENSIONS, "int", "float", "string", "weights")
_NUMBER = r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
_UNIT = "|".join(re.escape(unit) for unit in sorted(UNITS, key=len, reverse=True))
_NAME = r"[^\W\d]\w*"


class GmiLexer(RegexLexer):
    """Lexer of the gmiflow language."""

    name = "gmiflow"
    aliases: ClassVar[Sequence[str]] = ["gmi", "gmiflow"]
    filenames: ClassVar[Sequence[str]] = ["*.gmi"]
    mimetypes: ClassVar[Sequence[str]] = ["text/x-gmi"]
    url = ""
    version_added = ""

    tokens: ClassVar = {
        "root": [
            (r"\s+", Whitespace),
            (r"///(?!/)[^\r\n]*", String.Doc),
            (r"//[^\r\n]*", Comment.Single),
            (r'(py)([ \t]+)("(?:[^"\\\r\n]|\\.)*")', bygroups(Keyword, Whitespace, Name.Class)),
            (r'"', String.Double, "string"),
            (rf"({_NUMBER})([ \t]*)({_UNIT})(?![\w/])", bygroups(Number, Whitespace, Keyword.Type)),
            (r"\d+(?:\.\d+(?:[eE][+-]?\d+)?|[eE][+-]?\d+)(?!\w)", Number.Float),
            (r"\d+(?!\w)", Number.Integer),
            (words(CONSTANTS, suffix=r"\b"), Keyword.Constant),
            (words(sorted(DECLARATION_KEYWORDS), suffix=r"\b"), Keyword.Declaration),
            (words(sorted(KEYWORDS - DECLARATION_KEYWORDS - set(CONSTANTS)), suffix=r"\b"), Keyword),
            (words(TYPES, suffix=r"\b"), Keyword.Type),
            (words(AXES, suffix=r"\b"), Name.Builtin.Pseudo),
            (words(FUNCTIONS, suffix=r"\b(?=\s*\()"), Name.Builtin),
            (_NAME, Name),
            (r"->|\.\.|==|!=|<=|>=|&&|\|\||[-+*/<>=!]", Operator),
            (r"[{}()\[\],:.]", Punctuation),
        ],
        "string": [
            (r'[^"\\\r\n]+', String.Double),
            (r'\\[nt"\\]', String.Escape),
            (r"\\", String.Double),
            (r'"|(?=[\r\n])', String.Double, "#pop"),
        ],
    }
