/**
 * Runs `setup --undo`: restores the clients' files, one client or all, and then removes what setup connected. It checks
 * everything before it changes anything.
 */
import { existsSync, renameSync } from 'node:fs';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { type Changer, isOf, listBackups } from '../../clients/changes/backups.ts';
import { CLIENTS, clientOf } from '../../clients/client-formats.ts';
import { shownPath } from '../../clients/client-places.ts';
import { didYouMean } from '../../config/config-problems.ts';
import { captureWrite } from '../../config/reading/file-replacement.ts';
import { serverFileOf } from '../../config/servers/server-files.ts';
import { type PlannedUndo, planUndo, undo } from '../client-files/client-undo.ts';
import { readConfig, readOwner } from '../command-facade.ts';
import { EXIT } from '../command-io.ts';
import { unacceptedNote } from '../configuration/check-command.ts';
import { refuseBroken } from '../configuration/configuration-preview.ts';
import { REVOKE_THERE, undoConnection } from '../connect/connect-command.ts';
import { connectedNames, isEdited, type Journal, type Places, readJournal } from '../connect/connection-journal.ts';
import { printable, printResult } from '../print.ts';
import { accepted, type SetupRun, setupCommand } from './setup-run.ts';

/**
 * Undoes a setup. With a client, only its files are restored; without one, also the connected servers go, with their
 * secrets and packages. Throws USAGE if there is nothing to undo, or a file that only a person can restore, and
 * CONFIG_INVALID or POLICY_INVALID if lines of the owner need a server that goes.
 */
export async function undoSetup(run: SetupRun, which: true | string): Promise<number> {
  const { options, io, wiring } = run;
  if (which !== true) {
    const client = clientOf(which);
    const ids = CLIENTS.map(({ id }) => id);
    if (client === undefined)
      throw new TollgateError('USAGE', { detail: `There is no client ${which}; ${didYouMean(which, ids)}` });
    return undo('export', { options, io, wiring, client: client.id });
  }
  const config = readConfig(options, io);
  const changers = (['export', 'setup'] as const).filter((changer: Changer) =>
    listBackups(config.state).some((backup) => isOf(backup, changer)),
  );
  const journals = connectedNames(config)
    .flatMap((name) => readJournal(config, name) ?? [])
    .filter(({ bySetup }) => bySetup === true);
  if (changers.length === 0 && journals.length === 0)
    throw new TollgateError('USAGE', {
      detail: 'There is nothing to undo: no file of a client was changed with this configuration.',
      next: `Name another with --config; this is ${options.config}.`,
    });
  readOwner(config, { as: options.as, act: 'connects servers' }, io);
  const plans: PlannedUndo[] = [];
  for (const changer of changers) plans.push(await planUndo(changer, { options, io }, { all: true }));
  const servers = journals.map(
    ({ server, before }) => [serverFileOf(config.folder, server), before ?? undefined] as const,
  );
  const files = new Map([...plans.flatMap((plan) => [...plan.files]), ...servers]);
  await refuseBroken(files, { options, io, wiring, again: setupCommand(run, ['--undo']) });
  await carryOut(run, { plans, journals, places: config });
  return EXIT.ok;
}

/** What was checked and is undone now. */
interface CheckedUndo {
  readonly plans: readonly PlannedUndo[];
  readonly journals: readonly Journal[];
  readonly places: Places;
}

async function carryOut(run: SetupRun, { plans, journals, places }: CheckedUndo): Promise<void> {
  const { options, io, wiring } = run;
  const shown = (file: string): string => shownPath(file, { cwd: io.cwd, home: io.home });
  const secrets = new Set<string>();
  for (const plan of plans) for (const name of (await accepted(run, plan.carryOut)).removedSecrets) secrets.add(name);
  const kept = await accepted(run, () =>
    journals.filter((journal) => isEdited(places, journal)).map(({ server }) => setAside(places, server)),
  );
  // The one that made the folder of server files goes last, and the folder with it.
  const ordered = journals.toSorted((one, other) => Number(one.madeFolder) - Number(other.madeFolder));
  for (const journal of ordered) {
    const undone = await accepted(run, () => undoConnection(journal, { options, io, wiring }));
    for (const name of undone.secrets) secrets.add(name);
  }
  const files = plans.flatMap((plan) => [...plan.files]);
  const restored = files.flatMap(([file, text]) => (text === undefined ? [] : [shown(file)]));
  const removed = files.flatMap(([file, text]) => (text === undefined ? [shown(file)] : []));
  const data = {
    restored,
    removed,
    disconnected: journals.map(({ server }) => server),
    removedSecrets: [...secrets],
    kept: kept.map(shown),
    config: options.config,
  };
  const list = (head: string, items: readonly string[], end = ''): readonly string[] =>
    items.length === 0 ? [] : [`${head}: ${items.join(', ')}.${end}`];
  const lines = [
    ...list('Restored, with later edits of others', restored),
    ...list('Removed', removed),
    ...list('No longer connected', data.disconnected),
    ...list('Removed from the vault', data.removedSecrets, ` ${REVOKE_THERE}`),
    ...list('Your edits of removed servers are in', data.kept, ' Tollgate does not read these files.'),
    `The configuration stays: ${shown(options.config)}`,
    // Edits that no owner has accepted are not accepted by an undo either.
    unacceptedNote(readConfig(options, io)) ?? [],
  ].flat();
  printResult({ io, options }, data, lines.map(printable).join('\n'));
}

/** Renames an edited file, so that no edit is lost, and returns the new name. */
function setAside(places: Places, server: string): string {
  const file = serverFileOf(places.folder, server);
  let aside = `${file}.old`;
  for (let count = 2; existsSync(aside); count += 1) aside = `${file}.old-${count}`;
  captureWrite(file, undefined, () => renameSync(file, aside));
  return aside;
}
