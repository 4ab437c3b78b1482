/**
 * Examines Tollgate's own files for `doctor`: who can read them, and which are too old. It repairs permissions, and
 * removes only old backups.
 */
import { chmodSync, rmSync, statSync } from 'node:fs';
import path from 'node:path';
import { plural } from '../../catalogs/text/readable-text.ts';
import { listBackups } from '../clients/changes/backups.ts';
import type { Config } from '../config/config.ts';
import type { DoctorFinding } from './doctor-findings.ts';

const OLD_MS = 30 * 24 * 3_600_000;
const PRIVATE = ['vault.json', 'vault.key', 'token'] as const;

/** Examines the files. Never throws. */
export function examineOwnFiles({ state }: Pick<Config, 'state'>, now: number): readonly DoctorFinding[] {
  return [stateFolder(state), ...vaultFiles(state), ...oldBackups(state, now)];
}

/** Other users of this machine must not read these files. The folder is made at the first start. */
function stateFolder(state: string): DoctorFinding {
  const base = { id: 'state-folder', name: 'state folder' } as const;
  const mode = modeOf(state);
  if (mode === undefined) return { ...base, state: 'ok', seen: `${state} (created at the first start)` };
  const isPrivate = (mode & 0o077) === 0;
  return {
    ...base,
    state: isPrivate ? 'ok' : 'missing',
    seen: `${state} (mode ${mode.toString(8)})`,
    fix: `chmod 700 ${state}`,
    ...(!isPrivate && { repair: () => chmodSync(state, 0o700) }),
  };
}

function vaultFiles(state: string): readonly DoctorFinding[] {
  const open = PRIVATE.filter((name) => ((modeOf(path.join(state, name)) ?? 0) & 0o077) !== 0);
  const files = open.map((name) => path.join(state, name));
  if (files.length === 0) return [];
  const repair = (): void => files.forEach((file) => chmodSync(file, 0o600));
  return [
    {
      id: 'vault-files',
      name: 'private files',
      state: 'missing',
      seen: `others can read ${open.join(', ')}`,
      fix: `chmod 600 ${files.join(' ')}, then replace the secrets: they may have been read`,
      repair,
    },
  ];
}

/** They contain what the clients' files contained, including keys. */
function oldBackups(state: string, now: number): readonly DoctorFinding[] {
  const old = listBackups(state).filter(({ at }) => now - at > OLD_MS);
  if (old.length === 0) return [];
  const repair = (): void => old.forEach(({ file }) => rmSync(file, { force: true }));
  return [
    {
      id: 'old-backups',
      name: "backups of clients' files",
      state: 'weak',
      seen: `${plural(old.length, 'backup')} older than 30 days, with what those files contained, encrypted`,
      fix: `rm ${old.map(({ file }) => file).join(' ')}`,
      repair,
    },
  ];
}

function modeOf(file: string): number | undefined {
  try {
    return statSync(file).mode & 0o777;
  } catch {
    return undefined;
  }
}
