/** Turns the code of an agent into the text that QuickJS runs. Says where code is wrong, in the agent's own lines. */
import { transform } from 'sucrase';
import type { SandboxEnd } from './sandbox-program.ts';

/** The name of the program in the stacks of QuickJS. */
export const PROGRAM_NAME = 'program';
/** What stands before the code, on its first line, so that lines keep their numbers. */
const BEFORE = '(async function () {';
const AFTER = '\n})';
/** The most characters of a source line in a message, and those of them before the place. */
const MOST_SHOWN = 90;
const SHOWN_BEFORE = 60;

/** A place in code; line and column count from 1. */
interface CodePlace {
  readonly line: number;
  readonly column: number | undefined;
}

/**
 * Returns the text of a function without parameters: TypeScript is removed, `import` is `require`, and `return` and
 * `await` work on the first level. Returns the end of the run if the code cannot be read.
 */
export function compiledCode(code: string): string | SandboxEnd {
  const nul = code.indexOf('\0');
  if (nul >= 0) return syntaxEnd(code, 'The character U+0000 is not allowed in code', placeAt(code, nul));
  try {
    const { code: text } = transform(code, {
      transforms: ['typescript', 'imports'],
      disableESTransforms: true,
      production: true,
    });
    return `${BEFORE}${text}${AFTER}`;
  } catch (thrown) {
    if (thrown instanceof RangeError) return syntaxEnd(code, 'The code is nested too deeply', undefined);
    const [, what = String(thrown), line, column] =
      /^(?:Error transforming [^:]*: )?(.*?)(?: \((\d+):(\d+)\))?$/s.exec((thrown as Error).message) ?? [];
    return syntaxEnd(code, what, line === undefined ? undefined : { line: Number(line), column: Number(column) });
  }
}

/**
 * Returns the end of a run whose code QuickJS refused. `stack`: that of its SyntaxError. Where removed types moved the
 * rest of a line, the column is left out.
 */
export function engineSyntaxEnd(code: string, what: string, stack: string): SandboxEnd {
  const [, at, column] = /\bprogram:(\d+):(\d+)/.exec(stack) ?? [];
  if (at === undefined) return syntaxEnd(code, what, undefined);
  const compiled = compiledCode(code);
  const lines = code.split('\n');
  const line = Math.min(Number(at), lines.length);
  const ran = typeof compiled === 'string' ? compiled.split('\n')[line - 1] : undefined;
  const own = lines[line - 1] ?? '';
  const moved = ran?.endsWith(own) ? ran.length - own.length : undefined;
  const isAfter = Number(at) > lines.length;
  const place = isAfter || moved === undefined ? undefined : Math.max(1, Number(column) - moved);
  return syntaxEnd(code, what, { line, column: isAfter ? own.length + 1 : place });
}

/** Returns the line of the agent's code in which an error was thrown, from the stack that QuickJS wrote. */
export function thrownLine(stack: string | undefined): number | undefined {
  const line = /\(program:(\d+)(?::\d+)?\)/.exec(stack ?? '')?.[1];
  return line === undefined ? undefined : Number(line);
}

function placeAt(code: string, index: number): CodePlace {
  const lines = code.slice(0, index).split('\n');
  return { line: lines.length, column: (lines.at(-1)?.length ?? 0) + 1 };
}

function syntaxEnd(code: string, what: string, place: CodePlace | undefined): SandboxEnd {
  const column = place?.column === undefined ? '' : `:${place.column}`;
  const where = place === undefined ? '' : ` at line ${place.line}${column}`;
  const shown = place === undefined ? '' : `\n${excerpt(code, place)}`;
  const message = `SyntaxError${where}: ${what}${shown}\nCorrect the code and send it again.`;
  return { kind: 'failed', code: 'CODE_SYNTAX', message };
}

/** Returns the source line, and below it a caret if the column is known. */
function excerpt(code: string, { line, column }: CodePlace): string {
  const source = (code.split('\n')[line - 1] ?? '').replace(/[\t\r\0]/g, ' ');
  const from = Math.max(0, (column ?? 1) - SHOWN_BEFORE);
  const before = `${line} | `;
  const shown = `${before}${source.slice(from, from + MOST_SHOWN)}`;
  return column === undefined ? shown : `${shown}\n${' '.repeat(before.length + column - 1 - from)}^`;
}
