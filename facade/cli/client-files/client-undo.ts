/**
 * Runs `import --undo` and `export --undo`: restores files, secrets and consent. No server is lost by it. A
 * configuration that loads still loads afterwards; one that is refused does not hinder it.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { createDigest, readAuditKey } from '../../audit/key-files.ts';
import type { Changer } from '../../clients/changes/backups.ts';
import { openUndo, type UndoPlan, type UndoRequest } from '../../clients/changes/undo-plan.ts';
import { shownPath } from '../../clients/client-places.ts';
import { loadConfig } from '../../config/load-config.ts';
import { type GuessedFolders, guessFolders } from '../../config/state-folder-guess.ts';
import { Consents } from '../../consent/servers/server-consents.ts';
import { removePackages } from '../../packages/pinned-package.ts';
import { DATABASE_FILE } from '../../state/sqlite-state.ts';
import type { CommonOptions } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { ROTATE_BYTES, recordActs, recordSetup, signed, withState } from '../command-state.ts';
import { configFile, DEFAULT_CONFIG } from '../config-file.ts';
import { type PreviewContext, refuseBroken } from '../configuration/configuration-preview.ts';
import { openPlacesFor } from '../configuration/secret-actions.ts';
import { commandLine, printable, printResult } from '../print.ts';
import type { ConfirmOptions } from './client-files.ts';

/** How a command is undone. */
export interface UndoWish {
  readonly options: ConfirmOptions & Pick<CommonOptions, 'config'>;
  readonly io: Io;
}

/** Which changes are undone: all of a client's files, or all; else the last ones. */
type UndoScope = Pick<UndoRequest, 'client' | 'all'>;

/** What was undone, for people and `--json`. */
export interface Undone {
  /** The files, as people write them. */
  readonly restored: readonly string[];
  readonly removedSecrets: readonly string[];
  /** Servers that are no longer approved. */
  readonly revoked: readonly string[];
}

/** An undo that is planned. */
export interface PlannedUndo {
  /** The files with their texts afterwards; undefined: the file is removed. */
  readonly files: UndoPlan['files'];
  /** Throws AUDIT_FAILED, VAULT_FAILED. */
  readonly carryOut: () => Promise<Undone>;
}

/** Undoes changes of a command. `again`: its words. Throws USAGE, CONFIG_INVALID, AUDIT_FAILED, VAULT_FAILED. */
export async function undo(
  changer: Exclude<Changer, 'setup'>,
  { options, io, wiring, ...scope }: UndoWish & UndoScope & Pick<PreviewContext, 'wiring'>,
): Promise<number> {
  const { files, carryOut } = await planUndo(changer, { options, io }, scope);
  const config = options.config === DEFAULT_CONFIG ? [] : ['--config', options.config];
  const client = scope.client === undefined ? [] : ['--client', scope.client];
  const again = commandLine([...io.self, changer, '--undo', ...config, ...client]);
  await refuseBroken(files, { options, io, wiring, again });
  const undone = await carryOut();
  printResult({ io, options }, undone, printable(undoneText(undone)));
  return EXIT.ok;
}

function undoneText({ restored, removedSecrets, revoked }: Undone): string {
  return [
    `Restored: ${restored.join(', ')}.`,
    ...(removedSecrets.length === 0 ? [] : [`Removed from the vault: ${removedSecrets.join(', ')}.`]),
    ...(revoked.length === 0 ? [] : [`No longer approved: ${revoked.join(', ')}.`]),
  ].join(' ');
}

/**
 * Plans to undo changes of a command, with their secrets and the consent to servers that no longer exist. It needs
 * only the backups, because the configuration may be broken. Changes nothing. Throws USAGE, VAULT_FAILED.
 */
export async function planUndo(changer: Changer, { options, io }: UndoWish, scope: UndoScope): Promise<PlannedUndo> {
  const file = configFile(options.config, io);
  const { state, auditFolder } = foldersOf(file, io);
  const { vault } = openPlacesFor({ state }, io);
  const { files, secrets, of, restore } = await openUndo({ state, changer, vault, ...scope });
  const audit = { folder: auditFolder, rotateBytes: ROTATE_BYTES };
  const carryOut = async (): Promise<Undone> => {
    await recordSetup({ event: `${changer}-undone`, ...of, secrets }, { audit, user: io.user });
    restore();
    for (const name of secrets) await vault.remove(name);
    const revoked = await forget(of.servers, { file, state, io });
    const existing = serversOf(file, io);
    for (const server of of.servers) if (!existing.has(server)) removePackages(state, server);
    if (revoked.length > 0)
      await recordActs(
        audit,
        revoked.map((server) =>
          signed({ type: 'consent', event: 'revoked', server, outcome: 'deny', by: io.user } as const, io),
        ),
      );
    const restored = [...files.keys()].map((one) => shownPath(one, { cwd: path.dirname(file), home: io.home }));
    return { restored, removedSecrets: secrets, revoked };
  };
  return { files, carryOut };
}

/** Throws USAGE if a broken file may name another state folder. */
function foldersOf(file: string, { env, home }: Io): GuessedFolders {
  const places = guessFolders(file, { env, home });
  if (places === undefined)
    throw new TollgateError('USAGE', {
      detail: 'The state folder is unknown: the line `state` names an unset variable or an invalid path.',
      next: 'Correct the line `state` in it, or set the variable that it names.',
    });
  return places;
}

/** A server with the same name that is added later needs a new consent. Consent to existing servers stays. */
async function forget(
  names: readonly string[],
  { file, state, io }: { readonly file: string; readonly state: string; readonly io: Io },
): Promise<readonly string[]> {
  if (names.length === 0 || !existsSync(path.join(state, DATABASE_FILE))) return [];
  const existing = serversOf(file, io);
  return withState({ state }, async (opened) => {
    const inspect = (): never => {
      throw new Error('withdrawing consent reads no file');
    };
    const consents = new Consents(opened, {
      folder: path.dirname(file),
      inspect,
      digest: createDigest(readAuditKey(state)),
    });
    const gone: string[] = [];
    for (const name of names) if (!existing.has(name) && (await consents.revoke(name))) gone.push(name);
    return gone;
  });
}

/** No servers if the configuration is refused: nothing starts with it, and consent is asked for later. */
function serversOf(file: string, { env, home }: Io): ReadonlyMap<string, unknown> {
  try {
    return loadConfig(file, { env, home }).servers;
  } catch (thrown) {
    if (!(thrown instanceof TollgateError) || thrown.code !== 'CONFIG_INVALID') throw thrown;
    return new Map();
  }
}
