/**
 * Decides from the OTEL_* variables, or from an SDK that the operator has registered in this process, whether telemetry
 * is exported. Only then its code is loaded: it is a bundle of its own.
 */
import { createRequire } from 'node:module';
import { telemetryFile } from '../../../catalogs/programs/own-code.ts';
import type { Redactor } from '../../output/redactor.ts';
import { codeOfFailure } from '../metrics/operation-durations.ts';
import type { Logger } from '../process-log.ts';
import type { Telemetry } from './telemetry-port.ts';

const require = createRequire(import.meta.url);

/** The signals that are exported, and with which protocol. */
export interface OtlpSettings {
  readonly traces?: OtlpProtocol | undefined;
  readonly metrics?: OtlpProtocol | undefined;
}

/** The protocols of OTLP over HTTP. */
export type OtlpProtocol = 'http/protobuf' | 'http/json';

/** Where the API of OpenTelemetry, version 1, keeps what an operator has registered. */
export const REGISTERED: symbol = Symbol.for('opentelemetry.js.api.1');

type Variables = Readonly<Record<string, string | undefined>>;

/** What the bundle exports. */
export interface TelemetryModule {
  readonly openTelemetry: (parts: {
    readonly otlp: OtlpSettings | undefined;
    readonly env: Variables;
    readonly redact: (text: string) => string;
    /** The classes of errors are other ones in another bundle. */
    readonly codeOf: (failure: unknown) => string;
    readonly warn: (line: string) => void;
  }) => Telemetry;
}

/**
 * Reads the variables of OpenTelemetry (opentelemetry.io, SDK environment variables and OTLP exporter). `problem`: what
 * cannot be used, for the person who started Tollgate.
 */
export function otlpSettings(env: Variables): { readonly otlp?: OtlpSettings; readonly problem?: string } {
  if (env.OTEL_SDK_DISABLED?.trim().toLowerCase() === 'true') return {};
  const found: { traces?: OtlpProtocol; metrics?: OtlpProtocol } = {};
  for (const signal of ['traces', 'metrics'] as const) {
    const name = signal.toUpperCase();
    const endpoint = env[`OTEL_EXPORTER_OTLP_${name}_ENDPOINT`] || env.OTEL_EXPORTER_OTLP_ENDPOINT;
    if (!endpoint || (env[`OTEL_${name}_EXPORTER`] || 'otlp') !== 'otlp') continue;
    const protocol = env[`OTEL_EXPORTER_OTLP_${name}_PROTOCOL`] || env.OTEL_EXPORTER_OTLP_PROTOCOL || 'http/protobuf';
    if (protocol !== 'http/protobuf' && protocol !== 'http/json')
      return {
        problem:
          'Telemetry is off: OTEL_EXPORTER_OTLP_PROTOCOL names a protocol that Tollgate does not speak. Write ' +
          'http/protobuf or http/json; most collectors take both on port 4318.',
      };
    if (!URL.canParse(endpoint) || !/^https?:$/.test(new URL(endpoint).protocol))
      return {
        problem:
          `Telemetry is off: the OTLP endpoint for ${signal} is no address. Write for example ` +
          'OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318.',
      };
    found[signal] = protocol;
  }
  return found.traces === undefined && found.metrics === undefined ? {} : { otlp: found };
}

/** Registers what is secret in the variables: values of headers, and user and password of addresses. */
function registerSecretsOf(env: Variables, redactor: Redactor): void {
  for (const [name, value = ''] of Object.entries(env)) {
    if (!name.startsWith('OTEL_EXPORTER_OTLP_')) continue;
    if (name.endsWith('_HEADERS')) for (const secret of headerSecrets(value)) redactor.register(secret);
    if (name.endsWith('_ENDPOINT') && URL.canParse(value)) {
      const { username, password } = new URL(value);
      for (const part of [username, password, decoded(password)]) redactor.register(part);
    }
  }
}

/** Returns each value as it is written and as it is sent, and without the name of its scheme (`Bearer`). */
function headerSecrets(list: string): readonly string[] {
  return list.split(',').flatMap((pair) => {
    const written = pair.slice(pair.indexOf('=') + 1).trim();
    const sent = decoded(written);
    return [written, sent, sent.replace(/^\S+\s+/, '')];
  });
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Opens telemetry; undefined if nothing is exported. Never throws: calls do not depend on telemetry. */
export function loadTelemetry(
  env: Variables,
  parts: { readonly redactor: Redactor; readonly log: Logger; readonly tell: (line: string) => void },
): Telemetry | undefined {
  const { redactor, log, tell } = parts;
  registerSecretsOf(env, redactor);
  const { otlp, problem } = otlpSettings(env);
  if (problem !== undefined) tell(problem);
  const registered = (globalThis as Record<symbol, unknown>)[REGISTERED] as Record<string, unknown> | undefined;
  if (otlp === undefined && registered?.trace === undefined && registered?.metrics === undefined) return undefined;
  try {
    const { openTelemetry } = require(telemetryFile()) as TelemetryModule;
    return openTelemetry({
      otlp,
      env,
      redact: (text) => redactor.redact(text).value,
      codeOf: codeOfFailure,
      warn: (line) => log.warn(line),
    });
  } catch (err) {
    log.warn({ err }, 'telemetry cannot be loaded');
    return undefined;
  }
}
