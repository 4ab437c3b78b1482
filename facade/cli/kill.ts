/** Owns `kill`: stops one server or all in every process of a state folder, shows what is stopped, and lifts it; refuses names that nobody configured. */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors.ts';
import { openAudit } from '../audit/log.ts';
import { SHIPPED } from '../../catalogs/shipped.ts';
import { WORKSPACE } from '../config/names.ts';
import { didYouMean, quote } from '../config/problems.ts';
import { KillSwitch, type Kill } from '../servers/kill-switch.ts';
import { DATABASE, openState } from '../state/sqlite.ts';
import { EXIT, type Io } from './io.ts';
import { readConfig, type CommonOptions } from './open.ts';
import { json, table } from './print.ts';

/** What `kill` is given. */
export interface KillOptions extends CommonOptions {
  readonly server?: string;
  readonly all?: true;
  readonly lift?: true;
  /** The state folder itself, for when the configuration cannot be read. */
  readonly state?: string;
}

/** What a command works on. */
interface Place {
  readonly state: string;
  readonly audit: { readonly folder: string; readonly rotateBytes: number };
  /** Absent where no configuration was read. */
  readonly servers?: readonly string[];
}

const ROTATE_BYTES = 67_108_864;

/**
 * The switch is thrown, and recorded after that: a full disk must not keep a server running. Throws USAGE, CONFIG_INVALID,
 * STATE_FAILED, AUDIT_FAILED.
 */
export async function runKill(options: KillOptions, io: Io): Promise<number> {
  const { server, all, lift } = options;
  if (all === true && server !== undefined) throw new TollgateError('USAGE', { detail: 'A server and --all were given.', next: 'Give one of them.' });
  const place = placeOf(options, io);
  if (server !== undefined) checkName(server, place);
  const state = openState(place.state);
  try {
    const killSwitch = new KillSwitch(state);
    if (lift === true) return await liftKills(killSwitch, { options, io, place });
    if (all !== true && server === undefined) return await listKills(killSwitch, options, io);
    const kill: Kill = { ...(server === undefined ? {} : { server }), since: new Date().toISOString(), by: io.user };
    await killSwitch.throw(kill);
    await record(place, { event: 'kill', names: [server ?? '*'], by: io.user });
    tell({ io, options }, { killed: [kill] }, `${server ?? 'Every server'} is stopped: no call reaches it from now on, and what runs ends within a second. Lift it with: tollgate kill --lift${server === undefined ? '' : ` ${server}`}`);
    return EXIT.ok;
  } finally {
    await state.close();
  }
}

async function liftKills(killSwitch: KillSwitch, { options, io, place }: { options: KillOptions; io: Io; place: Place }): Promise<number> {
  const lifted = await killSwitch.lift(options.server);
  if (lifted.length > 0) await record(place, { event: 'kill.lifted', names: lifted, by: io.user });
  const rest = await killSwitch.list();
  const still = rest.some(({ server }) => server === undefined) ? ' All servers are stopped still: tollgate kill --lift' : '';
  const names = lifted.map((name) => (name === '*' ? 'all servers' : name)).join(', ');
  tell({ io, options }, { lifted, killed: rest }, `${lifted.length === 0 ? 'Nothing was to lift.' : `Lifted for ${names}.`}${still}`);
  return EXIT.ok;
}

async function listKills(killSwitch: KillSwitch, options: KillOptions, io: Io): Promise<number> {
  const killed = await killSwitch.list();
  if (options.json === true) io.stdout(json({ killed }));
  else if (killed.length > 0) io.stdout(table(io, ['SERVER', 'SINCE', 'BY'], killed.map(({ server, since, by }) => [server ?? 'all', since, by])));
  else io.stderr('No server is stopped. To stop one: tollgate kill SERVER\n');
  return EXIT.ok;
}

function placeOf(options: KillOptions, io: Io): Place {
  if (options.state !== undefined) {
    const state = path.resolve(io.cwd, options.state);
    // A folder made anew would stop nothing, and say that it did.
    if (!existsSync(path.join(state, DATABASE))) throw new TollgateError('USAGE', { detail: `There is no state of Tollgate in ${quote(options.state)}.`, next: 'Name the folder that `tollgate doctor` shows as the state folder.' });
    return { state, audit: { folder: path.join(state, 'audit'), rotateBytes: ROTATE_BYTES } };
  }
  const config = readConfig(options, io);
  return { state: config.state, audit: config.audit, servers: [WORKSPACE, ...SHIPPED.keys(), ...config.servers.keys()] };
}

function checkName(server: string, { servers }: Place): void {
  if (servers === undefined || servers.includes(server)) return;
  throw new TollgateError('USAGE', { detail: `There is no server ${quote(server)}.`, next: `Name one of tollgate.yaml; ${didYouMean(server, servers)}` });
}

async function record({ audit: options }: Place, { event, names, by }: { event: 'kill' | 'kill.lifted'; names: readonly string[]; by: string }): Promise<void> {
  const audit = openAudit(options);
  try {
    for (const server of names) audit.append({ type: 'server', server, event, outcome: event === 'kill' ? 'deny' : 'allow', by });
  } finally {
    await audit.close();
  }
}

function tell({ io, options }: { io: Io; options: KillOptions }, data: unknown, words: string): void {
  if (options.json === true) io.stdout(json(data));
  else io.stderr(`${words}\n`);
}
