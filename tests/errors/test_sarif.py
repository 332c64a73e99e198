"""SARIF logs have the fields that the published schema of version 2.1.0 requires, on every file of the error corpus.

The table is that schema's list of required properties for the objects that gmiflow writes.
"""

import json
import re
from pathlib import Path

import pytest

from gmiflow.diagnostic_formats import render_sarif
from gmiflow.passes.check import check

HERE = Path(__file__).parent
CASES = sorted(path.stem for path in HERE.glob("*.gmi"))
REQUIRED = {
    "log": {"version", "runs"},
    "run": {"tool"},
    "tool": {"driver"},
    "driver": {"name"},
    "rule": {"id"},
    "result": {"message"},
    "fix": {"artifactChanges"},
    "artifactChange": {"artifactLocation", "replacements"},
    "replacement": {"deletedRegion"},
    "message": {"text"},
}
LEVELS = {"none", "note", "warning", "error"}


def require(kind, item):
    assert item.keys() >= REQUIRED[kind], (kind, item)
    return item


def check_region(region):
    start = (region["startLine"], region["startColumn"])
    end = (region["endLine"], region["endColumn"])
    assert (1, 1) <= start <= end
    assert min(*start, *end) >= 1


def check_place(place):
    uri = place["artifactLocation"]["uri"]
    assert re.fullmatch(r"[A-Za-z0-9._~/%-]+", uri), "a relative reference as RFC 3986 has it"
    check_region(place["region"])


def check_result(result, rules):
    require("result", result)
    require("message", result["message"])
    assert result["level"] in LEVELS
    assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    for location in result["locations"]:
        check_place(location["physicalLocation"])
    related = result.get("relatedLocations", [])
    assert len({item["id"] for item in related}) == len(related)
    for location in related:
        check_place(location["physicalLocation"])
        require("message", location["message"])
    for fix in result.get("fixes", []):
        require("message", require("fix", fix)["description"])
        assert fix["artifactChanges"]
        for change in fix["artifactChanges"]:
            assert require("artifactChange", change)["replacements"]
            for replacement in change["replacements"]:
                check_region(require("replacement", replacement)["deletedRegion"])


@pytest.mark.parametrize("case", CASES)
def test_log(case, monkeypatch):
    monkeypatch.chdir(HERE)
    diagnostics = check(f"{case}.gmi").diagnostics
    log = require("log", json.loads(render_sarif(diagnostics)))
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    [run] = log["runs"]
    driver = require("driver", require("tool", require("run", run)["tool"])["driver"])
    assert run["columnKind"] in {"utf16CodeUnits", "unicodeCodePoints"}
    for rule in driver["rules"]:
        require("rule", rule)
        require("message", rule["shortDescription"])
        require("message", rule["help"])
    assert len({rule["id"] for rule in driver["rules"]}) == len(driver["rules"])
    assert len(run["results"]) == len(diagnostics) > 0
    for result in run["results"]:
        check_result(result, driver["rules"])
