/** The snippets as completions, where a declaration may start and nowhere else: those of a manifest are offered everywhere. */
import * as fs from "node:fs";
import * as vscode from "vscode";

import { startsDeclaration } from "./declarations";

interface Snippet {
  readonly prefix: string;
  readonly description: string;
  readonly body: readonly string[];
}

export class Snippets implements vscode.CompletionItemProvider {
  private readonly snippets: readonly Snippet[];

  constructor(file: string) {
    this.snippets = Object.values(JSON.parse(fs.readFileSync(file, "utf8")) as Record<string, Snippet>);
  }

  provideCompletionItems(document: vscode.TextDocument, position: vscode.Position): vscode.CompletionItem[] {
    const line = document.lineAt(position.line).text.slice(0, position.character);
    if (!startsDeclaration(line)) {
      return [];
    }
    const range = new vscode.Range(position.with({ character: 0 }), position);
    return this.snippets.map(({ prefix, description, body }) => {
      const label = { label: prefix, detail: " ...", description };
      const item = new vscode.CompletionItem(label, vscode.CompletionItemKind.Module); // the editor hides its own kind here
      item.insertText = new vscode.SnippetString(body.join("\n"));
      item.range = range;
      item.sortText = `6${prefix}`; // behind the keywords
      return item;
    });
  }
}
