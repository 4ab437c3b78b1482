/** Owns what is told when a server was lost; refuses to tell of text that the server wrote. */
import type { TollgateError } from '../catalogs/errors.ts';
import type { Attempts, Happening } from './events.ts';
import type { Outlook } from './restarts.ts';

/** How a connection ended: `error` is that of a start, `exit` the code or signal of a process, or `memory`. */
export interface Ending {
  readonly error?: TollgateError;
  readonly exit?: number | string;
}

/** What else is known of the loss. `tries` counts the failed ones since it was last there, this one included. */
export interface LossFacts extends Ending {
  readonly isProcess: boolean;
  readonly wasReady: boolean;
  readonly tries: number;
  readonly attempts: Attempts;
}

/** The events of one loss, in order. */
export function tidingsOf(
  outlook: Outlook,
  { isProcess, wasReady, tries, attempts, error, exit }: LossFacts,
): readonly Happening[] {
  const next = { ...attempts, ...(typeof outlook === 'number' && { inMs: outlook }) };
  const lost: Happening = isProcess
    ? { event: 'crashed', ...(exit === undefined ? {} : { exit }), ...next }
    : { event: 'disconnected', ...next };
  const first: Happening = wasReady ? lost : { event: 'start.failed', code: error?.code ?? 'INIT_FAILED', ...next };
  if (outlook === 'never') return [first, { event: 'failed', tries }];
  return outlook === 'exhausted' ? [first, { event: 'reconnect.exhausted', tries: tries - 1 }] : [first];
}
