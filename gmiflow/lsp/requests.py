"""Every request of the protocol and the function that answers it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams
from pygls.uris import to_fs_path

from gmiflow.lsp import (
    completion,
    formatting,
    hints,
    navigation,
    outline,
    problems,
    renaming,
    semantic_tokens,
    signature,
    views,
)
from gmiflow.lsp.analysis import Analysis
from gmiflow.lsp.hover import hover

if TYPE_CHECKING:
    from gmiflow.lsp.server import Server

SHOW_PLAN = "gmiflow.server.showPlan"
SHOW_GRAPH = "gmiflow.server.showGraph"
EXPLAIN = "gmiflow.server.explain"
GRAPH = "gmiflow.server.graph"
CHOICES = "gmiflow.server.choices"
"""Commands: the first two show a file, the next two answer with its content, the last one with names."""

T = TypeVar("T")


def register(server: Server) -> None:
    """Register every request."""
    _register_life(server)
    _register_navigation(server)
    _register_looks(server)
    _register_writing(server)
    _register_commands(server)


def _about(server: Server, uri: str, answer: Callable[[Analysis], T], otherwise: T) -> T:
    """An answer about an open document, and another for one that is not open."""
    analysis = server.analyses.of(uri)
    return answer(analysis) if analysis is not None else otherwise


def _register_life(server: Server) -> None:
    @server.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        server.prepare(params)

    @server.feature(types.INITIALIZED)
    def initialized(_params: types.InitializedParams) -> None:
        server.watch()

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def saved(_params: types.DidSaveTextDocumentParams) -> None:
        server.files_changed()

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def files_changed(_params: types.DidChangeWatchedFilesParams) -> None:
        server.files_changed()

    @server.feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    def folders(params: types.DidChangeWorkspaceFoldersParams) -> None:
        gone = {to_fs_path(folder.uri) for folder in params.event.removed}
        new = [Path(path) for folder in params.event.added if (path := to_fs_path(folder.uri))]
        server.files.folders = [folder for folder in server.files.folders if str(folder) not in gone] + new

    @server.feature(types.SHUTDOWN)
    def shutdown(*_params: object) -> None:
        server.clean()


def _register_navigation(server: Server) -> None:
    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def on_hover(p: types.HoverParams) -> types.Hover | None:
        return _about(server, p.text_document.uri, lambda a: hover(a, p.position), None)

    @server.feature(types.TEXT_DOCUMENT_DEFINITION)
    def on_definition(p: types.DefinitionParams) -> types.Location | None:
        return _about(server, p.text_document.uri, lambda a: navigation.definition(a, p.position), None)

    @server.feature(types.TEXT_DOCUMENT_TYPE_DEFINITION)
    def on_type_definition(p: types.TypeDefinitionParams) -> types.Location | None:
        return _about(server, p.text_document.uri, lambda a: navigation.type_definition(a, p.position), None)

    @server.feature(types.TEXT_DOCUMENT_IMPLEMENTATION)
    def on_implementation(p: types.ImplementationParams) -> types.Location | None:
        return _about(server, p.text_document.uri, lambda a: navigation.implementation(a, p.position), None)

    @server.feature(types.TEXT_DOCUMENT_REFERENCES)
    def on_references(p: types.ReferenceParams) -> list[types.Location]:
        declarations = p.context.include_declaration
        return _about(
            server,
            p.text_document.uri,
            lambda a: navigation.references(server.analyses, a, p.position, declarations=declarations),
            [],
        )

    @server.feature(types.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT)
    def on_highlight(p: types.DocumentHighlightParams) -> list[types.DocumentHighlight]:
        return _about(server, p.text_document.uri, lambda a: navigation.highlights(a, p.position), [])

    @server.feature(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def on_symbols(p: types.DocumentSymbolParams) -> list[types.DocumentSymbol]:
        return _about(server, p.text_document.uri, outline.document_symbols, [])

    @server.feature(types.WORKSPACE_SYMBOL)
    def on_workspace_symbols(p: types.WorkspaceSymbolParams) -> list[types.WorkspaceSymbol]:
        return outline.workspace_symbols(server.analyses, p.query)


def _register_looks(server: Server) -> None:
    @server.feature(types.TEXT_DOCUMENT_FOLDING_RANGE)
    def on_folding(p: types.FoldingRangeParams) -> list[types.FoldingRange]:
        return _about(server, p.text_document.uri, outline.folding_ranges, [])

    @server.feature(types.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, semantic_tokens.LEGEND)
    def on_tokens(p: types.SemanticTokensParams) -> types.SemanticTokens:
        return _about(server, p.text_document.uri, semantic_tokens.semantic_tokens, types.SemanticTokens(data=[]))

    @server.feature(types.TEXT_DOCUMENT_SEMANTIC_TOKENS_RANGE, semantic_tokens.LEGEND)
    def on_tokens_of_range(p: types.SemanticTokensRangeParams) -> types.SemanticTokens:
        return _about(
            server,
            p.text_document.uri,
            lambda a: semantic_tokens.semantic_tokens(a, p.range),
            types.SemanticTokens(data=[]),
        )

    @server.feature(types.TEXT_DOCUMENT_INLAY_HINT)
    def on_hints(p: types.InlayHintParams) -> list[types.InlayHint]:
        return _about(server, p.text_document.uri, lambda a: hints.inlay_hints(a, p.range), [])

    @server.feature(types.TEXT_DOCUMENT_CODE_LENS)
    def on_lenses(p: types.CodeLensParams) -> list[types.CodeLens]:
        return _about(server, p.text_document.uri, lambda a: hints.code_lenses(a, server.lenses), [])


def _register_writing(server: Server) -> None:
    @server.feature(
        types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=list(completion.TRIGGERS))
    )
    def on_completion(p: types.CompletionParams) -> types.CompletionList:
        items = _about(server, p.text_document.uri, lambda a: completion.completions(a, p.position), [])
        return types.CompletionList(is_incomplete=False, items=items)

    @server.feature(
        types.TEXT_DOCUMENT_SIGNATURE_HELP,
        types.SignatureHelpOptions(
            trigger_characters=list(signature.TRIGGERS), retrigger_characters=list(signature.RETRIGGERS)
        ),
    )
    def on_signature(p: types.SignatureHelpParams) -> types.SignatureHelp | None:
        return _about(server, p.text_document.uri, lambda a: signature.signature_help(a, p.position), None)

    @server.feature(types.TEXT_DOCUMENT_FORMATTING)
    def on_formatting(p: types.DocumentFormattingParams) -> list[types.TextEdit]:
        return _about(server, p.text_document.uri, formatting.format_document, [])

    @server.feature(types.TEXT_DOCUMENT_RANGE_FORMATTING)
    def on_range_formatting(p: types.DocumentRangeFormattingParams) -> list[types.TextEdit]:
        return _about(server, p.text_document.uri, lambda a: formatting.format_document(a, p.range), [])

    kinds = [types.CodeActionKind.QuickFix, problems.FIX_ALL]

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions(code_action_kinds=kinds))
    def on_actions(p: types.CodeActionParams) -> list[types.CodeAction]:
        return _about(server, p.text_document.uri, lambda a: problems.actions(a, p.range, p.context.only), [])

    @server.feature(types.TEXT_DOCUMENT_PREPARE_RENAME)
    def on_prepare_rename(p: types.PrepareRenameParams) -> types.PrepareRenamePlaceholder | None:
        return _about(server, p.text_document.uri, lambda a: renaming.prepare_rename(a, p.position), None)

    @server.feature(types.TEXT_DOCUMENT_RENAME, types.RenameOptions(prepare_provider=True))
    def on_rename(p: types.RenameParams) -> types.WorkspaceEdit | None:
        new = p.new_name
        try:
            return _about(
                server, p.text_document.uri, lambda a: renaming.rename(server.analyses, a, p.position, new), None
            )
        except renaming.RenameError as error:
            raise JsonRpcInvalidParams(str(error)) from error


def _register_commands(server: Server) -> None:
    @server.command(EXPLAIN)
    def explain(uri: str, workflow: str) -> str:
        return _about(server, uri, lambda a: views.explanation(a, workflow), "")

    @server.command(GRAPH)
    def graph(uri: str, workflow: str) -> dict[str, str]:
        svg, problem = _about(server, uri, lambda a: views.graph(a, workflow), ("", "the file is not open"))
        return {"svg": svg, "problem": problem}

    @server.command(CHOICES)
    def choices(uri: str) -> dict[str, list[str]]:
        return _about(server, uri, views.choices, {"workflows": [], "targets": []})

    @server.command(SHOW_PLAN)
    def show_plan(uri: str, workflow: str) -> None:
        server.show(f"{workflow or 'plan'}.txt", explain(uri, workflow))

    @server.command(SHOW_GRAPH)
    def show_graph(uri: str, workflow: str) -> None:
        found = graph(uri, workflow)
        name, text = (
            (f"{workflow or 'graph'}.svg", found["svg"])
            if found["svg"]
            else (f"{workflow or 'graph'}.txt", found["problem"])
        )
        server.show(name, text)
