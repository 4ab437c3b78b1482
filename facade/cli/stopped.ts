/** Owns the first line of commands that look at a configuration: what of it is switched off or killed; refuses to be silent where that cannot be known. */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { asTollgateError } from '../../catalogs/errors.ts';
import { KillSwitch } from '../servers/kill-switch.ts';
import { DATABASE, openState } from '../state/sqlite.ts';
import type { Io } from './io.ts';
import { printable } from './print.ts';

/** Says on stderr what nobody can use at present, and how it comes back. `state`: the state folder, which may not be there yet. */
export async function tellStopped(state: string, { stderr }: Pick<Io, 'stderr'>): Promise<void> {
  if (!existsSync(path.join(state, DATABASE))) return;
  for (const line of await linesOf(state)) stderr(`${printable(line)}\n`);
}

async function linesOf(folder: string): Promise<readonly string[]> {
  try {
    const state = openState(folder);
    try {
      const killed = await new KillSwitch(state).list();
      const names = killed.flatMap(({ server }) => server ?? []);
      const off = killed.find(({ server }) => server === undefined);
      return [
        ...(off === undefined ? [] : [`SWITCHED OFF since ${off.since} by ${off.by}: lists are empty, and every call is refused. Turn it on with: tollgate on`]),
        ...(names.length === 0 ? [] : [`KILLED, so that no call reaches them: ${names.join(', ')}. Lift it with: tollgate kill --lift NAME`]),
      ];
    } finally {
      await state.close();
    }
  } catch (thrown) {
    const { message, next } = asTollgateError(thrown);
    return [`Whether something is switched off is not known: ${message} ${next}`];
  }
}
