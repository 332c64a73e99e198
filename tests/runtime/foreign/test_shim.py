"""The shim runs in Python 3.8 with NumPy alone: checked on its text, whichever Python runs the tests."""

import ast
from pathlib import Path

import pytest

from gmiflow.runtime import foreign
from gmiflow.sim import hosted

FILES = [Path(foreign.__file__).with_name(name) for name in ("shim.py", "cuda_slab.py")]
ADAPTERS = sorted(p for p in Path(hosted.__file__).parent.glob("*.py") if p.name != "__init__.py")
IMPORTED = {
    *("ctypes", "importlib", "importlib.util", "json", "mmap", "os", "signal", "socket", "struct", "sys"),
    *("traceback", "types", "typing", "collections.abc", "numpy", "__future__"),
}
# Each of these is in the documentation of Python 3.8's library. Look up what you add.
USED = {
    "ctypes": {"CDLL", "Structure", "byref", "c_byte", "c_char_p", "c_int", "c_size_t", "c_ubyte", "c_uint"}
    | {"c_uint64", "c_ulong", "c_void_p"},
    "importlib": {"import_module", "util"},
    "json": {"dumps", "loads"},
    "mmap": {"mmap"},
    "os": {"getpid", "getppid", "kill", "path", "read", "write"},
    "signal": {"SIGINT", "SIGKILL", "SIG_IGN", "signal"},
    "socket": {"socket"},
    "struct": {"pack", "unpack"},
    "sys": {"argv", "modules", "path", "version_info"},
    "traceback": {"extract_tb", "format_exception_only", "format_list"},
    "types": {"ModuleType", "SimpleNamespace"},
}


def imports_of(path):
    nodes = list(ast.walk(tree_of(path)))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module for node in nodes if isinstance(node, ast.ImportFrom)}


def tree_of(path):
    return ast.parse(path.read_text(), feature_version=(3, 8))


@pytest.mark.parametrize("path", [*FILES, *ADAPTERS], ids=lambda path: path.name)
def test_python_3_8_reads_it(path):
    tree = tree_of(path)
    compile(tree, str(path), "exec")
    # Annotations are not evaluated, so they may be written as later versions allow.
    assert isinstance(tree.body[1], ast.ImportFrom) and tree.body[1].module == "__future__"
    keywords = [k.arg for node in ast.walk(tree) if isinstance(node, ast.Call) for k in node.keywords]
    assert "strict" not in keywords  # of zip, since 3.10


@pytest.mark.parametrize("path", ADAPTERS, ids=lambda path: path.name)
def test_adapters_import_nothing_of_gmiflow(path):
    assert "gmiflow" not in {name.partition(".")[0] for name in imports_of(path)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_it_imports_nothing_but_numpy_and_old_parts_of_the_library(path):
    tree = tree_of(path)
    assert imports_of(path) <= IMPORTED
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in USED:
            assert node.attr in USED[node.value.id], f"{node.value.id}.{node.attr}: is it in Python 3.8?"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            assert node.func.attr not in {"removeprefix", "removesuffix", "bit_count"}
