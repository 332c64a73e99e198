/** Start, restart after a crash, and missing interpreter, with a real `gmiflow lsp` process. */
import * as assert from "node:assert/strict";
import { once } from "node:events";
import * as fs from "node:fs";
import * as path from "node:path";
import { test } from "node:test";

import { NoServer } from "../src/interpreter";
import { MAX_CRASHES, WINDOW_MS } from "../src/supervisor";
import { Client, PROJECT, surroundings, temporaryFolder, virtualEnvironment } from "./support";

interface Published {
  readonly uri: string;
  readonly diagnostics: readonly { readonly code: string }[];
}

async function diagnosticsOf(client: Client, text: string): Promise<Published> {
  const uri = "file:///nowhere/a.gmi";
  const published = new Promise<Published>((resolve) => {
    client.connection?.onNotification("textDocument/publishDiagnostics", resolve);
  });
  await client.connection?.sendNotification("textDocument/didOpen", { textDocument: { uri, languageId: "gmi", version: 1, text } });
  return await published;
}

test("the project's own server starts, answers and ends with code 0", async () => {
  const folder = temporaryFolder();
  virtualEnvironment(folder);
  for (const name of ["types", "json", "queue", "click"]) { // the project's own, not Python's
    fs.writeFileSync(path.join(folder, `${name}.py`), `raise SystemExit("${name} of the project")\n`);
  }
  const client = new Client(surroundings({ folders: [path.join(folder, "removed"), folder] }));
  const answer = await client.start();
  assert.equal(answer.serverInfo.name, "gmiflow");
  for (const capability of ["hoverProvider", "completionProvider", "renameProvider", "inlayHintProvider", "codeLensProvider"]) {
    assert.ok(answer.capabilities[capability], capability);
  }
  const found = await diagnosticsOf(client, "edition 1\n\nparam x : int = y\n");
  assert.deepEqual(found.diagnostics.map((d) => d.code), ["E0201"]);
  assert.equal(await client.stop(), 0);
  assert.deepEqual(client.failures, []);
  assert.match(client.log[0] ?? "", /the project's \.venv/);
});

test("a server that crashes is started again and works; one that keeps crashing stays down with a message", async () => {
  const folder = temporaryFolder();
  virtualEnvironment(folder);
  let time = 0;
  const client = new Client(surroundings({ folders: [folder] }), () => time);
  await client.start();
  assert.equal(await client.crash(), true);
  assert.equal(client.starts, 2);
  const found = await diagnosticsOf(client, "edition 1\n\nparam x : int = y\n");
  assert.equal(found.diagnostics.length, 1);
  time += WINDOW_MS + 1; // that crash is forgotten
  for (let crash = 1; crash < MAX_CRASHES; crash += 1) {
    assert.equal(await client.crash(), true);
  }
  assert.equal(await client.crash(), false);
  assert.equal(client.starts, 1 + MAX_CRASHES);
  assert.equal(client.failures.length, 1);
  assert.match(client.failures[0] ?? "", /ended 5 times in 3 minutes and stays down.*Restart Language Server/s);
  client.supervisor.reset();
  await client.start();
  assert.equal(await client.stop(), 0);
});

test("a server that does not answer is ended, and not started again", async () => {
  const folder = temporaryFolder();
  const python = path.join(virtualEnvironment(folder), "bin", "python");
  fs.writeFileSync(python, '#!/bin/sh\ncase "$*" in *lsp*) exec sleep 600;; esac\n');
  const client = new Client(surroundings({ folders: [folder] }));
  const child = await client.supervisor.launch();
  const ended = once(child, "exit");
  client.supervisor.kill();
  assert.deepEqual(await ended, [null, "SIGKILL"]);
  assert.equal(client.supervisor.restartsAfterClose(), false);
});

test("without an interpreter nothing is started, and the message says what to do", async () => {
  const client = new Client(surroundings({ folders: [temporaryFolder()] }));
  await assert.rejects(client.start(), NoServer);
  assert.equal(client.starts, 0);
  assert.match(client.failures[0] ?? "", /gmiflow was not found.*pip install 'gmiflow\[lsp\]'/s);
});

test("an environment whose gmiflow lacks the server says so", async () => {
  const folder = temporaryFolder();
  const blocker = path.join(folder, "blocker");
  fs.mkdirSync(path.join(blocker, "pygls"), { recursive: true });
  fs.writeFileSync(path.join(blocker, "pygls", "__init__.py"), "raise ModuleNotFoundError(\"No module named 'pygls'\")\n");
  const environment = virtualEnvironment(folder);
  const python = path.join(environment, "bin", "python");
  fs.writeFileSync(python, fs.readFileSync(python, "utf8").replace("exec", `PYTHONPATH=${blocker} exec`));
  const client = new Client(surroundings({ folders: [folder] }));
  await assert.rejects(client.start(), NoServer);
  assert.match(client.failures[0] ?? "", /\.venv\) has no pygls/);
});

test("the graph and the choices of an example come from the server's buffer", async () => {
  const folder = temporaryFolder();
  virtualEnvironment(folder);
  const client = new Client(surroundings({ folders: [folder] }));
  await client.start();
  const file = path.join(PROJECT, "examples", "quickstart.gmi");
  const uri = `file://${file}`;
  const text = fs.readFileSync(file, "utf8").replaceAll("actor", "policy");
  await client.connection?.sendNotification("textDocument/didOpen", { textDocument: { uri, languageId: "gmi", version: 1, text } });
  const command = { command: "gmiflow.server.graph", arguments: [uri, "train"] };
  const answer = await client.connection?.sendRequest<{ svg: string; problem: string }>("workspace/executeCommand", command);
  assert.equal(answer?.problem, "");
  assert.match(answer.svg, /^<svg[\s\S]*policy/);
  const asked = { command: "gmiflow.server.choices", arguments: [uri] };
  const choices = await client.connection?.sendRequest<unknown>("workspace/executeCommand", asked);
  assert.deepEqual(choices, { workflows: ["train"], targets: ["laptop"] });
  assert.equal(await client.stop(), 0);
});
