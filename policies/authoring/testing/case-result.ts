/** Compares the answers of both engines with what a case expects. If the engines differ, the case fails. */
import { isDeepStrictEqual } from 'node:util';
import { asTollgateError } from '../../../catalogs/errors/error-table.ts';
import {
  noteOpaqueCommand,
  type PolicyResult,
  readCallDecision,
  readListDecisions,
} from '../../engine/decision-reader.ts';
import { FAILED_BUILTIN } from '../../engine/wasm/wasm-policy.ts';
import type { CallDecision, ListDecision, Reason } from '../../port.ts';
import type { DraftedCase } from './test-case.ts';
import type { ExpectedOutcome } from './test-suite.ts';

/** The answer of an engine: a decision, a list, or why there is neither. */
export type CaseAnswer =
  | { readonly decision: CallDecision }
  | { readonly list: readonly ListDecision[] }
  | { readonly failed: string };

/** The result of a case. */
export interface CaseResult {
  readonly name: string;
  readonly file: string;
  readonly line: number;
  readonly expected: ExpectedOutcome;
  /** `failed` if the policy could not decide. */
  readonly got: ExpectedOutcome | 'failed';
  readonly reasons: readonly Reason[];
  /** What is not as expected. Empty if the case passed. */
  readonly faults: readonly string[];
}

/** Reads what opa returned as a running facade reads WebAssembly. A string says why there is no answer. */
export function readCaseAnswer(value: unknown, drafted: DraftedCase | undefined): CaseAnswer {
  if (typeof value !== 'object' || value === null) return { failed: String(value) };
  try {
    if (drafted !== undefined && 'tools' in drafted)
      return { list: readListDecisions(value as PolicyResult, drafted.tools.length) };
    const decision = readCallDecision(value as PolicyResult);
    return { decision: drafted === undefined ? decision : noteOpaqueCommand(decision, drafted.input) };
  } catch (thrown) {
    return { failed: asTollgateError(thrown).message };
  }
}

/** Checks a case by the answer of WebAssembly and, if there is one, the answer of opa. */
export function checkCase(
  { written }: DraftedCase,
  answers: { readonly wasm: CaseAnswer; readonly opa?: CaseAnswer },
): CaseResult {
  const { wasm, opa } = answers;
  const { name, expect, placeOf } = written;
  const { got, reasons } = summaryOf(wasm);
  const faults = [
    ...(opa === undefined || agree(wasm, opa)
      ? []
      : [`opa and the built wasm differ: opa says ${show(opa)}, wasm says ${show(wasm)}`]),
    ...findFaults(written, wasm),
  ];
  const { file, line } = placeOf(['name']);
  return { name, file, line, expected: expect, got, reasons, faults };
}

/**
 * Two failures agree, because the engines word them differently. A failed built-in agrees too: in opa it is undefined.
 */
function agree(wasm: CaseAnswer, opa: CaseAnswer): boolean {
  return (
    ('failed' in wasm && wasm.failed.startsWith(FAILED_BUILTIN)) ||
    ('failed' in wasm && 'failed' in opa) ||
    isDeepStrictEqual(inOrder(wasm), inOrder(opa))
  );
}

/** The engines list the reasons of one decision in different orders. */
function inOrder(answer: CaseAnswer): CaseAnswer {
  const sorted = <T extends { readonly reasons: readonly Reason[] }>(one: T): T => ({
    ...one,
    reasons: [...one.reasons].sort((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1)),
  });
  if ('decision' in answer) return { decision: sorted(answer.decision) };
  return 'list' in answer ? { list: answer.list.map(sorted) } : answer;
}

function findFaults(written: DraftedCase['written'], answer: CaseAnswer): readonly string[] {
  const { expect, reason, message, obligations } = written;
  if ('failed' in answer) return [`expected ${expect}, but the policy could not decide: ${answer.failed}`];
  const { got, reasons } = summaryOf(answer);
  if (got !== expect) return [`expected ${expect}, got ${show(answer)}${shadowNote(answer, expect)}`];
  const named = reason === undefined ? reasons : reasons.filter(({ id }) => id === reason);
  if (named.length === 0)
    return [`${got} is right, but for another reason: expected ${String(reason)}, got ${listReasons(reasons)}`];
  const faults: string[] = [];
  if (message !== undefined && !named.some((one) => new RegExp(message, 'u').test(one.message)))
    faults.push(`no message matches /${message}/: ${named.map((one) => JSON.stringify(one.message)).join(', ')}`);
  if (obligations === undefined || !('decision' in answer)) return faults;
  const given = answer.decision.obligations as unknown as PolicyResult;
  for (const [key, value] of Object.entries(obligations))
    if (!fits(value, given[key]))
      faults.push(`obligation ${key} is ${JSON.stringify(given[key]) ?? 'absent'}, not ${JSON.stringify(value)}`);
  return faults;
}

function summaryOf(answer: CaseAnswer): { readonly got: CaseResult['got']; readonly reasons: readonly Reason[] } {
  if ('decision' in answer) return { got: answer.decision.outcome, reasons: answer.decision.reasons };
  if ('failed' in answer) return { got: 'failed', reasons: [] };
  // A primitive stands for several tools of its backend. It is `always` only if all of them are.
  const shown = answer.list.filter(({ verdict }) => verdict !== 'never');
  const reasons = (shown.length === 0 ? answer.list : shown).flatMap((one) => one.reasons);
  return {
    got: shown.length === 0 ? 'never' : shown.every(({ verdict }) => verdict === 'always') ? 'always' : 'maybe',
    reasons,
  };
}

function show(answer: CaseAnswer): string {
  if ('failed' in answer) return `nothing (${answer.failed})`;
  const { got, reasons } = summaryOf(answer);
  return `${got} by ${listReasons(reasons)}`;
}

/** A rule in mode warn or shadow is the most likely cause of an unexpected outcome. */
function shadowNote(answer: CaseAnswer, expect: ExpectedOutcome): string {
  const rule = 'decision' in answer ? answer.decision.shadow.find(({ would }) => would === expect) : undefined;
  return rule === undefined
    ? ''
    : `. ${rule.id} would ${expect}, but its mode is ${rule.mode}; use --enforced to make it count`;
}

function listReasons(reasons: readonly Reason[]): string {
  return (
    reasons.map(({ id, file, line }) => (file === undefined ? id : `${id} (${file}:${line ?? 1})`)).join(', ') ||
    'nothing'
  );
}

/** Compares objects by the wanted keys, lists in any order, and entries with an id by their id. */
function fits(wanted: unknown, got: unknown): boolean {
  if (Array.isArray(wanted) && Array.isArray(got)) {
    const names = got.map((one: unknown) =>
      typeof one === 'object' && one !== null && 'id' in one && wanted.every((name) => typeof name === 'string')
        ? one.id
        : one,
    );
    return wanted.length === names.length && wanted.every((one) => names.some((name) => fits(one, name)));
  }
  if (typeof wanted === 'object' && wanted !== null && typeof got === 'object' && got !== null)
    return Object.entries(wanted).every(([key, value]) => fits(value, (got as PolicyResult)[key]));
  return isDeepStrictEqual(wanted, got);
}
