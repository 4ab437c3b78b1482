/** Tests that a facade exports its audit log as it is configured, and shows how that goes. */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it, onTestFinished, vi } from 'vitest';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { startFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

it('exports the log of a facade that serves, to its last record, and counts it' + verifies('AD-70'), async () => {
  const file = path.join(temporaryFolder(), 'siem.jsonl');
  writeFileSync(file, '');
  const facade = await startFacade(
    JSON.stringify({
      version: 1,
      workspace: './workspace',
      state: './state',
      principals: [{ id: 'me', profiles: ['p'], stdio: true }],
      profiles: { p: { expose: { primitives: 'workspace' } } },
      bash: { isolation: 'direct' },
      rules: [{ id: 'all', outcome: 'allow', when: {} }],
      audit: { export: { to: file } },
    }),
  );
  const session = facade.open('me');
  const { gateway } = facade.assembled;
  const page = (): string => gateway.metrics({ ...session.principal, owner: true });
  expect(page()).not.toContain('tollgate_audit_exported_total');
  facade.assembled.warmUp();
  await facade.call(session, 'read', { path: 'x' });
  await vi.waitFor(() => expect(page()).toMatch(/^tollgate_audit_exported_total [1-9]/m), 10_000);
  expect(page()).toContain('tollgate_audit_export_failing 0\n');
  const folder = facade.assembled.config.audit.folder;
  await gateway.close();
  onTestFinished(() => facade.close());
  const log = readdirSync(folder)
    .filter((name) => name.endsWith('.jsonl'))
    .map((name) => readFileSync(path.join(folder, name), 'utf8'));
  expect(readFileSync(file, 'utf8')).toBe(log.join(''));
  expect(log.join('')).toContain('"type":"closed"');
}, 60_000);
