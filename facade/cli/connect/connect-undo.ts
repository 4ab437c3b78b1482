/** Runs `tollgate connect --undo`: removes consent, file, secrets and package of a connected server, in this order. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { quote } from '../../config/config-problems.ts';
import { readConfig, readOwner } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { recordActs, signed } from '../command-state.ts';
import { json } from '../print.ts';
import type { Wiring } from '../wiring.ts';
import { type ConnectOptions, withdraw } from './connect-consent.ts';
import { openConnectVault } from './connect-credentials.ts';
import { connectedNames, readJournal } from './connection-journal.ts';
import { removePackages, takeBack } from './connection-steps.ts';

const REVOKE = 'Revoke them at the provider too if no one else uses them.';

/** Undoes what connect did. Throws USAGE, IDENTITY, VAULT_FAILED, STATE_FAILED. */
export async function runUndo(options: ConnectOptions, io: Io, wiring: Wiring): Promise<number> {
  const config = readConfig(options, io);
  const by = readOwner(config, { as: options.as, act: 'connects servers' }, io);
  const name = options.name ?? options.service;
  const places = { state: config.state, folder: config.folder };
  const journal = /^[a-z][a-z0-9-]*$/.test(name) ? readJournal(places, name) : undefined;
  if (journal === undefined) {
    const names = connectedNames(places);
    throw new TollgateError('USAGE', {
      detail: `${quote(name)} was not connected here, so there is nothing to undo.`,
      next:
        names.length === 0
          ? '`connect` has added no server. Remove other servers by hand in tollgate.yaml.'
          : `Connected servers: ${names.join(', ')}.`,
    });
  }
  // The consent goes first, so that no call reaches the server even if a later step fails.
  await withdraw(options, name, { io, wiring });
  const { places: secrets } = await openConnectVault(config, io);
  await takeBack(journal, { ...places, vault: secrets.vault });
  const removed = removePackages(config.state, name);
  await recordActs(config.audit, [
    signed({ type: 'server', server: name, event: 'connect.undone', outcome: 'allow', by }, io),
  ]);
  if (options.json === true) io.stdout(json({ undone: name, secrets: journal.secrets, package: removed }));
  else {
    const deleted = journal.secrets.length === 0 ? '' : ` Deleted: ${journal.secrets.join(', ')}. ${REVOKE}`;
    io.stderr(`Undone: ${name} is no longer connected.${deleted}\n`);
  }
  return EXIT.ok;
}
