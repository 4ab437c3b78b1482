/** Owns whether an answer is the one that a case expects; refuses two engines that differ, whatever the case expects. */
import { isDeepStrictEqual } from 'node:util';
import { asTollgateError } from '../../../catalogs/errors/error-table.ts';
import { readCallDecision, readListDecisions } from '../../engine/decision-reader.ts';
import { FAILED_BUILTIN } from '../../engine/wasm/wasm-policy.ts';
import type { CallDecision, ListDecision, Reason } from '../../port.ts';
import type { DraftedCase } from './test-case.ts';
import type { ExpectedOutcome } from './test-suite.ts';

/** What an engine answers: a decision, verdicts, or why there is neither. */
export type CaseAnswer =
  | { readonly decision: CallDecision }
  | { readonly list: readonly ListDecision[] }
  | { readonly failed: string };

/** What became of a case. */
export interface CaseResult {
  readonly name: string;
  readonly file: string;
  readonly line: number;
  readonly expected: ExpectedOutcome;
  /** `failed` where the policy could not decide. */
  readonly got: ExpectedOutcome | 'failed';
  readonly reasons: readonly Reason[];
  /** What is not as expected; none: the case passed. */
  readonly faults: readonly string[];
}

type Record_ = Readonly<Record<string, unknown>>;

/** What opa gave, read as a running facade reads what wasm gives; a text says why there is nothing. */
export function readCaseAnswer(value: unknown, asked: DraftedCase | undefined): CaseAnswer {
  if (typeof value !== 'object' || value === null) return { failed: String(value) };
  try {
    if (asked !== undefined && 'tools' in asked)
      return { list: readListDecisions(value as Record_, asked.tools.length) };
    return { decision: readCallDecision(value as Record_) };
  } catch (thrown) {
    return { failed: asTollgateError(thrown).message };
  }
}

/** Judges a case by what wasm answered, and by what opa did where it was asked. */
export function judgeCase(
  { written }: DraftedCase,
  answers: { readonly wasm: CaseAnswer; readonly opa?: CaseAnswer },
): CaseResult {
  const { wasm, opa } = answers;
  const { name, expect, placeOf } = written;
  const { got, reasons } = sayOf(wasm);
  const faults = [
    ...(opa === undefined || agree(wasm, opa)
      ? []
      : [`opa and the built wasm differ: opa says ${show(opa)}, wasm says ${show(wasm)}`]),
    ...findFaults(written, wasm),
  ];
  const { file, line } = placeOf(['name']);
  return { name, file, line, expected: expect, got, reasons, faults };
}

/** Both failing is agreement: the two engines word their failures differently. A built-in that failed is undefined in opa, which goes on. */
function agree(wasm: CaseAnswer, opa: CaseAnswer): boolean {
  return (
    ('failed' in wasm && wasm.failed.startsWith(FAILED_BUILTIN)) ||
    ('failed' in wasm && 'failed' in opa) ||
    isDeepStrictEqual(wasm, opa)
  );
}

function findFaults(written: DraftedCase['written'], answer: CaseAnswer): readonly string[] {
  const { expect, reason, message, obligations } = written;
  if ('failed' in answer) return [`expected ${expect}, but the policy could not decide: ${answer.failed}`];
  const { got, reasons } = sayOf(answer);
  if (got !== expect) return [`expected ${expect}, got ${show(answer)}${besideNote(answer, expect)}`];
  const named = reason === undefined ? reasons : reasons.filter(({ id }) => id === reason);
  if (named.length === 0)
    return [`${got} is right, but for another reason: expected ${String(reason)}, got ${listReasons(reasons)}`];
  const faults: string[] = [];
  if (message !== undefined && !named.some((one) => new RegExp(message, 'u').test(one.message)))
    faults.push(`no message matches /${message}/: ${named.map((one) => JSON.stringify(one.message)).join(', ')}`);
  if (obligations === undefined || !('decision' in answer)) return faults;
  const owed = answer.decision.obligations as unknown as Record_;
  for (const [key, value] of Object.entries(obligations))
    if (!fits(value, owed[key]))
      faults.push(`obligation ${key} is ${JSON.stringify(owed[key]) ?? 'not there'}, not ${JSON.stringify(value)}`);
  return faults;
}

function sayOf(answer: CaseAnswer): { readonly got: CaseResult['got']; readonly reasons: readonly Reason[] } {
  if ('decision' in answer) return { got: answer.decision.outcome, reasons: answer.decision.reasons };
  if ('failed' in answer) return { got: 'failed', reasons: [] };
  // A primitive stands for several tools of its backend: it is as uncertain as the least certain of them.
  const shown = answer.list.filter(({ verdict }) => verdict !== 'never');
  const reasons = (shown.length === 0 ? answer.list : shown).flatMap((one) => one.reasons);
  return {
    got: shown.length === 0 ? 'never' : shown.every(({ verdict }) => verdict === 'always') ? 'always' : 'maybe',
    reasons,
  };
}

function show(answer: CaseAnswer): string {
  if ('failed' in answer) return `nothing (${answer.failed})`;
  const { got, reasons } = sayOf(answer);
  return `${got} by ${listReasons(reasons)}`;
}

/** A rule on trial is the likeliest cause that a case does not hold yet. */
function besideNote(answer: CaseAnswer, expect: ExpectedOutcome): string {
  const beside = 'decision' in answer ? answer.decision.shadow.find(({ would }) => would === expect) : undefined;
  return beside === undefined
    ? ''
    : `. ${beside.id} would ${expect}, but is in ${beside.mode}: with --enforced it counts`;
}

function listReasons(reasons: readonly Reason[]): string {
  return (
    reasons.map(({ id, file, line }) => (file === undefined ? id : `${id} (${file}:${line ?? 1})`)).join(', ') ||
    'nothing'
  );
}

/** Objects by the keys that are named, lists in any order, and things with an id by their id. */
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
    return Object.entries(wanted).every(([key, value]) => fits(value, (got as Record_)[key]));
  return isDeepStrictEqual(wanted, got);
}
