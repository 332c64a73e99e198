"""Build hook: the wheel carries the parser's tables, so that an installed gmiflow starts fast."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ParserTables(BuildHookInterface[Any]):
    """Compiles `grammar/gmi.lark` into `gmiflow/_data/gmi.tables` of the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the tables to a temporary file and include it; an editable install makes its own."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        try:
            from gmiflow.syntax.tables import write_tables
        finally:
            sys.path.remove(self.root)
        self._folder = tempfile.TemporaryDirectory()
        tables = Path(self._folder.name) / "gmi.tables"
        write_tables(tables)
        build_data["force_include"][str(tables)] = "gmiflow/_data/gmi.tables"
        build_data["pure_python"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary file."""
        if version != "editable":
            self._folder.cleanup()
