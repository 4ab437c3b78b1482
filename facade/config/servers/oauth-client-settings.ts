/** Reads `oauth` of a server: the client of a sign-in. Refuses a client whose secret another server could get. */
import { type OAuthSettings, signInSecrets } from '../../../adapters/port.ts';
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

type Refuse = (key: string, message: string) => void;

/** Returns the settings with their default, and reports every error; undefined if none are written. */
export function buildOAuth(
  name: string,
  { oauth }: WrittenServer,
  { definition, report, raw, secrets }: OAuthContext,
): OAuthSettings | undefined {
  if (oauth === undefined) return undefined;
  const settings: OAuthSettings = { ...oauth, grant: oauth.grant ?? 'authorization_code' };
  const pathOf = (key: string): readonly string[] => ['servers', name, 'oauth', ...key.split('.')];
  const refuse: Refuse = (key, message) => report.refuse(pathOf(key), `server ${quote(name)}: ${message}`);
  checkPlace(settings, { definition, refuse });
  checkClient(settings, refuse);
  checkEnterprise(settings, refuse);
  const written = (raw as { servers?: Record<string, { oauth?: OAuthSettings }> } | null)?.servers?.[name]?.oauth;
  const before = signInSecrets(written);
  for (const [key, text] of Object.entries(signInSecrets(settings))) {
    if (text !== '' && !text.includes('${secret:')) secrets.add(text);
    if (before[key]?.includes('${') === false)
      report.warn(
        pathOf(key),
        `${key} is in the file in clear: anyone who reads the file has it; store it with tollgate secret set, ` +
          'and write ${secret:NAME}',
      );
  }
  return settings;
}

/** Checks that the server can be signed in to, and that no one on the network reads its token. */
function checkPlace(
  oauth: OAuthSettings,
  { definition, refuse }: { readonly definition: ServerDefinition; readonly refuse: Refuse },
): void {
  const first = Object.keys(oauth)[0] ?? '';
  const isWritten = Object.keys(definition.headers).some((header) => header.toLowerCase() === 'authorization');
  if (definition.url === undefined)
    refuse(first, 'oauth is only for a url: a started program signs in by itself; remove it');
  else if (!isConfidential(definition.url))
    refuse(first, 'oauth at an address without https: others on the network could read the token; write https://…');
  if (isWritten)
    refuse(first, 'both oauth and a header Authorization: a request can have only one of them; remove the other');
}

function checkClient({ grant, issuer, clientId, clientSecret, privateKey }: OAuthSettings, refuse: Refuse): void {
  const [proof] = [
    ...(clientSecret === undefined ? [] : ['clientSecret']),
    ...(privateKey === undefined ? [] : ['privateKey']),
  ];
  if (clientSecret !== undefined && privateKey !== undefined)
    refuse('privateKey', 'both clientSecret and privateKey: a client proves itself in one way; remove one of them');
  if (proof !== undefined && clientId === undefined) refuse(proof, `${proof} without a client; add clientId`);
  if (proof !== undefined && issuer === undefined)
    refuse(
      proof,
      'without issuer the server alone would decide who gets the secret; add issuer: the address that the ' +
        'client is registered with',
    );
  if (issuer !== undefined && !isConfidential(issuer)) refuse('issuer', UNSAFE_ISSUER);
  if (grant === 'client_credentials' && proof === undefined)
    refuse(
      'grant',
      'client_credentials needs a client with a secret: add clientId, issuer, and clientSecret or privateKey',
    );
}

const UNSAFE_ISSUER =
  'the issuer is not an https address that every program reads alike, so it could not be told from an ' +
  'impostor; write https://…';

function checkEnterprise({ grant, issuer, clientId, enterprise }: OAuthSettings, refuse: Refuse): void {
  if (grant !== 'enterprise') {
    if (enterprise !== undefined)
      refuse('enterprise', 'enterprise is only for grant: enterprise; add that grant, or remove it');
    return;
  }
  if (enterprise === undefined || issuer === undefined || clientId === undefined)
    return refuse(
      'grant',
      'enterprise needs issuer and clientId (at the issuer of the server), and enterprise: {issuer, clientId, ' +
        'idToken} (at the identity provider)',
    );
  if (!isConfidential(enterprise.issuer)) refuse('enterprise.issuer', UNSAFE_ISSUER);
  if (enterprise.clientSecret !== undefined && enterprise.privateKey !== undefined)
    refuse(
      'enterprise.privateKey',
      'both clientSecret and privateKey: a client proves itself in one way; remove one of them',
    );
}
