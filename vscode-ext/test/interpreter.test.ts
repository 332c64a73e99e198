/** Where gmiflow is found, in which order, and what a user reads when it is not. */
import * as assert from "node:assert/strict";
import * as fs from "node:fs";
import * as path from "node:path";
import { test } from "node:test";

import { checkServer, findGmiflow, NoServer } from "../src/interpreter";
import { PYTHON, surroundings, temporaryFolder, virtualEnvironment } from "./support";

function program(folder: string, name: string, text = "#!/bin/sh\nexit 0\n"): string {
  fs.mkdirSync(folder, { recursive: true });
  const file = path.join(folder, name);
  fs.writeFileSync(file, text, { mode: 0o755 });
  return file;
}

test("the setting comes before everything else", () => {
  const folder = temporaryFolder();
  virtualEnvironment(folder);
  const python = program(path.join(folder, "other"), "python3");
  for (const setting of [python, "${workspaceFolder}/other/python3", "./other/python3", "${env:OTHER}/python3"]) {
    const found = findGmiflow(surroundings({ setting, folders: [folder], environment: { OTHER: path.dirname(python) } }));
    assert.deepEqual([found.command, found.args], [python, ["-P", "-m", "gmiflow.cli"]]);
  }
});

test("the setting may be gmiflow itself, a name on the PATH, or start at home", () => {
  const folder = temporaryFolder();
  const gmiflow = program(folder, "gmiflow");
  assert.deepEqual(findGmiflow(surroundings({ setting: gmiflow })).args, []);
  assert.equal(findGmiflow(surroundings({ setting: "gmiflow", environment: { PATH: `/nowhere:${folder}` } })).command, gmiflow);
  assert.equal(findGmiflow(surroundings({ setting: "~/gmiflow", environment: { HOME: folder } })).command, gmiflow);
});

test("names of folders are taken as they are, and the folder of an environment is its Python", () => {
  const folder = path.join(temporaryFolder(), "a $& $$ 'b\" c");
  const python = program(path.join(folder, "my env", "bin"), "python");
  for (const setting of ["${workspaceFolder}/my env/bin/python", "~/my env/bin/python", "my env/", "./my env"]) {
    const found = findGmiflow(surroundings({ setting, folders: [folder], environment: { HOME: folder } }));
    assert.equal(found.command, python, setting);
  }
});

test("a folder that is not trusted brings no program", () => {
  const [folder, bin] = [temporaryFolder(), temporaryFolder()];
  virtualEnvironment(folder);
  const where = surroundings({ folders: [folder], trusted: false, environment: { PATH: bin } });
  assert.throws(() => findGmiflow(where), /not trusted/);
  program(bin, "gmiflow");
  assert.equal(findGmiflow(where).command, path.join(bin, "gmiflow"));
});

test("the project's environment, also from a folder inside it, then the active one, then the PATH", () => {
  const [project, active, bin] = [temporaryFolder(), temporaryFolder(), temporaryFolder()];
  const inside = path.join(project, "a", "b");
  fs.mkdirSync(inside, { recursive: true });
  const environment = { VIRTUAL_ENV: virtualEnvironment(active, "active"), PATH: bin };
  program(bin, "gmiflow");
  const where = surroundings({ folders: [inside], environment });
  assert.equal(findGmiflow(where).command, path.join(active, "active", "bin", "python"));
  virtualEnvironment(project, "venv");
  assert.equal(findGmiflow(where).command, path.join(project, "venv", "bin", "python"));
  virtualEnvironment(project, ".venv");
  assert.equal(findGmiflow(where).command, path.join(project, ".venv", "bin", "python"));
  assert.equal(findGmiflow(surroundings({ environment: { PATH: bin } })).command, path.join(bin, "gmiflow"));
});

test("an environment without gmiflow is passed over", () => {
  const folder = temporaryFolder();
  program(path.join(folder, ".venv", "bin"), "python");
  virtualEnvironment(folder, "venv");
  assert.equal(findGmiflow(surroundings({ folders: [folder] })).command, path.join(folder, "venv", "bin", "python"));
});

test("on Windows programs have endings and other folders", () => {
  const folder = temporaryFolder();
  const scripts = path.join(folder, ".venv", "Scripts");
  program(scripts, "python.exe");
  program(scripts, "gmiflow.exe");
  const found = findGmiflow(surroundings({ folders: [folder], platform: "win32" }));
  assert.equal(found.command, path.join(scripts, "python.exe"));
  assert.equal(findGmiflow(surroundings({ environment: { PATH: scripts }, platform: "win32" })).command, path.join(scripts, "gmiflow.exe"));
});

test("nothing found: the message says where it looked and what to do", () => {
  const folder = temporaryFolder();
  assert.throws(() => findGmiflow(surroundings({ folders: [folder] })), (error) => {
    assert.ok(error instanceof NoServer);
    assert.match(error.message, /pip install 'gmiflow\[lsp\]'/);
    assert.match(error.message, /"gmiflow.interpreter"/);
    assert.ok(error.message.includes(folder));
    return true;
  });
  assert.throws(() => findGmiflow(surroundings({ setting: "/no/such/python" })), /\/no\/such\/python, and there is no such program/);
});

test("an interpreter without gmiflow, without pygls, and one that does not start", async () => {
  const folder = temporaryFolder();
  const without = (name: string): string =>
    program(folder, `python-${name}`, `#!/bin/sh\necho "ModuleNotFoundError: No module named '${name}'" >&2\nexit 1\n`);
  for (const name of ["gmiflow", "pygls"]) {
    const found = findGmiflow(surroundings({ setting: without(name) }));
    await assert.rejects(checkServer(found), new RegExp(`has no ${name}\\. Install it with: pip install 'gmiflow\\[lsp\\]'`));
  }
  const old = program(folder, "python3.10", '#!/bin/sh\necho "unknown option -P" >&2\necho "Unknown option: -P" >&2\nexit 2\n');
  await assert.rejects(checkServer(findGmiflow(surroundings({ setting: old }))), /is older than Python 3.11, which gmiflow needs/);
  const broken = findGmiflow(surroundings({ setting: program(folder, "python-broken", "#!/no/such/shell\n") }));
  await assert.rejects(checkServer(broken), /cannot be started/);
  await checkServer(findGmiflow(surroundings({ setting: PYTHON })));
});
