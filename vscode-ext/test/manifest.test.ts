/** The manifest, the problem matcher, the language configuration and the snippets, against the compiler. */
import * as assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import * as fs from "node:fs";
import * as path from "node:path";
import { test } from "node:test";

import { EXTENSION, PYTHON, temporaryFolder } from "./support";

interface Manifest {
  readonly contributes: {
    readonly languages: readonly [{ readonly configuration: string; readonly icon: Record<string, string> }];
    readonly grammars: readonly [{ readonly path: string }];
    readonly snippets: readonly [{ readonly path: string }];
    readonly commands: readonly { readonly command: string }[];
    readonly menus: Record<string, readonly { readonly command: string }[]>;
    readonly problemMatchers: readonly [{ readonly pattern: readonly Record<string, string | number>[] }];
  };
  readonly icon: string;
}

const manifest = read("package.json") as Manifest;

function read(file: string): unknown {
  return JSON.parse(fs.readFileSync(path.join(EXTENSION, file), "utf8"));
}

function gmiflow(args: readonly string[], folder: string): { status: number | null; stderr: string } {
  return spawnSync(PYTHON, ["-m", "gmiflow.cli", ...args], { cwd: folder, encoding: "utf8" });
}

test("everything that the manifest names exists", () => {
  const { languages, grammars, snippets } = manifest.contributes;
  for (const file of [languages[0].configuration, ...Object.values(languages[0].icon), grammars[0].path, snippets[0].path, manifest.icon]) {
    assert.ok(fs.existsSync(path.join(EXTENSION, file)), file);
  }
});

test("commands of menus, lenses and code are declared, and every declared one is registered", () => {
  const declared = new Set(manifest.contributes.commands.map(({ command }) => command));
  for (const items of Object.values(manifest.contributes.menus)) {
    items.forEach(({ command }) => { assert.ok(declared.has(command), command); });
  }
  const code = ["extension.ts", "commands.ts"].map((name) => fs.readFileSync(path.join(EXTENSION, "src", name), "utf8")).join("\n");
  for (const command of declared) {
    const name = command.replace("gmiflow.", "");
    assert.match(code, new RegExp(`(register|onWorkflow|onTarget)\\("${name}"|registerCommand\\("${command}"`));
  }
});

test("the problem matcher reads what the compiler prints", () => {
  const folder = temporaryFolder();
  fs.writeFileSync(path.join(folder, "a.gmi"), "edition 1\n\nparam x : int = y\nparam z : int = 4 GiB\n");
  const lines = gmiflow(["check", "a.gmi"], folder).stderr.split("\n");
  const [first, second] = manifest.contributes.problemMatchers[0].pattern.map(({ regexp }) => new RegExp(String(regexp)));
  assert.ok(first !== undefined && second !== undefined);
  const found = lines.flatMap((line, index) => {
    const [head, place] = [first.exec(line), second.exec(lines[index + 1] ?? "")];
    return head !== null && place !== null ? [[head[1], head[2], place[1], place[2], place[3]]] : [];
  });
  assert.deepEqual(found, [
    ["error", "E0201", "a.gmi", "3", "17"],
    ["error", "E0301", "a.gmi", "4", "17"],
  ]);
});

/** A regular expression of a language configuration, as VS Code makes it: flags need the longer form. */
function expression(written: string | { readonly pattern: string; readonly flags?: string }): RegExp {
  return typeof written === "string" ? new RegExp(written, "g") : new RegExp(written.pattern, `g${written.flags ?? ""}`);
}

test("names and numbers are words, so that suggestions come while one is typed", () => {
  const { wordPattern } = read("language-configuration.json") as { wordPattern: Parameters<typeof expression>[0] };
  const words = "num_env größe O x1 3e-4 16 sim.obs -> actor.{obs} 4 GiB".match(expression(wordPattern));
  assert.deepEqual(words, ["num_env", "größe", "O", "x1", "3e-4", "16", "sim", "obs", "actor", "obs", "4", "GiB"]);
});

test("the line behind a bracket is indented, and the one behind a comment of documentation goes on with it", () => {
  const { indentationRules, onEnterRules } = read("language-configuration.json") as {
    indentationRules: { increaseIndentPattern: string; decreaseIndentPattern: string };
    onEnterRules: readonly { beforeText: string }[];
  };
  const [increase, decrease] = [expression(indentationRules.increaseIndentPattern), expression(indentationRules.decreaseIndentPattern)];
  const indents = (line: string): boolean => line.search(increase) >= 0;
  assert.deepEqual(["workflow w {", "  sizing { // goal", "agent a = ppo.Actor("].map(indents), [true, true, true]);
  assert.deepEqual(["// like {", "  x = [1, 2]", "record R { x : f32[env] }", "  obs : f32[env]"].map(indents), [false, false, false, false]);
  assert.deepEqual(["}", "  )", "  x = 1"].map((line) => line.search(decrease) >= 0), [true, true, false]);
  assert.match("/// A task.", expression(onEnterRules[0]?.beforeText ?? ""));
});

test("every snippet is well formed, and the whole training compiles", () => {
  const folder = temporaryFolder();
  const snippets = read(manifest.contributes.snippets[0].path) as Record<string, { body: string[] }>;
  for (const [name, { body }] of Object.entries(snippets)) {
    const text = expand(body.join("\n"));
    const file = path.join(folder, "snippet.gmi");
    fs.writeFileSync(file, text.startsWith("edition") ? text : `edition 1\n\nimport std.targets\n\n${text}\n`);
    const { stderr } = gmiflow(["check", "snippet.gmi"], folder);
    const syntax = [...stderr.matchAll(/error\[(E01\d\d)\]/g)].map((match) => match[1]);
    assert.deepEqual(syntax, [], `${name}: ${stderr}`);
    if (name === "Training") {
      assert.doesNotMatch(stderr, /error\[/);
    }
  }
});

/** A snippet with its defaults. */
function expand(body: string): string {
  const defaults = new Map<string, string>();
  const filled = body
    .replaceAll(/\$\{(\d+)\|([^,|]+)[^|]*\|\}/g, (_, index: string, first: string) => (defaults.set(index, first), first))
    .replaceAll(/\$\{(\d+):([^}]*)\}/g, (_, index: string, text: string) => (defaults.set(index, text), text));
  return filled.replaceAll(/\$(\d+)/g, (_, index: string) => defaults.get(index) ?? "");
}
