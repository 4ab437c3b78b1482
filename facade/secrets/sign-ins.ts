/** Stores the sign-ins to remote servers in the vault. It refuses a token that is too short to be redacted. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { CredentialStore, Credentials } from '../../adapters/port.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { createSettler, type Settler } from '../budget/budget-settler.ts';
import type { Redactor } from '../output/redactor.ts';
import { instant } from '../state/budget-clock.ts';
import type { BudgetClaim, State } from '../state/state-port.ts';
import { MIN_SECRET, registerSecret } from './secrets.ts';
import type { Vault } from './vault.ts';

/** The objects that sign-ins are stored with. */
export interface SignInPlaces {
  readonly vault: Vault;
  readonly redactor: Redactor;
  readonly state: Pick<State, 'reserve' | 'settle'>;
  /** How long another process may take, ms. Default 30 s. */
  readonly waitMs?: number;
}

/** Names of secrets contain no colon, so no configuration can refer to a sign-in as a secret. */
const PREFIX = 'oauth:';
const POLL_MS = 50;
const WAIT_MS = 30_000;

/** Returns the server of an entry of the vault that is a sign-in; undefined for a secret. */
export function signedInServer(entry: string): string | undefined {
  return entry.startsWith(PREFIX) ? entry.slice(PREFIX.length) : undefined;
}

/** Returns the entry of the vault with the sign-in to a server. */
export function signInEntry(server: string): string {
  return PREFIX + server;
}

/** Returns the store of sign-ins. It registers every secret in a sign-in with the redactor first. */
export function keepSignIns(places: SignInPlaces): CredentialStore {
  const { vault, redactor } = places;
  const settler = createSettler(places.state);
  const registered = (credentials: Credentials): Credentials => {
    const secrets = [credentials.access, credentials.refresh, credentials.client.secret].filter(
      (secret) => secret !== undefined,
    );
    if (!secrets.every((secret) => registerSecret(redactor, secret)))
      throw new TollgateError('LOGIN_FAILED', {
        detail: `The issuer gave a token shorter than ${MIN_SECRET} characters, too short to be redacted in results.`,
        next: 'The issuer must give longer ones.',
      });
    return credentials;
  };
  return {
    read: async (server) => {
      const text = await vault.get(signInEntry(server));
      return text === undefined ? undefined : registered(JSON.parse(text) as Credentials);
    },
    write: async (server, credentials) => {
      await vault.set(signInEntry(server), JSON.stringify(registered(credentials)));
    },
    remove: (server) => vault.remove(signInEntry(server)),
    withLock: (server, work) => withLock(server, work, { ...places, settler }),
  };
}

/**
 * Runs `work` with the only slot of a server. The state frees the slot of a process that ends. A lock on the vault
 * would block all processes while the network is slow.
 */
async function withLock<T>(
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
