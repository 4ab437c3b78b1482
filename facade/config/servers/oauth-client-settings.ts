/** Reads `oauth` of a server: the client of a sign-in. Refuses a client whose secret another server could get. */
import type { OAuthSettings } from '../../../adapters/port.ts';
import { isConfidential } from '../../../catalogs/readers/urls.ts';
import type { ServerDefinition } from '../config.ts';
import { type ProblemReport, quote } from '../config-problems.ts';
import type { WrittenServer } from '../written-config.ts';

/** What the building needs besides the entry. */
interface OAuthContext {
  readonly definition: ServerDefinition;
  readonly report: ProblemReport;
  /** The file before variables were filled in. */
  readonly raw: unknown;
  readonly secrets: Set<string>;
}

/** Returns the settings with their default, and reports every error; undefined if none are written. */
export function buildOAuth(
  name: string,
  { oauth }: WrittenServer,
  { definition, report, raw, secrets }: OAuthContext,
): OAuthSettings | undefined {
  if (oauth === undefined) return undefined;
  const { grant = 'authorization_code', clientId, clientSecret, issuer } = oauth;
  const refuse = (key: string, message: string): void =>
    report.refuse(['servers', name, 'oauth', key], `server ${quote(name)}: ${message}`);
  const isWritten = Object.keys(definition.headers).some((header) => header.toLowerCase() === 'authorization');
  if (definition.url === undefined)
    refuse(firstKey(oauth), 'oauth is only for a url: a started program signs in by itself; remove it');
  else if (!isConfidential(definition.url))
    refuse(
      firstKey(oauth),
      'oauth at an address without https: others on the network could read the token; write https://…',
    );
  if (isWritten)
    refuse(
      firstKey(oauth),
      'both oauth and a header Authorization: a request can have only one of them; remove the other',
    );
  if (clientSecret !== undefined && clientId === undefined)
    refuse('clientSecret', 'clientSecret without a client; add clientId');
  if (clientSecret !== undefined && issuer === undefined)
    refuse(
      'clientSecret',
      'without issuer the server alone would decide who gets the secret; add issuer: the address that the ' +
        'client is registered with',
    );
  if (issuer !== undefined && !isConfidential(issuer))
    refuse(
      'issuer',
      'the issuer is not an https address that every program reads alike, so it could not be told from an ' +
        'impostor; write https://…',
    );
  if (grant === 'client_credentials' && clientSecret === undefined)
    refuse('grant', 'client_credentials needs a client with a secret: add clientId, clientSecret and issuer');
  if (clientSecret !== undefined && clientSecret !== '' && !clientSecret.includes('${secret:'))
    secrets.add(clientSecret);
  if (isLiteral(raw, name))
    report.warn(
      ['servers', name, 'oauth', 'clientSecret'],
      'clientSecret is in the file in clear: anyone who reads the file has it; store it with tollgate secret set, ' +
        'and write ${secret:NAME}',
    );
  return { ...oauth, grant };
}

function firstKey(oauth: object): string {
  return Object.keys(oauth)[0] ?? '';
}

function isLiteral(raw: unknown, name: string): boolean {
  const written = (raw as { servers?: Record<string, { oauth?: { clientSecret?: unknown } }> } | null)?.servers?.[name]
    ?.oauth?.clientSecret;
  return typeof written === 'string' && !written.includes('${');
}
