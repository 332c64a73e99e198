"""Habits of other languages, recognised where they do not fit: `and`, block comments, `from x import y`, `workflow w:`.

Every rule looks at one `Mistake` and returns a diagnostic or None, as those of `mistakes` do.
"""

from __future__ import annotations

from gmiflow.diagnostics import Diagnostic, Edit, Fix, closest
from gmiflow.source import Span
from gmiflow.syntax.mistake import DECLARATION, VALUE, Mistake, say, what
from gmiflow.syntax.words import DECLARATION_KEYWORDS, KEYWORDS

_WORD_OPERATORS = {"and": "&&", "or": "||", "not": "!"}
_OTHER_DECLARATIONS = {
    **dict.fromkeys(("let", "const", "var", "val", "set"), "values are declared with `param`"),
    **dict.fromkeys(("def", "fn", "func", "function", "lambda"), "there are no functions of one's own"),
    **dict.fromkeys(("class", "struct", "type", "message"), "groups of tensors are declared with `record`"),
    **dict.fromkeys(("if", "for", "while"), "there are no branches and no loops"),
    **dict.fromkeys(("assert", "check"), 'conditions are written `require CONDITION else "message"`'),
    **dict.fromkeys(("include", "use", "using", "require_once"), "modules are imported with `import`"),
    **dict.fromkeys(("env", "environment"), "environments are declared with `simulator`"),
    **dict.fromkeys(("actor", "policy"), "policies are declared with `agent`"),
    **dict.fromkeys(("learner", "optimizer", "algorithm"), "algorithms are declared with `trainer`"),
}


def word_operator(mistake: Mistake) -> Diagnostic | None:
    """`and`, `or`, `not`."""
    token = mistake.token
    if token is not None and mistake.value in ("and", "or") and "AND" in mistake.accepts:
        operator = _WORD_OPERATORS[mistake.value]
        return say(mistake, "E0115", f"`{mistake.value}` is written `{operator}`", replacement=operator)
    before = mistake.before
    if before is not None and before.type == "QUANTITY" and (word := before.value.split()[-1]) in ("and", "or"):
        end = before.end_pos  # `2 and` reads like a quantity
        span = Span(mistake.source, end - len(word), end)
        operator = _WORD_OPERATORS[word]
        return say(mistake, "E0115", f"`{word}` is written `{operator}`", span=span, replacement=operator)
    if before is not None and before.type == "NAME" and before.value == "not" and "AND" in mistake.accepts:
        return say(mistake, "E0115", "`not` is written `!`", span=mistake.span_of(before), replacement="!")
    return None


def block_comment(mistake: Mistake) -> Diagnostic | None:
    """`/* ... */`."""
    text, start = mistake.source.text, mistake.span.start
    for offset in (start, start - 1):
        if offset >= 0 and text.startswith("/*", offset):
            span = Span(mistake.source, offset, offset + 2)
            return say(mistake, "E0115", "there are no block comments; start each line with `//`", span=span)
    return None


def colon_for_body(mistake: Mistake) -> Diagnostic | None:
    """`workflow train:`."""
    if mistake.kind == "COLON" and "LBRACE" in mistake.accepts and "_ASSIGN" not in mistake.accepts:
        return say(mistake, "E0115", "a body is written between `{` and `}`, not after `:`")
    return None


def missing_assignment(mistake: Mistake) -> Diagnostic | None:
    """`mode sync`."""
    before = mistake.before
    if before is not None and before.type == "NAME" and "_ASSIGN" in mistake.accepts and mistake.kind in VALUE:
        place = Span(mistake.source, before.end_pos, before.end_pos)
        fix = Fix(title="insert `=`", edits=(Edit(span=place, text=" ="),))
        message = f"a `=` is missing before {what(mistake)}"
        return Diagnostic(code="E0101", message=message, span=mistake.span, fixes=(fix,))
    return None


def keyword_in_body(mistake: Mistake) -> Diagnostic | None:
    """`target = h200` or `param x : int = 1` in a workflow."""
    opener, word = mistake.unclosed(), mistake.value
    if word not in KEYWORDS or not mistake.starts_line() or opener is None or opener.type != "LBRACE":
        return None
    following = mistake.tokens[mistake.index + 1] if mistake.index + 1 < len(mistake.tokens) else None
    if following is not None and following.type in ("_ASSIGN", "COLON"):
        notes = ("the target of a run is chosen with `--target NAME`",) if word == "target" else ()
        return say(mistake, "E0113", f"`{word}` is a keyword and cannot be a name", notes=notes)
    if word in DECLARATION_KEYWORDS:
        notes = ("declarations stand at the top of a file, outside of all `{` and `}`",)
        return say(mistake, "E0116", f"a `{word}` declaration does not belong here", notes=notes)
    return None


def declaration(mistake: Mistake) -> Diagnostic | None:
    """A line at the top that starts with no declaration keyword."""
    if not mistake.accepts >= DECLARATION - {"_EDITION"} or mistake.token is None:
        return None
    if mistake.value == "from":
        return say(mistake, "E0115", "imports are written `import std.tasks.ant`, or with `as` and another name")
    message = f"{what(mistake)} starts no declaration"
    close = closest(mistake.value, DECLARATION_KEYWORDS) if mistake.kind == "NAME" else None
    if close and mistake.value not in _OTHER_DECLARATIONS:
        return say(mistake, "E0101", message, replacement=close, notes=(f"did you mean `{close}`?",))
    starts = "a declaration starts with " + ", ".join(f"`{word}`" for word in sorted(DECLARATION_KEYWORDS))
    return say(mistake, "E0101", message, notes=(_OTHER_DECLARATIONS.get(mistake.value, starts),))
