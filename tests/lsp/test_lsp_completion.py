"""What is offered in each place, and what comes first."""

import pytest
from lsp_files import Editor
from lsprotocol import types

from gmiflow.lsp import completion
from gmiflow.lsp.indexing import SECTIONS, TABLES
from gmiflow.lsp.signature import signature_help
from gmiflow.lsp.vocabulary import AXES, FUNCTIONS, KEYWORDS, SETTINGS, TYPES
from gmiflow.lsp.vocabulary import SECTIONS as SECTION_TEXTS
from gmiflow.passes.values import SCALARS
from gmiflow.syntax import words

HEAD = """edition 1

import std.tasks.cartpole
import std.algo.ppo
import std.sim.gymnasium
import std.targets

param lr : float = 1e-3
param num_env : auto int = 256

simulator sim = cartpole.CartPole()
agent actor = ppo.Actor(hidden = [64, 64])
trainer learner = ppo.Learner(lr = lr)

"""
BODY = "workflow train {\n  mode = sync\n  num_env = 256\n  horizon = 16\n  "


def offered(tmp_path, marked: str) -> list[str]:
    """Labels at the `|`, in the order in which an editor shows them."""
    analysis, position = Editor(tmp_path).mark(tmp_path / "a.gmi", marked)
    return [i.label for i in sorted(completion.completions(analysis, position), key=lambda i: i.sort_text)]


PORTS = [
    ("sim.|\n}\n", ["obs", "reward", "terminated", "truncated"]),
    ("sim.obs -> actor.|\n}\n", ["obs", "weights"]),
    ("learner.weights -> actor.|\n}\n", ["weights", "obs"]),
    ("actor.experience -> learner.|", ["experience"]),
    ("actor.bootstrap -> learner.|", ["bootstrap", "reward"]),
    ("sim.terminated -> learner.|", ["terminated", "truncated"]),
    ("sim.{obs, |", ["reward", "terminated", "truncated"]),
    ("sim.reward -> learner.{|", ["bootstrap", "reward"]),
]


@pytest.mark.parametrize(("statement", "first"), PORTS)
def test_ports_of_the_right_type_come_first(statement, first, tmp_path):
    assert offered(tmp_path, HEAD + BODY + statement)[: len(first)] == first


def test_a_port_that_is_driven_comes_last(tmp_path):
    text = HEAD + BODY + "sim.terminated -> learner.terminated\n  sim.truncated -> learner.|\n}\n"
    found = offered(tmp_path, text)
    assert (found[0], found[-1]) == ("truncated", "terminated")
    text = HEAD + BODY + "actor.experience -> learner.experience\n  actor.experience -> learner.|\n}\n"
    assert offered(tmp_path, text)[-1] == "experience"


def test_stages_behind_an_arrow_with_the_inputs_that_fit(tmp_path):
    found = offered(tmp_path, HEAD + BODY + "sim.obs -> |\n}\n")
    assert found == ["actor.obs", "actor", "learner", "sim"]


def test_settings_that_are_not_written_and_stages(tmp_path):
    found = offered(tmp_path, HEAD + BODY + "|\n}\n")
    assert not {"mode", "num_env", "horizon"} & set(found)
    assert found[0] == "checkpoint_every"
    assert {"iterations", "seed", "sizing", "place", "sim", "actor", "learner", "require"} <= set(found)
    assert not {"param", "auto", "true", "in", "workflow"} & set(found)


PLACES = [
    ("|", {"param", "workflow", "simulator", "target", "import"}, {"where", "in"}),
    ("work|", {"workflow"}, {"where"}),
    ("import |", {"std"}, {"param"}),
    ("import std.|", {"tasks", "algo", "targets"}, {"std"}),
    ("import std.tasks.|", {"ant", "cartpole", "humanoid"}, {"ppo"}),
    ("import std.algo.ppo |", {"as"}, {"where"}),
    ("simulator two = |", {"cartpole", "cartpole.CartPole", "ant.Ant"}, {"lr", "ppo", "ppo.Actor"}),
    ("agent two = ppo.|", {"Actor", "Learner"}, {"Experience"}),
    ("agent two = ppo.Actor(|", {"hidden", "activation", "normalize_obs"}, {"lr"}),
    ("agent two = ppo.Actor(hidden = [8], activation = |", {"elu", "relu", "tanh"}, set()),
    ("agent two = ppo.Actor([8], |", {"elu", "relu", "tanh", "normalize_obs"}, {"lr"}),
    ("agent two = ppo.Actor([8], r|", {"relu", "normalize_obs"}, set()),
    ("agent two = ppo.Actor(normalize_obs = |", {"true", "false", "lr"}, {"elu"}),
    ("trainer two = ppo.Learner(lr = |", {"lr", "num_env", "min", "log2"}, {"elu"}),
    ("param x : |", {"int", "float", "bytes", "auto", "enum", "list"}, {"f32"}),
    ("param x : int = |", {"lr", "num_env", "targets", "min"}, {"workflow"}),
    ("param x : enum(left, right) = |", {"left", "right"}, {"x"}),
    ("param x : auto enum(left, right) = r|", {"auto", "left", "right"}, set()),
    ("simulator S(side : enum(left, right) = |", {"left", "right"}, {"side"}),
    ("target t(side : enum(left, right) = l|", {"left", "right"}, set()),
    ("param x : bool = |", {"true", "false"}, set()),
    ("param x : int = 1 |", {"where"}, {"in"}),
    ("workflow w {\n  mode = |", {"sync", "async", "serve"}, {"lr"}),
    ("workflow w {\n  mode = async { |", {"max_staleness"}, {"mode"}),
    ("workflow w {\n  num_env = |", {"auto", "num_env"}, {"sync"}),
    ("workflow w {\n  execution = |", {"auto", "eager", "graph", "overlap"}, {"sim"}),
    ("workflow w {\n  sizing {\n    |", {"objective", "batch"}, {"mode"}),
    ("workflow w {\n  sizing {\n    objective = |", {"throughput", "time_to_reward"}, set()),
    ("workflow w {\n  place {\n    |", {"sim", "actor", "learner"}, {"mode"}),
    ("workflow w {\n  place { learner = |", {"devices"}, {"lr"}),
    ("workflow w {\n  sim.obs -> actor.obs { |", {"depth", "on_full"}, {"mode"}),
    ("workflow w {\n  sim.obs -> actor.obs { on_full = |", {"block", "drop_oldest"}, set()),
    ("target t {\n  base = |", {"targets"}, {"lr"}),
    ("target t {\n  base = targets.|", {"h200", "cpu"}, {"lr"}),
    ("target t {\n  base = targets.h200(|", {"gpus"}, {"mode"}),
    ("target t {\n  |", {"base", "memory", "mapping", "require"}, {"mode", "in"}),
    ("target t {\n  memory = 4 |", {"GiB", "MiB", "B"}, {"ms", "Hz"}),
    ("param x : seconds = 4 |", {"ms", "s"}, {"GiB"}),
    ("simulator S {\n  |", {"in", "out", "entry", "needs", "require"}, {"mode"}),
    ("simulator S {\n  in x : |", {"f32", "bool", "weights", "ppo"}, {"int"}),
    ("simulator S {\n  in x : f32[|", {"env", "time", "num_env"}, {"sim"}),
    ("simulator S {\n  in x : f32[env] |", {"range", "optional"}, {"where"}),
    ("simulator S {\n  in x : ppo.|", {"Experience"}, {"env"}),
    ("simulator S {\n  entry = |", {"py"}, {"lr"}),
    ("simulator S(x : |", {"int", "enum"}, {"f32"}),
    ("simulator sim2 = cartpole.CartPole() {\n  |", {"python"}, {"in"}),
    ("record R {\n  x : |", {"f32", "i64"}, {"int"}),
    ("require lr > |", {"lr", "num_env"}, {"workflow"}),
    ("require lr > 0 && |", {"lr", "true", "false"}, {"auto", "py"}),
    ("workflow w {\n  mode = |", {"sync"}, {"auto", "true", "false", "py"}),
    ("param x : int = |", {"lr"}, {"auto", "true", "false", "py", "x"}),
    ("param x : auto int = |", {"auto"}, {"true", "py"}),
    ("param x : int = 4 where |", {"x", "lr"}, {"auto", "py"}),
    ("param x : enum(left, right) = left where x != |", {"left", "right"}, {"auto"}),
    ("simulator S(wide : int = 4, side : enum(left, right) = left where side == |", {"left", "right", "wide"}, set()),
    (
        "simulator S(wide : int = 4, side : enum(left, right) = left) {\n  in x : f32[env, |",
        {"wide", "num_env"},
        {"side"},
    ),
    ("agent A {\n  in x : f32[env, Seen]\n  out y : f32[env, |", {"Seen", "env", "num_env"}, {"lr"}),
    ("agent two = |", {"ppo.Actor", "ppo", "a3c.Actor"}, {"ppo.Learner", "cartpole", "targets"}),
    ("target t {\n  base = |", {"targets.h200", "targets.cpu"}, {"t", "ppo"}),
    ("agent two = ppo.Actor(hidden = [8], |", {"activation"}, {"hidden"}),
    ("trainer T {\n  needs {\n    memory = 1 MiB\n    |", {"memory_per_env", "cores"}, {"memory"}),
    ("workflow w {\n  place {\n    sim = devices(0)\n    |", {"actor", "learner"}, {"sim"}),
    ("workflow w {\n  sizing {\n    |\n    batch = fixed\n  }", {"objective"}, {"batch"}),
    ('simulator S {\n  entry = py "|', {"gmiflow", "walker", "body"}, {"_hidden", "S"}),
    ('simulator S {\n  entry = py "body.|', {"legs"}, {"walker"}),
    ('simulator S {\n  entry = py "body.legs:|', {"Legs"}, {"_Joint", "helper"}),
    ('simulator S {\n  entry = py "gmiflow.tasks.cartpole:|', {"CartPole"}, set()),
]
PYTHON = {
    "walker.py": "",
    "_hidden.py": "",
    "body/__init__.py": "",
    "body/legs.py": 'class Legs:\n    """Four."""\n\nclass _Joint: ...\n\ndef helper(): ...\n',
}


@pytest.mark.parametrize(("marked", "there", "absent"), PLACES)
@pytest.mark.parametrize("rest", ["", "\n}\n\nparam last : int = 1\n"], ids=["at the end", "in the middle"])
def test_places(marked, there, absent, rest, tmp_path):
    for name, text in PYTHON.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = set(offered(tmp_path, HEAD + marked + rest))
    assert there <= found
    assert not absent & found


@pytest.mark.parametrize(
    ("before", "place", "new"),
    [
        ("edition 1\nimport std.algo.ppo // policies\n", types.Position(1, 31), "\nimport std.tasks.ant"),
        ("edition 1\n", types.Position(0, 9), "\n\nimport std.tasks.ant"),
    ],
    ids=["behind the last import", "behind the edition, apart from it"],
)
def test_a_stage_type_of_std_brings_its_import(tmp_path, before, place, new):
    analysis, position = Editor(tmp_path).mark(tmp_path / "a.gmi", f"{before}\nsimulator sim = |")
    [found] = [i for i in completion.completions(analysis, position) if i.label == "ant.Ant"]
    [edit] = found.additional_text_edits
    assert (edit.range.start, edit.range.end, edit.new_text) == (place, place, new)
    assert found.documentation.value


def test_the_stage_that_takes_all_of_the_ports_comes_first(tmp_path):
    assert offered(tmp_path, HEAD + BODY + "sim.{reward, terminated} -> |\n}\n")[0] == "learner"


@pytest.mark.parametrize(
    ("marked", "label", "replaced"),
    [
        ('import "./nets.|', "nets.gmi", "nets."),
        ('simulator S {\n  entry = py "walker.le|', "legs", "le"),
        ("target t {\n  reserve = 4 Gi|", "GiB", "Gi"),
    ],
)
def test_what_is_no_plain_word_says_what_it_replaces(marked, label, replaced, tmp_path):
    (tmp_path / "nets.gmi").write_text("edition 1\n")
    (tmp_path / "walker").mkdir()
    (tmp_path / "walker" / "legs.py").write_text("")
    analysis, position = Editor(tmp_path).mark(tmp_path / "a.gmi", HEAD + marked)
    [found] = [i for i in completion.completions(analysis, position) if i.label == label]
    lines = analysis.document.lines
    place = found.text_edit.range
    assert analysis.text[lines.offset(place.start) : lines.offset(place.end)] == replaced
    assert found.text_edit.new_text == label


OPENERS = {
    "workflow": "workflow w {\n  ",
    "mode": "workflow w {\n  mode = async { ",
    "sizing": "workflow w {\n  sizing {\n    ",
    "edge": "workflow w {\n  sim.obs -> actor.obs { ",
    "target": "target t {\n  ",
    "stage type": "trainer T {\n  ",
    "needs": "trainer T {\n  needs {\n    ",
}
CLOSED = [
    (table, name, specs[name].type)
    for table, specs in TABLES.items()
    for name in specs
    if specs[name].type.kind in ("enum", "bool")
]


@pytest.mark.parametrize(("table", "name", "kind"), CLOSED, ids=[f"{table}.{name}" for table, name, _ in CLOSED])
def test_every_setting_with_a_closed_set_of_words_offers_them(table, name, kind, tmp_path):
    members = [*kind.members] if kind.kind == "enum" else ["true", "false"]
    for written in ("", members[0][:1]):
        for rest in ("", "\n}\n"):
            found = offered(tmp_path, f"{HEAD}{OPENERS[table]}{name} = {written}|{rest}")
            assert set(members) <= set(found)
            assert set(found[: len(members)]) <= {*members, "auto"}


@pytest.mark.parametrize("marked", ["// sim.|", "/// sim.|", 'require lr > 0 else "|', "param x : int = 12|"])
def test_nothing_in_comments_strings_and_numbers(marked, tmp_path):
    assert offered(tmp_path, HEAD + marked) == []


def test_files_of_an_import(tmp_path):
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "wide.gmi").write_text("edition 1\n")
    (tmp_path / "other.gmi").write_text("edition 1\n")
    assert offered(tmp_path, 'edition 1\nimport "|') == ["other.gmi", "nets/"]
    assert offered(tmp_path, 'edition 1\nimport "./nets/|"') == ["wide.gmi"]


SIGNATURES = [
    ("agent two = ppo.Actor(|", "Actor", 0),
    ("agent two = ppo.Actor(hidden = [8, 8], |", "Actor", 1),
    ("agent two = ppo.Actor(activation = |", "Actor", 1),
    ("agent two = ppo.Actor(hidden = [8, |", "Actor", 0),
    ("target t {\n  base = targets.h200(gpus = |", "h200", 0),
    ("param x : int = max(1, |", "max", 1),
    ("param x : int = max(1, 2, 3, 4|", "max", 2),
    ("agent two = ppo.Actor(hidden = [8], init_log_std = 0.5|", "Actor", 3),
    ("agent two = ppo.Actor([8, 8|", "Actor", 0),
    ("trainer two = ppo.Learner(lr = (1 + |", "Learner", 0),
    ("trainer two = ppo.Learner(lr = max(1, |", "max", 1),
    ('simulator two = gymnasium.Env("|', "Env", 0),
]


@pytest.mark.parametrize(("marked", "name", "active"), SIGNATURES)
def test_signature_help(marked, name, active, tmp_path):
    analysis, position = Editor(tmp_path).mark(tmp_path / "a.gmi", HEAD + marked)
    found = signature_help(analysis, position)
    assert found is not None
    assert found.signatures[0].label.startswith(f"{name}(")
    assert found.active_parameter == active


@pytest.mark.parametrize(
    "marked", ["workflow w {\n  |", "param x : int = (|", "param x : int = 1|", "agent A(x : int = |"]
)
def test_no_signature_help(marked, tmp_path):
    analysis, position = Editor(tmp_path).mark(tmp_path / "a.gmi", HEAD + marked)
    assert signature_help(analysis, position) is None


def test_every_word_of_the_language_is_described():
    settings = {f"{table}.{name}" for table, specs in TABLES.items() for name in specs}
    assert set(SETTINGS) == settings | {"target.base"}
    assert set(SECTION_TEXTS) == {f"{table}.{name}" for table, names in SECTIONS.items() for name in names}
    assert set(KEYWORDS) == words.KEYWORDS
    assert set(TYPES) == {*SCALARS, *words.DTYPES, "weights"}
    assert set(AXES) == set(words.AXES)
    assert set(FUNCTIONS) == {*words.FUNCTIONS, "devices"}


def test_types_of_parameters_are_not_offered_for_data(tmp_path):
    alone = {"auto", "enum", "list"}
    assert not alone & set(offered(tmp_path, HEAD + "record Seen {\n  a : |"))
    assert not alone & set(offered(tmp_path, HEAD + "simulator Own {\n  in  a : |"))
    assert alone <= set(offered(tmp_path, HEAD + "simulator Own(a : |"))
