"""Where in the language a cursor is: which brackets are open around it, and which words the grammar accepts there.

The brackets come from the compiler's tokens, the words from its parser: it is fed the declaration up to the cursor
and asked what it accepts. Statements before the cursor that are not finished or wrong are left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, cast

from lark.exceptions import UnexpectedToken

from gmiflow.lsp.analysis import Analysis
from gmiflow.lsp.indexing import SECTIONS, TABLES
from gmiflow.syntax import lexer
from gmiflow.syntax.lexer import Token
from gmiflow.syntax.words import DECLARATION_KEYWORDS, KEYWORDS, ROLES

OPENERS = {"LPAR": "RPAR", "LSQB": "RSQB", "LBRACE": "RBRACE"}
"""Terminal of every bracket that opens to that of the one that closes it."""
_COMMENT = re.compile(r"//[^\r\n]*$")
_KEYWORD_TERMINALS = {f"{prefix}{word.upper()}": word for word in KEYWORDS for prefix in ("", "_")}
"""Names that the terminal of a keyword may have in the grammar, to the keyword."""

Inside: TypeAlias = Literal["nothing", "comment", "string", "code"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """An open bracket.

    Attributes:
        bracket: terminal of the bracket.
        head: the tokens of the statement before it.
        commas: how many came before it in the bracket around it.
    """

    bracket: str
    head: tuple[Token, ...]
    commas: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """A place in a file.

    Attributes:
        inside: whether something can be completed as code there; "nothing" is behind the digits of a number.
        start: where the word at the cursor starts.
        prefix: the word, up to the cursor.
        frames: open brackets, outermost first.
        statement: tokens before the word since the last separator.
        keywords: keywords that the grammar accepts.
        accepts_name: whether it accepts a name.
        commas: arguments before the cursor in the innermost bracket.
        names: names before the cursor in the innermost bracket.
    """

    inside: Inside
    start: int
    prefix: str
    frames: tuple[Frame, ...] = ()
    statement: tuple[Token, ...] = ()
    keywords: frozenset[str] = frozenset()
    accepts_name: bool = False
    commas: int = 0
    names: frozenset[str] = frozenset()

    @property
    def declaration(self) -> str:
        """Keyword of the declaration around the place, "" outside of all."""
        head = self.frames[0].head if self.frames else self.statement
        return head[0].value if head and head[0].value in DECLARATION_KEYWORDS else ""

    @property
    def previous(self) -> str:
        """Terminal of the token before the word, "" at the start of a statement."""
        return self.statement[-1].type if self.statement else ""


def context_at(analysis: Analysis, offset: int) -> Context:
    """Look at the text before an offset."""
    text = analysis.text
    line_start = text.rfind("\n", 0, offset) + 1
    try:
        tokens = _before(text, offset)
    except lexer.TooLong:
        return Context(inside="nothing", start=offset, prefix="")
    last = tokens[-1] if tokens else None
    if last is not None and last.type == lexer.ERROR and last.value.startswith('"'):  # not closed before the cursor
        text = last.value[1 : max(1, offset - last.start_pos)]
        return replace(_in_code(tokens[:-1], last.start_pos + 1, text), inside="string")
    code_end = last.end_pos if last is not None and last.type != "_NL" else 0  # line ends hold comments, too
    if _COMMENT.search(text, max(line_start, code_end), offset):
        return Context(inside="comment", start=offset, prefix="")
    if last is not None and last.type == "DOC" and last.end_pos >= offset:
        return Context(inside="comment", start=offset, prefix="")
    start, prefix = offset, ""
    if last is not None and last.end_pos == offset and (last.type == "NAME" or last.value in KEYWORDS):
        start, prefix = last.start_pos, last.value
        tokens = tokens[:-1]
    elif last is not None and last.end_pos == offset and last.type in ("INT", "FLOAT", "QUANTITY", lexer.ERROR):
        return replace(_in_code(tokens[:-1], offset, ""), inside="nothing")
    return _in_code(tokens, start, prefix)


def _before(text: str, offset: int) -> list[Token]:
    """The tokens of the declaration up to an offset; declarations before it are skipped."""
    start = declaration_start(text, offset)
    return lexer.raw_tokens(text[start:offset], start)


def declaration_start(text: str, offset: int) -> int:
    """The last line start before an offset where a declaration keyword stands in column 1."""
    place = offset
    while place > 0:
        place = text.rfind("\n", 0, place) + 1
        word = re.compile(r"[a-z]+\b").match(text, place, offset)
        if word is not None and word.group() in DECLARATION_KEYWORDS:
            return place
        place -= 1
    return 0


@dataclass(slots=True)
class _Level:
    """What was read so far in one open bracket, or outside of all: the last statement, how many commas, all names."""

    statement: list[Token] = field(default_factory=list[Token])
    commas: int = 0
    names: set[str] = field(default_factory=set[str])


def _in_code(tokens: list[Token], start: int, prefix: str) -> Context:
    frames: list[Frame] = []
    levels = [_Level()]
    for token in tokens:
        kind = token.type
        if kind in OPENERS:
            frames.append(Frame(bracket=kind, head=tuple(levels[-1].statement), commas=levels[-1].commas))
            levels[-1].statement.append(token)
            levels.append(_Level())
        elif kind in OPENERS.values():
            if frames and OPENERS[frames[-1].bracket] == kind:
                frames.pop()
                levels.pop()
            levels[-1].statement.append(token)
        elif kind == "COMMA" or (kind == "_NL" and (not frames or frames[-1].bracket == "LBRACE")):
            levels[-1].statement = []
            levels[-1].commas += kind == "COMMA"
        elif kind not in ("_NL", "DOC"):
            levels[-1].statement.append(token)
            levels[-1].names |= {token.value} if kind == "NAME" else set()
    innermost = levels[-1]
    accepted = _accepted(tokens, frames, innermost.statement)
    return Context(
        inside="code",
        start=start,
        prefix=prefix,
        frames=tuple(frames),
        statement=tuple(innermost.statement),
        keywords=frozenset(_KEYWORD_TERMINALS[name] for name in accepted if name in _KEYWORD_TERMINALS),
        accepts_name="NAME" in accepted,
        commas=innermost.commas,
        names=frozenset(innermost.names),
    )


def _accepted(tokens: list[Token], frames: list[Frame], statement: list[Token]) -> frozenset[str]:
    """Terminals that the grammar accepts: after everything, or else after the heads and the statement alone."""
    if not frames and not statement:
        return accepted_after([])
    whole = accepted_after(_without_empty_lines(tokens))
    if whole:
        return whole
    short = [token for frame in frames for token in (*frame.head, Token(frame.bracket, "", 0, 0))]
    return accepted_after([*short, *statement])


def accepted_after(tokens: list[Token]) -> frozenset[str]:
    """Terminals that may follow some tokens of one declaration; empty when the tokens are wrong."""
    state = cast("Any", lexer.parser()).parse_interactive(start="item")
    try:
        for token in tokens:
            state.parser_state.feed_token(token)
    except UnexpectedToken:
        return frozenset()
    return frozenset(cast("set[str]", state.accepts()))


def _without_empty_lines(tokens: list[Token]) -> list[Token]:
    """As the parser sees them: without the newlines that end nothing."""
    kept: list[Token] = []
    depth: list[str] = []
    for token in tokens:
        if token.type == "_NL" and (
            not kept or kept[-1].type in ("_NL", "LBRACE", "COMMA") or (depth and depth[-1] != "LBRACE")
        ):
            continue
        if token.type in OPENERS:
            depth.append(token.type)
        elif token.type in OPENERS.values() and depth:
            depth.pop()
        kept.append(token)
    return kept


def is_stage_declaration(head: tuple[Token, ...]) -> bool:
    """Whether tokens start a stage (`agent actor = ...`), not a stage type."""
    return len(head) >= 3 and head[0].value in ROLES and head[2].type == "_ASSIGN"


def type_is_due(head: tuple[Token, ...]) -> bool:
    """Whether a type comes next: directly behind a colon, or behind the `auto` of a type."""
    behind_auto = len(head) >= 2 and head[-1].type == "AUTO" and head[-2].type == "COLON"
    return bool(head) and (head[-1].type == "COLON" or behind_auto)


def trailing_path(head: tuple[Token, ...]) -> list[str]:
    """The names of the path that some tokens end with: `ppo.Actor` of `agent actor = ppo.Actor`."""
    names: list[str] = []
    index = len(head) - 1
    while index >= 0 and head[index].type == "NAME":
        names.insert(0, head[index].value)
        if index < 2 or head[index - 1].type != "_DOT":
            break
        index -= 2
    return names


def table_of(frames: tuple[Frame, ...]) -> str:
    """The table of settings that the innermost brackets hold, "" for none."""
    if not frames or any(frame.bracket != "LBRACE" for frame in frames) or not frames[0].head:
        return ""
    keyword, inner = frames[0].head[0].value, frames[1:]
    kind = "stage type" if keyword in ROLES else keyword
    if is_stage_declaration(frames[0].head):
        return "stage"
    if not inner:
        return kind if kind in TABLES else ""
    head = inner[-1].head
    if any(token.type == "ARROW" for token in head):
        return "edge"
    if len(head) == 1 and head[0].value in SECTIONS.get(kind, ()):
        return head[0].value
    return "mode" if head and head[0].value == "mode" else ""
