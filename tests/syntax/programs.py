"""Hypothesis strategies of syntactically valid programs, and of ways to lay the same program out differently."""

from __future__ import annotations

from hypothesis import strategies as st

from gmiflow.syntax import lexer
from gmiflow.syntax.words import DTYPES, KEYWORDS, UNITS

_WORDS = ["sim", "actor", "learner", "num_env", "lr", "O", "env", "time", "größe", "simulatorx", "in_", "a1", "h200"]


def names() -> st.SearchStrategy[str]:
    invented = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
    return st.one_of(st.sampled_from(_WORDS), invented).filter(lambda word: word not in KEYWORDS)


def paths() -> st.SearchStrategy[str]:
    return st.lists(names(), min_size=1, max_size=3).map(".".join)


def strings() -> st.SearchStrategy[str]:
    plain = st.text(st.characters(exclude_characters='"\\\r\n\0', exclude_categories=("Cs",)), max_size=12)
    escaped = st.sampled_from(["\\n", "\\t", '\\"', "\\\\", "// no comment", "/// no doc"])
    return st.lists(st.one_of(plain, escaped), max_size=3).map(lambda parts: f'"{"".join(parts)}"')


def numbers() -> st.SearchStrategy[str]:
    whole = st.integers(0, 10**6).map(str)
    real = st.sampled_from(["0.5", "3e-4", "1e3", "2.5E+6", "10.0"])
    quantity = st.builds(
        lambda number, space, unit: number + space + unit,
        st.one_of(whole, real),
        st.sampled_from(["", " ", "  ", "\t"]),
        st.sampled_from(sorted(UNITS)),
    )
    return st.one_of(whole, real, quantity)


def expressions() -> st.SearchStrategy[str]:
    atoms = st.one_of(
        numbers(), strings(), paths(), st.sampled_from(["true", "false", "auto"]), strings().map(lambda s: f"py {s}")
    )

    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        operators = st.sampled_from(["+", "-", "*", "/", "&&", "||"])
        return st.one_of(
            inner.map(lambda e: f"({e})"),
            st.builds(lambda a, op, b: f"{a} {op} {b}", inner, operators, inner),
            st.builds(
                lambda a, op, b: f"(({a}) {op} ({b}))", inner, st.sampled_from(["==", "!=", "<=", ">", "<"]), inner
            ),
            st.builds(lambda sign, e: f"{sign}({e})", st.sampled_from(["-", "!"]), inner),
            st.lists(inner, max_size=4).map(lambda items: f"[{','.join(items)}]"),
            st.builds(lambda f, items: f"{f}({arguments_text(items)})", paths(), named(inner)),
        )

    return st.recursive(atoms, larger, max_leaves=8)


def named(values: st.SearchStrategy[str]) -> st.SearchStrategy[list[str]]:
    argument = st.one_of(values, st.builds(lambda name, value: f"{name} = {value}", names(), values))
    return st.lists(argument, max_size=5)


def arguments_text(arguments: list[str]) -> str:
    return ", ".join(arguments) + ("," if len(arguments) > 3 else "")


def types() -> st.SearchStrategy[str]:
    dims = st.lists(st.one_of(names(), st.integers(1, 512).map(str)), min_size=1, max_size=3)
    simple = st.one_of(
        st.sampled_from(["int", "float", "bool", "string", "weights", "bytes"]),
        paths(),
        st.builds(lambda dtype, sizes: f"{dtype}[{', '.join(sizes)}]", st.sampled_from(DTYPES), dims),
        st.lists(st.one_of(names(), st.just("auto")), min_size=1, max_size=8).map(lambda m: f"enum({','.join(m)})"),
    )
    plain = st.recursive(simple, lambda inner: inner.map(lambda t: f"list({t})"), max_leaves=2)
    return st.one_of(plain, plain.map(lambda t: f"auto {t}"))


def optional(strategy: st.SearchStrategy[str], before: str) -> st.SearchStrategy[str]:
    return st.one_of(st.just(""), strategy.map(lambda text: f" {before} {text}"))


def documented(strategy: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    line = st.text(st.characters(exclude_characters="\r\n\0/", exclude_categories=("Cs",)), max_size=20)
    docs = st.lists(line.map(lambda text: f"///{text}\n"), max_size=2).map("".join)
    return st.builds(lambda doc, text: doc + text, docs, strategy)


def parameters() -> st.SearchStrategy[str]:
    value = expressions()
    one = st.builds(
        lambda name, kind, default, where: f"{name} : {kind}{default}{where}",
        names(), types(), optional(value, "="), optional(value, "where"),
    )  # fmt: skip
    return one


def parameter_lists() -> st.SearchStrategy[str]:
    several = st.lists(documented(parameters()), max_size=4).map(lambda found: f"(\n{', '.join(found)})")
    return st.one_of(st.just(""), several)


def blocks(depth: int = 1) -> st.SearchStrategy[str]:
    return st.lists(settings(depth), max_size=3).map(lambda found: "{ " + ", ".join(found) + " }")


def settings(depth: int = 1) -> st.SearchStrategy[str]:
    plain = st.builds(lambda name, value: f"{name} = {value}", names(), expressions())
    if not depth:
        return plain
    # A word before `{` is never a unit, so a quantity cannot stand there.
    with_block = st.builds(lambda name, value, block: f"{name} = {value} {block}", names(), paths(), blocks(depth - 1))
    return st.one_of(plain, with_block)


def edges() -> st.SearchStrategy[str]:
    endpoint = st.one_of(
        names(),
        st.builds(lambda stage, port: f"{stage}.{port}", names(), names()),
        st.builds(
            lambda stage, ports: f"{stage}.{{{', '.join(ports)}}}", names(), st.lists(names(), min_size=1, max_size=9)
        ),
    )
    return st.builds(lambda a, b, block: f"{a} -> {b}{block}", endpoint, endpoint, optional(blocks(), ""))


def ports() -> st.SearchStrategy[str]:
    bounds = st.builds(lambda low, high: f" range ({low}) .. {high}", expressions(), expressions())
    return st.builds(
        lambda direction, name, kind, attributes: f"{direction} {name} : {kind}{attributes}",
        st.sampled_from(["in", "out"]), names(), types(), st.one_of(st.just(""), bounds, st.just(" optional")),
    )  # fmt: skip


def requires() -> st.SearchStrategy[str]:
    return st.builds(lambda condition, message: f"require {condition} else {message}", expressions(), strings())


def bodies() -> st.SearchStrategy[str]:
    section = st.builds(lambda name, block: f"{name} {block}", names(), blocks())
    statement = documented(st.one_of(settings(), section, ports(), edges(), requires()))
    return st.lists(statement, max_size=6).map(lambda found: "{\n" + "\n".join(found) + ("\n" if found else "") + "}")


def declarations() -> st.SearchStrategy[str]:
    role = st.sampled_from(["simulator", "agent", "trainer"])
    fields = st.lists(documented(st.builds(lambda n, t: f"{n} : {t}", names(), types())), max_size=4)
    called = named(expressions()).map(lambda found: f"({arguments_text(found)})")
    return st.one_of(
        st.builds(lambda path, alias: f"import {path}{alias}", paths(), optional(names(), "as")),
        st.builds(lambda file, alias: f"import {file}{alias}", strings(), optional(names(), "as")),
        parameters().map(lambda text: f"param {text}"),
        st.builds(
            lambda name, found: f"record {name} {{\n" + "\n".join(found) + ("\n}" if found else "}"), names(), fields
        ),
        st.builds(lambda r, n, p, b: f"{r} {n}{p} {b}", role, names(), parameter_lists(), bodies()),
        st.builds(
            lambda r, n, path, arguments, block: f"{r} {n} = {path}{arguments}{block}",
            role, names(), paths(), st.one_of(st.just(""), called), optional(blocks(), ""),
        ),
        st.builds(lambda name, body: f"workflow {name} {body}", names(), bodies()),
        st.builds(lambda n, p, b: f"target {n}{p} {b}", names(), parameter_lists(), bodies()),
        requires(),
    )  # fmt: skip


def programs() -> st.SearchStrategy[str]:
    """Texts that parse without a diagnostic (but need not check)."""
    found = st.lists(documented(declarations()), max_size=5)
    return found.map(lambda items: "\n".join(["edition 1", *items]) + "\n")


def break_places(text: str) -> list[int]:
    """Offsets where a line end, and so a comment, may be inserted without changing what the text says.

    After `{`, `,` and a line end, before `}`, `->` and a line end, and anywhere within () and []; not at the
    end of a `///` line, where a comment would be part of it.
    """
    places: list[int] = []
    open_brackets: list[str] = []
    previous = "_NL"
    for token in lexer.raw_tokens(text):
        within = bool(open_brackets) and open_brackets[-1] != "{"
        if previous == "DOC":
            pass
        elif within or token.type in ("_NL", "ARROW", "RBRACE") or previous in ("_NL", "LBRACE", "COMMA"):
            places.append(token.start_pos)
        if token.value in ("(", "[", "{"):
            open_brackets.append(token.value)
        elif token.value in (")", "]", "}"):
            open_brackets.pop()
        previous = token.type
    return [*places, len(text)]


@st.composite
def relaid(draw: st.DrawFn, text: str) -> tuple[str, list[str]]:
    """The same program with comments and line ends inserted, and those comments in order."""
    places = break_places(text)
    chosen = sorted(draw(st.sets(st.sampled_from(places), max_size=12)))
    comments: list[str] = []
    parts: list[str] = []
    position = 0
    for place in chosen:
        parts.append(text[position:place])
        for _ in range(draw(st.integers(1, 2))):
            kind = draw(st.sampled_from(["comment", "own line", "break"]))
            if kind == "break":
                parts.append("\n" * draw(st.integers(1, 3)))
                continue
            comment = f"// comment {len(comments)}"
            comments.append(comment)
            parts.append(("\n" if kind == "own line" else " ") + comment + "\n")
        position = place
    return "".join(parts) + text[position:], comments
