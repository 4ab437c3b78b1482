/** Runs `setup --undo`: restores the clients' files, one client or all, and then removes what setup connected. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { isOf, listBackups, readManifest } from '../../clients/changes/backups.ts';
import { CLIENTS, clientOf } from '../../clients/client-formats.ts';
import { didYouMean } from '../../config/config-problems.ts';
import { undo } from '../client-files/client-undo.ts';
import { readConfig } from '../command-facade.ts';
import { EXIT } from '../command-io.ts';
import { undoConnection } from '../connect/connect-command.ts';
import { connectedNames, readJournal } from '../connect/connection-journal.ts';
import { accepted, quiet, type SetupRun } from './setup-run.ts';

/**
 * Undoes a setup. With a client, only its files are restored; without one, also the connected servers go, with their
 * secrets and packages. Throws USAGE if there is nothing to undo, or a file that only a person can restore.
 */
export async function undoSetup(run: SetupRun, which: true | string): Promise<number> {
  const { options, io, wiring } = run;
  const { config } = options;
  if (which !== true) {
    const client = clientOf(which);
    const ids = CLIENTS.map(({ id }) => id);
    if (client === undefined)
      throw new TollgateError('USAGE', { detail: `There is no client ${which}.`, next: didYouMean(which, ids) });
    return undo('export', { options, io, client: client.id });
  }
  const places = readConfig(options, io);
  const manifests = listBackups(places.state)
    .filter((backup) => isOf(backup, 'export'))
    .map((backup) => readManifest(backup).of);
  const clients = CLIENTS.filter(({ id }) => manifests.some((of) => of.clients.includes(id)));
  if (clients.length === 0 && !connectedNames(places).some((name) => readJournal(places, name)?.bySetup === true))
    throw new TollgateError('USAGE', {
      detail: 'There is nothing to undo: no file of a client was changed with this configuration.',
      next: `Name another with --config; this is ${config}.`,
    });
  for (const { id } of clients) await undo('export', { options, io, client: id });
  for (const backup of listBackups(places.state)) if (isOf(backup, 'setup')) await accepted(run, () => undoEdit(run));
  // The one that made the folder of server files goes last, and the folder with it.
  const journals = connectedNames(places).flatMap((name) => readJournal(places, name) ?? []);
  const names = journals
    .filter(({ bySetup }) => bySetup === true)
    .sort((one, other) => Number(one.madeFolder) - Number(other.madeFolder))
    .map(({ server }) => server);
  for (const name of names) await accepted(run, () => undoConnection({ ...options, service: name }, quiet(io), wiring));
  if (options.json !== true && names.length > 0)
    io.stderr(`No longer connected: ${names.join(', ')}. The configuration stays: ${config}\n`);
  return EXIT.ok;
}

/** Takes the last edit of the configuration back. */
function undoEdit({ options, io }: SetupRun): Promise<number> {
  return undo('setup', { options, io: quiet(io) });
}
