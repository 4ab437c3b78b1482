/**
 * Reads `listen.jwt`: the issuer whose tokens clients may send, and how its claims become principals. Their ids have a
 * form that no principal of the configuration can have.
 */
import { isConfidential } from '../../../catalogs/readers/urls.ts';
import type { Principal } from '../../../policies/port.ts';
import type { ProblemReport } from '../config-problems.ts';
import { DEFAULTS, type WrittenConfig } from '../written-config.ts';

type WrittenJwt = NonNullable<NonNullable<WrittenConfig['listen']>['jwt']>;
type WrittenClaims = NonNullable<WrittenJwt['claims']>;

/** The tokens of one issuer, with every default filled in. */
export interface JwtConfig extends Omit<WrittenJwt, 'resource' | 'algorithms' | 'claims'> {
  /** The MCP endpoint as clients reach it (RFC 9728). */
  readonly resource: string;
  readonly algorithms: readonly NonNullable<WrittenJwt['algorithms']>[number][];
  readonly claims: Omit<WrittenClaims, 'id'> & { readonly id: string };
}

/** Algorithms that issuers commonly use. All are asymmetric: an issuer shares no key with Tollgate. */
const ALGORITHMS = ['RS256', 'PS256', 'ES256', 'EdDSA'] as const;
/** Begins the id of each principal that a token makes. Ids in tollgate.yaml have no colon. */
const PREFIX = 'jwt:';
/** The most characters of a subject (OpenID Connect Core §2). */
const MAX_SUBJECT = 255;

/** Returns the settings, and reports addresses that could be those of someone else. */
export function buildJwt(written: WrittenJwt | undefined, report: ProblemReport): JwtConfig | undefined {
  if (written === undefined) return undefined;
  const { audience, resource, algorithms = ALGORITHMS, claims } = written;
  for (const key of ['issuer', 'jwks', 'resource'] as const)
    if (written[key] !== undefined && !isConfidential(written[key]))
      report.refuse(
        ['listen', 'jwt', key],
        'it is not an https address that every program reads alike, so others could answer for it; write https://…',
      );
  if (resource === undefined && !isConfidential(audience))
    report.refuse(
      ['listen', 'jwt', 'audience'],
      'the audience is not an https address, so clients could not find this endpoint; add resource: the address of ' +
        'the MCP endpoint as clients reach it',
    );
  return { ...written, resource: resource ?? audience, algorithms, claims: { ...claims, id: claims?.id ?? 'sub' } };
}

/**
 * Returns the id of a subject; undefined if it is empty, too long or no valid text. The issuer is part of it, so that
 * two issuers never share an id. Every character that an id in tollgate.yaml could not have is escaped, so that no two
 * subjects share one.
 */
export function subjectId(issuer: string, subject: unknown): string | undefined {
  if (typeof subject !== 'string' || subject === '' || subject.length > MAX_SUBJECT) return undefined;
  // Lone surrogates would all be escaped alike.
  if (/\p{Surrogate}/u.test(subject)) return undefined;
  return `${subjectPrefix(issuer)}${escaped(subject)}`;
}

/** Returns how the ids of an issuer begin. */
export function subjectPrefix(issuer: string): string {
  return `${PREFIX}${escaped(issuer.replace(/^https:\/\//, ''))}:`;
}

/** Returns the names that tokens can give, for the checks of rules. */
export function subjectSettings({ issuer, claims }: JwtConfig): SubjectNames {
  const namesOf = (source: JwtConfig['claims']['role']): readonly string[] => Object.values(source?.values ?? {});
  return {
    idPrefix: subjectPrefix(issuer),
    roles: [DEFAULTS.principal.role, ...namesOf(claims.role)],
    groups: namesOf(claims.groups),
    profiles: ['default', ...namesOf(claims.profiles)],
  };
}

/** Names of roles, groups and profiles, and how ids begin. */
export interface SubjectNames {
  readonly idPrefix: string;
  readonly roles: readonly string[];
  readonly groups: readonly string[];
  readonly profiles: readonly string[];
}

/** Returns whether a token made this principal; false for one of tollgate.yaml. */
export function isSubject({ id }: Pick<Principal, 'id'>): boolean {
  return id.startsWith(PREFIX);
}

function escaped(text: string): string {
  return text.replace(/[^A-Za-z0-9._@-]/gu, (letter) =>
    [...Buffer.from(letter)].map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`).join(''),
  );
}
