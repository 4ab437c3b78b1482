/** `tollgate reload`: shows how the configuration on the disk differs from the accepted one, and accepts it for its owner. */

import { existsSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { acceptedMarker, dropStaged, forgetAccepted } from '../../config/accepted-config.ts';
import type { Config } from '../../config/config.ts';
import { hasOwnerFor } from '../../config/stdio-identity.ts';
import type { CheckPolicy } from '../../runtime/assembled-facade.ts';
import { type CommonOptions, readConfig, readPrincipal } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { json, plural } from '../print.ts';
import { askYes, isInteractive } from '../terminal-prompt.ts';
import { inRows } from '../terminal-rows.ts';
import { accept, type Candidate, stageDisk } from './configuration-acceptance.ts';

/** Options of the command. */
export interface ReloadOptions extends CommonOptions {
  readonly as?: string;
  /** The hash of what is accepted. */
  readonly yes?: string;
}

/**
 * Accepts what lies on the disk, once it loads and a person has agreed. Exit code 7 if nobody has. Throws CONFIG_INVALID,
 * POLICY_INVALID, OPA_MISSING, CONFIG_NOT_ACCEPTED, IDENTITY, PIN_MISMATCH for the hash of something else, AUDIT_FAILED.
 */
export async function runReload(options: ReloadOptions, io: Io, check: CheckPolicy): Promise<number> {
  const candidate = stageDisk(options, io);
  if (candidate === undefined) return nothingToAccept(options, io);
  const { config, staged, before } = candidate;
  try {
    // The disk does not say who its owner is: it is not accepted yet.
    const { id, owner } = readPrincipal(before?.config ?? config, options, io);
    if (owner !== true)
      throw new TollgateError('IDENTITY', {
        detail: `${id} is no owner, and only an owner accepts a configuration.`,
        next: 'Use --as with a principal that has `owner: true`.',
      });
    if (before?.accepted.hash === staged.hash)
      return answer({ options, io, candidate, accepted: true, line: 'Accepted already: nothing on the disk differs.' });
    if (!hasOwnerFor(config, io.user)) throw noWayBack(io.user);
    await check(config, options.opa === undefined ? {} : { opa: options.opa });
    if (options.json !== true) io.stdout(inRows(io, screenOf(candidate)));
    if (!(await agrees(candidate, options, io))) return EXIT.approval;
    await accept(candidate, { by: id, io });
    return answer({
      options,
      io,
      candidate,
      accepted: true,
      line: 'Accepted. A Tollgate that runs takes it up within a second.',
    });
  } finally {
    dropStaged(config.acceptedFolder, staged);
  }
}

/** Accepted, it would be the last one: the accepted copy says who may accept the next. */
function noWayBack(user: string): TollgateError {
  return new TollgateError('IDENTITY', {
    detail: `In the configuration on the disk, ${user} is no owner over stdio, so no later change of it could be accepted.`,
    next: 'Give one principal `stdio: true` and `owner: true`, then run `tollgate reload` again.',
  });
}

/** The files lie where no agent writes: they count as they are. */
function nothingToAccept(options: ReloadOptions, io: Io): number {
  const { acceptedFolder } = readConfig(options, io);
  if (existsSync(acceptedMarker(acceptedFolder))) forgetAccepted(acceptedFolder);
  if (options.json === true) io.stdout(json({ files: [], changes: [], accepted: true }));
  else
    io.stderr(
      'Nothing to accept: no agent can change a file of this configuration. A Tollgate that runs takes up edits by itself.\n',
    );
  return EXIT.ok;
}

function answer({
  options,
  io,
  candidate,
  accepted,
  line,
}: {
  readonly options: ReloadOptions;
  readonly io: Io;
  readonly candidate: Candidate;
  readonly accepted: boolean;
  readonly line: string;
}): number {
  if (options.json === true) io.stdout(json({ ...dataOf(candidate), accepted }));
  else io.stderr(`${line}\n`);
  return EXIT.ok;
}

/** At a terminal by a yes, elsewhere by the hash of what was shown. Throws PIN_MISMATCH. */
async function agrees(candidate: Candidate, options: ReloadOptions, io: Io): Promise<boolean> {
  const { hash } = candidate.staged;
  if (options.yes === hash) return true;
  if (options.yes !== undefined)
    throw new TollgateError('PIN_MISMATCH', {
      detail: 'The hash that was named is not that of the configuration on the disk.',
      next: 'Read what is shown above, and name its hash: all 64 digits of it.',
    });
  if (isInteractive(io) && io.isTTY && options.json !== true) {
    if (await askYes(io, 'Let this configuration count?')) return true;
    io.stderr('Not accepted.\n');
    return false;
  }
  const next = `tollgate reload ${options.config === 'tollgate.yaml' ? '' : `--config ${options.config} `}--yes ${hash}`;
  if (options.json === true) io.stdout(json({ ...dataOf(candidate), accepted: false, next }));
  else io.stderr(`A person must agree to this. After reading it, type:\n  ${next}\n`);
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
  if (changes.length === 0) return 'Only comments, spelling or order differ; no setting and no rule.\n';
  const [wider, stricter] = [changes.filter(({ widens }) => widens), changes.filter(({ widens }) => !widens)];
  const list = (title: string, of: typeof changes): string =>
    of.length === 0 ? '' : `${title}\n${of.map(({ what }) => `  ${what}\n`).join('')}`;
  return list('May allow more:', wider) + list('Allows less:', stricter);
}

/** What an owner should look at first. */
function firstScreen({ servers, bash, folder, policies, rules }: Config, files: readonly string[]): string {
  const lines = [...servers.values()].map(
    ({ name, isolation = 'sandbox', transport, unusable }) =>
      `  server ${name} (${transport === 'stdio' ? isolation : 'remote'}${unusable === undefined ? '' : ', cannot be used'})\n`,
  );
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
