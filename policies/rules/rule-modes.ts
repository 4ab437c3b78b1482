/** Compiles modes, which may depend on the caller. lib/modes.rego decides which mode applies to a call. */

import { MODE_NAMES, type Mode, type ModeSettings } from '../port.ts';
import type { RuleCondition } from './argument-tests.ts';
import { setOf } from './rule-conditions.ts';

/** A mode as lib/modes.rego reads it: one for all callers, or one that depends on the caller. */
export type ModeData =
  | Mode
  | {
      readonly first: readonly { readonly principal: readonly RuleCondition[]; readonly mode: Mode }[];
      readonly otherwise: Mode;
    };

const STRENGTH: readonly Mode[] = ['off', 'shadow', 'warn', 'enforce'];

/** Returns the mode of a rule or package. For every caller, the weaker of its own mode and its source's mode counts. */
export function compileMode(source: ModeSettings, own: keyof typeof MODE_NAMES = 'enforce'): ModeData {
  const within = (mode: Mode): Mode => weaker(mode, MODE_NAMES[own]);
  const first = (source.modes ?? []).map(({ profile, origin, mode }) => ({
    principal: [
      ...(profile === undefined ? [] : [{ of: 'profile', any: setOf([profile]) }]),
      ...(origin === undefined ? [] : [{ of: 'origin', any: setOf([origin]) }]),
    ],
    mode: within(mode),
  }));
  const otherwise = within(source.mode);
  return first.every(({ mode }) => mode === otherwise) ? otherwise : { first, otherwise };
}

/** Whether this mode applies to any caller. */
export function mayHaveMode(mode: Mode, data: ModeData): boolean {
  return typeof data === 'string'
    ? data === mode
    : data.otherwise === mode || data.first.some((entry) => entry.mode === mode);
}

function weaker(a: Mode, b: Mode): Mode {
  return STRENGTH[Math.min(STRENGTH.indexOf(a), STRENGTH.indexOf(b))] ?? 'enforce';
}
