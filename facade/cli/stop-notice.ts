/** Prints the first line of commands that read a configuration: what is switched off, killed or suspended. */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { asTollgateError } from '../../catalogs/errors/error-table.ts';
import { listNames } from '../config/config-problems.ts';
import { KillSwitch } from '../consent/switch/kill-switch.ts';
import { Suspensions } from '../consent/switch/suspensions.ts';
import { STOPS_FILE, Stops } from '../state/stop-file.ts';
import type { Io } from './command-io.ts';
import { printable } from './print.ts';

/**
 * Tells on stderr what is switched off, killed or suspended, and how to change that. `state`: the state folder. It may
 * not exist yet.
 */
export function reportStops(state: string, { stderr }: Pick<Io, 'stderr'>): void {
  if (!existsSync(path.join(state, STOPS_FILE))) return;
  for (const line of linesOf(state)) stderr(`${printable(line)}\n`);
}

function linesOf(folder: string): readonly string[] {
  try {
    const stops = new Stops(folder);
    try {
      const killed = new KillSwitch({ stops }).list();
      const names = killed.flatMap(({ server }) => server ?? []);
      const suspended = new Suspensions({ stops }).list().map(({ principal }) => principal);
      const off = killed.find(({ server }) => server === undefined);
      return [
        ...(off === undefined
          ? []
          : [
              `SWITCHED OFF since ${off.since} by ${off.by}: lists are empty, and every call is refused. ` +
                'Turn it on with: tollgate on',
            ]),
        ...(names.length === 0
          ? []
          : [`KILLED, so that no call reaches them: ${names.join(', ')}. Lift it with: tollgate kill --lift NAME`]),
        ...(suspended.length === 0
          ? []
          : [`SUSPENDED, so that nothing runs for them: ${listNames(suspended)}. Lift it with: tollgate resume NAME`]),
      ];
    } finally {
      stops.close();
    }
  } catch (thrown) {
    const { message, next } = asTollgateError(thrown);
    return [`Cannot read whether something is switched off: ${message} ${next}`];
  }
}
