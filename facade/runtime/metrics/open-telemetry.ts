/**
 * Exports what models are shown to OpenTelemetry, if the operator has registered an SDK in this process, as with
 * `NODE_OPTIONS=--import …`. The provider is read where SDKs register it: a symbol that all releases of the API share.
 * The package @opentelemetry/api is not used: a release of it refuses the provider of an older one, and then does
 * nothing.
 */
import type { MeterProvider } from '@opentelemetry/api';
import { VERSION } from '../../serve/version.ts';
import type { ContextSample } from './context-accounts.ts';

/** Of version 1 of the API. */
const API = Symbol.for('opentelemetry.js.api.1');

/**
 * Begins the export. It ends with the process: an SDK that exports once more at the end of the process gets the last
 * counts. Never throws: `onFault` gets the error of an SDK.
 */
export function exportContext(
  accounts: { readonly samples: () => readonly ContextSample[] },
  onFault: (thrown: unknown) => void,
): void {
  const { metrics } = ((globalThis as Record<symbol, unknown>)[API] ?? {}) as { readonly metrics?: MeterProvider };
  if (metrics === undefined) return;
  try {
    const meter = metrics.getMeter('tollgate', VERSION);
    const bytes = meter.createObservableCounter('tollgate.context.bytes', {
      description: 'Lists, arguments and results, as shown and as they would be without Tollgate.',
      unit: 'By',
    });
    const tokens = meter.createObservableCounter('tollgate.context.tokens', {
      description: 'The same in tokens, estimated.',
      unit: '{token}',
    });
    meter.addBatchObservableCallback(
      (result) => {
        for (const { kind, side, ...sample } of accounts.samples()) {
          result.observe(bytes, sample.bytes, { kind, side });
          result.observe(tokens, sample.tokens, { kind, side });
        }
      },
      [bytes, tokens],
    );
  } catch (thrown) {
    onFault(thrown);
  }
}
