/** Owns the words for a sign-in to a remote server, and the port to what keeps it; refuses to know where that is. */
import type { ServerSettings } from '../supervisor/server-settings.ts';

/** What one sign-in gave. It holds for one server at one address, and its secrets go to nobody but that server and `tokenEndpoint`. */
export interface Credentials {
  /** Address of the server, as it was reached then. */
  readonly url: string;
  /** What the tokens are for (RFC 8707). */
  readonly resource: string;
  readonly issuer: string;
  /** As the metadata of the issuer named it at the sign-in: a refresh asks nobody where to go. */
  readonly tokenEndpoint: string;
  /** How the endpoint lets clients prove themselves; empty: it did not say. */
  readonly authMethods: readonly string[];
  /** Where tokens are taken back (RFC 7009). */
  readonly revocationEndpoint?: string;
  /** The secret of a registered client only: one of the configuration stays where it is. */
  readonly client: { readonly id: string; readonly secret?: string; readonly authMethod?: string };
  readonly access: string;
  /** Milliseconds since 1970; absent: the server did not say. */
  readonly expiresAt?: number;
  readonly refresh?: string;
  /** Granted; absent: as it was asked for, or the issuer did not say. */
  readonly scope?: string;
  /** What the server has asked for beyond that: the next sign-in asks the person for it. */
  readonly missingScope?: string;
}

/** Keeps one sign-in for each server, for all processes of a state folder. All methods throw VAULT_FAILED. */
export interface CredentialStore {
  read(server: string): Promise<Credentials | undefined>;
  /** Also tells the redactor. Throws LOGIN_FAILED for a token that is too short to be kept out of results. */
  write(server: string, credentials: Credentials): Promise<void>;
  /** False when there was none. */
  remove(server: string): Promise<boolean>;
  /** Runs `work` while no other process does for this server. Throws SERVER_UNAVAILABLE when that is not had in time, STATE_FAILED. */
  withLock<T>(server: string, work: () => Promise<T>): Promise<T>;
}

/** What a sign-in is made with. */
export interface SignInParts {
  readonly settings: ServerSettings;
  readonly store: CredentialStore;
  readonly secrets: (name: string) => Promise<string>;
  /** Shows the address at which a person consents; called at most once. */
  readonly show: (consent: {
    readonly address: URL;
    readonly issuer: string;
    readonly scopes: readonly string[];
  }) => void;
  readonly signal: AbortSignal;
  /** How long a person may take, ms; default five minutes. */
  readonly waitMs?: number;
}

/** A sign-in as it may be shown. */
export interface SignInSummary {
  readonly issuer: string;
  /** Empty: the issuer did not say. */
  readonly scopes: readonly string[];
  readonly expiresAt?: number;
  /** It renews itself. */
  readonly renewable: boolean;
}

/** Signs in, and out. Both throw LOGIN_FAILED, SERVER_UNAVAILABLE, CANCELLED, SECRET_MISSING and what the store throws. */
export interface SignIns {
  signIn(parts: SignInParts): Promise<SignInSummary>;
  /** Takes the tokens back where the issuer lets us, and forgets them; false when there were none. `revoked` says whether the issuer took them back. */
  signOut(
    parts: Pick<SignInParts, 'settings' | 'store' | 'secrets'>,
  ): Promise<{ readonly removed: boolean; readonly revoked: boolean }>;
}

/** Words of a scope, as RFC 6749 §3.3 writes them. */
export function scopeWords(scope: string | undefined): readonly string[] {
  return (scope ?? '')
    .split(' ')
    .filter((word) => /^[\x21\x23-\x5b\x5d-\x7e]{1,200}$/.test(word))
    .slice(0, 100);
}
