/** Generates programs for the sandbox for code: lines that call tools, wait, compare, print and throw. */
import fc from 'fast-check';
import type { SandboxAnswer, SandboxCall, SandboxOutcome } from '../../facade/code/sandbox/sandbox-program.ts';
import { programOf, shared, textResult } from './sandbox-runs.ts';

/** Lines that a generated program is made of. `n` is a small number. */
const LINES: readonly ((n: number) => string)[] = [
  (n) => `got.push(read({ n: ${n} }));`,
  (n) => `open.push(read.async({ n: ${n}, seen: got.length }));`,
  (n) =>
    `open.push((async () => { const x = await write.async({ n: ${n} }); print('wrote', x); return read({ x }); })());`,
  () => 'got.push(await Promise.race([...open, write.async()]));',
  () => 'got.push(...(await Promise.all(open))); open.length = 0;',
  (n) => `open[${n}]?.then?.((x) => { print('late', x, Date.now()); return edit.async({ x }); });`,
  () => 'print(Math.random(), Date.now(), got.length);',
  (n) => `if (got.length % 3 === ${n % 3}) got.push(Math.floor(Math.random() * 100));`,
  (n) => `vars.sum = (vars.sum ?? 0) + ${n} + got.length;`,
  (n) => `for (let i = 0; i < ${n}; i += 1) open.push(bash.async({ i }).finally(() => print('end', i)));`,
  (n) => `try { if (got.length > ${n}) throw new Error(String(got.length)); } catch ({ message }) { print(message); }`,
  () => 'await null;',
];

/** Programs as texts. */
export const programs: fc.Arbitrary<string> = fc
  .array(fc.tuple(fc.nat(LINES.length - 1), fc.nat(4)), { minLength: 1, maxLength: 10 })
  .map((lines) => {
    const body = lines.map(([line, n]) => LINES[line]?.(n) ?? '').join('\n');
    return `import { read, write, edit, bash } from 'host:tollgate';\nconst got = []; const open = [];\n${body}\nreturn got;`;
  });

/** One run: what it did, and the order of its answers. */
export interface Transcript {
  readonly calls: readonly SandboxCall[];
  readonly outcome: SandboxOutcome;
  readonly order: readonly number[];
}

const answerOf = ({ seq, function: name }: SandboxCall): SandboxAnswer =>
  seq % 7 === 3 ? { kind: 'failure', error: `no ${seq}`, code: 'DENIED' } : textResult(`${name} ${seq}`);

/**
 * Runs a program. `next` chooses one of the calls without an answer, or none, each time that one may be answered;
 * `delay` gives milliseconds.
 */
export async function transcriptOf(
  code: string,
  next: (open: readonly number[], answered: number) => number | undefined,
  delay: () => number,
): Promise<Transcript> {
  const open = new Map<number, SandboxCall>();
  const [calls, order]: [SandboxCall[], number[]] = [[], []];
  const answer = (): void => {
    const seq = next([...open.keys()], order.length);
    const call = seq === undefined ? undefined : open.get(seq);
    if (call === undefined) return;
    open.delete(call.seq);
    order.push(call.seq);
    run.answer(call.seq, answerOf(call));
    if (open.size > 0) setTimeout(answer, delay());
  };
  const run = shared.start(programOf(code, { variables: '{}', limits: { parallel: 3 } }), (call) => {
    calls.push(call);
    open.set(call.seq, call);
    setTimeout(answer, delay());
  });
  return { outcome: await run.done, calls, order };
}
