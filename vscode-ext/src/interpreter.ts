/**
 * Where the language server of a project is: the interpreter that the user set, the project's own virtual
 * environment, the active one, or `gmiflow` on the PATH. Knows nothing about VS Code.
 */
import { execFile } from "node:child_process";
import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import { promisify } from "node:util";

/** A program and its arguments, and where it was found. */
export interface Command {
  readonly command: string;
  readonly args: readonly string[];
  readonly origin: string;
}

/** What the search depends on. */
export interface Surroundings {
  /** The setting `gmiflow.interpreter`, "" when it is not set. */
  readonly setting: string;
  /** Folders of the workspace, or of the file that is open. */
  readonly folders: readonly string[];
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly platform: NodeJS.Platform;
  /** Whether programs of the folders may be run: a folder from somewhere else may bring an environment of its own. */
  readonly trusted: boolean;
}

/** No server; the message is for the user, in one or two sentences. */
export class NoServer extends Error {}

const VIRTUAL_ENVIRONMENTS = [".venv", "venv", "env"];
/** Keeps Python from looking for its own modules in the project, whose `types.py` or `queue.py` may be something else. */
const SAFE_PATH = "-P";
const PROBE = "import gmiflow, pygls, sys; print(gmiflow.__version__)";
const PROBE_TIMEOUT_MS = 30_000;
const INSTALL = "Install it with: pip install 'gmiflow[lsp]'";

/** The command that runs gmiflow: `[...command, "lsp"]` is the server, `[...command, "run", FILE]` a training. */
export function findGmiflow(where: Surroundings): Command {
  if (where.setting !== "") {
    return fromSetting(where);
  }
  for (const folder of where.trusted ? withParents(where.folders) : []) {
    for (const name of VIRTUAL_ENVIRONMENTS) {
      const python = pythonOf(path.join(folder, name), where.platform);
      if (hasGmiflow(path.join(folder, name), where.platform)) {
        return ofPython(python, `the project's ${name}`);
      }
    }
  }
  const active = where.environment["VIRTUAL_ENV"];
  if (active !== undefined && hasGmiflow(active, where.platform)) {
    return ofPython(pythonOf(active, where.platform), "the active virtual environment");
  }
  const program = onPath("gmiflow", where);
  if (program !== undefined) {
    return { command: program, args: [], origin: "the PATH" };
  }
  if (!where.trusted) {
    throw new NoServer("The folder is not trusted, so that its own environment is not used, and gmiflow is not on the PATH.");
  }
  throw new NoServer(
    `gmiflow was not found: there is no virtual environment with it in ${where.folders.join(", ") || "the workspace"}, ` +
      `and none on the PATH. ${INSTALL}, or set "gmiflow.interpreter".`,
  );
}

/** Checks that a command that was found can serve; rejects with `NoServer` and the reason. */
export async function checkServer(found: Command): Promise<void> {
  const isPython = found.args.length > 0;
  const args = isPython ? [SAFE_PATH, "-c", PROBE] : ["--version"];
  try {
    await promisify(execFile)(found.command, args, { timeout: PROBE_TIMEOUT_MS });
  } catch (error) {
    const { code, stderr = "", message } = error as Error & { code?: number | string; stderr?: string };
    if (typeof code !== "number") {
      throw new NoServer(`${found.command} (${found.origin}) cannot be started: ${message}`);
    }
    if (stderr.includes(`nknown option: ${SAFE_PATH}`)) {
      throw new NoServer(`${found.command} (${found.origin}) is older than Python 3.11, which gmiflow needs.`);
    }
    const reason = stderr.trim().split("\n").at(-1) ?? "";
    const missing = /No module named '(\w+)/.exec(reason)?.[1];
    const what = missing === undefined ? `fails: ${reason}` : `has no ${missing}`;
    throw new NoServer(`${found.command} (${found.origin}) ${what}. ${INSTALL}`);
  }
}

function fromSetting(where: Surroundings): Command {
  const folder = where.folders[0] ?? "";
  const expanded = where.setting
    .replaceAll("${workspaceFolder}", () => folder)
    .replace(/^~(?=$|[\\/])/, () => where.environment["HOME"] ?? os.homedir())
    .replaceAll(/\$\{env:(\w+)\}/g, (_, name: string) => where.environment[name] ?? "");
  const isPath = expanded.includes("/") || expanded.includes("\\");
  const given = isPath ? path.resolve(folder, expanded) : onPath(expanded, where);
  const file = given !== undefined && isFolder(given) ? pythonOf(given, where.platform) : given;
  if (file === undefined || !isFile(file)) {
    throw new NoServer(`"gmiflow.interpreter" is ${where.setting}, and there is no such program.`);
  }
  const name = path.basename(file).toLowerCase();
  const origin = 'the setting "gmiflow.interpreter"';
  return name.startsWith("gmiflow") ? { command: file, args: [], origin } : ofPython(file, origin);
}

function ofPython(python: string, origin: string): Command {
  return { command: python, args: [SAFE_PATH, "-m", "gmiflow.cli"], origin };
}

function pythonOf(environment: string, platform: NodeJS.Platform): string {
  return platform === "win32" ? path.join(environment, "Scripts", "python.exe") : path.join(environment, "bin", "python");
}

function hasGmiflow(environment: string, platform: NodeJS.Platform): boolean {
  const script = platform === "win32" ? path.join("Scripts", "gmiflow.exe") : path.join("bin", "gmiflow");
  return isFile(path.join(environment, script)) && isFile(pythonOf(environment, platform));
}

/** The folders, then the folders above them: a file may be opened without its project. */
function withParents(folders: readonly string[]): string[] {
  const found = new Set<string>(folders);
  for (const folder of folders) {
    for (let up = path.dirname(folder); up !== path.dirname(up); up = path.dirname(up)) {
      found.add(up);
    }
  }
  return [...found];
}

function onPath(program: string, where: Surroundings): string | undefined {
  const endings = where.platform === "win32" ? [".exe", ".cmd", ""] : [""];
  const folders = (where.environment["PATH"] ?? "").split(where.platform === "win32" ? ";" : ":").filter(Boolean);
  for (const folder of folders) {
    for (const ending of endings) {
      const file = path.join(folder, program + ending);
      if (isFile(file)) {
        return file;
      }
    }
  }
  return undefined;
}

function isFolder(file: string): boolean {
  return fs.statSync(file, { throwIfNoEntry: false })?.isDirectory() ?? false;
}

function isFile(file: string): boolean {
  return fs.statSync(file, { throwIfNoEntry: false })?.isFile() ?? false;
}
