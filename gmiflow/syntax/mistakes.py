"""What to say about a token that does not fit: frequent mistakes by name, else what was expected.

Every rule looks at one `Mistake` and returns a diagnostic or None; the first that answers wins, and the
last one always answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from gmiflow.diagnostics import Diagnostic, Edit, Fix, Label, closest
from gmiflow.source import Source, Span
from gmiflow.syntax.lexer import ERROR, Token
from gmiflow.syntax.words import DECLARATION_KEYWORDS, KEYWORDS, TERMINALS

_VALUE = frozenset(
    ("NAME", "INT", "FLOAT", "QUANTITY", "STRING", "TRUE", "FALSE", "AUTO", "LPAR", "LSQB", "MINUS", "BANG", "_PY")
)
_TYPE = frozenset(("NAME", "AUTO", "_ENUM", "_LIST"))
_OPERATORS = frozenset(("OR", "AND", "COMPARE", "PLUS", "MINUS", "STAR", "SLASH"))
_DECLARATION = frozenset(
    ("_EDITION", "_IMPORT", "_PARAM", "_RECORD", "_WORKFLOW", "_TARGET", "_REQUIRE", "SIMULATOR", "AGENT", "TRAINER")
)
_CLOSES = {"LBRACE": "}", "LPAR": ")", "LSQB": "]"}
_CLOSERS = {"RBRACE": "LBRACE", "RPAR": "LPAR", "RSQB": "LSQB"}
_FOREIGN = {
    ";": ("statements end with the line, not with `;`", ""),
    "'": ("strings are written in double quotes", '"'),
    "#": ("comments start with `//`", "//"),
    "→": ("edges are written `->`", "->"),
    "&": ("`and` is written `&&`", "&&"),
    "|": ("`or` is written `||`", "||"),
    "“": ("strings are written in straight double quotes", '"'),
    "”": ("strings are written in straight double quotes", '"'),
}
_WORD_OPERATORS = {"and": "&&", "or": "||", "not": "!"}


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
            if token.type in _CLOSES:
                stack.append(token)
            elif token.type in _CLOSERS and stack:
                stack.pop()
        return stack[-1] if stack else None


def explain(mistake: Mistake) -> Diagnostic:
    """The diagnostic for a mistake."""
    for rule in _RULES:
        if found := rule(mistake):
            return found
    return _unexpected(mistake)


def _say(
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
    place = span or mistake.span
    fixes: tuple[Fix, ...] = ()
    if replacement is not None:
        fixes = (Fix(title=title or f"write `{replacement}`", edits=(Edit(span=place, text=replacement),)),)
    return Diagnostic(code=code, message=message, span=place, notes=notes, fixes=fixes, secondary=secondary)


def _unknown_character(mistake: Mistake) -> Diagnostic | None:
    if mistake.kind != ERROR:
        return None
    text = mistake.value
    if text.startswith('"'):
        end = mistake.span.end
        fix = Fix(title='close the string with `"`', edits=(Edit(span=Span(mistake.source, end, end), text='"'),))
        return Diagnostic(code="E0104", message="this string is never closed", span=mistake.span, fixes=(fix,))
    if text in _FOREIGN:
        message, replacement = _FOREIGN[text]
        title = "remove it" if not replacement else ""
        return _say(mistake, "E0115", message, replacement=replacement, title=title)
    if text == "\r":
        return _say(mistake, "E0102", "a carriage return without a line feed does not end a line")
    if text[0].isdecimal():
        return _bad_number(mistake, mistake.span)
    name = f"`{text}`" if text.isprintable() else f"U+{ord(text[0]):04X}"
    return _say(mistake, "E0102", f"the character {name} has no meaning here")


def _bad_number(mistake: Mistake, span: Span) -> Diagnostic:
    text = span.text
    plain = text.replace("_", "")
    if plain != text and plain.isdecimal():
        return _say(mistake, "E0117", f"`{text}`: numbers are written without `_`", span=span, replacement=plain)
    notes = ("numbers are written like `4096`, `0.99`, `3e-4` or `4 GiB`",)
    return _say(mistake, "E0117", f"`{text}` is not a number", span=span, notes=notes)


def _number(mistake: Mistake) -> Diagnostic | None:
    """`.5` and `1.`."""
    if mistake.kind != "_DOT":
        return None
    text, start = mistake.source.text, mistake.span.start
    before = re.search(r"\d+$", text[max(0, start - 30) : start])
    after = re.match(r"\d+", text[start + 1 : start + 31])
    if before and mistake.before is not None and mistake.before.type == "INT":
        span = Span(mistake.source, start - len(before.group()), start + 1)
        return _say(mistake, "E0117", f"`{span.text}` is not a number", span=span, replacement=span.text + "0")
    if after:
        span = Span(mistake.source, start, start + 1 + len(after.group()))
        return _say(mistake, "E0117", f"`{span.text}` is not a number", span=span, replacement="0" + span.text)
    return None


def _bracket(mistake: Mistake) -> Diagnostic | None:
    """A bracket that is still open at the end or where a new line starts, or one that closes nothing."""
    opener = mistake.unclosed()
    if opener is not None and (mistake.kind in ("$END", "_NL") or _line_in_parentheses(mistake, opener)):
        closer = _CLOSES[opener.type]
        if mistake.kind == "_NL" and opener.type == "LBRACE" and mistake.index < len(mistake.tokens) - 1:
            return None
        return _say(
            mistake, "E0103", f"this `{opener.value}` is never closed by `{closer}`", span=mistake.span_of(opener)
        )
    if mistake.kind in _CLOSERS:
        if opener is None:
            return _say(mistake, "E0101", f"this `{mistake.value}` closes nothing", replacement="", title="remove it")
        if _CLOSERS[mistake.kind] != opener.type:
            label = Label(span=mistake.span_of(opener), text="opened here")
            message = f"`{opener.value}` is closed by `{_CLOSES[opener.type]}`, not by `{mistake.value}`"
            return _say(mistake, "E0103", message, secondary=(label,), replacement=_CLOSES[opener.type])
    return None


def _line_in_parentheses(mistake: Mistake, opener: Token) -> bool:
    return opener.type != "LBRACE" and mistake.starts_line() and not (mistake.accepts >= _VALUE)


def _doc(mistake: Mistake) -> Diagnostic | None:
    if mistake.kind == "DOC":
        notes = ("write it on the line above the declaration, or start it with `//`",)
        return _say(mistake, "E0114", "a `///` comment stands before what it documents", notes=notes)
    doc = mistake.tokens[mistake.index - 2] if mistake.index >= 2 else None
    closes = mistake.kind in ("$END", "RBRACE")
    if doc is not None and doc.type == "DOC" and closes and mistake.before is not None and mistake.before.type == "_NL":
        notes = ("a comment that documents nothing starts with `//`",)
        return _say(mistake, "E0114", "this `///` comment documents nothing", span=mistake.span_of(doc), notes=notes)
    return None


def _keyword_as_name(mistake: Mistake) -> Diagnostic | None:
    if "NAME" in mistake.accepts and mistake.value in KEYWORDS and not mistake.starts_line():
        return _say(mistake, "E0113", f"`{mistake.value}` is a keyword and cannot be a name")
    return None


def _arrow(mistake: Mistake) -> Diagnostic | None:
    """`=>`, `<-`, `--`, and a second arrow."""
    text, start = mistake.source.text, mistake.span.start
    if "ARROW" in mistake.accepts:
        for wrong in ("=>", "-->", "→"):
            if text.startswith(wrong, start):
                span = Span(mistake.source, start, start + len(wrong))
                return _say(mistake, "E0115", "edges are written `->`", span=span, replacement="->")
        if text.startswith("<-", start):
            span = Span(mistake.source, start, start + 2)
            return _say(mistake, "E0115", "edges run from left to right: write the source first, then `->`", span=span)
    if mistake.kind == "ARROW" and "_NL" in mistake.accepts:
        return _say(mistake, "E0101", "an edge has one `->`", notes=("write one line per edge",))
    return None


def _assignment(mistake: Mistake) -> Diagnostic | None:
    if "_ASSIGN" in mistake.accepts and mistake.kind in ("COLON", "COMPARE") and mistake.value in (":", "=="):
        return _say(mistake, "E0115", f"a value is set with `=`, not with `{mistake.value}`", replacement="=")
    if mistake.kind == "_ASSIGN" and "COLON" in mistake.accepts:
        notes = ("for example `param lr : float = 3e-4`",)
        return _say(mistake, "E0101", "a type is missing before `=`", notes=notes)
    if mistake.kind == "_ASSIGN" and "COMPARE" in mistake.accepts:
        return _say(mistake, "E0115", "equality is written `==`", replacement="==")
    return None


def _word_operator(mistake: Mistake) -> Diagnostic | None:
    """`and`, `or`, `not`."""
    token = mistake.token
    if token is not None and mistake.value in ("and", "or") and "AND" in mistake.accepts:
        operator = _WORD_OPERATORS[mistake.value]
        return _say(mistake, "E0115", f"`{mistake.value}` is written `{operator}`", replacement=operator)
    before = mistake.before
    if before is not None and before.type == "QUANTITY" and (word := before.value.split()[-1]) in ("and", "or"):
        end = before.end_pos  # `2 and` reads like a quantity
        span = Span(mistake.source, end - len(word), end)
        return _say(
            mistake,
            "E0115",
            f"`{word}` is written `{_WORD_OPERATORS[word]}`",
            span=span,
            replacement=_WORD_OPERATORS[word],
        )
    if before is not None and before.type == "NAME" and before.value == "not" and "AND" in mistake.accepts:
        return _say(mistake, "E0115", "`not` is written `!`", span=mistake.span_of(before), replacement="!")
    return None


def _block_comment(mistake: Mistake) -> Diagnostic | None:
    text, start = mistake.source.text, mistake.span.start
    for offset in (start, start - 1):
        if offset >= 0 and text.startswith("/*", offset):
            span = Span(mistake.source, offset, offset + 2)
            return _say(mistake, "E0115", "there are no block comments; start each line with `//`", span=span)
    return None


def _comparison_chain(mistake: Mistake) -> Diagnostic | None:
    if mistake.kind == "COMPARE" and "AND" in mistake.accepts:
        notes = ("join two comparisons with `&&`: `0 < x && x < 1`",)
        return _say(mistake, "E0101", "comparisons cannot be chained", notes=notes)
    return None


def _separator(mistake: Mistake) -> Diagnostic | None:
    """Two elements or two statements with nothing between them."""
    before = mistake.before
    if (
        before is None
        or "COMMA" not in mistake.accepts
        or mistake.kind not in _VALUE | {"IN", "OUT", "_REQUIRE", "DOC"}
    ):
        return None
    end = before.end_pos
    place = Span(mistake.source, end, end)
    if "_NL" in mistake.accepts:
        notes = ("statements are separated by a line end, or by `,` on one line",)
        return _say(mistake, "E0101", f"{_what(mistake)} must start a line of its own", notes=notes)
    fix = Fix(title="insert `,`", edits=(Edit(span=place, text=","),))
    return Diagnostic(
        code="E0101", message=f"a `,` is missing before {_what(mistake)}", span=mistake.span, fixes=(fix,)
    )


def _declaration(mistake: Mistake) -> Diagnostic | None:
    """A line at the top that starts with no declaration keyword."""
    if not mistake.accepts >= _DECLARATION - {"_EDITION"} or mistake.token is None:
        return None
    close = closest(mistake.value, DECLARATION_KEYWORDS) if mistake.kind == "NAME" else None
    if close:
        message = f"`{mistake.value}` starts no declaration"
        return _say(mistake, "E0101", message, replacement=close, notes=(f"did you mean `{close}`?",))
    notes = ("a declaration starts with " + ", ".join(f"`{word}`" for word in sorted(DECLARATION_KEYWORDS)),)
    return _say(mistake, "E0101", f"{_what(mistake)} starts no declaration", notes=notes)


_RULES: tuple[Callable[[Mistake], Diagnostic | None], ...] = (
    _unknown_character,
    _number,
    _block_comment,
    _arrow,
    _doc,
    _bracket,
    _word_operator,
    _declaration,
    _assignment,
    _keyword_as_name,
    _comparison_chain,
    _separator,
)


def _unexpected(mistake: Mistake) -> Diagnostic:
    expected = expected_phrase(mistake.accepts)
    if mistake.before is not None and (mistake.kind in ("_NL", "$END") or mistake.starts_line()):
        end = mistake.before.end_pos - (len(mistake.before.value) if mistake.before.type == "_NL" else 0)
        place = Span(mistake.source, end, end)
        return _say(mistake, "E0101", f"{expected} is missing at the end of the line", span=place)
    return _say(mistake, "E0101", f"expected {expected}, found {_what(mistake)}")


def _what(mistake: Mistake) -> str:
    """How to call the offending token."""
    if mistake.kind in ("$END", "_NL"):
        return TERMINALS[mistake.kind]
    text = mistake.value if len(mistake.value) <= 40 else mistake.value[:37] + "..."
    return f"`{text}`"


def expected_phrase(accepts: frozenset[str]) -> str:
    """What would have fitted, in words: groups of terminals by their purpose, at most five things."""
    rest = set(accepts)
    phrases: list[str] = []
    for group, phrase in ((_VALUE, "a value"), (_DECLARATION, "a declaration"), (_TYPE, "a type")):
        if rest >= group:
            rest -= group
            phrases.append(phrase)
    if len(rest - _OPERATORS) + len(phrases) > 0:
        rest -= _OPERATORS
    phrases += sorted(TERMINALS[name] for name in rest)
    if len(phrases) > 5:
        phrases = [*phrases[:4], "something else that fits"]
    return phrases[0] if len(phrases) == 1 else ", ".join(phrases[:-1]) + " or " + phrases[-1]
