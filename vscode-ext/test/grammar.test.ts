/** The TextMate grammar sees what the compiler's lexer sees, in every `.gmi` file of the project. */
import * as assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import * as fs from "node:fs";
import * as path from "node:path";
import { before, test } from "node:test";
import { createOnigScanner, createOnigString, loadWASM } from "vscode-oniguruma";
import { type IGrammar, INITIAL, Registry, parseRawGrammar } from "vscode-textmate";

import { EXTENSION, PROJECT, PYTHON } from "./support";

type Token = readonly [kind: string, start: number, end: number];

interface File {
  readonly name: string;
  readonly text: string;
  readonly tokens: readonly Token[];
}

interface Exported {
  readonly files: readonly File[];
  readonly declarations: readonly string[];
  readonly keywords: readonly string[];
  readonly units: readonly string[];
}

const GRAMMAR = path.join(EXTENSION, "syntaxes", "gmi.tmLanguage.json");
const NAMES = ["variable.other", "variable.language", "support.type", "support.function", "entity.name.type"];
const SCOPES: Readonly<Record<string, readonly string[]>> = {
  NAME: NAMES,
  INT: ["constant.numeric.integer"],
  FLOAT: ["constant.numeric.float"],
  STRING: ["string.quoted.double", "constant.character.escape"],
  DOC: ["comment.line.documentation"],
  COMMENT: ["comment.line.double-slash"],
};
const PUNCTUATION = new Set(["LBRACE", "RBRACE", "LPAR", "RPAR", "LSQB", "RSQB", "COMMA", "COLON", "_DOT"]);
const CONSTANTS = new Set(["auto", "true", "false"]);

let exported: Exported;
let grammar: IGrammar;

async function load(text: string): Promise<IGrammar> {
  const registry = new Registry({
    onigLib: Promise.resolve({
      createOnigScanner,
      createOnigString: (source: string) => createOnigString(source),
    }),
    loadGrammar: () => Promise.resolve(parseRawGrammar(text, GRAMMAR)),
  });
  const loaded = await registry.loadGrammar("source.gmi");
  assert.ok(loaded !== null);
  return loaded;
}

before(async () => {
  const wasm = fs.readFileSync(require.resolve("vscode-oniguruma/release/onig.wasm"));
  await loadWASM(wasm.buffer.slice(wasm.byteOffset, wasm.byteOffset + wasm.byteLength));
  const script = path.join(EXTENSION, "test", "tokens.py");
  const options = { cwd: PROJECT, encoding: "utf8", maxBuffer: 2 ** 28 } as const;
  exported = JSON.parse(execFileSync(PYTHON, [script], options)) as Exported;
  grammar = await load(fs.readFileSync(GRAMMAR, "utf8"));
});

/** The innermost scope of every character. */
function scopesOf(chosen: IGrammar, text: string): string[] {
  const found = new Array<string>(text.length).fill("");
  let state = INITIAL;
  let offset = 0;
  for (const line of text.split("\n")) {
    const shown = line.endsWith("\r") ? line.slice(0, -1) : line;
    const result = chosen.tokenizeLine(shown, state);
    for (const { startIndex, endIndex, scopes } of result.tokens) {
      found.fill(scopes.at(-1) ?? "", offset + startIndex, offset + Math.min(endIndex, shown.length));
    }
    state = result.ruleStack;
    offset += line.length + 1;
  }
  return found;
}

function expected(file: File, [kind, start, end]: Token): readonly string[] {
  const value = file.text.slice(start, end);
  if (kind in SCOPES) {
    return SCOPES[kind] ?? [];
  }
  if (kind === "QUANTITY") {
    const unit = /[A-Za-z%][A-Za-z/]*$/.exec(value)?.[0] ?? "";
    return exported.units.includes(unit) ? ["constant.numeric", "keyword.other.unit"] : [...NAMES, "constant.numeric", "invalid.illegal.unit"];
  }
  if (exported.keywords.includes(value)) {
    return CONSTANTS.has(value)
      ? ["constant.language"]
      : exported.declarations.includes(value)
        ? ["keyword.declaration"]
        : ["keyword.other"];
  }
  return PUNCTUATION.has(kind) ? ["punctuation.gmi"] : ["keyword.operator"];
}

/** Where grammar and lexer differ. */
function differences(chosen: IGrammar, file: File): string[] {
  const scopes = scopesOf(chosen, file.text);
  const found: string[] = [];
  for (const token of file.tokens) {
    const [kind, start, end] = token;
    const allowed = expected(file, token);
    for (let place = start; place < end; place += 1) {
      const scope = scopes[place] ?? "";
      const blank = kind === "QUANTITY" && /\s/.test(file.text[place] ?? "");
      if (!blank && !allowed.some((prefix) => scope.startsWith(prefix))) {
        found.push(`${file.name}:${start}: ${kind} ${JSON.stringify(file.text.slice(start, end))} has scope ${scope}`);
        break;
      }
    }
  }
  return found;
}

test("every token of every file has its scope", () => {
  assert.ok(exported.files.length > 150, `${exported.files.length} files`);
  assert.deepEqual(exported.files.flatMap((file) => differences(grammar, file)), []);
});

test("every keyword of the language is in the corpus, so that none can be missing unnoticed", () => {
  const seen = new Set(exported.files.flatMap((file) => file.tokens.map(([, start, end]) => file.text.slice(start, end))));
  assert.deepEqual(exported.keywords.filter((keyword) => !seen.has(keyword)), []);
});

test("a grammar that lacks a keyword is found out, whichever it is", async () => {
  const text = fs.readFileSync(GRAMMAR, "utf8");
  for (const keyword of exported.keywords) {
    const without = text.replaceAll(new RegExp(`(?<=[(|:])${keyword}(?=[|)])`, "g"), `${keyword}_is_missing`);
    assert.notEqual(without, text, keyword);
    const poorer = await load(without);
    const users = exported.files.filter((file) => new RegExp(`\\b${keyword}\\b`).test(file.text));
    assert.ok(users.some((file) => differences(poorer, file).length > 0), keyword);
  }
});

test("every unit is marked as one", () => {
  for (const unit of exported.units) {
    const scopes = scopesOf(grammar, `x = 4 ${unit}`);
    assert.ok(scopes.slice(6).every((scope) => scope === "keyword.other.unit.gmi"), unit);
  }
});

test("text that no lexer takes does not disturb what follows", () => {
  const scopes = scopesOf(grammar, 'param x : string = "open\nparam y : int = 1\n');
  assert.equal(scopes[25], "keyword.declaration.gmi");
});
