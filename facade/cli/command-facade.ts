/** Gives commands their configuration and a facade, and closes the facade when the command ends. */
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Principal } from '../../policies/port.ts';
import type { AuditPrincipal } from '../audit/audit-entry.ts';
import { exposedReads } from '../config/accepted-config.ts';
import type { Config } from '../config/config.ts';
import { type InForce, loadInForce } from '../config/config-in-force.ts';
import { listNames, quote } from '../config/config-problems.ts';
import { loadConfig } from '../config/load-config.ts';
import { realPath } from '../config/reading/text-files.ts';
import { useProgramsOf } from '../config/servers/helper-program-settings.ts';
import { principalForStdio } from '../config/stdio-identity.ts';
import { defaultState, type World } from '../config/work-folders.ts';
import type { AssembledFacade, AssembleFacade } from '../runtime/assembled-facade.ts';
import type { Reloader } from '../runtime/reloader.ts';
import { asPrincipal } from '../serve/http/token-authentication.ts';
import type { Io } from './command-io.ts';
import { configFile } from './config-file.ts';
import { reportError } from './failure-report.ts';
import { printable } from './print.ts';

/** Options of every command that reads the configuration. */
export interface CommonOptions {
  /** Relative to the current folder. */
  readonly config: string;
  readonly json?: true;
  readonly opa?: string;
}

/** Options of a command with which an owner decides. */
export interface OwnerOptions extends Pick<CommonOptions, 'config' | 'json'> {
  /** The principal who decides. */
  readonly as?: string;
}

/** What a facade is opened with. */
export interface CommandWiring {
  readonly config: Config;
  readonly options: Pick<CommonOptions, 'opa'>;
  readonly io: Io;
  readonly assemble: AssembleFacade;
}

/**
 * Reads the configuration on the disk, for commands that check, edit or accept it. The configuration in force decides
 * which helper programs this process runs and where it keeps state and audit, because no owner has accepted the file.
 * Throws CONFIG_INVALID.
 */
export function readConfig(options: Pick<CommonOptions, 'config'>, io: Pick<Io, 'cwd' | 'env' | 'home'>): Config {
  const file = configFile(options.config, io);
  const disk = loadConfig(file, { env: io.env, home: io.home });
  const config =
    exposedReads(disk).length === 0 ? disk : { ...disk, ...placesInForce(disk, { env: io.env, home: io.home }) };
  useProgramsOf(config);
  return config;
}

/** The helper programs and folders of the accepted configuration; without one, the defaults. */
function placesInForce(disk: Config, world: World): Pick<Config, 'programs' | 'state' | 'audit'> {
  try {
    const { programs, state, audit } = loadInForce(disk.file, world).config;
    return { programs, state, audit };
  } catch (thrown) {
    if (!(thrown instanceof TollgateError)) throw thrown;
    const state = realPath(defaultState({ ...world, folder: disk.folder }));
    return { programs: {}, state, audit: { ...disk.audit, folder: path.join(state, 'audit') } };
  }
}

/**
 * Reads the configuration that is in force for agents: the accepted copy if an agent could change the files.
 * `isShared`: for a process that serves several agents. Throws CONFIG_INVALID, CONFIG_NOT_ACCEPTED.
 */
export function readInForce(
  options: Pick<CommonOptions, 'config'>,
  io: Pick<Io, 'cwd' | 'env' | 'home'>,
  isShared = false,
): InForce {
  const inForce = loadInForce(configFile(options.config, io), { env: io.env, home: io.home, isShared });
  useProgramsOf(inForce.config);
  return inForce;
}

/**
 * Returns the configuration in force, for a question or decision of an owner. Throws CONFIG_INVALID,
 * CONFIG_NOT_ACCEPTED.
 */
export function readForOwner(options: Pick<CommonOptions, 'config'>, io: Pick<Io, 'cwd' | 'env' | 'home'>): Config {
  return readInForce(options, io).config;
}

/** Returns the principal that `--as` names, or the one of the user who started the command. Throws IDENTITY. */
export function readPrincipal(config: Config, { as }: { readonly as?: string }, io: Io): Principal {
  return principalForStdio(config, { user: io.user, ...(as === undefined ? {} : { as }) });
}

/**
 * Returns the id of the principal that `--as` names, or of the user who started the command, if it is an owner.
 * `act` completes the sentence "only an owner …". Throws IDENTITY.
 */
export function readOwner(
  config: Config,
  { as, act }: { readonly as: string | undefined; readonly act: string },
  io: Io,
): string {
  const { id, owner } = readPrincipal(config, as === undefined ? {} : { as }, io);
  if (owner === true) return id;
  throw new TollgateError('IDENTITY', {
    detail: `${id} is no owner, and only an owner ${act}.`,
    next: 'Use --as with a principal that has `owner: true`.',
  });
}

/**
 * Returns the configuration in force and the id of the owner who decides. `act` is as for `readOwner`. Throws
 * CONFIG_INVALID, CONFIG_NOT_ACCEPTED, IDENTITY.
 */
export function readDecider(
  options: OwnerOptions,
  act: string,
  io: Io,
): { readonly config: Config; readonly by: string } {
  const config = readForOwner(options, io);
  return { config, by: readOwner(config, { as: options.as, act }, io) };
}

/**
 * Returns who acts: the owner that `--as` names, next to the user of the machine. Without `--as` it is this user, and
 * no configuration is read. Throws as `readDecider`.
 */
export function readActor(options: OwnerOptions, act: string, io: Io): { readonly by: string; readonly user?: string } {
  return options.as === undefined ? { by: io.user } : { by: readDecider(options, act, io).by, user: io.user };
}

/**
 * As `readPrincipal`, for a question that makes no call. A person who may ask about the policy may ask for every
 * principal in it. Throws IDENTITY.
 */
export function askedPrincipal(config: Config, { as }: { readonly as?: string }, io: Io): Principal {
  if (as === undefined) return readPrincipal(config, {}, io);
  const found = config.principals.find(({ id }) => id === as);
  if (found !== undefined) return asPrincipal(found);
  throw new TollgateError('IDENTITY', {
    detail: `There is no principal ${quote(as)}.`,
    next: `Use --as with one of: ${listNames(config.principals.map(({ id }) => id))}.`,
  });
}

/** Returns a principal for an audit record. Of one that was removed from the configuration, only the id is known. */
export function auditPrincipal({ principals }: Config, id: string): AuditPrincipal {
  const { role = '', profiles = [], client = '' } = principals.find((principal) => principal.id === id) ?? {};
  return { id, role, profiles, origin: client };
}

/** Runs `work` with a facade, and always closes it. Throws what `assemble` and `work` throw. */
export async function withFacade(
  opening: CommandWiring,
  work: (assembled: AssembledFacade) => Promise<number>,
): Promise<number> {
  const { config, options, io, assemble } = opening;
  const assembled = await assemble(config, {
    onLog: io.stderr,
    ...(options.opa === undefined ? {} : { opa: options.opa }),
  });
  try {
    return await work(assembled);
  } finally {
    await assembled.gateway.close();
  }
}

/** What a facade that is reloaded is opened with. */
export interface ReloadingWiring extends Omit<CommandWiring, 'config'> {
  readonly inForce: InForce;
  readonly options: CommonOptions;
  /** Reads the configuration that is in force now. */
  readonly read: () => InForce;
  readonly listening: boolean;
}

/** As `withFacade`, for a facade that applies edits of the configuration while it serves. */
export async function withReloading(
  opening: ReloadingWiring,
  work: (assembled: AssembledFacade, reloader: Reloader) => Promise<number>,
): Promise<number> {
  const { inForce, options, read, listening } = opening;
  const { tenant } = inForce.config;
  const io = tenant === undefined ? opening.io : { ...opening.io, stderr: prefixed(opening.io, tenant) };
  const tell = (line: string): void => io.stderr(`${printable(line)}\n`);
  const reloader = await (await import('../runtime/reloader.ts')).Reloader.open({
    file: configFile(options.config, io),
    home: io.home,
    inForce,
    read,
    listening,
    tell,
    report: (thrown) => void reportError(thrown, { json: false, io }),
  });
  try {
    return await withFacade({ ...opening, config: inForce.config }, async (assembled) => {
      reloader.start(assembled);
      return work(assembled, reloader).finally(() => reloader.close());
    });
  } finally {
    await reloader.close();
  }
}

function prefixed({ stderr }: Io, tenant: string): Io['stderr'] {
  return (text) => stderr(text.replace(/^(?=.)/gm, `${tenant}: `));
}

/** The answer to a question: data for stdout, lines for stderr, the exit code. */
export interface CommandAnswer {
  readonly data: string;
  readonly remarks: readonly string[];
  readonly code: number;
}

/**
 * As `withFacade`, for work that ends by itself. A signal ends it early, with the servers that it started; then it
 * throws CANCELLED.
 */
export async function askFacade(
  opening: CommandWiring,
  work: (assembled: AssembledFacade) => Promise<CommandAnswer>,
): Promise<number> {
  // Read first: from here on a signal waits for the servers that are being started, so that none stays behind.
  const { stopped, stdout, stderr } = opening.io;
  const giveUp = (): never => {
    throw new TollgateError('CANCELLED', {
      detail: 'Stopped by a signal.',
      next: 'Run it again when you want the answer.',
    });
  };
  return withFacade(opening, async (assembled) => {
    const { data, remarks, code } = await Promise.race([work(assembled), stopped.then(giveUp)]);
    stdout(data);
    for (const remark of remarks) stderr(`${printable(remark)}\n`);
    return code;
  });
}
