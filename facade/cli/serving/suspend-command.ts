/** Runs `suspend` and `resume`: what a principal asks for is refused in every process, or allowed again. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { SwitchEntry } from '../../audit/audit-entry.ts';
import {
  resumePrincipal,
  type SuspensionParts,
  Suspensions,
  suspendPrincipal,
} from '../../consent/switch/suspensions.ts';
import type { Stops } from '../../state/stop-file.ts';
import { type OwnerOptions, readActor } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { findCommandState, recordActs, withStops } from '../command-state.ts';
import { readTime } from '../durations.ts';
import { printable, printList, printResult } from '../print.ts';

/** Options of `suspend` and `resume`. */
export interface SuspendOptions extends Pick<OwnerOptions, 'config' | 'json' | 'as'> {
  /** Absent: the suspensions are listed. */
  readonly principal?: string;
  /** How long, such as `2h`. */
  readonly for?: string;
  /** The state folder. The configuration is then not read. */
  readonly state?: string;
}

/** Suspends a principal. Throws USAGE, CONFIG_INVALID, STATE_FAILED, AUDIT_FAILED. */
export function runSuspend(options: SuspendOptions, io: Io): Promise<number> {
  const forMs = options.for === undefined ? undefined : readTime(options.for);
  return withSuspensions(options, { io }, async (parts) => {
    const { principal } = options;
    if (principal === undefined) {
      if (forMs !== undefined) throw new TollgateError('USAGE', { detail: '--for needs a principal.' });
      return listSuspensions(parts.suspensions, options, io);
    }
    const suspension = await suspendPrincipal(parts, {
      principal,
      forMs,
      ...readActor(options, 'suspends a principal', io),
    });
    const { until } = suspension;
    const end = until === undefined ? '' : ` until ${until}`;
    printResult(
      { io, options },
      { suspended: suspension },
      `${printable(principal)} is suspended${end}: every call is refused from now on, in every process. ` +
        `Running calls end within a second.\nLift it with: tollgate resume ${printable(principal)}`,
    );
    return EXIT.ok;
  });
}

/** Lifts the suspension of a principal. Throws as `runSuspend`. */
export function runResume(options: SuspendOptions & { readonly principal: string }, io: Io): Promise<number> {
  const work = async (parts: SuspensionParts): Promise<number> => {
    const { principal } = options;
    const resumed = await resumePrincipal(parts, { principal, ...readActor(options, 'resumes a principal', io) });
    const what = resumed ? 'may call again.' : 'was not suspended. To see who is: tollgate suspend';
    printResult({ io, options }, { principal, resumed }, `${printable(principal)} ${what}`);
    return EXIT.ok;
  };
  return withSuspensions(options, { io, lifts: 'lifts' }, work);
}

async function withSuspensions(
  options: SuspendOptions,
  { io, lifts }: { readonly io: Io; readonly lifts?: 'lifts' },
  work: (parts: SuspensionParts) => Promise<number> | number,
): Promise<number> {
  const place = findCommandState(options, io);
  const append = (entry: SwitchEntry): Promise<void> => recordActs(place.audit, [entry]);
  const run = (stops: Stops): Promise<number> | number =>
    work({ suspensions: new Suspensions({ stops }), config: place.config, append });
  return withStops(place, run, lifts);
}

function listSuspensions(suspensions: Suspensions, options: SuspendOptions, io: Io): number {
  const suspended = suspensions.list();
  printList(
    { io, options },
    {
      data: { suspended },
      columns: ['PRINCIPAL', 'SINCE', 'UNTIL', 'BY'],
      rows: suspended.map(({ principal, since, until, by }) => [principal, since, until ?? 'lifted', by]),
      empty: 'No principal is suspended. To suspend one: tollgate suspend PRINCIPAL',
    },
  );
  return EXIT.ok;
}
