/** The credentials of a sign-in to a remote server, the port of the store that keeps them, and errors of sign-ins. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { ServerSettings } from '../supervisor/server-settings.ts';

/** The result of one sign-in to one server at one address. Its secrets go only to this server and `tokenEndpoint`. */
export interface Credentials {
  /** The address of the server at the time of the sign-in. */
  readonly url: string;
  /** What the tokens are for (RFC 8707). */
  readonly resource: string;
  readonly issuer: string;
  /** As the metadata of the issuer named it at the sign-in. A refresh does not look it up again. */
  readonly tokenEndpoint: string;
  /** How clients may authenticate at the endpoint. Empty: the metadata did not say. */
  readonly authMethods: readonly string[];
  /** Where tokens are revoked (RFC 7009). */
  readonly revocationEndpoint?: string;
  /** `secret`: of a client that registered itself. A secret from the configuration is not copied here. */
  readonly client: { readonly id: string; readonly secret?: string; readonly authMethod?: string };
  readonly access: string;
  /** Milliseconds since 1970. Absent: the issuer did not say. */
  readonly expiresAt?: number;
  readonly refresh?: string;
  /** The granted scopes. Absent: none were requested, and the issuer did not say. */
  readonly scope?: string;
  /** Scopes that the server has required in addition. The next sign-in requests them. */
  readonly missingScope?: string;
}

/** Keeps one sign-in for each server, for all processes of a state folder. All methods throw VAULT_FAILED. */
export interface CredentialStore {
  read(server: string): Promise<Credentials | undefined>;
  /** Also registers the tokens with the redactor. Throws LOGIN_FAILED for a token that is too short to be redacted. */
  write(server: string, credentials: Credentials): Promise<void>;
  /** Returns false if there were none. */
  remove(server: string): Promise<boolean>;
  /**
   * Runs `work` while no other process does so for this server. Throws SERVER_UNAVAILABLE if the lock is not free in
   * time, and STATE_FAILED.
   */
  withLock<T>(server: string, work: () => Promise<T>): Promise<T>;
}

/** The parts that a sign-in needs. */
export interface SignInParts {
  readonly settings: ServerSettings;
  readonly store: CredentialStore;
  readonly secrets: (name: string) => Promise<string>;
  /** Shows the address at which a person consents. Called at most once. */
  readonly show: (consent: {
    readonly address: URL;
    readonly issuer: string;
    readonly scopes: readonly string[];
  }) => void;
  readonly signal: AbortSignal;
  /** Milliseconds that a person may take. Default: five minutes. */
  readonly waitMs?: number;
  /** Scopes to request in addition to those that were granted before. */
  readonly addScopes?: readonly string[];
}

/** A sign-in without its secrets, for display. */
export interface SignInSummary {
  readonly issuer: string;
  /** Empty: the issuer did not say. */
  readonly scopes: readonly string[];
  readonly expiresAt?: number;
  /** True if there is a refresh token. */
  readonly renewable: boolean;
}

/** Both methods throw LOGIN_FAILED, SERVER_UNAVAILABLE, CANCELLED, SECRET_MISSING and what the store throws. */
export interface SignIns {
  signIn(parts: SignInParts): Promise<SignInSummary>;
  /**
   * Revokes the tokens at the issuer if it supports that, and forgets them. `removed` is false if there were none;
   * `revoked` says whether the issuer revoked them.
   */
  signOut(
    parts: Pick<SignInParts, 'settings' | 'store' | 'secrets'>,
  ): Promise<{ readonly removed: boolean; readonly revoked: boolean }>;
}

/** Splits a scope into its valid tokens (RFC 6749 §3.3), at most 100. */
export function scopeWords(scope: string | undefined): readonly string[] {
  return (scope ?? '')
    .split(' ')
    .filter((word) => /^[\x21\x23-\x5b\x5d-\x7e]{1,200}$/.test(word))
    .slice(0, 100);
}

/** Creates the error of a sign-in that did not succeed. */
export function loginFailed(detail: string, next: string, cause?: unknown): TollgateError {
  return new TollgateError('LOGIN_FAILED', { detail, next, cause });
}

/** Creates the error of a sign-in that the person stopped. */
export function signInStopped(): TollgateError {
  const next = 'Run it again when you want to sign in.';
  return new TollgateError('CANCELLED', { detail: 'The sign-in was stopped.', next });
}
