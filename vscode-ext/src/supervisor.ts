/** Starts the language server, and decides whether one that ended is started again. Knows nothing about VS Code. */
import { spawn, type ChildProcess } from "node:child_process";
import * as fs from "node:fs";

import { checkServer, type Command, findGmiflow, NoServer, type Surroundings } from "./interpreter";

/** Crashes within this time count together. */
export const WINDOW_MS = 180_000;
/** After so many crashes in the window, the server stays down. */
export const MAX_CRASHES = 5;
const LAST_LINES = 20;

/** What a supervisor tells its surroundings. */
export interface Listener {
  log(line: string): void;
  /** Something that the user should see. */
  fail(message: string): void;
}

/** The server process of one window. */
export class Supervisor {
  private readonly crashes: number[] = [];
  private readonly lastLines: string[] = [];
  private child: ChildProcess | undefined;
  private found: Command | undefined;
  private stopping = false;

  constructor(
    private readonly where: () => Surroundings,
    private readonly listener: Listener,
    private readonly now: () => number = Date.now,
  ) {}

  /** The running process, if there is one. */
  get process(): ChildProcess | undefined {
    return this.child;
  }

  /** Looks for a server, for the next `launch`. Rejects with `NoServer`, after telling the listener, when there is none. */
  async find(): Promise<void> {
    try {
      const found = findGmiflow(this.where());
      await checkServer(found);
      this.found = found;
    } catch (error) {
      if (error instanceof NoServer) {
        this.listener.fail(error.message);
      }
      throw error;
    }
  }

  /** Starts the server that was found, or looks for one first, and starts it. */
  async launch(): Promise<ChildProcess> {
    if (this.found === undefined) {
      await this.find();
    }
    const found = this.found;
    this.found = undefined; // the next time it may be somewhere else
    if (found === undefined) {
      throw new NoServer("the server was stopped before it started");
    }
    const args = [...found.args, "lsp", "--stdio"];
    this.listener.log(`starting ${found.command} ${args.join(" ")} (from ${found.origin})`);
    const cwd = this.where().folders.find((folder) => fs.existsSync(folder)); // one that was removed is no place to start in
    return this.watch(spawn(found.command, args, { cwd, stdio: "pipe" }));
  }

  /** The connection closed. Says whether to start again: not when the server was stopped or keeps crashing. */
  restartsAfterClose(): boolean {
    if (this.stopping) {
      return false;
    }
    const now = this.now();
    this.crashes.push(now);
    while ((this.crashes[0] ?? now) < now - WINDOW_MS) {
      this.crashes.shift();
    }
    if (this.crashes.length < MAX_CRASHES) {
      this.listener.log(`the server ended unexpectedly (${this.crashes.length} times now); starting it again`);
      return true;
    }
    const reason = this.lastLines.at(-1);
    this.listener.fail(
      `The gmiflow language server ended ${MAX_CRASHES} times in ${WINDOW_MS / 60_000} minutes and stays down. ` +
        (reason === undefined ? "" : `It said: ${reason}. `) +
        'Run "gmiflow: Restart Language Server" to try again.',
    );
    return false;
  }

  /** The server is about to be stopped on purpose. */
  expectEnd(): void {
    this.stopping = true;
  }

  /** Ends a server that cannot be asked to: it has not answered yet, or answers no more. */
  kill(): void {
    this.expectEnd();
    this.child?.kill("SIGKILL");
  }

  /** Forget earlier crashes: the user starts the server by hand. */
  reset(): void {
    this.stopping = false;
    this.crashes.length = 0;
    this.lastLines.length = 0;
  }

  private watch(child: ChildProcess): ChildProcess {
    this.child = child;
    child.stderr?.setEncoding("utf8");
    child.stderr?.on("data", (text: string) => {
      for (const line of text.split("\n").filter((part) => part.trim() !== "")) {
        this.lastLines.push(line.trim());
        this.lastLines.splice(0, this.lastLines.length - LAST_LINES);
        this.listener.log(line);
      }
    });
    child.on("error", (error) => {
      this.listener.log(`cannot start the server: ${error.message}`);
    });
    child.on("exit", () => {
      if (this.child === child) {
        this.child = undefined;
      }
    });
    return child;
  }
}
