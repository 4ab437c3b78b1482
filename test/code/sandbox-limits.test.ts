/**
 * Tests the limits of the sandbox for code, and that a run which exceeds one disturbs no other.
 * Covers: facade/code.
 */

import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, describe, expect, it } from 'vitest';
import { CodeSandbox } from '../../facade/code/sandbox/code-sandbox.ts';
import { limitNow, THREE_ATTEMPTS } from '../bench/growth.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf, roundsOf } from '../harness/slices.ts';
import { startFixture } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';
import {
  closeShared,
  failureOfCode,
  programOf,
  type RunOptions,
  runCode,
  shared,
  textResult,
  valueOfCode,
} from './sandbox-runs.ts';

const ROOT = path.join(import.meta.dirname, '..', '..');

afterAll(closeShared);

const READ = "const { read } = require('host:tollgate');";

/** Programs that exceed a limit, and what they are told. Each tries to catch it. */
const EXCEEDING: readonly (readonly [string, string, RunOptions['limits'], RegExp])[] = [
  ['time', 'for (;;);', { timeMs: 200 }, /longer than 200 ms, not counting.*\n.*search or filter/],
  ['time in a regular expression', '/(a+)+$/.test("a".repeat(60) + "b")', { timeMs: 200 }, /longer than 200 ms/],
  ['time in jobs', 'await (async function f() { for (;;) await 1; })()', { timeMs: 200 }, /longer than 200 ms/],
  [
    'time in a native function',
    'Array.prototype.indexOf.call({ length: 2 ** 53 - 1 }, 1)',
    { timeMs: 200 },
    /longer than 200 ms/,
  ],
  // 2e5 numbers take a quarter of the memory, so that time ends first on fast machines too.
  [
    'time in a sort',
    'const a = Array.from({ length: 2e5 }, (_, i) => i * 7 % 11); for (;;) a.sort()',
    { timeMs: 100 },
    /longer than 100 ms/,
  ],
  ['memory in small steps', 'const a = []; for (;;) a.push({})', {}, /more than 20000000 bytes of memory\.\nKeep less/],
  ['memory at once', "'x'.repeat(500_000_000)", {}, /20000000 bytes of memory/],
  ['memory in a buffer', 'new ArrayBuffer(1_000_000_000)', {}, /20000000 bytes of memory/],
  // The engine collects garbage ever more often, so time can end before memory does.
  [
    'memory in promises',
    'for (;;) new Promise(() => {}).then(() => {})',
    { timeMs: roundsOf(2_000, 500) },
    /20000000 bytes of memory|longer/,
  ],
  [
    'output',
    "for (;;) print('x'.repeat(100))",
    { outputBytes: 2_000 },
    /printed more than 2000 bytes\.\nPrint and return less/,
  ],
  ['output at once', "print('é'.repeat(1_001))", { outputBytes: 2_000 }, /printed more than 2000 bytes/],
  ['calls', `${READ} for (;;) read()`, { calls: 5 }, /more than 5 calls\.\nUse tools that do more/],
  ['calls with promises', `${READ} for (;;) read.async()`, { calls: 5 }, /more than 5 calls/],
];

describe('a limit', () => {
  inFull.each(partOf(EXCEEDING, 5))(
    'of %s ends the run, and cannot be caught' + verifies('CM-17'),
    async (_what, code, limits, told) => {
      const caught = `try { ${code} } catch { print('caught') } finally { try { print('finally') } catch {} } return 1`;
      const outcome = await runCode(caught, { limits: { memoryBytes: 20_000_000, ...limits } });
      expect(outcome).toMatchObject({ kind: 'failed', code: 'CODE_LIMIT' });
      expect(outcome.kind === 'failed' && outcome.message).toMatch(told);
      expect(outcome.printed).not.toMatch(/caught|finally/);
      expect(outcome.calls.length).toBeLessThanOrEqual(5);
    },
  );

  const deep = [
    ['recursion', 'function f() { f() } f()'],
    ['JSON', 'JSON.parse("[".repeat(200_000))'],
    ['a regular expression', 'new RegExp("(?:".repeat(50_000) + ")".repeat(50_000))'],
    ['code', 'eval("!(".repeat(50_000))'],
    ['toString', 'let a = []; for (let i = 0; i < 50_000; i += 1) a = [a]; String(a)'],
    ['proxies', 'let p = {}; for (let i = 0; i < 20_000; i += 1) p = new Proxy(p, {}); p.x'],
  ] as const;
  inFull.each(partOf(deep, 4))(
    'of the stack is an error that ends the run unless it is caught: %s' + verifies('CM-17'),
    async (_what, code) => {
      expect(await failureOfCode(code)).toMatch(
        /^CODE_LIMIT The program nested calls or data deeper than 500000 bytes of stack allow\.\nUse a loop/,
      );
      expect(await valueOfCode(`try { ${code} } catch { return 'caught' }`)).toBe('caught');
    },
  );

  it('of output counts what is printed and returned together' + verifies('CM-17'), async () => {
    const limits = { outputBytes: 100 };
    expect(await valueOfCode("print('x'.repeat(49)); return 'x'.repeat(48)", { limits })).toHaveLength(48);
    const outcome = await runCode("print('x'.repeat(49)); return 'x'.repeat(49)", { limits });
    expect(outcome).toMatchObject({ kind: 'failed', code: 'CODE_LIMIT', printed: `${'x'.repeat(49)}\n` });
  });

  inFull('of time does not count the waiting for calls' + verifies('CM-17'), async () => {
    const run = shared.start(
      programOf(`${READ} read(); await read.async(); return 1`, { limits: { timeMs: 400 } }),
      ({ seq }) => setTimeout(() => run.answer(seq, textResult('')), 500),
    );
    expect(await run.done).toMatchObject({ kind: 'returned', value: '1' });
  });

  inFull('of time does not count the time in which the machine gave none' + verifies('CM-17'), async () => {
    // 2e6 rounds take a tenth of a second. The process stands still for far longer than the limit.
    const { child, line } = startFixture('code-runner.ts', ['1000', 'for (let i = 0; i < 2e6; i += 1); return 1']);
    expect(await line()).toBe('begun');
    child.kill('SIGSTOP');
    await sleep(1_500);
    child.kill('SIGCONT');
    expect(JSON.parse(await line())).toMatchObject({ kind: 'returned', value: '1' });
  });
});

describe('a run', () => {
  it('that was stopped ends at once, also while it runs, waits or has not begun' + verifies('CM-18'), async () => {
    const sandbox = new CodeSandbox();
    const endless = () => sandbox.start(programOf('for (;;);'), () => undefined);
    const waiting = sandbox.start(programOf(`print('before'); ${READ} read()`), () => waiting.stop());
    expect(await waiting.done).toEqual({ kind: 'stopped', printed: 'before\n' });
    const runs = [endless(), endless(), endless(), endless(), endless()];
    for (const run of [...runs].reverse()) run.stop();
    for (const run of runs) expect(await run.done).toEqual({ kind: 'stopped', printed: '' });
    const last = endless();
    sandbox.close();
    expect(await last.done).toEqual({ kind: 'stopped', printed: '' });
    expect(await endless().done).toEqual({ kind: 'stopped', printed: '' });
    last.stop();
    last.answer(1, textResult(''));
  });

  it('waits while four others run, in its order' + verifies('CM-24'), async () => {
    const sandbox = new CodeSandbox();
    const begun: number[] = [];
    const runs = Array.from({ length: 7 }, (_, at) =>
      sandbox.start(programOf(`${READ} return read()`), () => begun.push(at)),
    );
    await expect.poll(() => begun.length).toBe(4);
    expect([...begun].sort()).toEqual([0, 1, 2, 3]);
    runs[2]?.answer(1, textResult('two'));
    expect(await runs[2]?.done).toMatchObject({ value: '"two"' });
    await expect.poll(() => begun.length).toBe(5);
    runs[5]?.stop();
    runs[0]?.stop();
    await expect.poll(() => begun).toHaveLength(6);
    expect(begun.slice(4)).toEqual([4, 6]);
    sandbox.close();
  });

  it('gets no answer of another run, and ignores one that it did not ask for' + verifies('CM-18'), async () => {
    const first = shared.start(programOf(`${READ} read.async(); throw 1`), () => undefined);
    await first.done;
    first.answer(1, textResult('late'));
    const second = shared.start(programOf(`${READ} return [read(), await read.async()]`), ({ seq }) => {
      first.answer(seq, textResult('late'));
      second.answer(99, textResult('unknown'));
      second.answer(seq, textResult(`own ${seq}`));
      second.answer(seq, textResult('again'));
    });
    expect(await second.done).toMatchObject({ value: '["own 1","own 2"]' });
  });

  it('starts with nothing of the run before it' + verifies('CM-18'), async () => {
    await runCode(
      'globalThis.left = 1; Object.prototype.left = 1; JSON.parse = 1; Array.prototype.map = 1; vars.x = 1',
      { variables: '{}' },
    );
    expect(await valueOfCode('return [typeof left, typeof JSON.parse, [1].map(String), typeof vars]')).toEqual([
      'undefined',
      'function',
      ['1'],
      'undefined',
    ]);
  });
});

/** Made once: the result of a tool exists already when it reaches the sandbox. */
const LARGE = textResult('x'.repeat(2_000_000));
/** Prints the longest turn of the main thread while programs run, in ms of its processor time. */
const LONGEST_TURN = `
import { readFileSync } from 'node:fs';
import { CodeSandbox } from ${JSON.stringify(path.join(ROOT, 'dist/facade/code/sandbox/code-sandbox.js'))};
const { warm, programs, answer } = JSON.parse(readFileSync(0, 'utf8'));
const sandbox = new CodeSandbox();
const run = (program) => {
  const one = sandbox.start(program, ({ seq }) => one.answer(seq, answer));
  return one.done;
};
await run(warm);
const mainMs = () => Number.parseInt(readFileSync('/proc/self/task/' + process.pid + '/schedstat', 'latin1'), 10) / 1e6;
let [longest, last] = [0, mainMs()];
const ticking = setInterval(() => {
  const now = mainMs();
  longest = Math.max(longest, now - last);
  last = now;
}, 1);
await Promise.all(programs.map(run));
clearInterval(ticking);
process.stdout.write(String(Math.max(longest, mainMs() - last)));
sandbox.close();`;

describe('the main thread', () => {
  // A process of its own: the heap of the other tests would make its garbage collections long.
  inFull(
    'is never held over 20 ms while programs exceed their limits' + verifies('CM-18'),
    {
      ...THREE_ATTEMPTS,
      timeout: 300_000,
    },
    () => {
      const large = `${READ} for (let i = 0; i < 6; i += 1) read.async({ text: 'x'.repeat(900_000) }); read().length`;
      const exceeding = partOf(EXCEEDING, 5).map(([, code, limits]) =>
        programOf(code, { limits: { memoryBytes: 20_000_000, ...limits } }),
      );
      const input = { warm: programOf(large), programs: [...exceeding, programOf(large)], answer: LARGE };
      const { status, stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', LONGEST_TURN], {
        encoding: 'utf8',
        input: JSON.stringify(input),
        timeout: 300_000,
      });
      expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
      expect(Number(stdout)).toBeLessThan(limitNow(Number(stdout), 20));
    },
  );

  it('ends although a worker is idle, and only after a run' + verifies('CM-24'), () => {
    const sandbox = path.join(ROOT, 'dist/facade/code/sandbox/code-sandbox.js');
    const program = JSON.stringify(programOf('return new Date(2020, 0, 1).toISOString() + new Date()'));
    const script = `import { CodeSandbox } from ${JSON.stringify(sandbox)};
      const { done } = new CodeSandbox().start(${program}, () => {});
      done.then(({ value }) => process.stdout.write(value));`;
    const { status, stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
      encoding: 'utf8',
      timeout: 30_000,
      // Code sees UTC wherever the process runs.
      env: { TZ: 'America/New_York' },
    });
    expect({ status, stdout, stderr }).toEqual({
      status: 0,
      stdout: '"2020-01-01T00:00:00.000ZFri Jan 15 2027 08:00:00 GMT+0000"',
      stderr: '',
    });
  });
});
