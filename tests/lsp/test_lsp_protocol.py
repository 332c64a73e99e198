"""A real `gmiflow lsp` process, spoken to as an editor does."""

import asyncio
import subprocess
import sys
from collections import defaultdict

import pytest
import pytest_lsp
from lsp_files import ROOT
from lsprotocol import types
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities
from waiting import PATIENCE_S

from gmiflow.lsp.documents import uri_of

COMMAND = [sys.executable, "-m", "gmiflow.cli", "lsp", "--stdio"]
IMPORTS_NETS = 'edition 1\n\nimport "./nets.gmi" as nets\n\nparam half : int = nets.width / 2\n'
HEAD = "edition 1\n\nimport std.tasks.cartpole\nimport std.algo.ppo\n\n"


@pytest_lsp.fixture(config=ClientServerConfig(server_command=COMMAND))
async def client(lsp_client: LanguageClient, tmp_path):
    lsp_client.registered = []
    lsp_client.published = defaultdict(asyncio.Queue)

    def on_diagnostics(params: types.PublishDiagnosticsParams) -> None:
        lsp_client.published[params.uri].put_nowait(params)

    # in place of pytest-lsp's handler: waiting for one notification at a time misses those that come together
    lsp_client.protocol.fm.features[types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS] = on_diagnostics

    @lsp_client.feature(types.CLIENT_REGISTER_CAPABILITY)
    def on_register(params: types.RegistrationParams) -> None:
        lsp_client.registered += params.registrations

    await lsp_client.initialize_session(
        types.InitializeParams(
            capabilities=client_capabilities("visual-studio-code"),
            workspace_folders=[types.WorkspaceFolder(uri=uri_of(tmp_path), name="project")],
        )
    )
    yield
    await lsp_client.shutdown_session()


def open_document(client: LanguageClient, uri: str, text: str, version: int = 1) -> None:
    item = types.TextDocumentItem(uri=uri, language_id="gmi", version=version, text=text)
    client.text_document_did_open(types.DidOpenTextDocumentParams(text_document=item))


def change(client: LanguageClient, uri: str, version: int, *changes) -> None:
    name = types.VersionedTextDocumentIdentifier(uri=uri, version=version)
    client.text_document_did_change(
        types.DidChangeTextDocumentParams(text_document=name, content_changes=list(changes))
    )


def insert(line: int, character: int, text: str) -> types.TextDocumentContentChangePartial:
    place = types.Position(line, character)
    return types.TextDocumentContentChangePartial(range=types.Range(place, place), text=text)


async def published(client: LanguageClient, uri: str, seconds: float = PATIENCE_S) -> types.PublishDiagnosticsParams:
    """The next diagnostics of a document."""
    async with asyncio.timeout(seconds):
        return await client.published[uri].get()


@pytest.mark.asyncio
async def test_diagnostics_have_everything_an_editor_can_show(client, tmp_path):
    uri = uri_of(tmp_path / "a.gmi")
    open_document(client, uri, HEAD + "simulator sim = cartpole.CartPol()\nsimulator sim = cartpole.CartPole()\n")
    found = (await published(client, uri)).diagnostics
    twice, unknown = sorted(found, key=lambda d: d.code)
    assert (unknown.code, twice.code) == ("E0206", "E0202")
    assert unknown.message.splitlines()[1] == "did you mean `CartPole`?"
    assert unknown.range == types.Range(types.Position(5, 25), types.Position(5, 32))
    assert unknown.source == "gmiflow"
    assert unknown.code_description.href == uri_of(ROOT / "docs/errors/E0206.md")
    [place] = twice.related_information
    assert place.message == "first declared here"
    assert place.location.range == types.Range(types.Position(5, 10), types.Position(5, 13))
    actions = await client.text_document_code_action_async(
        types.CodeActionParams(
            text_document=types.TextDocumentIdentifier(uri),
            range=unknown.range,
            context=types.CodeActionContext(diagnostics=[unknown]),
        )
    )
    assert [action.title for action in actions] == ["Write `CartPole`"]
    assert actions[0].edit.changes[uri][0].new_text == "CartPole"


@pytest.mark.asyncio
async def test_only_the_newest_version_is_checked(client, tmp_path):
    uri = uri_of(tmp_path / "a.gmi")
    open_document(client, uri, "edition 1\n")
    await published(client, uri)
    for version in range(2, 32):
        change(client, uri, version, insert(1, 0, "x"))
    found = await published(client, uri)
    versions = [found.version]
    while found.version != 31:  # on a slow machine typing may seem to pause
        found = await published(client, uri)
        versions.append(found.version)
    assert versions == sorted(set(versions))
    assert len(versions) < 30
    assert [d.range.start for d in found.diagnostics] == [types.Position(1, 0)]
    with pytest.raises(TimeoutError):
        await published(client, uri, 0.6)
    assert [r.method for r in client.registered] == [types.WORKSPACE_DID_CHANGE_WATCHED_FILES]


@pytest.mark.asyncio
async def test_a_change_of_an_imported_buffer_is_seen_at_once(client, tmp_path):
    main, other = uri_of(tmp_path / "main.gmi"), uri_of(tmp_path / "nets.gmi")
    (tmp_path / "nets.gmi").write_text("edition 1\n\nparam width : int = 64\n")
    open_document(client, main, IMPORTS_NETS)
    assert not [d for d in (await published(client, main)).diagnostics if d.code.startswith("E")]
    open_document(client, other, "edition 1\n\nparam height : int = 64\n")
    found = await published(client, main)
    assert [d.code for d in found.diagnostics] == ["E0206"]


@pytest.mark.asyncio
async def test_a_mistake_in_an_import_is_shown_at_the_import(client, tmp_path):
    main = uri_of(tmp_path / "main.gmi")
    (tmp_path / "nets.gmi").write_text("edition 1\n\nparam width : int = true\n")
    open_document(client, main, IMPORTS_NETS)
    [found] = (await published(client, main)).diagnostics
    assert (found.code, found.range.start) == ("E0301", types.Position(2, 7))
    assert found.related_information[0].location.uri == uri_of(tmp_path / "nets.gmi")
    client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(main)))
    assert not (await published(client, main)).diagnostics


@pytest.mark.asyncio
async def test_rename_in_all_files_of_the_workspace(client, tmp_path):
    main, nets, third = (tmp_path / f"{name}.gmi" for name in ("main", "nets", "third"))
    nets.write_text("edition 1\n\nparam width : int = 64\n")
    third.write_text('edition 1\n\nimport "nets.gmi" as n\n\nparam a : int = n.width\n')
    open_document(
        client, uri_of(main), 'edition 1\n\nimport "./nets.gmi" as nets\n\nparam half : int = nets.width / 2\n'
    )
    place = {"text_document": types.TextDocumentIdentifier(uri_of(main)), "position": types.Position(4, 25)}
    prepared = await client.text_document_prepare_rename_async(types.PrepareRenameParams(**place))
    assert prepared.placeholder == "width"
    edit = await client.text_document_rename_async(types.RenameParams(**place, new_name="size"))
    starts = {uri: [e.range.start for e in edits] for uri, edits in edit.changes.items()}
    assert starts == {
        uri_of(main): [types.Position(4, 24)],
        uri_of(nets): [types.Position(2, 6)],
        uri_of(third): [types.Position(4, 18)],
    }
    for name, why in (("record", "is a keyword"), ("a b", "is not a name"), ("9", "is not a name")):
        with pytest.raises(Exception, match=why):
            await client.text_document_rename_async(types.RenameParams(**place, new_name=name))


@pytest.mark.asyncio
async def test_workspace_symbols_and_references_reach_files_that_are_not_open(client, tmp_path):
    (tmp_path / "nets.gmi").write_text("edition 1\n\nparam width : int = 64\nparam depth : int = width\n")
    found = await client.workspace_symbol_async(types.WorkspaceSymbolParams(query="wdt"))
    assert [(s.name, s.container_name) for s in found] == [("width", "nets")]


@pytest.mark.asyncio
async def test_a_python_class_that_comes_later_is_seen(client, tmp_path):
    uri = uri_of(tmp_path / "walker.gmi")
    text = 'edition 1\n\nsimulator Walker {\n  entry = py "walker:Walker"\n  out obs : f32[env, 4]\n}\n'
    open_document(client, uri, text)
    assert [d.code for d in (await published(client, uri)).diagnostics] == ["E0212"]
    python = tmp_path / "walker.py"
    python.write_text("from gmiflow.api import Simulator\n\n\nclass Walker(Simulator):\n    pass\n")
    [registration] = client.registered
    watched = {watcher["globPattern"] for watcher in registration.register_options["watchers"]}
    assert watched == {"**/*.gmi", "**/*.py"}
    changes = [types.FileEvent(uri=uri_of(python), type=types.FileChangeType.Created)]
    client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams(changes=changes))
    assert not (await published(client, uri)).diagnostics


@pytest.mark.asyncio
async def test_commands_explain_and_draw(client):
    path = ROOT / "examples" / "quickstart.gmi"
    uri = uri_of(path)
    open_document(client, uri, path.read_text())
    lenses = await client.text_document_code_lens_async(types.CodeLensParams(types.TextDocumentIdentifier(uri)))
    assert [(lens.command.title, lens.command.command) for lens in lenses] == [
        ("Explain plan", "gmiflow.server.showPlan"),
        ("Graph", "gmiflow.server.showGraph"),
    ]
    run = client.workspace_execute_command_async
    text = await run(types.ExecuteCommandParams(command="gmiflow.server.explain", arguments=[uri, "train"]))
    assert "num_env 256 = 128 on each of 2 GMIs" in text
    graph = await run(types.ExecuteCommandParams(command="gmiflow.server.graph", arguments=[uri, "train"]))
    assert graph["problem"] == ""
    assert graph["svg"].startswith("<svg")
    choices = await run(types.ExecuteCommandParams(command="gmiflow.server.choices", arguments=[uri]))
    assert choices == {"workflows": ["train"], "targets": ["laptop"]}
    await run(types.ExecuteCommandParams(command="gmiflow.server.showPlan", arguments=[uri, "train"]))
    assert client.shown_documents[-1].uri.endswith("train.txt")


@pytest.mark.asyncio
async def test_a_document_that_was_never_saved(client):
    uri = "untitled:Untitled-1"
    open_document(client, uri, "edition 1\nparam x : int = 1\n")
    whole = types.Range(types.Position(0, 0), types.Position(2, 0))
    name = types.TextDocumentIdentifier(uri)
    tokens = await client.text_document_semantic_tokens_full_async(types.SemanticTokensParams(name))
    assert list(tokens.data[:10]) == [0, 0, 7, 9, 0, 0, 8, 1, 10, 0]  # `edition` is a keyword, `1` a number
    assert await client.text_document_document_symbol_async(types.DocumentSymbolParams(name))
    assert not await client.text_document_inlay_hint_async(types.InlayHintParams(name, whole))
    options = types.FormattingOptions(tab_size=2, insert_spaces=True)
    edits = await client.text_document_formatting_async(types.DocumentFormattingParams(name, options))
    assert [edit.new_text for edit in edits] == ["\n"]


def test_it_ends_with_its_client_and_loads_nothing_heavy():
    """Without a goodbye: stdin ends, and so does the process; it never loaded torch or a simulator."""
    script = (
        "import sys\nfrom gmiflow.lsp.server import serve\nserve()\n"
        "heavy = {'torch', 'mujoco', 'numpy', 'warp'} & set(sys.modules)\nassert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == b""


@pytest.mark.parametrize("module", ["None", "types.ModuleType('pygls')"], ids=["missing", "of another version"])
def test_without_pygls_it_says_what_to_install(module):
    script = f"import sys, types\nsys.modules['pygls'] = {module}\nfrom gmiflow.cli import main\nmain(['lsp'])\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1
    assert "pip install 'gmiflow[lsp]'" in done.stderr
    assert "Traceback" not in done.stderr
