/** Commands of the palette, the editor's title and the code lenses. */
import * as crypto from "node:crypto";
import * as vscode from "vscode";

import { type Choices, type Chosen, gmiflowArguments, shellLine } from "./commandLine";
import { graphPage } from "./graphPage";
import { findGmiflow, NoServer } from "./interpreter";
import { type Server, surroundings } from "./server";

interface GraphAnswer {
  readonly svg: string;
  readonly problem: string;
}

const PLAN_SCHEME = "gmiflow-plan";
const REFRESH_MS = 300;

export function registerCommands(server: Server): vscode.Disposable[] {
  const plans = new Plans(server);
  const graphs = new Graphs(server);
  const register = (name: string, action: (uri: vscode.Uri, workflow: string | undefined) => Promise<void>): vscode.Disposable =>
    vscode.commands.registerCommand(`gmiflow.${name}`, async (uri?: vscode.Uri | string, workflow?: unknown) => {
      const file = typeof uri === "string" ? vscode.Uri.parse(uri) : (uri ?? activeFile());
      if (file === undefined) {
        await vscode.window.showInformationMessage("Open a .gmi file first.");
        return;
      }
      await action(file, typeof workflow === "string" ? workflow : undefined);
    });
  const onWorkflow = (name: string, action: (uri: vscode.Uri, workflow: string) => Promise<void>): vscode.Disposable =>
    register(name, async (uri, workflow) => {
      const chosen = workflow ?? (await choose("Workflow", (await choicesOf(server, uri)).workflows));
      if (chosen !== undefined) {
        await action(uri, chosen);
      }
    });
  const onTarget = (verb: string): vscode.Disposable =>
    onWorkflow(verb, async (uri, workflow) => {
      const target = await choose("Target", (await choicesOf(server, uri)).targets);
      if (target !== undefined) {
        await inTerminal(verb, uri, { workflow, target });
      }
    });
  return [
    vscode.Disposable.from(plans, graphs),
    vscode.workspace.registerTextDocumentContentProvider(PLAN_SCHEME, plans),
    onWorkflow("explainPlan", (uri, workflow) => plans.open(uri, workflow)),
    onWorkflow("showGraph", (uri, workflow) => graphs.open(uri, workflow)),
    onTarget("run"),
    onTarget("compile"),
  ];
}

function activeFile(): vscode.Uri | undefined {
  const document = vscode.window.activeTextEditor?.document;
  return document?.languageId === "gmi" ? document.uri : undefined;
}

/** The workflows and targets of a file; none when the server does not run. */
export async function choicesOf(server: Server, uri: vscode.Uri): Promise<Choices> {
  await vscode.workspace.openTextDocument(uri); // the server knows what is open
  return (await ask<Choices>(server, "gmiflow.server.choices", uri.toString())) ?? { workflows: [], targets: [] };
}

/** Asks for one of several names: "" when there is nothing to choose, undefined when the user does not want to. */
async function choose(what: string, names: readonly string[]): Promise<string | undefined> {
  return names.length < 2 ? "" : await vscode.window.showQuickPick(names, { title: `gmiflow: ${what}`, placeHolder: what });
}

/** Runs gmiflow on a saved file in the window's terminal. */
async function inTerminal(verb: string, uri: vscode.Uri, chosen: Chosen): Promise<void> {
  const document = await vscode.workspace.openTextDocument(uri);
  if (document.isUntitled || (document.isDirty && !(await document.save()))) {
    await vscode.window.showInformationMessage("Save the file first: gmiflow reads it from the disk.");
    return;
  }
  try {
    const found = findGmiflow(surroundings());
    const words = [found.command, ...gmiflowArguments(found, verb, uri.fsPath, chosen)];
    const terminal =
      vscode.window.terminals.find((open) => open.name === "gmiflow" && open.exitStatus === undefined) ??
      vscode.window.createTerminal({ name: "gmiflow" });
    terminal.show(true);
    terminal.sendText(shellLine(words, process.platform));
  } catch (error) {
    if (!(error instanceof NoServer)) {
      throw error;
    }
    await vscode.window.showErrorMessage(error.message);
  }
}

/** What the compiler chose for a workflow, as a read-only document that follows the file. */
class Plans implements vscode.TextDocumentContentProvider {
  private readonly changes = new vscode.EventEmitter<vscode.Uri>();
  readonly onDidChange = this.changes.event;
  private readonly followed = new Map<string, vscode.Uri>();
  private readonly watching: vscode.Disposable;

  constructor(private readonly server: Server) {
    this.watching = whenEdited((uri) => {
      for (const [key, shown] of this.followed) {
        if (key.startsWith(`${uri.toString()}#`)) {
          this.changes.fire(shown);
        }
      }
    });
  }

  async open(uri: vscode.Uri, workflow: string): Promise<void> {
    const name = `${workflow || "workflow"}.plan.txt`;
    const shown = vscode.Uri.from({ scheme: PLAN_SCHEME, path: `/${name}`, query: JSON.stringify([uri.toString(), workflow]) });
    this.followed.set(`${uri.toString()}#${workflow}`, shown);
    this.changes.fire(shown);
    const document = await vscode.workspace.openTextDocument(shown);
    await vscode.window.showTextDocument(document, { viewColumn: vscode.ViewColumn.Beside, preview: true });
  }

  async provideTextDocumentContent(shown: vscode.Uri): Promise<string> {
    const [uri, workflow] = JSON.parse(shown.query) as [string, string];
    return (await ask<string>(this.server, "gmiflow.server.explain", uri, workflow)) ?? NOT_RUNNING;
  }

  dispose(): void {
    this.watching.dispose();
    this.changes.dispose();
  }
}

/** The graph of a workflow beside its file; it follows what is typed. */
class Graphs {
  private readonly panels = new Map<string, vscode.WebviewPanel>();
  private readonly watching: vscode.Disposable;

  constructor(private readonly server: Server) {
    this.watching = whenEdited((uri) => {
      for (const [key, panel] of this.panels) {
        const [file, workflow] = JSON.parse(key) as [string, string];
        if (file === uri.toString()) {
          void this.draw(panel, file, workflow);
        }
      }
    });
  }

  async open(uri: vscode.Uri, workflow: string): Promise<void> {
    const key = JSON.stringify([uri.toString(), workflow]);
    const open = this.panels.get(key);
    if (open !== undefined) {
      open.reveal(undefined, true);
      return;
    }
    const title = workflow === "" ? "Graph" : `Graph: ${workflow}`;
    const column = { viewColumn: vscode.ViewColumn.Beside, preserveFocus: true };
    const panel = vscode.window.createWebviewPanel("gmiflow.graph", title, column, { enableScripts: true, localResourceRoots: [] });
    this.panels.set(key, panel);
    panel.onDidDispose(() => this.panels.delete(key));
    await this.draw(panel, uri.toString(), workflow);
  }

  dispose(): void {
    this.watching.dispose();
    for (const panel of this.panels.values()) {
      panel.dispose();
    }
  }

  private async draw(panel: vscode.WebviewPanel, uri: string, workflow: string): Promise<void> {
    const answer = (await ask<GraphAnswer>(this.server, "gmiflow.server.graph", uri, workflow)) ?? { svg: "", problem: NOT_RUNNING };
    panel.webview.html = graphPage(panel.title, answer.svg, answer.problem, crypto.randomBytes(16).toString("hex"));
  }
}

const NOT_RUNNING = "The gmiflow language server is not running.\n";

async function ask<T>(server: Server, command: string, ...args: string[]): Promise<T | undefined> {
  const client = server.ready;
  return client === undefined
    ? undefined
    : await client.sendRequest<T>("workspace/executeCommand", { command, arguments: args });
}

/** Calls back when typing in a `.gmi` file pauses. */
function whenEdited(action: (uri: vscode.Uri) => void): vscode.Disposable {
  const waiting = new Map<string, NodeJS.Timeout>();
  return vscode.workspace.onDidChangeTextDocument(({ document }) => {
    if (document.languageId !== "gmi") {
      return;
    }
    const key = document.uri.toString();
    clearTimeout(waiting.get(key));
    waiting.set(
      key,
      setTimeout(() => {
        waiting.delete(key);
        action(document.uri);
      }, REFRESH_MS),
    );
  });
}
