/**
 * Runs `tollgate reload`: shows how the configuration on the disk differs from the accepted one, and accepts it for its
 * owner.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { acceptedMarker, dropStaged, forgetAccepted } from '../../config/accepted-config.ts';
import type { Config } from '../../config/config.ts';
import { hasOwnerFor } from '../../config/stdio-identity.ts';
import { type CommonOptions, readConfig, readOwner } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { DEFAULT_CONFIG } from '../config-file.ts';
import { plural, printResult } from '../print.ts';
import { askYes, isInteractive } from '../terminal-prompt.ts';
import { inRows } from '../terminal-rows.ts';
import type { Wiring } from '../wiring.ts';
import { accept, type Candidate, stageDisk } from './configuration-acceptance.ts';

/** Options of the command. */
export interface ReloadOptions extends CommonOptions {
  readonly as?: string;
  /** The hash of the configuration to accept. */
  readonly yes?: string;
}

/**
 * Accepts the configuration on the disk after it loads and a person has agreed. Exit code 7 if no one has agreed.
 * Throws CONFIG_INVALID, POLICY_INVALID, OPA_MISSING, CONFIG_NOT_ACCEPTED, IDENTITY, PIN_MISMATCH for the hash of
 * another configuration, AUDIT_FAILED.
 */
export async function runReload(options: ReloadOptions, io: Io, { check }: Pick<Wiring, 'check'>): Promise<number> {
  const candidate = stageDisk(options, io);
  if (candidate === undefined) return nothingToAccept(options, io);
  const { config, staged, before } = candidate;
  const done = (message: string): number => {
    printResult({ io, options }, { ...dataOf(candidate), accepted: true }, message);
    return EXIT.ok;
  };
  try {
    // The accepted configuration names the owner, not the one on the disk.
    const by = readOwner(before?.config ?? config, { as: options.as, act: 'accepts a configuration' }, io);
    if (before?.accepted.hash === staged.hash) return done('Already accepted: nothing on the disk differs.');
    if (!hasOwnerFor(config, io.user)) throw noWayBack(io.user);
    await check(config, options.opa === undefined ? {} : { opa: options.opa });
    if (options.json !== true) io.stdout(inRows(io, screenOf(candidate)));
    if (!(await agrees(candidate, options, io))) return EXIT.approval;
    await accept(candidate, { by, io });
    return done('Accepted. A running Tollgate uses it within a second.');
  } finally {
    dropStaged(config.acceptedFolder, staged);
  }
}

/** Such a configuration could not be changed any more: the accepted copy says who may accept the next one. */
function noWayBack(user: string): TollgateError {
  return new TollgateError('IDENTITY', {
    detail: `In the configuration on the disk, ${user} is no owner over stdio, so no later change could be accepted.`,
    next: 'Give one principal `stdio: true` and `owner: true`, then run `tollgate reload` again.',
  });
}

/** No agent can write these files, so they are in force as they are. */
function nothingToAccept(options: ReloadOptions, io: Io): number {
  const { acceptedFolder } = readConfig(options, io);
  if (existsSync(acceptedMarker(acceptedFolder))) forgetAccepted(acceptedFolder);
  printResult(
    { io, options },
    { files: [], changes: [], accepted: true },
    'Nothing to accept: no agent can change a file of this configuration. ' +
      'A running Tollgate uses edits automatically.',
  );
  return EXIT.ok;
}

/** Asks at a terminal; elsewhere it needs the hash of what was shown. Throws PIN_MISMATCH. */
async function agrees(candidate: Candidate, options: ReloadOptions, io: Io): Promise<boolean> {
  const { hash } = candidate.staged;
  if (options.yes === hash) return true;
  if (options.yes !== undefined)
    throw new TollgateError('PIN_MISMATCH', {
      detail: 'The given hash is not the hash of the configuration on the disk.',
      next: 'Read what is shown above, and give its hash with all 64 digits.',
    });
  if (isInteractive(io) && io.isTTY && options.json !== true) {
    if (await askYes(io, 'Put this configuration in force?')) return true;
    io.stderr('Not accepted.\n');
    return false;
  }
  const config = options.config === DEFAULT_CONFIG ? '' : `--config ${options.config} `;
  const next = `tollgate reload ${config}--yes ${hash}`;
  printResult(
    { io, options },
    { ...dataOf(candidate), accepted: false, next },
    `A person must agree to this. After reading it, run:\n  ${next}`,
  );
  return false;
}

function dataOf({ config, staged, changes, before }: Candidate): object {
  const files = [...staged.files.keys()].map((file) => path.relative(config.folder, file)).sort();
  return {
    hash: staged.hash,
    files,
    first: before?.config === undefined,
    changes,
    widens: changes.filter(({ widens }) => widens).length,
  };
}

function screenOf({ config, staged, changes, before }: Candidate): string {
  if (before?.config === undefined) return firstScreen(config, [...staged.files.keys()]);
  if (changes.length === 0) return 'Only comments, spelling or order differ, and no setting and no rule.\n';
  const [wider, stricter] = [changes.filter(({ widens }) => widens), changes.filter(({ widens }) => !widens)];
  const list = (title: string, of: typeof changes): string =>
    of.length === 0 ? '' : `${title}\n${of.map(({ what }) => `  ${what}\n`).join('')}`;
  return list('May allow more:', wider) + list('Allows less:', stricter);
}

/** Returns what an owner should look at first. */
function firstScreen({ servers, bash, folder, policies, rules }: Config, files: readonly string[]): string {
  const lines = [...servers.values()].map(({ name, isolation = 'sandbox', transport, unusable }) => {
    const how = transport === 'stdio' ? isolation : 'remote';
    return `  server ${name} (${how}${unusable === undefined ? '' : ', cannot be used'})\n`;
  });
  return [
    `Nothing was accepted before. ${plural(files.length, 'file')}: ${files
      .map((file) => path.relative(folder, file))
      .sort()
      .join(', ')}\n`,
    `  commands of the agent: ${bash.isolation}\n`,
    ...lines,
    `  ${plural(policies.length, 'policy source')}, ${plural(rules.length, 'rule')} in tollgate.yaml\n`,
  ].join('');
}
