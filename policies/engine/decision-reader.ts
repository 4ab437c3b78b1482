/**
 * Reads the answers of policy WebAssembly. Refuses an answer that is not exactly a decision; only a literal `allow`
 * allows.
 */

import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { explainOpaque } from '../../catalogs/programs/command-facts.ts';
import type { ArgumentBound } from '../../catalogs/projection/argument-bounds.ts';
import { isJsonObject } from '../../catalogs/schemas/json-schema.ts';
import {
  APPROVAL_SCOPES,
  type BudgetObligation,
  type CallDecision,
  type CallInput,
  type Exposure,
  type ListDecision,
  type Obligations,
  type Reason,
  type RequestedExposure,
  type ShadowReason,
} from '../port.ts';
import { readExposed } from '../rego/expose-members.ts';
import { checkMembers } from '../rego/set-members.ts';
import { CALL_PARTS, type CallPart } from './policy-input.ts';

/** The result object of an evaluation. */
export type PolicyResult = Readonly<Record<string, unknown>>;

const SCOPES = ['run', 'session', 'principal', 'server', 'tool', 'origin'] as const;
const OUTCOMES = ['allow', 'ask', 'deny'] as const;
const SHADOW_MODES = ['warn', 'shadow'] as const;
const VERDICTS = ['always', 'maybe', 'never'] as const;
const VALIDATION = ['off', 'warn', 'strict'] as const;
const LIMITS = ['window', 'calls', 'argBytes', 'outputBytes', 'wallMs', 'concurrent'] as const;

/** Reads a result of `tollgate/call/decision`. Throws POLICY_FAILED. */
export function readCallDecision(value: PolicyResult): CallDecision {
  requireThat(value.version === 1, 'version');
  checkMembers(list(value.extended, 'extended'));
  const outcome = oneOf(OUTCOMES, value.outcome, 'outcome');
  const reasons = list(value.reasons, 'reasons').map(readReason);
  requireThat(reasons.length > 0, 'reasons');
  const shadow = list(value.shadow, 'shadow').map(readShadow);
  return { outcome, reasons, obligations: readObligations(record(value.obligations, 'obligations')), shadow };
}

/** For a command whose words are known to the input but not to its reader, as in a hand-written suite. */
const UNKNOWN_CAUSE = { what: 'it does not reduce to literal words', next: 'Write literal words.' };

/**
 * Returns the decision with a note at each rule that matched because the command is opaque, or has no known words: why,
 * and what to write. Decisions are kept by the rules that match, whatever the command is, so this is not part of them.
 */
export function noteOpaqueCommand(decision: CallDecision, { effect: { command } }: CallInput): CallDecision {
  if (command?.opaque !== true) return decision;
  const { reasons, shadow } = decision;
  const isUnread = command.words.length === 0;
  const isMeant = ({ onCommands, onOpaque }: Reason): boolean => onOpaque === true || (isUnread && onCommands === true);
  if (![...reasons, ...shadow].some(isMeant)) return decision;
  const { what, next } = explainOpaque(command.text) ?? UNKNOWN_CAUSE;
  const note = <T extends Reason>(reason: T): T => {
    if (!isMeant(reason)) return reason;
    const because = reason.onOpaque
      ? 'This command is not plain'
      : 'It matched only because parts of this command cannot be read';
    const message = `${reason.message} ${because}: ${what}.${next === '' ? '' : ` ${next}`}`;
    return { ...reason, message, ...(isUnread && reason.onCommands && { unread: true as const }) };
  };
  return { ...decision, reasons: reasons.map(note), shadow: shadow.map(note) };
}

/** The rules that a decision depends on, by number: all that read the call, and those of them that the call matches. */
export interface DecisionReading {
  readonly rules: readonly number[];
  readonly matched: readonly number[];
  readonly parts: readonly CallPart[];
}

/**
 * Reads a result of `tollgate/fired/decision`. `reading` is undefined if the decision depends on more. Throws
 * POLICY_FAILED.
 */
export function readDependentDecision({ decision, reading }: PolicyResult): {
  readonly decision: CallDecision;
  readonly reading: DecisionReading | undefined;
} {
  const made = readCallDecision(record(decision, 'decision'));
  if (reading === null) return { decision: made, reading: undefined };
  const { rules, parts, ...rest } = record(reading, 'reading');
  return {
    decision: made,
    reading: {
      rules: numbers(rules, 'rules'),
      matched: readMatched(rest),
      parts: list(parts, 'parts').map((part) => oneOf(CALL_PARTS, part, 'parts')),
    },
  };
}

/** Reads the numbers of rules in a result of `tollgate/fired/answer`. Throws POLICY_FAILED. */
export function readMatched({ matched }: PolicyResult): readonly number[] {
  return numbers(matched, 'matched');
}

/** Reads a result of `tollgate/list/decisions` for `count` tools. Throws POLICY_FAILED. */
export function readListDecisions(value: PolicyResult, count: number): readonly ListDecision[] {
  requireThat(value.version === 1, 'version');
  readRequestedExposures(value);
  const schemaProfile = text(value.schemaProfile, 'schemaProfile');
  const verdicts = list(value.verdicts, 'verdicts').map(readVerdict);
  const tools = list(value.tools, 'tools');
  requireThat(tools.length === count, 'one verdict for each tool');
  return tools.map((entry) => {
    const tool = record(entry, 'tools');
    const verdict = typeof tool.same === 'number' ? (verdicts[tool.same] ?? failed('same')) : readVerdict(tool);
    return { ...verdict, expose: list(tool.expose, 'expose').map(readExposure), schemaProfile };
  });
}

/** Reads the part of a list decision that is about `expose` in Rego. Throws POLICY_FAILED. */
export function readRequestedExposures(value: PolicyResult): readonly RequestedExposure[] {
  return readExposed(list(value.exposed, 'exposed'), list(value.unshown, 'unshown'));
}

/** Reads the verdict of one tool, or of all tools of a kind. */
function readVerdict(value: unknown): Omit<ListDecision, 'expose' | 'schemaProfile'> {
  const { verdict, reasons, says, bounds } = record(value, 'verdicts');
  return {
    verdict: oneOf(VERDICTS, verdict, 'verdict'),
    reasons: list(reasons, 'reasons').map(readReason),
    ...(says === undefined ? {} : { says: list(says, 'says').map(readSaying) }),
    ...(bounds === undefined ? {} : { bounds: list(bounds, 'bounds').map(readBound) }),
  };
}

function readObligations(value: PolicyResult): Obligations {
  const caps = record(value.caps, 'caps');
  const { validateOutput } = value;
  return {
    caps: { ...optionalNumber(caps, 'bytes'), ...optionalNumber(caps, 'lines') },
    ...optionalNumber(value, 'timeoutMs'),
    pins: record(value.pins, 'pins'),
    budgets: list(value.budgets, 'budgets').map(readBudget),
    labels: list(value.labels, 'labels').map((label) => text(label, 'labels')),
    ...(validateOutput === undefined ? {} : { validateOutput: oneOf(VALIDATION, validateOutput, 'validateOutput') }),
  };
}

function readBudget(value: unknown): BudgetObligation {
  const budget = record(value, 'budgets');
  const limits: Record<string, number> = Object.assign({}, ...LIMITS.map((name) => optionalNumber(budget, name)));
  return { id: text(budget.id, 'budgets'), scope: oneOf(SCOPES, budget.scope, 'scope'), ...limits };
}

/** The library made these objects from checked configuration, so only what the facade relies on is checked again. */
function readExposure(value: unknown): Exposure {
  const exposure = record(value, 'expose');
  return { ...exposure, pins: record(exposure.pins, 'pins') };
}

function readShadow(value: unknown): ShadowReason {
  const { would, mode } = record(value, 'shadow');
  return { ...readReason(value), would: oneOf(OUTCOMES, would, 'would'), mode: oneOf(SHADOW_MODES, mode, 'mode') };
}

function readSaying(value: unknown): NonNullable<ListDecision['says']>[number] {
  const { outcome, say } = record(value, 'says');
  return { outcome: oneOf(OUTCOMES, outcome, 'says'), say: text(say, 'says') };
}

/** rule-summary.ts made these from checked rules. */
function readBound(value: unknown): ArgumentBound {
  const bound = record(value, 'bounds');
  return { ...bound, path: list(bound.path, 'bounds').map((part) => text(part, 'bounds')) };
}

function readReason(value: unknown): Reason {
  const { id, message, file, line, severity, remediation, approval, onCommands, onOpaque } = record(value, 'reasons');
  return {
    id: text(id, 'id'),
    message: text(message, 'message'),
    ...(typeof file === 'string' ? { file } : {}),
    ...(typeof line === 'number' ? { line } : {}),
    ...(typeof severity === 'string' ? { severity } : {}),
    ...(typeof remediation === 'string' ? { remediation } : {}),
    ...(onCommands === true ? { onCommands } : {}),
    ...(onOpaque === true ? { onOpaque } : {}),
    ...(approval === undefined ? {} : { approval: oneOf(APPROVAL_SCOPES, approval, 'approval') }),
  };
}

function optionalNumber<K extends string>(from: PolicyResult, name: K): Partial<Record<K, number>> {
  const value = from[name];
  if (value === undefined) return {};
  if (typeof value === 'number' && Number.isFinite(value) && value >= 0)
    return { [name]: value } as Partial<Record<K, number>>;
  return failed(name);
}

function oneOf<T extends string>(known: readonly T[], value: unknown, what: string): T {
  return known.find((candidate) => candidate === value) ?? failed(what);
}

function text(value: unknown, what: string): string {
  return typeof value === 'string' ? value : failed(what);
}

function numbers(value: unknown, what: string): readonly number[] {
  return list(value, what).map((one) => (typeof one === 'number' ? one : failed(what)));
}

function list(value: unknown, what: string): readonly unknown[] {
  return Array.isArray(value) ? value : failed(what);
}

function record(value: unknown, what: string): PolicyResult {
  return isJsonObject(value) ? value : failed(what);
}

function requireThat(holds: boolean, what: string): void {
  if (!holds) failed(what);
}

function failed(what: string): never {
  throw new TollgateError('POLICY_FAILED', { detail: `The answer of the policy is not a decision (${what}).` });
}
