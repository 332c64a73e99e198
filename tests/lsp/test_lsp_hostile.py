"""A client that misbehaves, goes away or sends odd names: the server answers, says it in a line, and ends with it."""

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lsp_files import Editor
from waiting import PATIENCE_S

from gmiflow.lsp import hover, problems
from gmiflow.lsp.documents import uri_of

COMMAND = [sys.executable, "-m", "gmiflow.cli", "lsp"]
INVALID_PARAMS, INVALID_REQUEST, UNKNOWN_METHOD, NOT_INITIALIZED = -32602, -32600, -32601, -32002


class Client:
    """A server process, and bytes to and from it."""

    def __init__(self, folder: Path) -> None:
        environment = {**os.environ, "TMPDIR": str(folder)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(COMMAND, env=environment, **pipes)
        self.said: queue.Queue[dict] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.ask(-1, "shutdown")
        self.open("file:///early.gmi", "edition 1\n")
        self.early = self.answer(-1)
        self.ask(0, "initialize", {"capabilities": {}, "processId": None, "rootUri": None})
        self.answer(0)

    def _read(self) -> None:
        while header := self.process.stdout.readline():
            self.process.stdout.readline()  # the type of the content
            self.process.stdout.readline()
            self.said.put(json.loads(self.process.stdout.read(int(header.split(b":")[1]))))

    def send(self, body: bytes) -> None:
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def ask(self, number: int | None, method: str, params: object = None) -> None:
        """A request, or without a number a notification."""
        name = {} if number is None else {"id": number}
        self.send(json.dumps({"jsonrpc": "2.0", **name, "method": method, "params": params}).encode())

    def answer(self, number: int) -> dict:
        while True:
            found = self.said.get(timeout=PATIENCE_S)
            if found.get("id") == number and "method" not in found:
                return found

    def open(self, uri: str, text: str, version: int = 1) -> None:
        item = {"uri": uri, "languageId": "gmi", "version": version, "text": text}
        self.ask(None, "textDocument/didOpen", {"textDocument": item})

    def end(self) -> tuple[int, str]:
        """Exit status, and what it said on stderr."""
        _, errors = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, errors.decode()


@pytest.fixture
def client(tmp_path):
    made = Client(tmp_path)
    yield made
    made.process.kill()
    made.process.wait()


def test_every_request_is_answered_and_mistakes_are_one_line(client):
    place = {"textDocument": {"uri": "file:///a.gmi"}, "position": {"line": 1, "character": 7}}
    client.open("file:///a.gmi", "edition 1\nparam a : int = 1\n")
    assert client.early["error"]["code"] == NOT_INITIALIZED
    for body in (b"{", b"\xff", b"3", b"[]", b'{"jsonrpc": "2.0", "id": 9, "result": null}'):
        client.send(body)
    client.ask(1, "textDocument/hover", None)
    client.ask(2, "textDocument/hover", {"textDocument": 3})
    client.ask(3, "no/such")
    client.ask(4, "textDocument/rename", {**place, "newName": "record"})
    client.ask(5, "textDocument/hover", place)
    codes = [client.answer(number).get("error", {}).get("code") for number in range(1, 5)]
    assert codes == [INVALID_PARAMS, INVALID_PARAMS, UNKNOWN_METHOD, INVALID_PARAMS]
    assert "Value: `1`" in client.answer(5)["result"]["contents"]["value"]
    client.ask(None, "$/cancelRequest", {"id": 5})  # too late, as after every letter typed
    client.ask(6, "shutdown")
    client.ask(7, "textDocument/hover", place)
    assert client.answer(7)["error"]["code"] == INVALID_REQUEST
    client.ask(None, "exit")
    status, errors = client.end()
    assert status == 0
    assert "Traceback" not in errors
    assert "`record` is a keyword" in errors
    assert "Cancel" not in errors


def test_a_signal_ends_it_and_leaves_no_files(client, tmp_path):
    """Also with a workflow whose name is longer than that of a file may be."""
    client.ask(1, "workspace/executeCommand", {"command": "gmiflow.server.showPlan", "arguments": ["x", ""]})
    client.ask(2, "workspace/executeCommand", {"command": "gmiflow.server.showGraph", "arguments": ["x", "w" * 300]})
    assert [client.answer(number).get("error") for number in (1, 2)] == [None, None]
    shown = sorted(file.name for file in tmp_path.glob("gmiflow-lsp-*/*"))
    assert shown == ["plan.txt", "w" * 60 + ".txt"]
    client.process.send_signal(signal.SIGINT)
    assert client.end() == (128 + signal.SIGINT, "")
    assert list(tmp_path.glob("gmiflow-lsp-*")) == []


def test_it_ends_when_its_client_goes_away_during_a_check(client):
    client.open("file:///a.gmi", "edition 1\n" + "".join(f"param p{i} : int = {i}\n" for i in range(5000)))
    client.process.stdin.close()
    client.process.stdin = None
    assert client.end() == (0, "")


def test_it_ends_when_nobody_reads_what_it_says(tmp_path):
    """The client's end of stdout is closed, stdin is not."""
    reading, writing = os.pipe()
    process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    os.close(reading)
    body = b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}, "processId": null}}'
    process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    process.stdin.flush()
    assert process.wait(timeout=PATIENCE_S) == 0
    assert process.stderr.read() == b""


ODD = [
    "untitled:", "git:/x/y.gmi?%7B%7D", "file:///", "file:", "", "x", "file:///c%3A/Users/me/a.gmi", "file://[",
    "file://server/share/a.gmi", "file:///tmp/%00.gmi", "file:///%ff.gmi", "file:///" + "n" * 5000 + ".gmi",
    "vscode-notebook-cell:/a.ipynb#W0", "file:///dev/null",
]  # fmt: skip


@pytest.mark.parametrize("uri", ODD, ids=range(len(ODD)))
def test_documents_with_odd_names(uri):
    editor = Editor()
    editor.files.open(uri, 1, 'edition 1\nimport "./\ud83e.gmi"\nimport "./none.gmi" as b\nparam x : int = b.y\n')
    analysis = editor.analyses.of(uri)
    assert [d.code for d in problems.diagnostics(analysis)] == ["E0203", "E0203"]
    here = analysis.document.lines.position(analysis.text.index("x :"))
    assert hover.hover(analysis, here) is not None


def test_a_file_that_is_open_under_two_names(tmp_path):
    """Closing one of them leaves the other's text in force."""
    path = tmp_path / "a b.gmi"
    editor = Editor(tmp_path)
    plain, quoted = f"file://{path}", uri_of(path)
    assert plain != quoted
    editor.files.open(plain, 1, "edition 1\n")
    other = editor.files.open(quoted, 1, "edition 1\nparam x : int = 1\n")
    editor.files.close(plain)
    assert editor.files.at(path) is other


def test_only_documents_that_use_a_changed_one_are_checked_again(tmp_path):
    editor = Editor(tmp_path)
    base = editor.open(tmp_path / "base.gmi", "edition 1\nparam x : int = 1\n")
    (tmp_path / "base.gmi").write_text("edition 1\n")
    user = editor.open(tmp_path / "user.gmi", 'edition 1\nimport "./base.gmi"\nparam y : int = base.x\n')
    apart = editor.open(tmp_path / "apart.gmi", "edition 1\nparam z : int = 1\n")
    lost = editor.open(tmp_path / "lost.gmi", 'edition 1\nimport "./none.gmi"\n')
    for analysis in (base, user, apart, lost):
        assert analysis.deep is not None
    editor.files.open(base.document.uri, 2, "edition 1\n")
    assert editor.analyses.users_of(base.document.path) == [a.document.uri for a in (base, user, lost)]
    assert editor.analyses.of(apart.document.uri) is apart
    again = editor.analyses.of(user.document.uri)
    assert again is not user
    assert [d.code for d in problems.diagnostics(again) if d.code[0] == "E"] == ["E0206"]
    (tmp_path / "none.gmi").write_text("edition 1\n")
    editor.files.forget_listing()  # the client says that a file changed
    assert [d.code for d in problems.diagnostics(lost)] == ["E0203"]
    assert problems.diagnostics(editor.analyses.of(lost.document.uri)) == []


NAMES = ("a", "b", "c")
TEXTS = (
    "edition 1\nparam x : int = 1\n",
    "edition 1\nparam x : int = true\n",
    "edition 1\nparam y : int = 2\n",
    'edition 1\nimport "./b.gmi"\nparam x : int = b.x\n',
    'edition 1\nimport "./c.gmi"\nparam x : int = c.x\n',
    'edition 1\nimport "./a.gmi"\nimport "./c.gmi" as see\nparam x : int = see.x\n',
    "edition 1\nparam x : \0\n",
    "param",
)
STEPS = st.tuples(st.sampled_from(NAMES), st.sampled_from(("open", "close", "write", "remove")), st.sampled_from(TEXTS))


def said(editor: Editor, path: Path) -> list[tuple[str, str]] | None:
    analysis = editor.analyses.of(uri_of(path))
    return [(d.code, d.message) for d in problems.diagnostics(analysis)] if analysis is not None else None


@settings(max_examples=40, deadline=None)
@given(st.lists(STEPS, max_size=12))
def test_what_is_kept_says_what_a_new_server_would_say(steps):
    """Whatever is opened, closed, written and removed, in files that import each other."""
    with tempfile.TemporaryDirectory() as name:
        folder, opened = Path(name), dict[str, str]()
        editor = Editor(folder)
        for file, step, text in steps:
            path = folder / f"{file}.gmi"
            if step == "open":
                opened[file] = text
                editor.files.open(uri_of(path), 1, text)
            elif step == "close":
                opened.pop(file, None)
                editor.files.close(uri_of(path))
                editor.analyses.forget(uri_of(path))
            else:
                path.write_text(text) if step == "write" else path.unlink(missing_ok=True)
                editor.files.forget_listing()
            fresh = Editor(folder)
            for other, content in opened.items():
                fresh.files.open(uri_of(folder / f"{other}.gmi"), 1, content)
            for other in NAMES:
                assert said(editor, folder / f"{other}.gmi") == said(fresh, folder / f"{other}.gmi")
            kept = {(i.file, tuple(i.unit.names)) for i in editor.analyses.indexes()}
            assert kept == {(i.file, tuple(i.unit.names)) for i in fresh.analyses.indexes()}


def test_a_file_that_was_never_saved_can_be_imported(tmp_path):
    editor = Editor(tmp_path)
    user = editor.open(tmp_path / "a.gmi", 'edition 1\nimport "./b.gmi"\nparam x : int = b.y\n')
    assert [code for code, _ in said(editor, user.document.path)] == ["E0203"]
    editor.open(tmp_path / "b.gmi", "edition 1\nparam y : int = 2\n")
    assert editor.analyses.users_of(tmp_path / "b.gmi") == [uri_of(tmp_path / name) for name in ("a.gmi", "b.gmi")]
    assert said(editor, user.document.path) == []
