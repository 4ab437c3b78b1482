/** The type of a row of the operation table: what one method of MCP does differently in the nine stages. */
import { CallPathHandles } from '../../catalogs/readers/path-handles.ts';
import { andThen } from '../../catalogs/text/awaitable.ts';
import type { EffectKind } from '../../policies/port.ts';
import type { DecideSteps } from '../call/decide.ts';
import type { LoweredCall } from '../call/lowering/lowered-call.ts';
import type { ResolveStep, ServerStep } from '../call/resolve.ts';
import type { Shaped, ShapeStep } from '../call/shape.ts';
import type { BoundArguments } from '../call/validate.ts';
import type { ExposedTool } from '../exposure/exposed-tool.ts';

interface ServerMethod {
  readonly method: string;
  readonly effect: LoweredCall['effect'];
  readonly pathHandles?: LoweredCall['pathHandles'];
  readonly args?: BoundArguments['doc'];
}

/** One method of MCP. The other stages are the same for all methods. */
export interface Operation extends DecideSteps {
  readonly kind: EffectKind;
  /** Stage 2. */
  readonly resolve: ResolveStep;
  readonly serverOf: ServerStep;
  /** Stage 7. */
  readonly shape: ShapeStep;
}

/** Shared by calls that name no path. */
const NO_PATHS = new CallPathHandles([]);

/** Returns the call of a method, as its server gets it. `args`: its params, if they differ from the bound ones. */
export function callOfServer(
  exposed: ExposedTool,
  { doc }: BoundArguments,
  { method, effect, pathHandles = NO_PATHS, args = doc }: ServerMethod,
): LoweredCall {
  const { server } = exposed;
  return {
    exposed,
    effect,
    argsText: doc.text,
    args: doc.value,
    labels: server.labels,
    timeoutMs: server.timeoutMs,
    hardTimeoutMs: server.hardTimeoutMs,
    headShare: 1,
    pathHandles,
    destination: { kind: 'server', server: server.adapter, method, tool: '', args },
  };
}

/** The text of a result without content. */
export const NO_CONTENT = '{}';

/** An answer without content, as it leaves. */
export const NOTHING: Shaped = {
  text: NO_CONTENT,
  sent: NO_CONTENT.length,
  cut: false,
  spilled: 0,
  isError: false,
  redactions: 0,
  escaped: 0,
  links: 0,
};

/**
 * Returns the same operation, decided and recorded again but sent to no server: for a request that continues a call,
 * and for a notification about what was allowed before.
 */
export function decidedOnly(operation: Operation): Operation {
  return {
    ...operation,
    lower: (exposed, bound, context) =>
      andThen(operation.lower(exposed, bound, context), (lowered) => ({
        ...lowered,
        destination: { kind: 'own', answer: async () => ({ text: NO_CONTENT, value: {}, exact: true }) },
      })),
    shape: () => NOTHING,
  };
}
