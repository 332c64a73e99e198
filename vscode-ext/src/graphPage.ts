/** The page of the graph preview. Knows nothing about VS Code. */
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

function escapeHtml(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}
