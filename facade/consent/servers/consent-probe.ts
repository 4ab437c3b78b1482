/**
 * The probe that one consent allows. A server is started once, as isolated as possible, to list its tools. It gets no
 * more than its owner allowed.
 */

import { type ServerProbeResult, type ServerSettings, UpstreamError } from '../../../adapters/port.ts';
import { asTollgateError, OWNER_CORRECTABLE, TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { ServerConfig } from '../../config/config.ts';
import { withPlaceholder } from '../../config/reading/outside-values.ts';
import { isSecretName, keysInAddress, maskAddress, maskArguments } from '../../config/servers/secret-shapes.ts';

/** What the owner allows a probe to use. */
export interface ProbeOpenings {
  /** The values of the server's secrets, including its sign-in. If not set, the probe gets placeholders. */
  readonly withSecrets?: boolean;
  /** The configured domains. A remote server is always reached. */
  readonly withNetwork?: boolean;
  /**
   * The configured isolation, even if that is none. If not set, a sandbox is used. A server of a container is probed in
   * its container, because its program is in the image.
   */
  readonly ownIsolation?: boolean;
}

/** Returns what was allowed, as the flags of `approve` without dashes. */
export function probeOpeningsOf({ withSecrets, withNetwork, ownIsolation }: ProbeOpenings): readonly string[] {
  return [
    ...(withSecrets === true ? ['with-secrets'] : []),
    ...(withNetwork === true ? ['with-network'] : []),
    ...(ownIsolation === true ? ['own-isolation'] : []),
  ];
}

/** Probes a server. facade/main.ts provides the implementation. */
export type ConsentProbe = (
  settings: ServerSettings,
  options: { readonly signal: AbortSignal; readonly withSecrets: boolean; readonly consent?: ProbeConsentCheck },
) => Promise<ServerProbeResult>;

/**
 * Returns why the configured server may not be probed now. The files that a person saw may have changed before they
 * run.
 */
export type ProbeConsentCheck = () => Promise<TollgateError | undefined>;

/** The placeholder for a secret. Many servers only check that there is one. */
const PLACEHOLDER = 'tollgate-discovery';
const FETCHERS = /^(npx|bunx|pnpx|uvx|pipx)$/;

/** Probes a server once. Throws the errors of a start. `next` names the flags that would allow the probe more. */
export async function probeForConsent(
  server: ServerConfig,
  openness: ProbeOpenings,
  {
    probe,
    signal,
    consent,
  }: { readonly probe: ConsentProbe; readonly signal: AbortSignal; readonly consent?: ProbeConsentCheck },
): Promise<ServerProbeResult> {
  try {
    return await probe(probeSettings(server, openness), {
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
    // It did not run, so allowing it more would not help.
    if (error.data.consent !== undefined) throw error;
    const advice = adviceFor(server, openness, error);
    throw advice === undefined
      ? error
      : new TollgateError(error.code, { detail: error.message, next: advice, cause: thrown });
  }
}

/**
 * Returns the settings of the probe. Unless more is allowed, it has the files of the first screen, no network, no
 * secret, and a sandbox.
 */
export function probeSettings(
  server: ServerConfig,
  { withSecrets, withNetwork, ownIsolation }: ProbeOpenings,
): ServerSettings {
  const { sandbox, env, headers, oauth, filled = {}, args, url, ...rest } = server;
  const seen = (at: string, text: string): string =>
    withSecrets === true || filled[at] === undefined ? text : withPlaceholder(filled[at], PLACEHOLDER);
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
    args: maskArguments(
      args.map((arg, index) => seen(`args.${index}`, arg)),
      word,
    ),
    ...(url !== undefined && { url: maskAddress(seen('url', url), word) }),
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

/** Names what the probe did not get, for a server that does not list its tools. */
export function withheldFromProbe(server: ServerConfig): {
  readonly secrets: readonly string[];
  readonly domains: readonly string[];
} {
  const secrets = [...Object.entries(server.env), ...Object.entries(server.headers)]
    .filter(([name, value]) => holdsSecret(name, value))
    .map(([name]) => name);
  // A probe starts with the server's own variables, without those of profiles.
  const filled = Object.keys(server.filled ?? {})
    .filter((at) => !at.startsWith('environments.'))
    .map((at) => at.replace(/^(?:env|headers)\./, ''));
  const written = [
    ...(keysInAddress(server.url ?? '').length > 0 ? ['url'] : []),
    ...(maskArguments(server.args, () => '').some((arg, index) => arg !== server.args[index]) ? ['args'] : []),
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
  // The kill switch stopped it, so allowing it more would not help.
  if (error.data.killed === true) return undefined;
  // The error names what a person must correct. Allowing the probe more helps only a server that is configured without
  // a sandbox.
  const isSandboxedProbe = isProbedInSandbox(server, openness.ownIsolation);
  if (error.code === 'SANDBOX_UNAVAILABLE' && isSandboxedProbe)
    return `${error.next} Or probe it as it is configured (direct): tollgate approve ${server.name} --own-isolation`;
  if (OWNER_CORRECTABLE.has(error.code)) return undefined;
  const { secrets, domains } = withheldFromProbe(server);
  const isProgram = server.transport === 'stdio';
  const fetches = isProgram && FETCHERS.test((server.command ?? '').split('/').at(-1) ?? '');
  const flags = [
    ...(openness.withSecrets !== true && (secrets.length > 0 || !isProgram) ? ['--with-secrets'] : []),
    ...(isProgram && openness.withNetwork !== true && domains.length > 0 ? ['--with-network'] : []),
    ...(isSandboxedProbe ? ['--own-isolation'] : []),
  ];
  if (flags.length === 0) return undefined;
  const without = [
    ...(flags.includes('--with-secrets') ? ['secrets'] : []),
    ...(flags.includes('--with-network') ? ['network'] : []),
    ...(flags.includes('--own-isolation') ? ['the rights that it is configured with (direct)'] : []),
  ];
  return [
    ...(error.code === 'INIT_FAILED' ? [error.next] : []),
    ...(fetches ? ['It downloads its package when it starts.'] : []),
    `It was probed without ${without.join(', ')}.`,
    `If it needs that to list its tools: tollgate approve ${server.name} ${flags.join(' ')}`,
  ].join(' ');
}

/** Returns true for a server without isolation that is probed in a sandbox. */
export function isProbedInSandbox(
  { transport, isolation }: Pick<ServerConfig, 'transport' | 'isolation'>,
  ownIsolation = false,
): boolean {
  return transport === 'stdio' && isolation === 'direct' && !ownIsolation;
}

/** The server's error text may contain a secret that the probe got. */
function refusedList(name: string, { message }: UpstreamError, { withSecrets }: ProbeOpenings): TollgateError {
  const reason = withSecrets === true ? '.' : `: ${JSON.stringify(message.slice(0, 200))}`;
  return new TollgateError('INIT_FAILED', { detail: `Server "${name}" answers tools/list with an error${reason}` });
}
