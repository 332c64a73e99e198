"""Positions count UTF-16 units and the protocol's line ends; changes lead to the text that the client has."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsp_files import Editor
from lsprotocol import types
from pygls.workspace import PositionCodec

from gmiflow.lsp import navigation, problems
from gmiflow.lsp.documents import Documents, path_of, uri_of
from gmiflow.lsp.positions import Lines

TEXTS = st.text(st.sampled_from("ab \n\r\u00e9\u2028\x0b\U0001f980\U0001d11e\ufeff"), max_size=30)


def units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


@given(TEXTS, st.data())
def test_offsets_and_positions_are_inverse(text, data):
    lines = Lines(text, PositionCodec())
    shift = text.startswith("\ufeff")
    offset = data.draw(st.integers(0, len(text) - shift))
    position = lines.position(offset)
    before = re.split(r"\r\n|\n|\r", text[: offset + shift])
    behind_cr = text[offset + shift - 1 : offset + shift + 1] == "\r\n"  # between the two characters of a line end
    if not behind_cr:
        assert (position.line, position.character) == (len(before) - 1, units(before[-1]))
        assert lines.offset(position) == offset


def test_positions_outside_the_text_are_its_nearest_place():
    lines = Lines("ab\ncd", PositionCodec())
    assert lines.offset(types.Position(0, 99)) == 2
    assert lines.offset(types.Position(9, 0)) == 5
    assert lines.position(99) == types.Position(1, 2)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_the_encoding_of_the_client_counts(encoding):
    text = "param \U0001f980\u00e9x"
    lines = Lines(text, PositionCodec(types.PositionEncodingKind(encoding)))
    width = {"utf-8": 6, "utf-16": 3, "utf-32": 2}[encoding]
    assert lines.position(8) == types.Position(0, 6 + width)
    assert lines.offset(types.Position(0, 6 + width)) == 8


@given(TEXTS, st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), TEXTS), max_size=5))
def test_changes_give_the_text_of_the_client(text, edits):
    documents = Documents()
    documents.open("file:///a.gmi", 1, text)
    changes = []
    for first, second, new in edits:
        lines = Lines(text, PositionCodec())
        raw = [min(offset, len(text)) for offset in sorted((first, second))]
        shift = text.startswith("\ufeff")
        start, end = (max(0, offset - shift) for offset in raw)
        place = types.Range(lines.position(start), lines.position(end))
        start, end = lines.raw_offset(place.start), lines.raw_offset(place.end)
        changes.append(types.TextDocumentContentChangePartial(range=place, text=new))
        text = text[:start] + new + text[end:]
    document = documents.change("file:///a.gmi", 2, changes)
    assert document is not None
    assert document.text == text


def test_a_diagnostic_behind_characters_of_two_units(tmp_path):
    analysis = Editor().open(tmp_path / "a.gmi", 'edition 1\nrequire "\U0001f980" == nothing else "x"\n')
    found = problems.diagnostics(analysis)
    assert [d.code for d in found] == ["E0201"]
    assert found[0].range == types.Range(types.Position(1, 16), types.Position(1, 23))


def test_uris_of_files_and_of_documents_that_are_none(tmp_path):
    path = tmp_path / "a b\u00e9.gmi"
    assert path_of(uri_of(path)) == path
    assert path_of("untitled:Untitled-1", tmp_path) == tmp_path / "Untitled-1.gmi"
    assert path_of("git:/x/y.gmi?ref", tmp_path).suffix == ".gmi"


def test_a_byte_order_mark_on_the_disk_moves_nothing(tmp_path):
    """Editors take it off, so that the place of a class in the first line is the first one."""
    (tmp_path / "own.py").write_bytes(b"\xef\xbb\xbfclass Own: pass\n")
    text = 'edition 1\nsimulator Own {\n  entry = py "own:Own"\n}\n'
    analysis = Editor(tmp_path).open(tmp_path / "a.gmi", text)
    found = navigation.definition(analysis, analysis.document.lines.position(text.index("own:")))
    assert found is not None
    assert (found.uri, found.range.start) == (uri_of(tmp_path / "own.py"), types.Position(0, 0))
