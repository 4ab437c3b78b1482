/** Tells health checks whether this process can serve calls, and names only what fails. */
import { randomBytes } from 'node:crypto';
import { open, unlink } from 'node:fs/promises';
import path from 'node:path';
import type { ListTool, Policy, Principal } from '../../policies/port.ts';
import { KillSwitch } from '../consent/switch/kill-switch.ts';
import type { SharedServices } from './shared-services.ts';

/**
 * What can fail: the audit folder takes no record, the state cannot be read, the policy decides nothing, everything is
 * switched off.
 */
export type Failing = 'audit' | 'state' | 'policy' | 'off';

/** How long one answer is reused, so that frequent checks cost nothing. */
const FRESH_MS = 500;
/** A check that takes longer fails. */
const PATIENCE_MS = 2000;
/** About the size of a record, because a full disk still takes an empty file. */
const PROBE = Buffer.alloc(4096);
const NOBODY: Principal = Object.freeze({ id: 'readyz', role: 'readyz', groups: [], profiles: [], origin: 'readyz' });
const NOTHING: readonly ListTool[] = [{ server: 'readyz', tool: 'readyz', verb: 'read' }];

/** Returns the check of a process. `policy` is called each time. */
export function createReadiness(
  { audit, state }: Pick<SharedServices, 'audit' | 'state'>,
  policy: () => Policy,
): () => Promise<readonly Failing[]> {
  const killSwitch = new KillSwitch(state);
  let last: { readonly at: number; readonly answer: Promise<readonly Failing[]> } | undefined;
  const check = async (): Promise<readonly Failing[]> => {
    const isOff = (async () => {
      await state.refresh();
      return killSwitch.offRefusal() !== undefined;
    })();
    const [writes, reads, decides] = await Promise.all([
      works(probeFolder(path.dirname(audit.file))),
      works(isOff),
      works((async () => policy().list(NOBODY, NOTHING))()),
    ]);
    return [
      ...(writes ? [] : ['audit' as const]),
      ...(reads ? [] : ['state' as const]),
      ...(decides ? [] : ['policy' as const]),
      ...(reads && (await isOff) ? ['off' as const] : []),
    ];
  };
  return () => {
    const now = performance.now();
    if (last === undefined || now - last.at > FRESH_MS) last = { at: now, answer: check() };
    return last.answer;
  };
}

/** Returns whether the work succeeds in time. */
async function works(work: Promise<unknown>): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<boolean>((resolve) => {
    timer = setTimeout(() => resolve(false), PATIENCE_MS);
    timer.unref();
  });
  return Promise.race([
    work.then(
      () => true,
      () => false,
    ),
    late,
  ]).finally(() => clearTimeout(timer));
}

/** Writes and removes a test file next to the records. Throws what node:fs throws. */
async function probeFolder(folder: string): Promise<void> {
  const file = path.join(folder, `.readyz-${process.pid}-${randomBytes(4).toString('hex')}`);
  const handle = await open(file, 'wx', 0o600);
  try {
    // Before the write, so that a killed process leaves nothing.
    await unlink(file);
    await handle.writeFile(PROBE);
  } finally {
    await handle.close();
  }
}
