/** Runs `off` and `on`, the master switch of a state folder. It refuses folders without state. */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { KillSwitch } from '../../consent/switch/kill-switch.ts';
import { DATABASE_FILE } from '../../state/sqlite-state.ts';
import type { Stops } from '../../state/stop-file.ts';
import type { CommonOptions } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { findCommandState, recordActs, withStops } from '../command-state.ts';
import { printResult } from '../print.ts';

/** Options of `off` and `on`. */
export interface SwitchOptions extends Pick<CommonOptions, 'config' | 'json'> {
  readonly to: 'on' | 'off';
  /** The state folder. The configuration is then not read. */
  readonly state?: string;
}

/**
 * Switches everything off or on. It records `off` last, because a full disk must not keep anything running. Throws
 * USAGE, CONFIG_INVALID, STATE_FAILED, AUDIT_FAILED.
 */
export async function runMasterSwitch({ to, ...options }: SwitchOptions, io: Io): Promise<number> {
  const place = findCommandState(options, io);
  const work = async (stops: Stops): Promise<number> => {
    const killSwitch = new KillSwitch({ stops });
    const now = { since: new Date().toISOString(), by: io.user };
    const before = killSwitch.list().find(({ server }) => server === undefined);
    const changed = to === 'off' ? before === undefined : before !== undefined;
    const record = (): Promise<void> =>
      recordActs(place.audit, [{ type: 'switch', event: to, outcome: to === 'off' ? 'deny' : 'allow', by: io.user }]);
    if (to === 'off' && changed) killSwitch.throw(now);
    // `on` is recorded first, because what cannot be recorded is not done.
    if (to === 'on' && changed) await record().then(() => killSwitch.turnOn());
    // A stop file that was created again is trusted from now on, because a person has decided what is stopped.
    if (to === 'on' && existsSync(path.join(place.state, DATABASE_FILE))) stops.hasDatabase = true;
    const killed = killSwitch.list().flatMap(({ server }) => server ?? []);
    printResult(
      { io, options },
      { switch: to, changed, ...(to === 'off' ? (before ?? now) : {}), killed },
      to === 'off' ? offText(before) : onText(changed, killed),
    );
    if (to === 'off' && changed) await record();
    return EXIT.ok;
  };
  return withStops(place, work, to === 'on' ? 'lifts' : undefined);
}

function offText(before: { readonly since: string; readonly by: string } | undefined): string {
  if (before !== undefined)
    return `It was already off, since ${before.since}, by ${before.by}. Turn it on with: tollgate on`;
  return (
    'Off: every list is empty and every call is refused from now on, in every process. ' +
    'Running servers end within a second.\nTurn it on with: tollgate on'
  );
}

function onText(changed: boolean, killed: readonly string[]): string {
  const still = killed.length === 0 ? '' : ` Still stopped by kill: ${killed.join(', ')}; see tollgate kill.`;
  return `${changed ? 'On: servers start when they are needed.' : 'It was already on.'}${still}`;
}
