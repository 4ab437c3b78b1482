/** Makes the input of the policy from a written case. Reports unknown principals and calls at their place. */

import { type ErrorCode, TollgateError } from '../../../catalogs/errors/error-table.ts';
import { definedFields } from '../../../catalogs/text/collections.ts';
import type { CallInput, ListTool, Principal } from '../../port.ts';
import type { PolicyProblem } from '../../rules/policy-problems.ts';
import { isVerdict, type SuiteCase, type SuitePrincipal } from './test-suite.ts';
import { completeEffect } from './written-effect.ts';

/** A case that can be run: about a call, or about a tool in a list. */
export type DraftedCase = { readonly written: SuiteCase } & (
  | { readonly input: CallInput }
  | { readonly principal: Principal; readonly tools: readonly ListTool[] }
);

/** A fixed Monday, so that rules on days and hours give the same results at every run. */
export const DEFAULT_CASE_TIME = '2026-01-05T12:00:00Z';

/** The part of a case that an error of the facade is about. */
const PLACES: Readonly<Partial<Record<ErrorCode, readonly string[]>>> = {
  IDENTITY: ['as'],
  CONFIG_INVALID: ['as'],
  UNKNOWN_TOOL: ['call', 'tool'],
  ARGS_INVALID: ['call', 'args'],
  NOT_SUPPORTED: ['call', 'args'],
};

/** Returns the case with its facts, or its problem. */
export function draftCase(written: SuiteCase, draft: Drafting, workspace: string): DraftedCase | PolicyProblem {
  try {
    const principal = principalOf(written.as, draft);
    const own = written.effect === undefined ? undefined : completeEffect(written.effect, workspace);
    if (isVerdict(written.expect))
      return { written, principal, tools: own ? [own.effect] : draft.tools(principal, written.call?.tool ?? '') };
    const { effect, argsText } = own ?? callOf(written, principal, draft);
    const { run = 'run', labels = [], time = DEFAULT_CASE_TIME, plan } = written;
    const at = new Date(time).toISOString();
    return { written, input: { principal, run, effect, argsText, labels, time: at, ...definedFields({ plan }) } };
  } catch (thrown) {
    const at = thrown instanceof TollgateError ? PLACES[thrown.code] : undefined;
    if (!(thrown instanceof TollgateError) || at === undefined) throw thrown;
    return {
      ...written.placeOf(at),
      message: thrown.next === thrown.row.next ? thrown.message : `${thrown.message} ${thrown.next}`,
    };
  }
}

/** A principal that is written in the case gets the defaults of the configuration. */
function principalOf(as: SuitePrincipal | undefined, draft: Drafting): Principal {
  if (as === undefined || typeof as === 'string') return draft.principal(as);
  const { id, role = 'user', groups = [], profiles = ['default'], origin = id, owner = false } = as;
  return { id, role, groups, profiles, origin, owner };
}

function callOf({ call, labels = [] }: SuiteCase, principal: Principal, draft: Drafting): ReturnType<Drafting['call']> {
  return draft.call(principal, { tool: call?.tool ?? '', args: call?.args ?? {}, labels });
}

/**
 * What only the facade knows about principals and calls. All methods throw TollgateError, which becomes a problem of
 * the case.
 */
export interface Drafting {
  /** Returns the principal with this id; without an id, the only principal. */
  principal(id: string | undefined): Principal;
  call(
    principal: Principal,
    call: {
      readonly tool: string;
      readonly args: Readonly<Record<string, unknown>>;
      readonly labels: readonly string[];
    },
  ): Pick<CallInput, 'effect' | 'argsText'>;
  /** Returns what a list would ask about a tool. */
  tools(principal: Principal, tool: string): readonly ListTool[];
}
