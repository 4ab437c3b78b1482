/** Runs `servers --log`: prints what one server wrote to stderr. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { nameFault } from '../../config/servers/server-names.ts';
import { readServerLog } from '../../runtime/servers/server-logs.ts';
import { type CommonOptions, readForOwner } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { json } from '../print.ts';
import { serverNamed } from '../server-consent/owner-context.ts';

/** Prints the log, oldest line first. Throws USAGE, CONFIG_INVALID. */
export function runServerLog(options: CommonOptions & { readonly log: string }, io: Io): number {
  const fault = nameFault(options.log);
  if (fault !== undefined)
    throw new TollgateError('USAGE', {
      detail: `No server can have this name: ${fault}.`,
      next: 'Use a name that `tollgate servers` shows.',
    });
  const config = readForOwner(options, io);
  const text = readServerLog(config.state, options.log);
  // A server that is no longer configured may have left a log.
  if (text === undefined) serverNamed(config, options.log);
  const lines = (text ?? '').split('\n').filter((line) => line !== '');
  if (options.json === true) io.stdout(json({ server: options.log, lines }));
  else if (text === undefined) io.stderr(`${options.log} has written nothing to stderr.\n`);
  else io.stdout(text);
  return EXIT.ok;
}
