"""No file, however broken, gives a traceback, hangs, or eats the machine's memory: every one gets its diagnostic.

Everything goes through the command line in a process of its own, with limits on processor time and on address space.
"""

import json
import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gmiflow.passes.check import check as check_in_process

ROOT = Path(__file__).parents[2]
PROCESSOR_LIMIT_S = 60
TIME_LIMIT_S = 240
MEMORY_LIMIT_BYTES = 1 << 30
HEAD = "edition 1\n"
WORDS = 120_000


def run(folder, *arguments):
    """The codes that `gmiflow` reports, after it ended in time, within memory and without a traceback."""

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_LIMIT_S, PROCESSOR_LIMIT_S))

    done = subprocess.run(
        [sys.executable, "-m", "gmiflow.cli", *arguments, "--format", "json"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        preexec_fn=limit,
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == 1, done.stderr
    return {item["code"] for item in json.loads(done.stdout) if item["severity"] == "error"}


def check(folder, content):
    """Codes for a file with this content, text or bytes."""
    path = folder / "file.gmi"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return run(folder, "check", "file.gmi")


def nested(opening, closing, depth):
    return f"{HEAD}param p : int = {opening * depth}1{closing * depth}\n"


SQUARES = [f"param p{i} : int = p{i - 1} * p{i - 1}\n" for i in range(1, 60)]
DEEP_CHAIN = [f"param p{i} : int = {'(' * 90}p{i + 1}{')' * 90}\n" for i in range(200)]
CONTENT = {
    "ELF header": (b"\x7fELF\x02\x01\x01\x00" + bytes(range(256)) * 40, "E0105"),
    "NUL in text": (HEAD.encode() + b"param a : int = 1\0\n", "E0105"),
    "zeros": (bytes(100_000), "E0105"),
    "invalid UTF-8": (HEAD.encode() + b"param \xc3\x28 : int = 1\n", "E0105"),
    "UTF-16": (HEAD.encode("utf-16"), "E0105"),
    "lone surrogate": (HEAD.encode() + b"// \xed\xa0\x80\n", "E0105"),
    "larger than 4 MiB": (HEAD + "// " + "x" * (4 << 20), "E0106"),
    "endless words": (HEAD + "a " * (2 << 20 - 1), "E0106"),
    "empty": ("", "E0110"),
    "only blanks": (" \t\r\n" * 100_000, "E0110"),
    "10,001 declarations": (HEAD + "".join(f"param p{i} : int = {i}\n" for i in range(10_001)), "E0108"),
    "megabyte of digits": (f"{HEAD}param p : int = {'9' * 1_000_000}\n", "E0412"),
    "4,000 digits": (f"{HEAD}param p : int = {'9' * 4_000}\n", "E0412"),
    "huge exponent": (f"{HEAD}param p : float = 1e{'9' * 400}\n", "E0412"),
    "megabyte of a name": (f"{HEAD}param p : {'n' * 1_000_000} = 1\n", "E0306"),
    "megabyte of a string": (f'{HEAD}param p : int = "{"s" * 1_000_000}"\n', "E0301"),
    "megabyte of an open string": (f'{HEAD}param p : string = "{"s" * 1_000_000}\n', "E0104"),
    "megabyte of signs": (HEAD + "$" * 1_000_000, "E0106"),
    "megabyte of quotes": (HEAD + '"' * 1_000_001, "E0106"),
    "megabyte of backslashes": (f'{HEAD}param p : string = "{chr(92) * 1_000_001}"\n', "E0104"),
    "long line of arguments": (f"{HEAD}param p : int = max({'1, ' * (WORDS // 2)}x)\n", "E0201"),
    "long sum": (f"{HEAD}param p : int = {'1 + ' * (WORDS // 2)}1\n", "E0107"),
    "long conjunction": (f"{HEAD}param p : bool = {'true && ' * (WORDS // 2)}true\n", "E0107"),
    "parentheses": (nested("(", ")", 1_000), "E0107"),
    "unclosed parentheses": (nested("(", "", 100_000), "E0107"),
    "only closing": (HEAD + ")" * 100_000, "E0101"),
    "lists": (nested("[", "]", 1_000), "E0107"),
    "list types": (f"{HEAD}param p : {'list(' * 1_000}int{')' * 1_000} = 1\n", "E0107"),
    "signs before a number": (nested("-", "", 100_000), "E0107"),
    "braces": (f"{HEAD}workflow w {'{ a = 1 ' * 1_000}{'}' * 1_000}\n", "E0107"),
    "auto types": (f"{HEAD}param p : {'auto ' * 50_000}int = 1\n", "E0113"),
    "dots": (f"{HEAD}param p : int = a{'.a' * 50_000}\n", "E0201"),
    "documentation alone": (HEAD + "/// words\n" * 100_000, "E0114"),
    "open blocks": (HEAD + "target t {\n" * 50_000, "E0107"),
    "one mistake per line": (HEAD + "param = \n" * 20_000, "E0101"),
    "the same name again": (HEAD + "param p : int = 1\n" * 9_000, "E0202"),
    "each needs the next": (HEAD + "".join(f"param p{i} : int = p{i + 1}\n" for i in range(9_000)), "E0201"),
    "each needs itself": (HEAD + "".join(f"param p{i} : int = p{i}\n" for i in range(5_000)), "E0413"),
    "a large product": (HEAD + "param p0 : int = 9\n" + "".join(SQUARES), "E0412"),
    "bases of bases": (
        HEAD + "".join(f"target t{i} {{ base = t{i + 1} }}\n" for i in range(2_000)) + "target t2000 {}\n",
        "E0107",
    ),
    "deep expressions in a chain": (HEAD + "".join(DEEP_CHAIN), "E0201"),
}


@pytest.mark.parametrize("name", CONTENT)
def test_content(name, tmp_path):
    content, code = CONTENT[name]
    assert check(tmp_path, content) == {code}


@pytest.mark.parametrize("name", ["megabyte of a name", "megabyte of a string", "long sum", "one mistake per line"])
def test_messages_stay_short(name, tmp_path):
    """A long line is cut in the message, and the number of messages is bounded."""
    (tmp_path / "file.gmi").write_text(CONTENT[name][0])
    command = [sys.executable, "-m", "gmiflow.cli", "check", "file.gmi"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=TIME_LIMIT_S)
    assert done.returncode == 1
    assert len(done.stderr) < 40_000
    assert max(map(len, done.stderr.splitlines())) < 2_000


def _fifo(path):
    os.mkfifo(path)


def _socket(path):
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.close()


def _no_permission(path):
    path.write_text(HEAD)
    path.chmod(0)


PLACES = {
    "missing": lambda path: None,
    "folder": Path.mkdir,
    "link to itself": lambda path: path.symlink_to(path),
    "link to nowhere": lambda path: path.symlink_to(path.parent / "nowhere"),
    "pipe": _fifo,
    "socket": _socket,
    "device without end": lambda path: path.symlink_to("/dev/zero"),
    "device without content": lambda path: path.symlink_to("/dev/null"),
    "file that cannot be read": lambda path: path.symlink_to("/proc/self/mem"),
    **({"no permission": _no_permission} if os.geteuid() else {}),
}


@pytest.mark.parametrize("command", ["check", "lint", "compile", "run"])
@pytest.mark.parametrize("name", PLACES)
def test_places(name, command, tmp_path, monkeypatch):
    """The file itself, and (without waiting for anything) a file that it imports."""
    monkeypatch.chdir(tmp_path)  # a socket's path may have 100 characters
    PLACES[name](Path("file.gmi") if name == "socket" else tmp_path / "file.gmi")
    if command == "check":
        (tmp_path / "importer.gmi").write_text(f'{HEAD}import "./file.gmi" as other\n')
        assert run(tmp_path, "check", "importer.gmi") == {"E0203"}
    if command != "run":  # whose JSON is its events
        assert run(tmp_path, command, "file.gmi") == {"E0105"}


def test_a_folder_named_like_a_file_of_another_kind(tmp_path):
    assert run(tmp_path, "check", "/") == {"E0105"}
    assert run(tmp_path, "check", "x" * 5_000) == {"E0105"}
    assert run(tmp_path, "check", "") == {"E0105"}


def test_import_chains(tmp_path):
    """32 files deep is the limit; the chain may be longer than that, or end where it began."""
    for index in range(40):
        (tmp_path / f"m{index}.gmi").write_text(f'{HEAD}import "./m{index + 1}.gmi" as next\n')
    (tmp_path / "m40.gmi").write_text(HEAD)
    assert run(tmp_path, "check", "m0.gmi") == {"E0205"}
    (tmp_path / "m20.gmi").write_text(f'{HEAD}import "./m0.gmi" as next\n')
    assert run(tmp_path, "check", "m0.gmi") == {"E0204"}
    (tmp_path / "m0.gmi").write_text(f'{HEAD}import "./m0.gmi" as next\n')
    assert run(tmp_path, "check", "m0.gmi") == {"E0204"}


def import_chain(folder, length):
    """Files that import each other in a row; returns the first."""
    for index in range(length - 1):
        (folder / f"c{index}.gmi").write_text(f'{HEAD}import "./c{index + 1}.gmi" as next\n')
    (folder / f"c{length - 1}.gmi").write_text(HEAD)
    return str(folder / "c0.gmi")


def test_each_limit_is_where_it_is_said_to_be(tmp_path):
    """Nesting 100, 10,000 declarations, 4 MiB, imports 32 deep: so much is allowed, and one more is not."""

    def codes(text):
        return {d.code for d in check_in_process("file.gmi", text=text).diagnostics}

    params = [f"param p{i} : int = {i}\n" for i in range(10_000)]
    assert codes(nested("(", ")", 100)) == set()
    assert codes(nested("(", ")", 101)) == {"E0107"}
    assert codes(HEAD + "".join(params[:9_999])) == set()
    assert codes(HEAD + "".join(params)) == {"E0108"}
    comment = HEAD + "// "
    assert codes(comment + "x" * ((4 << 20) - len(comment))) == set()
    assert codes(comment + "x" * ((4 << 20) - len(comment) + 1)) == {"E0106"}
    for length, expected in ((32, set()), (33, {"E0205"})):
        (tmp_path / str(length)).mkdir()
        file = import_chain(tmp_path / str(length), length)
        assert {d.code for d in check_in_process(file).diagnostics} == expected


def test_imports_that_fan_out(tmp_path):
    """Every file is read once, however often it is imported: 2^20 paths lead through these 20 layers."""
    for index in range(20):
        names = [f'import "./{side}{index + 1}.gmi" as {side}\n' for side in ("a", "b")]
        for side in ("a", "b"):
            (tmp_path / f"{side}{index}.gmi").write_text(HEAD + "".join(names))
    for side in ("a", "b"):
        (tmp_path / f"{side}20.gmi").write_text(f"{HEAD}param p : int = true\n")
    (tmp_path / "use.gmi").write_text(f'{HEAD}import "./a0.gmi" as a\nparam p : int = a.p\n')
    assert run(tmp_path, "check", "use.gmi") == {"E0206"}


def test_declarations_count_over_all_imports(tmp_path):
    for name in ("one", "two"):
        text = "".join(f"param p{i} : int = {i}\n" for i in range(6_000))
        (tmp_path / f"{name}.gmi").write_text(HEAD + text)
    (tmp_path / "use.gmi").write_text(f'{HEAD}import "./one.gmi"\nimport "./two.gmi"\n')
    assert run(tmp_path, "check", "use.gmi") == {"E0108"}


PYTHON = {
    "nested parentheses": "x = " + "(" * 5_000 + ")" * 5_000,
    "signs": "x = " + "-" * 200_000 + "1",
    "long sum": "x = " + "1 + " * 100_000 + "1",
    "NUL": "x = 1\0",
    "Latin-1": "x = '\xe9'",
}


@pytest.mark.parametrize("name", PYTHON)
def test_python_modules_that_cannot_be_parsed(name, tmp_path):
    """What Python cannot read is said, unless it is only too deep for this process; other mistakes are still found."""
    (tmp_path / "mine.py").write_bytes(PYTHON[name].encode("latin-1"))
    port = 'simulator S() {\n  entry = py "mine:S"\n  out obs : f32[env, 4]\n}\n'
    unreadable = set() if name in ("signs", "long sum") else {"E0214"}
    assert check(tmp_path, f"{HEAD}{port}param p : int = true\n") == {"E0301", *unreadable}
