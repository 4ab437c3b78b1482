/** Reads the tutorial: its steps in order, and the values in an output that differ from run to run. */
import { readPage, sectionOf } from './markdown.ts';

/** One step: a file to write, commands with their output, or calls of the agent with the answers. */
export type Step =
  | { readonly kind: 'file'; readonly name: string; readonly text: string }
  | { readonly kind: 'console' | 'agent'; readonly turns: readonly Turn[] };

/** One command or call, and the output below it. */
export interface Turn {
  readonly asked: string;
  readonly output: string;
}

/** The allowed differences, each with its placeholder. */
const VARYING: readonly (readonly [RegExp, string])[] = [
  [/\b[0-9a-f]{8}-[0-9a-f]{4}(?:-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})?\b/g, 'ID'],
  [/\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?Z?/g, 'TIME'],
  [/\b(revision|Version) [0-9a-f]{12}\b/g, '$1 HASH'],
  [/\b[0-9a-f]{64}\b/g, 'HASH'],
  [/\b(Approval id|approvals show) [2-9a-z]{10}\b/g, '$1 ID'],
];

const PAGE = 'docs/policy-tutorial.md';
const TEXT = sectionOf(PAGE, '# Policy tutorial');

/** Its line on the page, from 1. */
export const TUTORIAL = (() => {
  const from = readPage(PAGE).split(TEXT)[0]?.split('\n').length ?? 0;
  return { page: PAGE, from, to: from + TEXT.split('\n').length, text: TEXT };
})();

/** Returns the steps in order. Throws for a block that is not a step. */
export function readSteps(text: string): readonly Step[] {
  return [...text.matchAll(/^```(\w+)\n(.*?)^```$/gms)].map(([, language = '', body = '']): Step => {
    if (language === 'console') return { kind: 'console', turns: turnsOf(body, '$ ') };
    if (language === 'text') return { kind: 'agent', turns: turnsOf(body, 'agent: ') };
    const name = /^# (\S+\.\w+)\n/.exec(body)?.[1];
    if (name === undefined) throw new Error(`a block of ${language} does not begin with the name of its file`);
    return { kind: 'file', name, text: body };
  });
}

function turnsOf(body: string, prompt: string): readonly Turn[] {
  const [before, ...turns] = `\n${body}`.split(`\n${prompt}`);
  if (before !== '') throw new Error(`a block does not begin with "${prompt}"`);
  return turns.map((turn) => {
    const [asked = '', ...output] = turn.split('\n');
    return { asked, output: output.join('\n').trimEnd() };
  });
}

/** Replaces the values that differ from run to run. */
export function settle(output: string): string {
  const lines = VARYING.reduce((text, [pattern, word]) => text.replace(pattern, word), output.trimEnd()).split('\n');
  return lines.map((line) => line.trimEnd()).join('\n');
}
