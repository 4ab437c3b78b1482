/** The start of tests of recordings: a state folder, settings, ended calls, and all bytes below a folder. */
import { mkdtempSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { EndedCall } from '../../facade/call/record.ts';
import type { RecordingsConfig } from '../../facade/config/config.ts';
import type { CallDecision } from '../../policies/port.ts';

export const MINUTE = 60_000;
export const SETTINGS: RecordingsConfig = { keepMs: 60 * MINUTE, maxBytes: 64 * 1024 * 1024 };
export const NOON = Date.parse('2026-11-20T12:00:00Z');

export const ALLOWED: CallDecision = {
  outcome: 'allow',
  reasons: [{ id: 'src', message: 'Sources are open.', file: 'rules.yaml', line: 2 }],
  obligations: { caps: { bytes: 100 }, pins: {}, budgets: [], labels: [] },
  shadow: [],
};

export function stateFolder(): string {
  return mkdtempSync(path.join(tmpdir(), 'tollgate-recording-'));
}

/** Returns a call as it is known at its end. */
export function endedCall(
  id: string,
  args: unknown = { path: 'a' },
  decision: CallDecision | undefined = ALLOWED,
): EndedCall {
  const principal = { id: 'mia', role: 'dev', groups: [], profiles: ['work'], origin: '' };
  const argsText = JSON.stringify(args);
  return {
    kind: 'refused',
    start: {
      id,
      principal,
      session: 's',
      requestedName: 'read',
      kind: 'tool' as const,
      argBytes: argsText.length,
      startedAt: NOON,
      revision: 'r1',
    },
    judged: {
      input: {
        effect: { verb: 'read', server: 'workspace', tool: 'read', paths: [], urls: [] },
        argsText,
        principal,
        run: 'run-1',
        labels: [],
        time: new Date(NOON).toISOString(),
      },
      ...(decision !== undefined && { decision }),
    },
    error: new TollgateError('DENIED'),
  };
}

/** Returns all bytes below a folder as one text. */
export function allBytes(folder: string): string {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .map((name) => path.join(folder, name))
    .filter((file) => statSync(file).isFile())
    .map((file) => `${file}\n${readFileSync(file, 'latin1')}`)
    .join('\n');
}

/** Returns the mode bits of a folder and of every file and folder below it. */
export function modesIn(folder: string): ReadonlyMap<string, number> {
  const names = ['', ...readdirSync(folder, { recursive: true, encoding: 'utf8' })];
  return new Map(names.map((name) => [name, statSync(path.join(folder, name)).mode & 0o777]));
}
