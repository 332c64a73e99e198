/** Tasks: check, compile, run and format the files of the workspace, with their problems in the Problems view. */
import * as vscode from "vscode";

import { gmiflowArguments } from "./commandLine";
import { surroundings } from "./extension";
import { findGmiflow, NoServer } from "./interpreter";

interface GmiDefinition extends vscode.TaskDefinition {
  readonly task: string;
  readonly file?: string;
  readonly workflow?: string;
}

const VERBS: Readonly<Record<string, vscode.TaskGroup | undefined>> = {
  check: vscode.TaskGroup.Test,
  compile: vscode.TaskGroup.Build,
  lint: vscode.TaskGroup.Test,
  run: undefined,
};

export class GmiTasks implements vscode.TaskProvider {
  static readonly type = "gmiflow";

  provideTasks(): vscode.Task[] {
    const tasks = Object.keys(VERBS).map((task) => this.make({ type: GmiTasks.type, task }, vscode.TaskScope.Workspace));
    return tasks.filter((task) => task !== undefined);
  }

  resolveTask(task: vscode.Task): vscode.Task | undefined {
    const definition = task.definition as GmiDefinition;
    return definition.task in VERBS ? this.make(definition, task.scope ?? vscode.TaskScope.Workspace) : undefined;
  }

  private make(definition: GmiDefinition, scope: vscode.WorkspaceFolder | vscode.TaskScope): vscode.Task | undefined {
    const file = definition.file ?? "${file}";
    try {
      const found = findGmiflow(surroundings());
      const args = gmiflowArguments(found, definition.task, file, definition.task === "lint" ? "" : (definition.workflow ?? ""));
      const execution = new vscode.ProcessExecution(found.command, args);
      const task = new vscode.Task(definition, scope, definition.task, GmiTasks.type, execution, "$gmiflow");
      const group = VERBS[definition.task];
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
