/**
 * Tests the end of a facade whose log cannot be written: everything else is closed, and the error is reported.
 * Covers: facade/cli.
 */
import { rmSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { isRunning, startedIn } from '../process/child.ts';
import { startFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';
import { server } from './terminal.ts';

it(
  'a facade with a full disk opens no session that it cannot record, and still ends every server' + verifies('HA-07'),
  async () => {
    const facade = await startFacade(`version: 1
workspace: ./workspace
state: ./state
servers: {chaos: ${server(['chaos.mjs'], 'env: {CHAOS_STARTS: "${configDir}/started"}')}}
profiles: {default: {servers: [chaos], expose: {tools: ["chaos.echo"]}}}
rules: [{id: all, outcome: allow, when: {}}]
`);
    const { gateway, deps } = facade.assembled;
    const session = facade.open('local');
    expect((await facade.call(session, 'chaos_echo', { a: 1 })).text).toBe('{"a":1}');
    const pids = startedIn(path.join(facade.folder, 'started'));
    expect(pids.map(isRunning)).toEqual([true]);
    await deps.audit.close();
    expect(() => facade.open('local')).toThrowError(expect.objectContaining({ code: 'AUDIT_FAILED' }) as Error);
    await expect(gateway.close()).rejects.toMatchObject({ code: 'AUDIT_FAILED' });
    expect(pids.map(isRunning)).toEqual([false]);
    expect(session.closed.aborted).toBe(true);
    // Everything is closed already, so a second close cannot fail.
    await gateway.close();
    rmSync(facade.folder, { recursive: true, force: true, maxRetries: 3 });
  },
);
