/** Answers health checks: names the parts of this process that cannot serve calls. */
import { randomBytes } from 'node:crypto';
import { open, unlink } from 'node:fs/promises';
import path from 'node:path';
import type { ListTool, Policy, Principal } from '../../policies/port.ts';
import { KillSwitch } from '../consent/switch/kill-switch.ts';
import type { SharedServices } from './shared-services.ts';

/** The parts that can fail: audit (no record can be written), state, policy, and `off` (all is switched off). */
export type Failure = 'audit' | 'state' | 'policy' | 'off';

/** How long one answer is reused, so that frequent checks cost nothing. */
const FRESH_MS = 500;
/** A check that takes longer fails. */
const TIMEOUT_MS = 2000;
/** About the size of a record, because an empty file can be written even to a full disk. */
const PROBE_BYTES = Buffer.alloc(4096);
const PROBE_PRINCIPAL: Principal = Object.freeze({
  id: 'readyz',
  role: 'readyz',
  groups: [],
  profiles: [],
  origin: 'readyz',
});
const PROBE_TOOLS: readonly ListTool[] = [{ server: 'readyz', tool: 'readyz', verb: 'read' }];

/** Returns the check of a process. `policy` is called each time. */
export function createReadiness(
  { audit, state }: Pick<SharedServices, 'audit' | 'state'>,
  policy: () => Policy,
): () => Promise<readonly Failure[]> {
  const killSwitch = new KillSwitch(state);
  let latest: { readonly at: number; readonly answer: Promise<readonly Failure[]> } | undefined;
  const check = async (): Promise<readonly Failure[]> => {
    const readSwitch = (async () => {
      await state.refresh();
      return killSwitch.offRefusal() !== undefined;
    })();
    const [writes, reads, decides] = await Promise.all([
      succeedsInTime(writeProbe(path.dirname(audit.file))),
      succeedsInTime(readSwitch),
      succeedsInTime((async () => policy().list(PROBE_PRINCIPAL, PROBE_TOOLS))()),
    ]);
    const failures = { audit: !writes, state: !reads, policy: !decides, off: reads && (await readSwitch) };
    return (Object.keys(failures) as Failure[]).filter((part) => failures[part]);
  };
  return () => {
    const now = performance.now();
    if (latest === undefined || now - latest.at > FRESH_MS) latest = { at: now, answer: check() };
    return latest.answer;
  };
}

/** Returns whether the work succeeds in time. */
async function succeedsInTime(work: Promise<unknown>): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<boolean>((resolve) => {
    timer = setTimeout(() => resolve(false), TIMEOUT_MS);
    timer.unref();
  });
  return Promise.race([
    work.then(
      () => true,
      () => false,
    ),
    timeout,
  ]).finally(() => clearTimeout(timer));
}

/** Writes and removes a test file next to the records. Throws what node:fs throws. */
async function writeProbe(folder: string): Promise<void> {
  const file = path.join(folder, `.readyz-${process.pid}-${randomBytes(4).toString('hex')}`);
  const handle = await open(file, 'wx', 0o600);
  try {
    // Before the write, so that a killed process leaves nothing.
    await unlink(file);
    await handle.writeFile(PROBE_BYTES);
  } finally {
    await handle.close();
  }
}
