/** Finds the principal of the caller over stdio. For HTTP, see facade/serve/http/token-authentication.ts. */
import { isDeepStrictEqual } from 'node:util';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Principal } from '../../policies/port.ts';
import { asPrincipal } from '../serve/http/token-authentication.ts';
import type { Config, PrincipalConfig } from './config.ts';
import { listNames, quote } from './config-problems.ts';
import { isSubject } from './settings/jwt-settings.ts';

/** A second principal in the configuration ends the start of a client that names none. */
const IN_A_CLIENT = ' In the file of a client, add it to `args`.';

/** What the operating system and the command line say about the caller. */
export interface StdioCaller {
  /** The value of `--as`. */
  readonly as?: string;
  /** Name of the OS user who started the process. */
  readonly user: string;
}

/**
 * Returns the principal over stdio: that of `--as` if it is allowed, else the one with the name of the OS user, else
 * the only one that this user may be. Nothing that the client sends is used. Throws IDENTITY.
 */
export function principalForStdio(config: Pick<Config, 'principals'>, { as, user }: StdioCaller): Principal {
  const allowed = config.principals.filter((principal) => mayBe(principal, user));
  const others = allowed.filter(({ id }) => id !== user);
  const found =
    as === undefined
      ? (allowed.find(({ id }) => id === user) ?? (others.length === 1 ? others[0] : undefined))
      : allowed.find(({ id }) => id === as);
  if (found !== undefined) return asPrincipal(found);
  const next =
    allowed.length === 0
      ? 'Add a principal with `stdio: true` to tollgate.yaml.'
      : `Use --as with one of: ${listNames(allowed.map(({ id }) => id))}.${as === undefined ? IN_A_CLIENT : ''}`;
  throw new TollgateError('IDENTITY', {
    detail:
      as === undefined
        ? 'No principal of tollgate.yaml matches the user who started Tollgate.'
        : `Principal ${quote(as)} is not available to this user over stdio.`,
    next,
  });
}

/**
 * Returns the owner that this OS user is, for acts in which `--as` names another principal: the one that `by` names,
 * else the one with the user's name, else the only owner that the user may be. Throws IDENTITY.
 */
export function ownerForStdio(
  config: Pick<Config, 'principals'>,
  { by, user }: { readonly by: string | undefined; readonly user: string },
): Principal {
  const allowed = config.principals.filter((principal) => mayBe(principal, user));
  const owners = allowed.filter(({ owner }) => owner);
  const wanted = by ?? allowed.find(({ id }) => id === user)?.id;
  const [only, ...others] = owners.filter(({ id }) => wanted === undefined || id === wanted);
  if (only !== undefined && others.length === 0) return asPrincipal(only);
  throw new TollgateError('IDENTITY', {
    detail:
      only === undefined
        ? `${quote(wanted ?? user)} is no owner over stdio, and only an owner calls by hand.`
        : 'The user who started Tollgate may be several owners.',
    next:
      owners.length === 0
        ? 'Give one principal `owner: true` and `stdio: true` in tollgate.yaml.'
        : `Use --by with one of: ${listNames(owners.map(({ id }) => id))}.`,
  });
}

/** Returns true if this OS user can be an owner over stdio, with or without `--as`. */
export function hasOwnerFor(config: Pick<Config, 'principals'>, user: string): boolean {
  return config.principals.some((principal) => principal.owner && mayBe(principal, user));
}

/** The part of a configuration that says who may call. */
type KnownCallers = Pick<Config, 'principals'> & Partial<Pick<Config, 'listen'>>;

/**
 * Returns a principal under a new configuration, with its present role, groups and profiles. Undefined if it was
 * removed, or if its way of authentication has changed. A checked Origin header stays its origin.
 */
export function principalAfter(
  principal: Principal,
  { before, after }: { readonly before: KnownCallers; readonly after: KnownCallers },
): Principal | undefined {
  // The claims of its token are not known here, so a subject stays while the issuer and its mapping do.
  if (isSubject(principal))
    return after.listen?.jwt !== undefined && isDeepStrictEqual(before.listen?.jwt, after.listen.jwt)
      ? principal
      : undefined;
  const [old, next] = [before, after].map(({ principals }) => principals.find(({ id }) => id === principal.id));
  if (next === undefined || (old !== undefined && (old.tokenHash !== next.tokenHash || old.stdio !== next.stdio)))
    return undefined;
  const renewed = asPrincipal(next);
  // A page, or a host that speaks for one, never becomes an owner.
  return principal.origin === old?.client
    ? renewed
    : Object.freeze({
        ...renewed,
        origin: principal.origin,
        owner: renewed.owner === true && principal.owner === true,
      });
}

/** A principal with a token belongs to the token's holder, unless the OS user has its name or it says `stdio`. */
function mayBe(principal: PrincipalConfig, user: string): boolean {
  return principal.stdio ?? (principal.tokenHash === undefined || principal.id === user);
}
