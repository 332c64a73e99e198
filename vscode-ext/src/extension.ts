/** The extension: starts the language server of the project, and adds commands, tasks and the graph preview. */
import * as vscode from "vscode";

import { registerCommands } from "./commands";
import { Server } from "./server";
import { Snippets } from "./snippets";
import { GmiTasks } from "./tasks";

/** Pause in typing a setting after which it counts. */
const SETTING_MS = 1000;

let running: Server | undefined;

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  const output = vscode.window.createOutputChannel("gmiflow", { log: true });
  const server = new Server(output);
  running = server;
  context.subscriptions.push(
    output,
    server.status,
    ...registerCommands(server),
    vscode.languages.registerCompletionItemProvider("gmi", new Snippets(context.asAbsolutePath("snippets/gmi.json"))),
    vscode.tasks.registerTaskProvider(GmiTasks.type, new GmiTasks(server)),
    vscode.commands.registerCommand("gmiflow.restartServer", () => server.restart()),
    vscode.commands.registerCommand("gmiflow.showOutput", () => {
      output.show();
    }),
    whenInterpreterChanges(() => void server.restart()),
    vscode.workspace.onDidGrantWorkspaceTrust(() => server.restart()),
  );
  await server.start();
}

export async function deactivate(): Promise<void> {
  await running?.stop();
}

/** Calls back when the setting was changed, and no letter of it for a moment. */
function whenInterpreterChanges(action: () => void): vscode.Disposable {
  let waiting: NodeJS.Timeout | undefined;
  return vscode.workspace.onDidChangeConfiguration((event) => {
    if (event.affectsConfiguration("gmiflow.interpreter")) {
      clearTimeout(waiting);
      waiting = setTimeout(action, SETTING_MS);
    }
  });
}
