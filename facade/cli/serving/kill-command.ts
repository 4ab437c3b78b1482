/** Runs `kill`: stops one server or all in every process of a state folder, lists the stops, and lifts them. */
import { randomUUID } from 'node:crypto';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { type Kill, KillSwitch } from '../../consent/switch/kill-switch.ts';
import { reviveServer } from '../../runtime/servers/revivals.ts';
import type { Stops } from '../../state/stop-file.ts';
import { type OwnerOptions, readActor } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import {
  type CommandState,
  findCommandState,
  recordActs,
  serverNames,
  withState,
  withStops,
} from '../command-state.ts';
import { printList, printResult } from '../print.ts';
import { noServer } from '../server-consent/owner-context.ts';

/** Options of `kill`. */
export interface KillOptions extends OwnerOptions {
  readonly server?: string;
  readonly all?: true;
  readonly lift?: true;
  /** The state folder. The configuration is then not read. */
  readonly state?: string;
}

type Actor = ReturnType<typeof readActor>;

/**
 * Stops first and records last, because a full disk must not keep a server running. Throws USAGE, CONFIG_INVALID,
 * STATE_FAILED, AUDIT_FAILED.
 */
export async function runKill(options: KillOptions, io: Io): Promise<number> {
  const { server, all, lift } = options;
  if (all === true && server !== undefined)
    throw new TollgateError('USAGE', { detail: 'Both a server and --all are given.', next: 'Give one of them.' });
  const place = findCommandState(options, io);
  const actor = readActor(options, 'stops a server', io);
  // A stop can be lifted even if its server is no longer configured.
  if (server !== undefined && lift !== true) checkName(server, place);
  const work = async (stops: Stops): Promise<number> => {
    const killSwitch = new KillSwitch({ stops });
    if (lift === true) {
      const code = await liftKills(killSwitch, { options, io, place, actor });
      if (server !== undefined)
        await withState({ ...place.config, state: place.state }, (state) => reviveServer(state, server, randomUUID()));
      return code;
    }
    if (all !== true && server === undefined) return listKills(killSwitch, options, io);
    const kill: Kill = { ...(server === undefined ? {} : { server }), since: new Date().toISOString(), by: actor.by };
    killSwitch.throw(kill);
    printResult(
      { io, options },
      { killed: [kill] },
      server === undefined
        ? 'Every server is stopped, as by `tollgate off`: every list is empty and every call is refused. ' +
            'Running servers end within a second.\nLift it with: tollgate on'
        : `${server} is stopped: no call reaches it from now on, and its processes end within a second.\n` +
            `Lift it with: tollgate kill --lift ${server}`,
    );
    await record(place, { event: 'kill', names: [server ?? '*'], ...actor });
    return EXIT.ok;
  };
  const isStop = lift !== true && (all === true || server !== undefined);
  return withStops(place, work, isStop ? undefined : 'lifts');
}

async function liftKills(
  killSwitch: KillSwitch,
  { options, io, place, actor }: { options: KillOptions; io: Io; place: CommandState; actor: Actor },
): Promise<number> {
  const lifted = killSwitch
    .list()
    .map(({ server = '*' }) => server)
    .filter((name) => options.server === undefined || name === options.server);
  // A lift is recorded first, because what cannot be recorded is not done.
  if (lifted.length > 0) await record(place, { event: 'kill.lifted', names: lifted, ...actor });
  killSwitch.lift(options.server);
  const remaining = killSwitch.list();
  const still = remaining.some(({ server }) => server === undefined)
    ? ' Everything is still switched off: tollgate on'
    : '';
  const names = lifted.map((name) => (name === '*' ? 'all servers' : name)).join(', ');
  const result =
    lifted.length === 0
      ? `${options.server ?? 'No server'} was not stopped. To see what is stopped: tollgate kill`
      : `Lifted for ${names}.`;
  printResult({ io, options }, { lifted, killed: remaining }, `${result}${still}`);
  return EXIT.ok;
}

function listKills(killSwitch: KillSwitch, options: KillOptions, io: Io): number {
  const killed = killSwitch.list();
  printList(
    { io, options },
    {
      data: { killed },
      columns: ['SERVER', 'SINCE', 'BY'],
      rows: killed.map(({ server, since, by }) => [server ?? 'all', since, by]),
      empty: 'No server is stopped. To stop one: tollgate kill SERVER',
    },
  );
  return EXIT.ok;
}

function checkName(server: string, { config }: CommandState): void {
  const names = config && serverNames(config);
  if (names?.includes(server) === false) throw noServer(server, names);
}

async function record(
  { audit: options }: CommandState,
  { event, names, ...actor }: Actor & { event: 'kill' | 'kill.lifted'; names: readonly string[] },
): Promise<void> {
  const outcome = event === 'kill' ? 'deny' : 'allow';
  await recordActs(
    options,
    names.map((server) =>
      server === '*'
        ? { type: 'switch', event: event === 'kill' ? 'off' : 'on', outcome, ...actor }
        : { type: 'server', server, event, outcome, ...actor },
    ),
  );
}
