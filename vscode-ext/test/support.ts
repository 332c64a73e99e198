/** What the tests share: the folders of the project, and a client that does what vscode-languageclient does. */
import * as assert from "node:assert/strict";
import { once } from "node:events";
import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import { afterEach } from "node:test";
import { createMessageConnection, type MessageConnection, StreamMessageReader, StreamMessageWriter } from "vscode-jsonrpc/node";

import type { Surroundings } from "../src/interpreter";
import { Supervisor } from "../src/supervisor";

/** The extension's folder. */
export const EXTENSION = path.resolve(__dirname, "..", "..");
/** The project's folder. */
export const PROJECT = path.dirname(EXTENSION);

/** The interpreter whose gmiflow is tested: `GMIFLOW_PYTHON`, else the project's own. */
export const PYTHON = path.resolve(PROJECT, process.env["GMIFLOW_PYTHON"] ?? ".venv/bin/python");

/** Surroundings in which nothing is found, with changes. */
export function surroundings(changes: Partial<Surroundings> = {}): Surroundings {
  return { setting: "", folders: [], environment: {}, platform: process.platform, trusted: true, ...changes };
}

const folders: string[] = [];

process.on("exit", () => {
  for (const folder of folders) {
    fs.rmSync(folder, { recursive: true, force: true });
  }
});

/** A new folder that is removed when the test process ends. */
export function temporaryFolder(): string {
  const folder = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "gmiflow-test-")));
  folders.push(folder);
  return folder;
}

/** A virtual environment whose Python is the tested one. */
export function virtualEnvironment(folder: string, name = ".venv", python = PYTHON): string {
  const bin = path.join(folder, name, "bin");
  fs.mkdirSync(bin, { recursive: true });
  for (const program of ["python", "gmiflow"]) {
    fs.writeFileSync(path.join(bin, program), `#!/bin/sh\nexec ${JSON.stringify(python)} "$@"\n`, { mode: 0o755 });
  }
  return path.join(folder, name);
}

/** Answer to `initialize`, as far as the tests look at it. */
export interface Initialized {
  readonly serverInfo: { readonly name: string };
  readonly capabilities: Record<string, unknown>;
}

const clients = new Set<Client>();

afterEach(() => {
  for (const client of clients) {
    client.abandon(); // the server of a test that failed would keep this process alive
  }
  clients.clear();
});

/** Starts servers through a supervisor, and starts them again when it says so. */
export class Client {
  readonly log: string[] = [];
  readonly failures: string[] = [];
  readonly supervisor: Supervisor;
  connection: MessageConnection | undefined;
  starts = 0;
  private restarted: Promise<boolean> = Promise.resolve(false);

  constructor(where: Surroundings, now: () => number = Date.now) {
    const listener = { log: (line: string) => this.log.push(line), fail: (message: string) => this.failures.push(message) };
    this.supervisor = new Supervisor(() => where, listener, now);
    clients.add(this);
  }

  async start(): Promise<Initialized> {
    const child = await this.supervisor.launch();
    assert.ok(child.stdout !== null && child.stdin !== null);
    this.starts += 1;
    const connection = createMessageConnection(new StreamMessageReader(child.stdout), new StreamMessageWriter(child.stdin));
    child.stdin.on("error", () => undefined); // the pipe of a server that was killed
    this.connection = connection;
    this.restarted = new Promise((resolve, reject) => {
      connection.onClose(() => {
        connection.dispose();
        if (!this.supervisor.restartsAfterClose()) {
          resolve(false);
          return;
        }
        this.start().then(() => {
          resolve(true);
        }, reject);
      });
    });
    connection.onError(() => undefined);
    connection.listen();
    const params = { processId: process.pid, rootUri: null, capabilities: {}, initializationOptions: {} };
    const answer = await connection.sendRequest<Initialized>("initialize", params);
    await connection.sendNotification("initialized", {});
    return answer;
  }

  /** Kills the server and waits for what the supervisor does: true when it runs again. */
  async crash(): Promise<boolean> {
    const restarted = this.restarted;
    assert.ok(this.supervisor.process?.kill("SIGKILL"));
    return await restarted;
  }

  /** Ends a server that still runs. */
  abandon(): void {
    this.supervisor.expectEnd();
    this.supervisor.process?.kill("SIGKILL");
  }

  async stop(): Promise<number | null> {
    const child = this.supervisor.process;
    assert.ok(child !== undefined);
    this.supervisor.expectEnd();
    const ended = once(child, "exit") as Promise<[number | null]>;
    await this.connection?.sendRequest("shutdown");
    await this.connection?.sendNotification("exit");
    const [code] = await ended;
    return code;
  }
}
