/**
 * Tests that no call reads or changes an object that the policy refuses, while another process swaps links and
 * folders.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Session } from '../../facade/serve/facade-port.ts';
import { roundsOf } from '../harness/slices.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

/** For a longer run, set TOLLGATE_RACE_OPERATIONS=100000. */
const OPERATIONS = Number(process.env.TOLLGATE_RACE_OPERATIONS ?? 1200);
/** The calls go on until this many were made and each of KINDS was seen, up to OPERATIONS. */
const ENOUGH = Math.min(OPERATIONS, roundsOf(OPERATIONS, 300));
/** Some calls succeed, and some are refused. */
const KINDS = [
  'read  done',
  'read  DENIED',
  'write  done',
  'write  DENIED',
  'edit  done',
  'edit  DENIED',
  'read search done',
  'read list done',
];
const AT_ONCE = 4;
/** A text that is in every protected file and in every name in a protected folder, and nowhere else. */
const MARK = 'protected-by-policy';
const PROTECTED = {
  '.env': MARK,
  'rules.yaml': MARK,
  [`closed/${MARK}.txt`]: MARK,
  'closed/data.txt': MARK,
  '.git/hooks/pre-commit': MARK,
};
const NAMES = ['a', 'b', 'c', 'd', 'e', 'a/f', 'b/f', 'c/f', 'a/data.txt', 'b/data.txt', 'c/fresh', 'd/new/deep'].map(
  (name) => `arena/${name}`,
);

let facade: TestFacade;
let session: Session;
let folder: string;
let root: string;
let swapper: ChildProcess;
let before: string;

/** Returns the contents and names of all protected files. */
function fingerprint(): string {
  const hash = createHash('sha256');
  for (const at of ['closed', '.git/hooks', '../outside'])
    hash.update(readdirSync(path.join(root, at)).sort().join('\n'));
  for (const name of [...Object.keys(PROTECTED), '../outside/secret']) hash.update(readFileSync(path.join(root, name)));
  return hash.digest('hex');
}

const name = fc.constantFrom(...NAMES);
const text = fc.constantFrom('written\n', 'open\n', '');
/** Every kind of operation. Commands are rare, because they are expensive to start. */
const operation = fc.oneof(
  { weight: 60, arbitrary: fc.record({ path: name }).map((args) => ['read', args] as const) },
  {
    weight: 20,
    arbitrary: fc
      .record({ action: fc.constantFrom('stat', 'list'), path: name })
      .map((args) => ['read', args] as const),
  },
  {
    weight: 15,
    arbitrary: fc
      .record({ action: fc.constant('find'), path: name, pattern: fc.constant('**') })
      .map((args) => ['read', args] as const),
  },
  {
    weight: 15,
    arbitrary: fc
      .record({
        action: fc.constant('search'),
        path: fc.oneof(name, fc.constant('arena')),
        pattern: fc.constantFrom('.', 'protected'),
        hidden: fc.boolean(),
      })
      .map((args) => ['read', args] as const),
  },
  {
    weight: 50,
    arbitrary: fc
      .record({ path: name, content: text, mode: fc.constantFrom('overwrite', 'append', 'create', 'auto') })
      .map((args) => ['write', args] as const),
  },
  {
    weight: 25,
    arbitrary: fc
      .record({ path: name, old_string: fc.constantFrom('open', 'protected'), new_string: fc.constant('x') })
      .map((args) => ['edit', args] as const),
  },
  {
    weight: 1,
    arbitrary: fc.record({ command: fc.constantFrom('pwd', 'ls'), cwd: name }).map((args) => ['bash', args] as const),
  },
);

beforeAll(async () => {
  folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-races-')));
  root = path.join(folder, 'workspace');
  for (const at of ['arena', 'free', 'closed', '.git/hooks', '../outside'])
    mkdirSync(path.join(root, at), { recursive: true });
  for (const [file, content] of Object.entries(PROTECTED)) writeFileSync(path.join(root, file), content);
  writeFileSync(path.join(root, '../outside/secret'), MARK);
  writeFileSync(path.join(root, 'arena/plain.txt'), 'open\n');
  const config = {
    version: 1,
    workspace: './workspace',
    state: './state',
    approvals: { waitMs: 0 },
    bash: { isolation: 'direct' },
    rules: [
      {
        id: 'closed',
        outcome: 'deny',
        message: 'Closed.',
        when: { paths: ['**/.env', 'rules.yaml', 'closed/**', '.git/hooks/**'] },
      },
      { id: 'inside', outcome: 'allow', when: { insideWorkspace: true } },
    ],
    principals: [{ id: 'agent', profiles: ['all'], stdio: true }],
    profiles: { all: { servers: [], expose: { primitives: 'workspace' } } },
  };
  facade = await startFacade(JSON.stringify(config), {
    folder,
    onLog: (line) => process.env.TOLLGATE_RACE_OPERATIONS === undefined || process.stderr.write(`${line}\n`),
  });
  session = facade.open('agent');
  before = fingerprint();
});
afterAll(async () => {
  // The process still runs if the test timed out.
  await stopSwapper();
  await facade.close();
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
});

async function startSwapper(seed: number): Promise<void> {
  swapper = spawn('python3', [path.join(import.meta.dirname, 'swapper.py'), String(seed)], {
    cwd: path.join(root, 'arena'),
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await once(swapper.stdout!, 'data');
}

async function stopSwapper(): Promise<void> {
  if (swapper.exitCode !== null || swapper.signalCode !== null) return;
  const ended = once(swapper, 'exit');
  swapper.kill('SIGKILL');
  await ended;
}

describe('a process that swaps links, folders and files', () => {
  it('never leads a call to what the policy refuses' + verifies('TR-10', 'TR-12'), {
    timeout: 60_000 + OPERATIONS * 60,
  }, async () => {
    const [seed = 0] = fc.sample(fc.nat(), 1);
    const operations = fc.sample(operation, OPERATIONS);
    const codes = new Map<string, number>();
    const descriptors = readdirSync('/proc/self/fd').length;
    await startSwapper(seed);
    try {
      const worker = async (first: number): Promise<void> => {
        for (let index = first; index < operations.length; index += AT_ONCE) {
          if (index >= ENOUGH && KINDS.every((kind) => codes.has(kind))) return;
          const [tool, args] = operations[index] ?? ['read', {}];
          const answer = await facade.call(session, tool, args);
          const what = `${tool} ${JSON.stringify(args)} (seed ${seed}, operation ${index})`;
          expect(answer.text, what).not.toContain(MARK);
          const key = `${tool} ${'action' in args ? args.action : ''} ${answer.code || 'done'}`;
          codes.set(key, (codes.get(key) ?? 0) + 1);
          if (index % 100 === 0) expect(fingerprint(), what).toBe(before);
        }
      };
      await Promise.all(Array.from({ length: AT_ONCE }, (_, first) => worker(first)));
      expect(swapper.exitCode).toBeNull();
    } finally {
      await stopSwapper();
    }
    if (process.env.TOLLGATE_RACE_OPERATIONS !== undefined)
      process.stderr.write(`${JSON.stringify(Object.fromEntries([...codes].sort()))}\n`);
    expect(fingerprint()).toBe(before);
    for (const kind of KINDS) expect(codes.get(kind), kind).toBeGreaterThan(0);
    // None failed with an internal error.
    expect(
      [...codes.keys()]
        .map((key) => key.split(' ').at(-1))
        .filter((code) => !['done', 'DENIED', 'TOOL_FAILED', 'ARGS_INVALID'].includes(code ?? '')),
    ).toEqual([]);
    await expect.poll(() => readdirSync('/proc/self/fd').length).toBeLessThanOrEqual(descriptors + 2);
  });
});
