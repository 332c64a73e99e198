/** Where declarations stand in a `.gmi` file. Knows nothing about VS Code. */
/** Whether a declaration may start at the end of a line's beginning: words alone, in column 1. */
export function startsDeclaration(line: string): boolean {
  return /^[a-z]*( [a-z]*)?$/.test(line);
}
