/** Owns `tollgate connect --undo`: consent, file, secrets and package of a connected server go, in this order; refuses servers that were not connected. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { quote } from '../../config/config-problems.ts';
import { readConfig } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { recordActs, signed } from '../command-state.ts';
import { json } from '../print.ts';
import type { Wiring } from '../wiring.ts';
import { connectOwnerOf } from './connect-command.ts';
import { type ConnectOptions, withdraw } from './connect-consent.ts';
import { openConnectVault } from './connect-credentials.ts';
import { connectedNames, readJournal } from './connection-journal.ts';
import { removePackages, takeBack } from './connection-steps.ts';

/** Takes back what connect did. Throws USAGE, IDENTITY, VAULT_FAILED, STATE_FAILED. */
export async function runUndo(options: ConnectOptions, io: Io, wiring: Wiring): Promise<number> {
  const config = readConfig(options, io);
  const by = connectOwnerOf(config, options, io);
  const name = options.name ?? options.service;
  const places = { state: config.state, folder: config.folder };
  const journal = /^[a-z][a-z0-9-]*$/.test(name) ? readJournal(places, name) : undefined;
  if (journal === undefined) {
    const names = connectedNames(places);
    throw new TollgateError('USAGE', {
      detail: `${quote(name)} was not connected here, so there is nothing to undo.`,
      next: names.length === 0 ? 'Servers in tollgate.yaml are removed there.' : `Connected are: ${names.join(', ')}.`,
    });
  }
  // First of all: from here on no call reaches it, whatever becomes of the rest.
  await withdraw(options, name, { io, wiring });
  const { places: secrets } = await openConnectVault(config, io);
  await takeBack(journal, { ...places, vault: secrets.vault });
  const removed = removePackages(config.state, name);
  await recordActs(config.audit, [
    signed({ type: 'server', server: name, event: 'connect.undone', outcome: 'allow', by }, io),
  ]);
  if (options.json === true) io.stdout(json({ undone: name, secrets: journal.secrets, package: removed }));
  else
    io.stderr(
      `Undone: ${name} is not connected any more.${journal.secrets.length === 0 ? '' : ` Forgotten: ${journal.secrets.join(', ')}; revoke them at the provider too if nobody else uses them.`}\n`,
    );
  return EXIT.ok;
}
