"""Every diagnostic code with its title: the one registry that messages, `explain` and docs/errors share."""

from __future__ import annotations

from typing import Final

TITLES: Final[dict[str, str]] = {
    # E01xx: text and syntax
    "E0101": "unexpected syntax",
    "E0102": "unexpected character",
    "E0103": "bracket never closed",
    "E0104": "string never closed",
    "E0105": "file cannot be read as text",
    "E0106": "file too large",
    "E0107": "nested too deeply",
    "E0108": "too many declarations",
    "E0110": "edition missing or misplaced",
    "E0111": "unknown edition",
    "E0113": "keyword used as a name",
    "E0114": "documentation comment without a declaration",
    "E0115": "syntax of another language",
    "E0116": "statement does not belong here",
    "E0117": "malformed number or string",
    # E02xx: names
    "E0201": "unknown name",
    "E0202": "name declared twice",
    "E0203": "module not found",
    "E0204": "modules import each other",
    "E0205": "imports too deep",
    "E0206": "module has no such member",
    "E0207": "name of the wrong kind",
    "E0208": "workflow or target not found",
    "E0209": "unknown setting",
    "E0210": "wrong arguments",
    "E0211": "unknown port",
    "E0212": "Python module not found",
    "E0213": "Python class not found",
    "E0214": "Python class does not fit",
    "E0215": "unknown --set path",
    # E03xx: types and shapes
    "E0301": "value of the wrong type",
    "E0302": "shapes differ",
    "E0303": "element types differ",
    "E0304": "shape variable without a size",
    "E0305": "unknown unit or wrong dimension",
    "E0306": "malformed type",
    "E0307": "operator does not take these types",
    "E0308": "kinds of data differ",
    # E04xx: constraints
    "E0401": "parameter outside its `where`",
    "E0402": "requirement not met",
    "E0403": "input driven twice",
    "E0404": "input not driven",
    "E0405": "edge between roles that do not connect",
    "E0406": "data cycle within one step",
    "E0407": "setting does not fit the mode",
    "E0408": "value out of range",
    "E0409": "required setting missing",
    "E0410": "port range cannot be met",
    "E0411": "minibatches do not divide the samples",
    "E0412": "expression has no value",
    "E0413": "definition refers to itself",
    # E05xx: mapping and sizing
    "E0501": "mapping does not fit",
    "E0502": "environments cannot be cut like this",
    "E0503": "execution or backend does not fit the target",
    "E0504": "shape of workflow not supported",
    "E0505": "needs more than the target has",
    "E0506": "no such device",
    # Wxxxx: lint
    "W0202": "module imported twice",
    "W0502": "shards are uneven",
}
"""Code to title. Numbers are never reused."""
