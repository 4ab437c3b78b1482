/** The type of a row of the operation table: what one method of MCP does differently in the nine stages. */
import type { EffectKind } from '../../policies/port.ts';
import type { DecideSteps } from '../call/decide.ts';
import type { ResolveStep } from '../call/resolve.ts';
import type { ShapeStep } from '../call/shape.ts';

/** One method of MCP. The other stages are the same for all methods. */
export interface Operation extends DecideSteps {
  readonly kind: EffectKind;
  /** Stage 2. */
  readonly resolve: ResolveStep;
  /** Stage 7. */
  readonly shape: ShapeStep;
}
