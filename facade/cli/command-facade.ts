/** Owns how a command gets its configuration and a wired facade; refuses to end without giving back what it was given. */
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Principal } from '../../policies/port.ts';
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
import { reportError } from './failure-report.ts';
import { printable } from './print.ts';

/** What every command that reads the configuration takes. */
export interface CommonOptions {
  /** Relative to the current folder. */
  readonly config: string;
  readonly json?: true;
  readonly opa?: string;
}

/** What a facade is opened with. */
export interface CommandWiring {
  readonly config: Config;
  readonly options: Pick<CommonOptions, 'opa'>;
  readonly io: Io;
  readonly assemble: AssembleFacade;
}

/**
 * Reads what lies on the disk, for commands that check, edit or accept it. The configuration that counts decides which helpers
 * this process runs and where it keeps state and audit: a file that no owner has accepted names neither. Throws CONFIG_INVALID.
 */
export function readConfig(options: Pick<CommonOptions, 'config'>, io: Pick<Io, 'cwd' | 'env' | 'home'>): Config {
  const file = path.resolve(io.cwd, options.config);
  const disk = loadConfig(file, { env: io.env, home: io.home });
  const config =
    exposedReads(disk).length === 0 ? disk : { ...disk, ...placesInForce(disk, { env: io.env, home: io.home }) };
  useProgramsOf(config);
  return config;
}

/** What the accepted configuration says of helpers and folders; without one, what a configuration that says nothing of them gets. */
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

/** Reads what counts for agents: the accepted copy where an agent could change the files. `isShared`: to serve many. Throws CONFIG_INVALID, CONFIG_NOT_ACCEPTED. */
export function readInForce(
  options: Pick<CommonOptions, 'config'>,
  io: Pick<Io, 'cwd' | 'env' | 'home'>,
  isShared = false,
): InForce {
  const inForce = loadInForce(path.resolve(io.cwd, options.config), { env: io.env, home: io.home, isShared });
  useProgramsOf(inForce.config);
  return inForce;
}

/** The configuration that counts, for an owner's question or decision. Throws CONFIG_INVALID, CONFIG_NOT_ACCEPTED. */
export function readForOwner(options: Pick<CommonOptions, 'config'>, io: Pick<Io, 'cwd' | 'env' | 'home'>): Config {
  return readInForce(options, io).config;
}

/** Who `--as` names, or the user who started the command. Throws IDENTITY. */
export function readPrincipal(config: Config, { as }: { readonly as?: string }, io: Io): Principal {
  return principalForStdio(config, { user: io.user, ...(as === undefined ? {} : { as }) });
}

/** As `readPrincipal`, for a question in which nothing is called: whoever may ask about the policy may ask for anybody in it. Throws IDENTITY. */
export function askedPrincipal(config: Config, { as }: { readonly as?: string }, io: Io): Principal {
  if (as === undefined) return readPrincipal(config, {}, io);
  const found = config.principals.find(({ id }) => id === as);
  if (found !== undefined) return asPrincipal(found);
  throw new TollgateError('IDENTITY', {
    detail: `There is no principal ${quote(as)}.`,
    next: `Use --as with one of: ${listNames(config.principals.map(({ id }) => id))}.`,
  });
}

/** Runs `work` with a facade, and closes it however that ends. Throws what `assemble` and `work` throw. */
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

/** As `withFacade`, for a facade that takes up what is edited while it serves. */
export async function withReloading(
  opening: Omit<CommandWiring, 'config'> & {
    readonly inForce: InForce;
    readonly options: CommonOptions;
    readonly listening: boolean;
  },
  work: (assembled: AssembledFacade, reloader: Reloader) => Promise<number>,
): Promise<number> {
  const { inForce, options, io, listening } = opening;
  const tell = (line: string): void => io.stderr(`${printable(line)}\n`);
  const read = (): InForce => readInForce(options, io, listening);
  const file = path.resolve(io.cwd, options.config);
  const reloader = await (await import('../runtime/reloader.ts')).Reloader.open({
    file,
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

/** What a question to a facade is answered with: data for stdout, lines for stderr, the exit code. */
export interface CommandAnswer {
  readonly data: string;
  readonly remarks: readonly string[];
  readonly code: number;
}

/** As `withFacade`, for work that ends by itself: a signal ends it early, and the servers that it has started. Throws CANCELLED then. */
export async function askFacade(
  opening: CommandWiring,
  work: (assembled: AssembledFacade) => Promise<CommandAnswer>,
): Promise<number> {
  // Asked for first: from here on a signal waits for what is being started, instead of leaving it behind.
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
