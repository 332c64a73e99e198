/** The language client of one window, and where it looks for gmiflow. */
import * as path from "node:path";
import * as vscode from "vscode";
import { CloseAction, ErrorAction, LanguageClient, RevealOutputChannelOn, State } from "vscode-languageclient/node";

import { NoServer, type Surroundings } from "./interpreter";
import { Supervisor } from "./supervisor";

/** Where this window looks for gmiflow. */
export function surroundings(): Surroundings {
  const file = vscode.window.activeTextEditor?.document;
  const folders = (vscode.workspace.workspaceFolders ?? []).map((folder) => folder.uri.fsPath);
  if (folders.length === 0 && file !== undefined && file.uri.scheme === "file") {
    folders.push(path.dirname(file.uri.fsPath));
  }
  const setting = vscode.workspace.getConfiguration("gmiflow").get<string>("interpreter", "").trim();
  return { setting, folders, environment: process.env, platform: process.platform, trusted: vscode.workspace.isTrusted };
}

/** Whether what a completion writes goes on: `mode = `, `py "`, a folder. */
function asksForMore({ insertText, label }: vscode.CompletionItem): boolean {
  const text = insertText ?? (typeof label === "string" ? label : label.label);
  return /(= |["/])$/.test(typeof text === "string" ? text : text.value);
}

/** The language client of one window and its place in the status bar. */
export class Server {
  readonly status = vscode.window.createStatusBarItem("gmiflow.server", vscode.StatusBarAlignment.Right);
  private client: LanguageClient | undefined;
  /** Counts starts and stops: a start that is under way gives up when another one follows. */
  private turn = 0;
  private readonly supervisor: Supervisor;

  constructor(private readonly output: vscode.LogOutputChannel) {
    this.status.name = "gmiflow";
    this.status.command = "gmiflow.showOutput";
    this.supervisor = new Supervisor(surroundings, {
      log: (line) => {
        output.info(line);
      },
      fail: (message) => {
        output.error(message);
        void this.complain(message);
      },
    });
  }

  /** The client, when the server answers. */
  get ready(): LanguageClient | undefined {
    return this.client?.state === State.Running ? this.client : undefined;
  }

  async start(): Promise<void> {
    this.turn += 1;
    const turn = this.turn;
    this.supervisor.reset();
    this.show("$(sync~spin) gmiflow", "The language server starts");
    const client = new LanguageClient("gmiflow", "gmiflow", () => this.supervisor.launch(), {
      documentSelector: [{ language: "gmi" }],
      outputChannel: this.output,
      revealOutputChannelOn: RevealOutputChannelOn.Never,
      initializationOptions: {
        lenses: { explain: "gmiflow.explainPlan", graph: "gmiflow.showGraph", run: "gmiflow.run" },
      },
      initializationFailedHandler: () => false,
      middleware: {
        provideCompletionItem: async (document, position, context, token, next) => {
          const found = (await next(document, position, context, token)) ?? [];
          for (const item of Array.isArray(found) ? found : found.items) {
            if (asksForMore(item)) {
              item.command = { title: "Suggest", command: "editor.action.triggerSuggest" };
            }
          }
          return found;
        },
      },
      errorHandler: {
        error: () => ({ action: ErrorAction.Continue, handled: true }),
        closed: () => ({
          action: this.supervisor.restartsAfterClose() ? CloseAction.Restart : CloseAction.DoNotRestart,
          handled: true,
        }),
      },
    });
    client.onDidChangeState(({ newState }) => {
      if (this.client !== client) {
        return; // another one took its place
      }
      if (newState === State.Running) {
        this.show("gmiflow", "The language server runs");
      } else if (newState === State.Starting) {
        this.show("$(sync~spin) gmiflow", "The language server starts");
      } else {
        this.show("$(error) gmiflow", "The language server is not running; click for its output");
      }
    });
    try {
      await this.supervisor.find();
      if (turn !== this.turn) {
        return;
      }
      this.client = client;
      await client.start();
    } catch (error) {
      if (turn !== this.turn) {
        return;
      }
      if (!(error instanceof NoServer)) {
        this.output.error(String(error));
      }
      this.show("$(error) gmiflow", "The language server did not start; click for its output");
    }
  }

  async stop(): Promise<void> {
    this.turn += 1;
    this.supervisor.expectEnd();
    const client = this.client;
    this.client = undefined;
    if (client?.state === State.Running) {
      await client.stop().catch(() => undefined); // it did not answer in time
    }
    this.supervisor.kill();
    await client?.dispose().catch(() => undefined); // one that never started has nothing to dispose
  }

  async restart(): Promise<void> {
    await this.stop();
    await this.start();
  }

  private show(text: string, tooltip: string): void {
    this.status.text = text;
    this.status.tooltip = tooltip;
    this.status.show();
  }

  private async complain(message: string): Promise<void> {
    const [setting, again] = ["Choose Interpreter", "Try Again"];
    const chosen = await vscode.window.showErrorMessage(message, setting, again, "Show Output");
    if (chosen === again) {
      await this.restart();
    } else if (chosen === setting) {
      await vscode.commands.executeCommand("workbench.action.openSettings", "gmiflow.interpreter");
    } else if (chosen !== undefined) {
      this.output.show();
    }
  }
}
