"""What to say about a token that does not fit: frequent mistakes by name, else what was expected.

Every rule looks at one `Mistake` and returns a diagnostic or None; the first that answers wins, and the
last one always answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gmiflow.diagnostics import Diagnostic, Edit, Fix, Label
from gmiflow.source import Span
from gmiflow.syntax import habits
from gmiflow.syntax.lexer import ERROR, Token
from gmiflow.syntax.mistake import CLOSERS, CLOSES, OPERATORS, VALUE, Mistake, expected_phrase, say, what
from gmiflow.syntax.words import KEYWORDS

_ONE_SIGN = re.compile(r"`(\W+)`")
"""What is expected, when it is one sign."""

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


def explain(mistake: Mistake) -> Diagnostic:
    """The diagnostic for a mistake."""
    for rule in _RULES:
        if found := rule(mistake):
            return found
    return _unexpected(mistake)


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
        return say(mistake, "E0115", message, replacement=replacement, title=title)
    if text == "\r":
        return say(mistake, "E0102", "a carriage return without a line feed does not end a line")
    if text[0].isdecimal():
        return _bad_number(mistake, mistake.span)
    name = f"`{text}`" if text.isprintable() else f"U+{ord(text[0]):04X}"
    return say(mistake, "E0102", f"the character {name} has no meaning here")


def _bad_number(mistake: Mistake, span: Span) -> Diagnostic:
    text = span.text
    plain = text.replace("_", "")
    if plain != text and plain.isdecimal():
        return say(mistake, "E0117", f"`{text}`: numbers are written without `_`", span=span, replacement=plain)
    notes = ("numbers are written like `4096`, `0.99`, `3e-4` or `4 GiB`",)
    return say(mistake, "E0117", f"`{text}` is not a number", span=span, notes=notes)


def _number(mistake: Mistake) -> Diagnostic | None:
    """`.5` and `1.`."""
    if mistake.kind != "_DOT":
        return None
    text, start = mistake.source.text, mistake.span.start
    first = max(0, start - 30)
    numbers = re.finditer(r"\d+(?:\.\d+)+", text[first : start + 31])
    whole = next((m for m in numbers if first + m.start() <= start < first + m.end()), None)
    if whole is not None and whole.group().count(".") > 1:  # `1.2.3`: nobody knows which part is meant
        return _bad_number(mistake, Span(mistake.source, first + whole.start(), first + whole.end()))
    before = re.search(r"\d+$", text[max(0, start - 30) : start])
    after = re.match(r"\d+", text[start + 1 : start + 31])
    if before and mistake.before is not None and mistake.before.type == "INT":
        span = Span(mistake.source, start - len(before.group()), start + 1)
        return say(mistake, "E0117", f"`{span.text}` is not a number", span=span, replacement=span.text + "0")
    if after:
        span = Span(mistake.source, start, start + 1 + len(after.group()))
        return say(mistake, "E0117", f"`{span.text}` is not a number", span=span, replacement="0" + span.text)
    return None


def _bracket(mistake: Mistake) -> Diagnostic | None:
    """A bracket that is still open at the end or where a new line starts, or one that closes nothing."""
    opener = mistake.unclosed()
    if opener is not None and (mistake.kind in ("$END", "_NL") or _line_in_parentheses(mistake, opener)):
        closer = CLOSES[opener.type]
        if mistake.kind == "_NL" and opener.type == "LBRACE" and mistake.index < len(mistake.tokens) - 1:
            return None
        return say(
            mistake, "E0103", f"this `{opener.value}` is never closed by `{closer}`", span=mistake.span_of(opener)
        )
    if mistake.kind in CLOSERS:
        if opener is None:
            return say(mistake, "E0101", f"this `{mistake.value}` closes nothing", replacement="", title="remove it")
        if CLOSERS[mistake.kind] != opener.type:
            label = Label(span=mistake.span_of(opener), text="opened here")
            message = f"`{opener.value}` is closed by `{CLOSES[opener.type]}`, not by `{mistake.value}`"
            return say(mistake, "E0103", message, secondary=(label,), replacement=CLOSES[opener.type])
    return None


def _line_in_parentheses(mistake: Mistake, opener: Token) -> bool:
    return opener.type != "LBRACE" and mistake.starts_line() and not (mistake.accepts >= VALUE)


def _doc(mistake: Mistake) -> Diagnostic | None:
    if mistake.kind == "DOC":
        notes = ("write it on the line above the declaration, or start it with `//`",)
        return say(mistake, "E0114", "a `///` comment stands before what it documents", notes=notes)
    doc = mistake.tokens[mistake.index - 2] if mistake.index >= 2 else None
    closes = mistake.kind in ("$END", "RBRACE")
    if doc is not None and doc.type == "DOC" and closes and mistake.before is not None and mistake.before.type == "_NL":
        notes = ("a comment that documents nothing starts with `//`",)
        return say(mistake, "E0114", "this `///` comment documents nothing", span=mistake.span_of(doc), notes=notes)
    return None


def _keyword_as_name(mistake: Mistake) -> Diagnostic | None:
    if "NAME" in mistake.accepts and mistake.value in KEYWORDS and not mistake.starts_line():
        return say(mistake, "E0113", f"`{mistake.value}` is a keyword and cannot be a name")
    return None


def _arrow(mistake: Mistake) -> Diagnostic | None:
    """`=>`, `<-`, `--`, and a second arrow."""
    text, start = mistake.source.text, mistake.span.start
    if "ARROW" in mistake.accepts:
        for wrong in ("=>", "-->", "- >", "--", ">", "→"):
            if text.startswith(wrong, start):
                span = Span(mistake.source, start, start + len(wrong))
                return say(mistake, "E0115", "edges are written `->`", span=span, replacement="->")
        if text.startswith("<-", start):
            span = Span(mistake.source, start, start + 2)
            return say(mistake, "E0115", "edges run from left to right: write the source first, then `->`", span=span)
    if mistake.kind == "ARROW" and "_NL" in mistake.accepts:
        return say(mistake, "E0101", "an edge has one `->`", notes=("write one line per edge",))
    return None


def _assignment(mistake: Mistake) -> Diagnostic | None:
    if "_ASSIGN" in mistake.accepts and mistake.kind in ("COLON", "COMPARE") and mistake.value in (":", "=="):
        return say(mistake, "E0115", f"a value is set with `=`, not with `{mistake.value}`", replacement="=")
    if mistake.kind == "_ASSIGN" and "COLON" in mistake.accepts:
        notes = ("for example `param lr : float = 3e-4`",)
        return say(mistake, "E0101", "a type is missing before `=`", notes=notes)
    if mistake.kind == "_ASSIGN" and "COMPARE" in mistake.accepts:
        return say(mistake, "E0115", "equality is written `==`", replacement="==")
    return None


def _comparison_chain(mistake: Mistake) -> Diagnostic | None:
    if mistake.kind == "COMPARE" and "AND" in mistake.accepts:
        notes = ("join two comparisons with `&&`: `0 < x && x < 1`",)
        return say(mistake, "E0101", "comparisons cannot be chained", notes=notes)
    return None


def _separator(mistake: Mistake) -> Diagnostic | None:
    """Two elements or two statements with nothing between them."""
    before = mistake.before
    if before is None or "COMMA" not in mistake.accepts or mistake.kind not in VALUE | {"IN", "OUT", "_REQUIRE", "DOC"}:
        return None
    end = before.end_pos
    place = Span(mistake.source, end, end)
    if "_NL" in mistake.accepts:
        notes = ("statements are separated by a line end, or by `,` on one line",)
        return say(mistake, "E0101", f"{what(mistake)} must start a line of its own", notes=notes)
    fix = Fix(title="insert `,`", edits=(Edit(span=place, text=","),))
    return Diagnostic(code="E0101", message=f"a `,` is missing before {what(mistake)}", span=mistake.span, fixes=(fix,))


def _continuation(mistake: Mistake) -> Diagnostic | None:
    """A line that starts with an operator, after a statement that was complete; an edge without its source."""
    if mistake.kind == "ARROW":
        if mistake.before is not None and mistake.before.type in ("LBRACE", "_NL", "COMMA") and mistake.index:
            notes = ("for example `sim.obs -> actor.obs`",)
            return say(mistake, "E0101", "the source of this edge is missing before `->`", notes=notes)
        return None
    if mistake.kind in OPERATORS and mistake.starts_line():
        notes = ("a statement ends with its line; inside `(` and `)` it may go on in the next",)
        return say(mistake, "E0101", f"a line cannot start with {what(mistake)}", notes=notes)
    return None


_RULES: tuple[Callable[[Mistake], Diagnostic | None], ...] = (
    _unknown_character,
    _number,
    habits.block_comment,
    _arrow,
    _doc,
    _bracket,
    _continuation,
    habits.word_operator,
    habits.declaration,
    habits.colon_for_body,
    _assignment,
    _keyword_as_name,
    habits.keyword_in_body,
    _comparison_chain,
    habits.missing_assignment,
    _separator,
)


def _unexpected(mistake: Mistake) -> Diagnostic:
    expected = expected_phrase(mistake.accepts)
    if mistake.before is not None and (mistake.kind in ("_NL", "$END") or mistake.starts_line()):
        end = mistake.before.end_pos - (len(mistake.before.value) if mistake.before.type == "_NL" else 0)
        place = Span(mistake.source, end, end)
        sign = _ONE_SIGN.fullmatch(expected)
        insert = None if sign is None else f" {sign[1]}" if sign[1] == "{" else sign[1]
        title = f"insert {expected}"
        message = f"{expected} is missing at the end of the line"
        return say(mistake, "E0101", message, span=place, replacement=insert, title=title)
    return say(mistake, "E0101", f"expected {expected}, found {what(mistake)}")
