/** Owns who the caller over stdio is; refuses to guess. Callers over HTTP are their tokens alone: see facade/serve/http/token-authentication.ts. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Principal } from '../../policies/port.ts';
import { asPrincipal } from '../serve/http/token-authentication.ts';
import type { Config, PrincipalConfig } from './config.ts';
import { listNames, quote } from './config-problems.ts';

/** What the operating system and the command line say about the caller. */
export interface StdioCaller {
  /** The value of `--as`. */
  readonly as?: string;
  /** Name of the OS user who started the process. */
  readonly user: string;
}

/**
 * The principal over stdio (design §9): `--as` among those allowed, else the one named like the OS user, else the only one
 * that anybody may be. Throws IDENTITY. Nothing that the client sends has a say.
 */
export function principalForStdio(config: Pick<Config, 'principals'>, { as, user }: StdioCaller): Principal {
  const allowed = config.principals.filter((principal) => mayBe(principal, user));
  const others = allowed.filter(({ id }) => id !== user);
  const found =
    as === undefined
      ? (allowed.find(({ id }) => id === user) ?? (others.length === 1 ? others[0] : undefined))
      : allowed.find(({ id }) => id === as);
  if (found !== undefined) return asPrincipal(found);
  const choice =
    allowed.length === 0
      ? 'Add a principal with `stdio: true` to tollgate.yaml.'
      : `Use --as with one of: ${listNames(allowed.map(({ id }) => id))}.`;
  throw new TollgateError('IDENTITY', {
    detail:
      as === undefined
        ? 'No principal of tollgate.yaml fits the user who started this.'
        : `Principal ${quote(as)} is not open to this user over stdio.`,
    next: choice,
  });
}

/** True when this OS user can be an owner over stdio, `--as` or not. */
export function hasOwnerFor(config: Pick<Config, 'principals'>, user: string): boolean {
  return config.principals.some((principal) => principal.owner && mayBe(principal, user));
}

/**
 * What becomes of a principal under a new configuration: its role, groups and profiles of now, and undefined when it is
 * gone, or when how it proves itself has changed. An Origin header that was checked stays its origin.
 */
export function principalAfter(
  principal: Principal,
  { before, after }: { readonly before: Pick<Config, 'principals'>; readonly after: Pick<Config, 'principals'> },
): Principal | undefined {
  const [old, next] = [before, after].map(({ principals }) => principals.find(({ id }) => id === principal.id));
  if (next === undefined || (old !== undefined && (old.tokenHash !== next.tokenHash || old.stdio !== next.stdio)))
    return undefined;
  const renewed = asPrincipal(next);
  // For a page, or for a host that speaks for one, nobody becomes an owner.
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
