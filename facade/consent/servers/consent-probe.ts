/**
 * The look that one consent allows: a server is started once, as isolated as possible, to list its tools. It gets no
 * more than its owner asked for.
 */

import { type ServerProbeResult, type ServerSettings, UpstreamError } from '../../../adapters/port.ts';
import { asTollgateError, OWNER_CORRECTABLE, TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { ServerConfig } from '../../config/config.ts';
import { withWord } from '../../config/reading/outside-values.ts';
import { addressWithout, argumentsWithout, isSecretName, keysInAddress } from '../../config/servers/secret-shapes.ts';

/** What the look is given beyond nothing. */
export interface ProbeOpenings {
  /** The values of its secrets, including its sign-in. Without it: placeholders. */
  readonly withSecrets?: boolean;
  /** Its configured domains. A remote server is always reached. */
  readonly withNetwork?: boolean;
  /**
   * No isolation, if it is configured so. Without it: a sandbox. A server of a container is looked at in a container,
   * because its program is in the image.
   */
  readonly ownIsolation?: boolean;
}

/** Returns what was asked for, as the flags of `approve` without their dashes. */
export function probeOpeningsOf({ withSecrets, withNetwork, ownIsolation }: ProbeOpenings): readonly string[] {
  return [
    ...(withSecrets === true ? ['with-secrets'] : []),
    ...(withNetwork === true ? ['with-network'] : []),
    ...(ownIsolation === true ? ['own-isolation'] : []),
  ];
}

/** Looks at a server; facade/main.ts knows how. */
export type ConsentProbe = (
  settings: ServerSettings,
  options: { readonly signal: AbortSignal; readonly withSecrets: boolean; readonly consent?: ProbeConsentCheck },
) => Promise<ServerProbeResult>;

/**
 * Returns why the server as configured may not be looked at now: what was shown to a person may have changed by the
 * time it runs.
 */
export type ProbeConsentCheck = () => Promise<TollgateError | undefined>;

/** The placeholder for a secret. Many servers only check that there is one. */
const PLACEHOLDER = 'tollgate-discovery';
const FETCHERS = /^(npx|bunx|pnpx|uvx|pipx)$/;

/** Looks once. Throws as the start of a server; `next` names the flags that would have given it more. */
export async function probeForConsent(
  server: ServerConfig,
  openness: ProbeOpenings,
  {
    look,
    signal,
    consent,
  }: { readonly look: ConsentProbe; readonly signal: AbortSignal; readonly consent?: ProbeConsentCheck },
): Promise<ServerProbeResult> {
  try {
    return await look(probeSettings(server, openness), {
      signal,
      withSecrets: openness.withSecrets === true,
      ...(consent !== undefined && { consent }),
    });
  } catch (thrown) {
    const error =
      thrown instanceof UpstreamError ? refusedList(server.name, thrown, openness) : asTollgateError(thrown);
    if (signal.aborted)
      throw new TollgateError('CANCELLED', {
        detail: 'Stopped by a signal.',
        next: 'Run it again when you want the answer.',
      });
    // It did not run, so giving it more would not help.
    if (error.data.consent !== undefined) throw error;
    const advice = adviceFor(server, openness, error);
    throw advice === undefined
      ? error
      : new TollgateError(error.code, { detail: error.message, next: advice, cause: thrown });
  }
}

/**
 * Returns the settings of the look: the files of the first screen, no network, no secret, isolated, unless more was
 * asked for.
 */
export function probeSettings(
  server: ServerConfig,
  { withSecrets, withNetwork, ownIsolation }: ProbeOpenings,
): ServerSettings {
  const { sandbox, env, headers, oauth, filled = {}, args, url, ...rest } = server;
  const seen = (at: string, text: string): string =>
    withSecrets === true || filled[at] === undefined ? text : withWord(filled[at], PLACEHOLDER);
  const word = (key: string): string => (withSecrets === true ? key : PLACEHOLDER);
  const isWithheld = (part: string, name: string, value: string): boolean =>
    holdsSecret(name, value) || filled[`${part}.${name}`] !== undefined;
  const masked = (values: Readonly<Record<string, string>>): Record<string, string> =>
    Object.fromEntries(
      Object.entries(values).map(([name, value]) => [
        name,
        withSecrets !== true && isWithheld('env', name, value) ? PLACEHOLDER : value,
      ]),
    );
  const reached = Object.fromEntries(
    Object.entries(headers).filter(([name, value]) => withSecrets === true || !isWithheld('headers', name, value)),
  );
  return {
    ...rest,
    args: argumentsWithout(
      args.map((arg, index) => seen(`args.${index}`, arg)),
      word,
    ),
    ...(url !== undefined && { url: addressWithout(seen('url', url), word) }),
    env: masked(env),
    headers: reached,
    ...(withSecrets === true && oauth !== undefined && { oauth }),
    ...(server.transport === 'stdio' && {
      isolation: isProbedInSandbox(server, ownIsolation) ? 'sandbox' : (server.isolation ?? 'sandbox'),
    }),
    ...(sandbox !== undefined && {
      sandbox: {
        ...sandbox,
        network: { ...sandbox.network, allowedDomains: withNetwork === true ? sandbox.network.allowedDomains : [] },
      },
    }),
  };
}

/** Names what was withheld, in case a server does not list its tools. */
export function withheldFromProbe(server: ServerConfig): {
  readonly secrets: readonly string[];
  readonly domains: readonly string[];
} {
  const secrets = [...Object.entries(server.env), ...Object.entries(server.headers)]
    .filter(([name, value]) => holdsSecret(name, value))
    .map(([name]) => name);
  const filled = Object.keys(server.filled ?? {}).map((at) => at.replace(/^(?:env|headers)\./, ''));
  const written = [
    ...(keysInAddress(server.url ?? '').length > 0 ? ['url'] : []),
    ...(argumentsWithout(server.args, () => '').some((arg, index) => arg !== server.args[index]) ? ['args'] : []),
  ];
  return {
    secrets: [...new Set([...secrets, ...filled, ...written])],
    domains: server.sandbox?.network.allowedDomains ?? [],
  };
}

function holdsSecret(name: string, value: string): boolean {
  return value.includes('${secret:') || (isSecretName(name) && value !== '');
}

function adviceFor(server: ServerConfig, openness: ProbeOpenings, error: TollgateError): string | undefined {
  // It was stopped, so nothing that it could be given would help.
  if (error.data.killed === true) return undefined;
  // A person must correct something, and the error says so. Giving the look more would not help, except for a server
  // that asks for no sandbox.
  const isAside = isProbedInSandbox(server, openness.ownIsolation);
  if (error.code === 'SANDBOX_UNAVAILABLE' && isAside)
    return `${error.next} Or look at it as it is configured (direct): tollgate approve ${server.name} --own-isolation`;
  if (OWNER_CORRECTABLE.has(error.code)) return undefined;
  const { secrets, domains } = withheldFromProbe(server);
  const isProgram = server.transport === 'stdio';
  const fetches = isProgram && FETCHERS.test((server.command ?? '').split('/').at(-1) ?? '');
  const flags = [
    ...(openness.withSecrets !== true && (secrets.length > 0 || !isProgram) ? ['--with-secrets'] : []),
    ...(isProgram && openness.withNetwork !== true && domains.length > 0 ? ['--with-network'] : []),
    ...(isAside ? ['--own-isolation'] : []),
  ];
  if (flags.length === 0) return undefined;
  const without = [
    ...(flags.includes('--with-secrets') ? ['secrets'] : []),
    ...(flags.includes('--with-network') ? ['network'] : []),
    ...(flags.includes('--own-isolation') ? ['the rights that it is configured with (direct)'] : []),
  ];
  const why = fetches ? 'It downloads its package when it starts. ' : '';
  return `${error.code === 'INIT_FAILED' ? `${error.next} ` : ''}${why}It was looked at without ${without.join(', ')}. If it needs that to list its tools: tollgate approve ${server.name} ${flags.join(' ')}`;
}

/** A program with all rights is looked at in a sandbox, until its own isolation is asked for. */
export function isProbedInSandbox(
  { transport, isolation }: Pick<ServerConfig, 'transport' | 'isolation'>,
  ownIsolation = false,
): boolean {
  return transport === 'stdio' && isolation === 'direct' && !ownIsolation;
}

/** A server's own text may contain a secret that it was given. */
function refusedList(name: string, { message }: UpstreamError, { withSecrets }: ProbeOpenings): TollgateError {
  return new TollgateError('INIT_FAILED', {
    detail: `Server "${name}" answers tools/list with an error${withSecrets === true ? '.' : `: ${JSON.stringify(message.slice(0, 200))}`}`,
  });
}
