/** Command lines, the page of the graph preview, and where snippets fit. Knows nothing about VS Code. */
import type { Command } from "./interpreter";

/** What a file declares that a command line may have to name. */
export interface Choices {
  readonly workflows: readonly string[];
  readonly targets: readonly string[];
}

/** A workflow and a target of a file; "" where there is nothing to choose. */
export interface Chosen {
  readonly workflow: string;
  readonly target: string;
}

/** Every workflow of a file on every target. Where there are several, gmiflow must be told which. */
export function combinations({ workflows, targets }: Choices): Chosen[] {
  const several = (names: readonly string[]): readonly string[] => (names.length > 1 ? names : [""]);
  return several(workflows).flatMap((workflow) => several(targets).map((target) => ({ workflow, target })));
}

/** `gmiflow run FILE --workflow WORKFLOW --target TARGET` and the like, as one argument vector. */
export function gmiflowArguments(found: Command, verb: string, file: string, { workflow, target }: Chosen): string[] {
  const named = [...(workflow === "" ? [] : ["--workflow", workflow]), ...(target === "" ? [] : ["--target", target])];
  return [...found.args, verb, file, ...named];
}

/** An argument vector as a line of a POSIX shell or PowerShell. */
export function shellLine(words: readonly string[], platform: NodeJS.Platform): string {
  const quoted = words.map((word) => {
    if (/^[\w@%+=:,./\\-]+$/.test(word)) {
      return word;
    }
    return platform === "win32" ? `'${word.replaceAll("'", "''")}'` : `'${word.replaceAll("'", "'\\''")}'`;
  });
  return (platform === "win32" && quoted[0]?.startsWith("'") ? "& " : "") + quoted.join(" ");
}

/** A page that shows a graph, or what is wrong with the file; `nonce` lets its own style and script in, nothing else. */
export function graphPage(title: string, svg: string, problem: string, nonce: string): string {
  const content = svg === "" ? `<pre class="problem">${escapeHtml(problem)}</pre>` : `<div id="graph">${svg}</div>`;
  return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-${nonce}'">
<title>${escapeHtml(title)}</title>
<style>
  body { margin: 0; padding: 0; overflow: hidden; background: var(--vscode-editor-background, #ffffff);
         color: var(--vscode-editor-foreground, #1f2328); font-family: var(--vscode-font-family, sans-serif); }
  #graph { width: 100vw; height: 100vh; overflow: auto; display: flex; justify-content: safe center; align-items: safe center; }
  #graph svg { flex: none; height: auto; border-radius: 6px; }
  .bar { position: fixed; right: 12px; top: 12px; display: flex; gap: 4px; }
  .bar button { border: 1px solid var(--vscode-button-border, #d0d7de); border-radius: 4px; padding: 2px 9px; cursor: pointer;
         background: var(--vscode-button-secondaryBackground, #f6f8fa); color: var(--vscode-button-secondaryForeground, #1f2328); }
  .problem { margin: 0; padding: 16px; white-space: pre-wrap; height: 100vh; box-sizing: border-box; overflow: auto;
         font-family: var(--vscode-editor-font-family, monospace); }
</style>
</head>
<body>
${content}
${svg === "" ? "" : '<div class="bar"><button id="smaller">-</button><button id="fit">Fit</button><button id="larger">+</button></div>'}
<script nonce="${nonce}">
  const picture = document.querySelector("#graph svg");
  if (picture) {
    const frame = document.querySelector("#graph");
    const width = picture.viewBox.baseVal.width || picture.clientWidth;
    const height = picture.viewBox.baseVal.height || picture.clientHeight;
    const theme = document.body.className;
    if (theme.includes("vscode-")) { // the editor's theme, not the system's
      const query = /vscode-(dark|high-contrast(?!-light))/.test(theme) ? "@media all" : "@media not all";
      const style = picture.querySelector("style");
      style.textContent = style.textContent.replaceAll("@media(prefers-color-scheme:dark)", query);
    }
    let scale = 1;
    let fitted = true;
    const show = (wanted) => {
      scale = Math.min(8, Math.max(0.1, wanted));
      picture.style.width = width * scale + "px";
    };
    const zoom = (factor) => {
      fitted = false;
      show(scale * factor);
    };
    const fit = () => {
      fitted = true;
      show(Math.min(2, (frame.clientWidth - 32) / width, (frame.clientHeight - 32) / height));
    };
    document.querySelector("#smaller").addEventListener("click", () => zoom(1 / 1.2));
    document.querySelector("#larger").addEventListener("click", () => zoom(1.2));
    document.querySelector("#fit").addEventListener("click", fit);
    addEventListener("resize", () => fitted && fit());
    addEventListener("wheel", (event) => {
      if (event.ctrlKey) {
        event.preventDefault();
        zoom(Math.exp(-event.deltaY / 300));
      }
    }, { passive: false });
    fit();
  }
</script>
</body>
</html>
`;
}

/** Whether a declaration may start at the end of a line's beginning: words alone, in column 1. */
export function startsDeclaration(line: string): boolean {
  return /^[a-z]*( [a-z]*)?$/.test(line);
}

function escapeHtml(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}
