/** Owns `servers --log`: what one server wrote to stderr; refuses names that no log can have. */
import { TollgateError } from '../../catalogs/errors.ts';
import { nameFault } from '../config/names.ts';
import { readServerLog } from '../servers/logs.ts';
import { EXIT, type Io } from './io.ts';
import { readConfig, type CommonOptions } from './open.ts';
import { json } from './print.ts';

/** Prints the log, oldest line first. Throws USAGE, CONFIG_INVALID. */
export function runServerLog(options: CommonOptions & { readonly log: string }, io: Io): number {
  const fault = nameFault(options.log);
  if (fault !== undefined) throw new TollgateError('USAGE', { detail: `No server is named so: ${fault}`, next: 'See `tollgate servers`.' });
  const text = readServerLog(readConfig(options, io).state, options.log);
  const lines = (text ?? '').split('\n').filter((line) => line !== '');
  if (options.json === true) io.stdout(json({ server: options.log, lines }));
  else if (text === undefined) io.stderr(`${options.log} has written nothing to stderr.\n`);
  else io.stdout(text);
  return EXIT.ok;
}
