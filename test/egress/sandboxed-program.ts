/** Runs programs in a real sandbox with network access. */
import { chownSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import type { BlockedAttempt } from '../../adapters/egress/blocked-attempts.ts';
import { openEgress } from '../../adapters/egress/open-egress.ts';
import { chooseSandboxUser } from '../../adapters/sandbox/sandbox-spec.ts';
import { launch } from '../../adapters/stdio/launch.ts';

const NOBODY = 65_534;

/** The output of a program, and its blocked attempts. */
export interface Jailed {
  readonly out: string;
  readonly err: string;
  readonly blocked: readonly BlockedAttempt[];
}

/** Runs Node with this code in a sandbox that may reach these domains. Names resolve to loopback. */
export async function runJailed(
  code: string,
  allowedDomains: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<Jailed> {
  const workspace = mkdtempSync(path.join(tmpdir(), 'tollgate-jail-'));
  if (process.getuid?.() === 0) chownSync(workspace, NOBODY, NOBODY);
  const blocked: BlockedAttempt[] = [];
  const settings = {
    name: 'jailed',
    transport: 'stdio',
    command: process.execPath,
    args: ['-e', code],
    env,
    headers: {},
    cwd: workspace,
    isolation: 'sandbox',
    connectTimeoutMs: 10_000,
    maxRetries: 0,
    reconnectBackoffMs: 1000,
    sandbox: {
      filesystem: { allowRead: [], allowWrite: [workspace], denyRead: [] },
      network: { allowedDomains },
      limits: { memoryMb: 512, processes: 64, fileMb: 64 },
    },
  } as const;
  const started = await launch(settings, {
    workspace,
    hidden: [],
    secrets: () => Promise.reject(new Error('none')),
    openEgress: ({ name }) =>
      openEgress(
        { server: name, allowedDomains, owner: chooseSandboxUser(workspace).uid },
        { onBlocked: (one) => blocked.push(one), lookup: async () => ['127.0.0.1'] },
      ),
  });
  try {
    started.child.stdin.end();
    const [out, err] = await Promise.all([text(started.child.stdout), text(started.child.stderr)]);
    return { out, err, blocked };
  } finally {
    started.kill();
    await started.release();
    rmSync(workspace, { recursive: true, force: true });
  }
}
