"""What `docs/editors.md` says to write for other editors."""

import tomllib

from lsp_files import ROOT, Editor

from gmiflow.lsp import outline

PAGE = (ROOT / "docs" / "editors.md").read_text(encoding="utf-8")


def test_the_lines_for_helix_are_toml_and_name_the_server():
    text = PAGE.partition("```toml\n")[2].partition("```")[0]
    found = tomllib.loads(text)
    [language] = found["language"]
    [server] = language["language-servers"]
    assert found["language-server"][server] == {"command": "gmiflow", "args": ["lsp"]}
    assert language["file-types"] == ["gmi"]


def test_without_a_folder_the_files_beside_a_document_belong_to_it(tmp_path):
    """Neovim gives none to a file outside of all repositories, VS Code none to a file that is opened alone."""
    (tmp_path / "deep").mkdir()
    for name in ("nets.gmi", "deep/other.gmi"):
        (tmp_path / name).write_text("edition 1\n\nparam width : int = 4\n")
    editor = Editor()
    assert outline.workspace_symbols(editor.analyses, "width") == []
    editor.open(tmp_path / "a.gmi", "edition 1\n")
    assert [s.container_name for s in outline.workspace_symbols(editor.analyses, "width")] == ["nets"]
