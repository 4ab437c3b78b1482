/**
 * Tests attacks on routes: a link that is swapped during the choice, and a label that a run gains while its call waits.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ApprovalOwner } from '../approvals/owner-context.ts';
import { roundsOf } from '../harness/slices.ts';
import type { TestFacade } from '../stories/facade.ts';
import { routedConfig, startRouted } from '../stories/routed-facade.ts';
import { verifies } from '../verifies.ts';

/** Replaces its argument with a link to one target and to the other, as fast as possible. The rename is atomic. */
const SWAP = `import { renameSync, symlinkSync } from 'node:fs';
const [name, ...targets] = process.argv.slice(2);
symlinkSync(targets[0], name);
console.log('swapping');
for (;;) for (const target of targets) {
  symlinkSync(target, name + '.new');
  renameSync(name + '.new', name);
}
`;
const CONFIG = routedConfig({
  waitMs: 60_000,
  rules: `  - {id: here, outcome: allow, when: {servers: [workspace, notes, vaulted]}}
  - {id: asks, outcome: ask, when: {paths: ["src/ask"]}}
`,
});
const FILES = Object.fromEntries(
  ['docs/a', 'src/a', 'src/ask', 'closed/a', 'keys/k'].map((name) => [name, `text of ${name}\n`]),
);

let facade: TestFacade;
let root: string;

beforeAll(async () => {
  ({ facade, root } = await startRouted(CONFIG, FILES, (_root, folder) =>
    writeFileSync(path.join(folder, 'swap.mjs'), SWAP),
  ));
}, 60_000);
afterAll(async () => {
  await facade.close();
  rmSync(facade.folder, { recursive: true, force: true });
});

describe('a routed call', () => {
  it('is not led to a hidden server, nor to a file of another one, by a link that is swapped' +
    verifies('ST-118'), async () => {
    const session = facade.open('agent');
    const link = path.join(root, 'src', 'link');
    const swapper = spawn(
      process.execPath,
      [path.join(facade.folder, 'swap.mjs'), link, '../closed/a', '../docs/a', 'a'],
      { stdio: ['ignore', 'pipe', 'inherit'] },
    );
    try {
      await once(swapper.stdout, 'data');
      const seen = new Set<string>();
      const until = Date.now() + roundsOf(2500, 300);
      for (let round = 0; Date.now() < until || round < 100; round += 1) {
        const { text, code, result } = await facade.call(session, 'read', { path: 'src/link' });
        expect(text).not.toContain('text of closed');
        const by = (result?._meta?.['tollgate/provenance'] as { server?: string } | undefined)?.server;
        if (text.includes('text of docs')) expect(by).toBe('notes');
        if (text.includes('text of src')) expect(by).toBe('workspace');
        seen.add(code);
      }
      // The path changed while it was opened, or it has the route of the hidden server.
      expect([...seen].filter((code) => !['', 'DENIED', 'NOT_SUPPORTED'].includes(code))).toEqual([]);
      expect(swapper.exitCode).toBeNull();
    } finally {
      swapper.kill('SIGKILL');
    }
  }, 60_000);

  it('that waits for a person goes to the server of the present labels of its run, and asks again for it' +
    verifies('ST-118', 'ST-117'), async () => {
    const desk = new ApprovalOwner(facade.assembled.config.state);
    try {
      const session = facade.open('agent');
      const answer = facade.call(session, 'read', { path: 'src/ask' });
      const asked = (binding: object) =>
        expect
          .poll(async () => (await desk.all('pending')).map(({ item }) => item), { interval: 20, timeout: 20_000 })
          .toMatchObject([{ binding }]);
      await asked({ effect: { server: 'workspace' } });
      expect((await facade.call(session, 'read', { path: 'keys/k' })).code).toBe('');
      await desk.approve();
      // The approval was for the workspace. The tool of the other server is another effect.
      await asked({ effect: { server: 'vaulted' } });
      await desk.approve();
      const { text, result } = await answer;
      expect(text).toContain('text of src/ask');
      expect(result?._meta?.['tollgate/provenance']).toMatchObject({ server: 'vaulted' });
    } finally {
      await desk.close();
    }
  }, 60_000);
});
