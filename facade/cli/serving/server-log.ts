/** Runs `servers --log`: prints what one server wrote to stderr. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { didYouMean, quote } from '../../config/config-problems.ts';
import { nameFault } from '../../config/servers/server-names.ts';
import { readServerLog } from '../../runtime/servers/server-logs.ts';
import { type CommonOptions, readForOwner } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { json } from '../print.ts';

/** Prints the log, oldest line first. Throws USAGE, CONFIG_INVALID. */
export function runServerLog(options: CommonOptions & { readonly log: string }, io: Io): number {
  const fault = nameFault(options.log);
  if (fault !== undefined)
    throw new TollgateError('USAGE', {
      detail: `No server can have this name: ${fault}`,
      next: 'See `tollgate servers`.',
    });
  const config = readForOwner(options, io);
  const text = readServerLog(config.state, options.log);
  // A server that was removed from the configuration may have left a log.
  if (text === undefined && !config.servers.has(options.log))
    throw new TollgateError('USAGE', {
      detail: `There is no server ${quote(options.log)}.`,
      next: `Name one of tollgate.yaml; ${didYouMean(options.log, config.servers.keys())}`,
    });
  const lines = (text ?? '').split('\n').filter((line) => line !== '');
  if (options.json === true) io.stdout(json({ server: options.log, lines }));
  else if (text === undefined) io.stderr(`${options.log} has written nothing to stderr.\n`);
  else io.stdout(text);
  return EXIT.ok;
}
