"""A token that does not fit: what is known about it, and the words for it."""

from __future__ import annotations

from dataclasses import dataclass

from gmiflow.diagnostics import Diagnostic, Edit, Fix, Label
from gmiflow.source import Source, Span
from gmiflow.syntax.lexer import Token
from gmiflow.syntax.words import TERMINALS

VALUE = frozenset(
    ("NAME", "INT", "FLOAT", "QUANTITY", "STRING", "TRUE", "FALSE", "AUTO", "LPAR", "LSQB", "MINUS", "BANG", "_PY")
)
_TYPE = frozenset(("NAME", "AUTO", "_ENUM", "_LIST"))
OPERATORS = frozenset(("OR", "AND", "COMPARE", "PLUS", "MINUS", "STAR", "SLASH"))
DECLARATION = frozenset(
    ("_EDITION", "_IMPORT", "_PARAM", "_RECORD", "_WORKFLOW", "_TARGET", "_REQUIRE", "SIMULATOR", "AGENT", "TRAINER")
)
CLOSES = {"LBRACE": "}", "LPAR": ")", "LSQB": "]"}
CLOSERS = {"RBRACE": "LBRACE", "RPAR": "LPAR", "RSQB": "LSQB"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Mistake:
    """The tokens of a declaration and the first that does not fit.

    Attributes:
        index: of the offending token, ``len(tokens)`` for the end of the text.
        accepts: terminals that would have fitted.
    """

    source: Source
    tokens: list[Token]
    index: int
    accepts: frozenset[str]

    @property
    def token(self) -> Token | None:
        """The offending token, None at the end of the text."""
        return self.tokens[self.index] if self.index < len(self.tokens) else None

    @property
    def kind(self) -> str:
        """Terminal of the offending token."""
        return self.token.type if self.token is not None else "$END"

    @property
    def value(self) -> str:
        """Text of the offending token."""
        return self.token.value if self.token is not None else ""

    @property
    def before(self) -> Token | None:
        """The token before it."""
        return self.tokens[self.index - 1] if self.index else None

    @property
    def span(self) -> Span:
        """Where to point: the token, or for a line end or the end of the text the place after the last token."""
        if self.token is not None and self.kind != "_NL":
            return self.span_of(self.token)
        end = self.before.end_pos if self.before is not None else 0
        if self.before is not None and self.before.type == "_NL":
            end = self.before.start_pos
        return Span(self.source, end, end)

    def span_of(self, token: Token) -> Span:
        """The place of a token."""
        return Span(self.source, token.start_pos, token.end_pos)

    def starts_line(self) -> bool:
        """Whether only blanks are before the token on its line."""
        if self.token is None:
            return True
        start = self.token.start_pos
        return not self.source.text[self.source.text.rfind("\n", 0, start) + 1 : start].strip()

    def unclosed(self) -> Token | None:
        """The innermost bracket that is open before the token."""
        stack: list[Token] = []
        for token in self.tokens[: self.index]:
            if token.type in CLOSES:
                stack.append(token)
            elif token.type in CLOSERS and stack:
                stack.pop()
        return stack[-1] if stack else None


def say(
    mistake: Mistake,
    code: str,
    message: str,
    *,
    span: Span | None = None,
    replacement: str | None = None,
    title: str = "",
    notes: tuple[str, ...] = (),
    secondary: tuple[Label, ...] = (),
) -> Diagnostic:
    """A diagnostic at the mistake, or at ``span``; ``replacement`` offers to write that there."""
    place = span or mistake.span
    fixes: tuple[Fix, ...] = ()
    if replacement is not None:
        fixes = (Fix(title=title or f"write `{replacement}`", edits=(Edit(span=place, text=replacement),)),)
    return Diagnostic(code=code, message=message, span=place, notes=notes, fixes=fixes, secondary=secondary)


def what(mistake: Mistake) -> str:
    """How to call the offending token."""
    if mistake.kind in ("$END", "_NL"):
        return TERMINALS[mistake.kind]
    text = mistake.value if len(mistake.value) <= 40 else mistake.value[:37] + "..."
    return f"`{text}`"


def expected_phrase(accepts: frozenset[str]) -> str:
    """What would have fitted, in words: groups of terminals by their purpose, at most five things."""
    rest = set(accepts)
    phrases: list[str] = []
    for group, phrase in ((VALUE, "a value"), (DECLARATION, "a declaration"), (_TYPE, "a type")):
        if rest >= group:
            rest -= group
            phrases.append(phrase)
    if len(rest - OPERATORS) + len(phrases) > 0:
        rest -= OPERATORS
    phrases += sorted(TERMINALS[name] for name in rest)
    if len(phrases) > 5:
        phrases = [*phrases[:4], "something else that fits"]
    return phrases[0] if len(phrases) == 1 else ", ".join(phrases[:-1]) + " or " + phrases[-1]
