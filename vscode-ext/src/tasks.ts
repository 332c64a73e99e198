/** Tasks: check, compile, lint and run the file in the editor, with their problems in the Problems view. */
import * as vscode from "vscode";

import { type Chosen, combinations, gmiflowArguments } from "./commandLine";
import { choicesOf } from "./commands";
import { findGmiflow, NoServer } from "./interpreter";
import { type Server, surroundings } from "./server";

interface GmiDefinition extends vscode.TaskDefinition {
  readonly task: string;
  readonly file?: string;
  readonly workflow?: string;
  readonly target?: string;
}

const VERBS: Readonly<Record<string, vscode.TaskGroup | undefined>> = {
  check: vscode.TaskGroup.Test,
  compile: vscode.TaskGroup.Build,
  lint: vscode.TaskGroup.Test,
  run: undefined,
};
/** These are about one workflow on one target. */
const OF_WORKFLOWS = ["compile", "run"];

export class GmiTasks implements vscode.TaskProvider {
  static readonly type = "gmiflow";

  constructor(private readonly server: Server) {}

  async provideTasks(): Promise<vscode.Task[]> {
    const document = vscode.window.activeTextEditor?.document;
    const found = document?.languageId === "gmi" ? await choicesOf(this.server, document.uri) : { workflows: [], targets: [] };
    const chosen = combinations(found);
    const tasks = Object.keys(VERBS).flatMap((task) =>
      OF_WORKFLOWS.includes(task) ? chosen.map((one) => this.make(definitionOf(task, one))) : [this.make({ type: GmiTasks.type, task })],
    );
    return tasks.filter((task) => task !== undefined);
  }

  resolveTask(task: vscode.Task): vscode.Task | undefined {
    const definition = task.definition as GmiDefinition;
    return definition.task in VERBS ? this.make(definition, task.scope) : undefined;
  }

  private make(
    definition: GmiDefinition,
    scope: vscode.WorkspaceFolder | vscode.TaskScope = vscode.TaskScope.Workspace,
  ): vscode.Task | undefined {
    const { task: verb, file = "${file}", workflow = "", target = "" } = definition;
    try {
      const found = findGmiflow(surroundings());
      const chosen = OF_WORKFLOWS.includes(verb) ? { workflow, target } : { workflow: "", target: "" };
      const execution = new vscode.ProcessExecution(found.command, gmiflowArguments(found, verb, file, chosen));
      const task = new vscode.Task(definition, scope, nameOf(definition), GmiTasks.type, execution, "$gmiflow");
      const group = VERBS[verb];
      if (group !== undefined) {
        task.group = group;
      }
      return task;
    } catch (error) {
      if (error instanceof NoServer) {
        return undefined; // the server's start has said so
      }
      throw error;
    }
  }
}

function definitionOf(task: string, { workflow, target }: Chosen): GmiDefinition {
  return { type: GmiTasks.type, task, ...(workflow === "" ? {} : { workflow }), ...(target === "" ? {} : { target }) };
}

/** "run train on lab" */
function nameOf({ task, workflow, target }: GmiDefinition): string {
  return [task, ...(workflow === undefined ? [] : [workflow]), ...(target === undefined ? [] : ["on", target])].join(" ");
}
