/** Command lines, and what they have to name. Knows nothing about VS Code. */
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
