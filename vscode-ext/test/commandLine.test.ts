/** Command lines, where declarations stand, and the page of the graph preview. */
import * as assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";

import { combinations, gmiflowArguments, shellLine } from "../src/commandLine";
import { startsDeclaration } from "../src/declarations";
import { graphPage } from "../src/graphPage";

const FOUND = { command: "/a/python", args: ["-m", "gmiflow.cli"], origin: "" };

test("arguments name workflow and target where there is a choice", () => {
  const words = ["-m", "gmiflow.cli", "run", "x.gmi"];
  assert.deepEqual(gmiflowArguments(FOUND, "run", "x.gmi", { workflow: "", target: "" }), words);
  assert.deepEqual(gmiflowArguments(FOUND, "run", "x.gmi", { workflow: "w", target: "t" }), [...words, "--workflow", "w", "--target", "t"]);
});

test("there is a task for every workflow on every target, and one where there is no choice", () => {
  assert.deepEqual(combinations({ workflows: ["w"], targets: [] }), [{ workflow: "", target: "" }]);
  assert.deepEqual(combinations({ workflows: ["v", "w"], targets: ["t"] }), [
    { workflow: "v", target: "" },
    { workflow: "w", target: "" },
  ]);
  assert.deepEqual(combinations({ workflows: ["v", "w"], targets: ["s", "t"] }).length, 4);
});

test("snippets are offered where a declaration starts", () => {
  assert.deepEqual(["", "wor", "workflow as"].map(startsDeclaration), [true, true, true]);
  assert.deepEqual(["  ", "  mode = ", "param x : ", "x = ", "// wor"].map(startsDeclaration), [false, false, false, false, false]);
});

test("a shell gets the words back", () => {
  for (const word of ["plain", "a b", "it's", "$HOME", 'a"b', "`x`", "a;b", "é", "a\\ b", "*"]) {
    const line = shellLine(["printf", "%s", word], "linux");
    assert.equal(execFileSync("/bin/sh", ["-c", line], { encoding: "utf8" }), word);
  }
  assert.equal(shellLine(["C:\\a b\\gmiflow.exe", "it's"], "win32"), "& 'C:\\a b\\gmiflow.exe' 'it''s'");
});

test("the page runs its own script alone, and shows a problem as text", () => {
  const page = graphPage("Graph: <b>", "<svg></svg>", "", "n0nce");
  assert.match(page, /default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-n0nce'/);
  assert.match(page, /<title>Graph: &lt;b&gt;<\/title>/);
  const problem = graphPage("Graph", "", "error: <x> & y", "n");
  assert.match(problem, /<pre class="problem">error: &lt;x&gt; &amp; y<\/pre>/);
  assert.doesNotMatch(problem, /<button/);
});
