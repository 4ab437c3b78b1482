/** The sign-ins to remote servers, stored in the vault. A token that the redactor could not find is refused. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { CredentialStore, Credentials } from '../../adapters/port.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { createSettler, type Settler } from '../budget/budget-settler.ts';
import type { Redactor } from '../output/redactor.ts';
import { instant } from '../state/budget-clock.ts';
import type { BudgetClaim, State } from '../state/state-port.ts';
import { MIN_SECRET, registerSecret } from './secrets.ts';
import type { Vault } from './vault.ts';

/** What sign-ins are stored with. `waitMs`: how long another process may take; default 30 s. */
export interface SignInPlaces {
  readonly vault: Vault;
  readonly redactor: Redactor;
  readonly state: Pick<State, 'reserve' | 'settle'>;
  readonly waitMs?: number;
}

/** No name of a secret contains a colon, so no configuration can give a sign-in to another server. */
const PREFIX = 'oauth:';
const POLL_MS = 50;
const WAIT_MS = 30_000;

/** Returns the server of a sign-in entry of the vault; undefined for a secret. */
export function signedInServer(entry: string): string | undefined {
  return entry.startsWith(PREFIX) ? entry.slice(PREFIX.length) : undefined;
}

/** See CredentialStore. Every secret in a sign-in is registered with the redactor first. */
export function keepSignIns(places: SignInPlaces): CredentialStore {
  const { vault, redactor } = places;
  const settler = createSettler(places.state);
  const known = (credentials: Credentials): Credentials => {
    const secrets = [credentials.access, credentials.refresh, credentials.client.secret].filter(
      (secret) => secret !== undefined,
    );
    if (!secrets.every((secret) => registerSecret(redactor, secret)))
      throw new TollgateError('LOGIN_FAILED', {
        detail: `The issuer gave a token shorter than ${MIN_SECRET} characters, which could not be kept out of results.`,
        next: 'The issuer must give longer ones.',
      });
    return credentials;
  };
  return {
    read: async (server) => {
      const text = await vault.get(PREFIX + server);
      return text === undefined ? undefined : known(JSON.parse(text) as Credentials);
    },
    write: async (server, credentials) => {
      await vault.set(PREFIX + server, JSON.stringify(known(credentials)));
    },
    remove: (server) => vault.remove(PREFIX + server),
    withLock: (server, work) => alone(server, work, { ...places, settler }),
  };
}

/**
 * A slot of the state ends with its process. A lock on the vault itself would block everyone while the network is slow.
 */
async function alone<T>(
  server: string,
  work: () => Promise<T>,
  { state, settler, waitMs = WAIT_MS }: SignInPlaces & { readonly settler: Settler },
): Promise<T> {
  const claim: BudgetClaim = { budget: 'sign-in', scope: 'folder', key: server, demands: [], concurrent: 1 };
  const end = performance.now() + waitMs;
  let answer = await state.reserve([claim], instant());
  while ('refused' in answer && performance.now() < end) {
    await sleep(POLL_MS);
    answer = await state.reserve([claim], instant());
  }
  if ('refused' in answer)
    throw new TollgateError('SERVER_UNAVAILABLE', {
      detail: `Another process has been renewing the sign-in to server "${server}" for too long.`,
    });
  try {
    return await work();
  } finally {
    await settler.settle(answer.reservation, { outputBytes: 0, wallMs: 0 });
  }
}
