/** Reads test suites. Reports keys and values that do not fit the schema of suites, with their place. */

import { readFile } from 'node:fs/promises';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { definedFields } from '../../../catalogs/text/collections.ts';
import type { PolicyParts } from '../../engine/compiled-parts.ts';
import type { CallInput, Principal } from '../../port.ts';
import { type PolicyProblem, problemAt } from '../../rules/policy-problems.ts';
import type { YamlDocument } from '../../rules/rule-compiler.ts';
import { schemaCheck } from '../../rules/rule-schema.ts';
import type { TestFile } from './test-files.ts';
import { effectFault, readWrittenRequest, type WrittenEffect, type WrittenRequest } from './written-effect.ts';

const findShapeFaults = schemaCheck(new URL('../../schemas/suite.json', import.meta.url));

/** The id of a principal of the configuration, or a principal that is written in the suite. */
export type SuitePrincipal = string | (Pick<Principal, 'id'> & Partial<Principal>);

/** What a case expects: the outcome of a call, or the verdict of a list on its tool. */
export type ExpectedOutcome = 'allow' | 'ask' | 'deny' | 'always' | 'maybe' | 'never';

/** A case as it is written in YAML. policies/schemas/suite.json describes the fields. */
interface WrittenCase {
  readonly name: string;
  readonly as?: SuitePrincipal;
  readonly call?: { readonly tool: string; readonly args?: Readonly<Record<string, unknown>> };
  readonly effect?: WrittenEffect;
  readonly labels?: readonly string[];
  readonly plan?: 'none' | 'pending' | 'approved';
  readonly run?: string;
  readonly time?: string;
  readonly expect: ExpectedOutcome;
  readonly reason?: string;
  readonly message?: string;
  readonly obligations?: Readonly<Record<string, unknown>>;
}

/** A case with the defaults of its suite, and the places of its parts. */
export interface SuiteCase extends WrittenCase {
  placeOf(path: readonly (string | number)[]): Omit<PolicyProblem, 'message'>;
}

interface WrittenSuite extends Pick<WrittenCase, 'as' | 'time'> {
  readonly cases: readonly WrittenCase[];
}

/**
 * Returns the valid cases of all suites, and the problems of the others. Throws POLICY_INVALID for an unreadable file.
 */
export async function readSuites(
  files: readonly TestFile[],
  readYaml: PolicyParts['readYaml'],
): Promise<{ readonly cases: readonly SuiteCase[]; readonly problems: readonly PolicyProblem[] }> {
  const cases: SuiteCase[] = [];
  const problems: PolicyProblem[] = [];
  for (const { path, shown } of files) {
    const text = await readFile(path, 'utf8').catch((cause: unknown) => {
      throw new TollgateError('POLICY_INVALID', { detail: `The suite ${shown} cannot be read.`, cause });
    });
    const document = readYaml(shown, text);
    problems.push(...document.problems);
    if (document.problems.length > 0) continue;
    const faults = findShapeFaults(document.value);
    problems.push(
      ...faults.map(({ path: at, part, message }) => ({ file: shown, ...document.placeOf(at, part), message })),
    );
    const faulty = new Set(faults.map(({ path: at }) => at[1]));
    for (const [number, one] of casesOf(document.value, shown, document).entries()) {
      if (faulty.has(number)) problems.push(...findTextFaults(one));
      else cases.push(one);
    }
  }
  const checked = cases.map((one) => ({ one, faults: findFaults(one) }));
  return {
    cases: checked.filter(({ faults }) => faults.length === 0).map(({ one }) => one),
    problems: [...problems, ...checked.flatMap(({ faults }) => faults)],
  };
}

/** Also reads suites with problems. A value that is not a list has no cases. */
function casesOf(value: unknown, file: string, document: YamlDocument): readonly SuiteCase[] {
  const { as, time, cases } = (value ?? {}) as WrittenSuite;
  return (Array.isArray(cases) ? (cases as readonly WrittenCase[]) : []).map(
    (one, number): SuiteCase => ({
      ...definedFields({ as, time }),
      ...one,
      placeOf: (path) => ({ file, ...document.placeOf(['cases', number, ...path], 'value') }),
    }),
  );
}

/** Returns the effect of a request that is not in a suite. Throws USAGE. */
export function readRequest(
  { workspace }: PolicyParts,
  request: WrittenRequest,
): Pick<CallInput, 'effect' | 'argsText'> {
  const findFaults = (effect: unknown): readonly string[] =>
    findShapeFaults({ cases: [{ name: 'request', effect, expect: 'allow' }] }).map(({ message }) => message);
  return readWrittenRequest(request, { workspace, findFaults });
}

/** Checks what the schema cannot express. */
function findFaults(one: SuiteCase): readonly PolicyProblem[] {
  const { call, effect, expect, obligations } = one;
  const faults: PolicyProblem[] = [];
  const refuse = (path: readonly string[], text: string): void =>
    void faults.push({ ...one.placeOf(path), message: text });
  if ((call === undefined) === (effect === undefined))
    refuse([], 'a case has either `call` or `effect`; write one of them.');
  if (effect !== undefined && (effect.kind ?? 'tool') === 'tool' && isVerdict(expect))
    refuse(['expect'], `"${expect}" is a verdict of a list; write \`call\`, or expect allow, ask or deny.`);
  const fault = effect === undefined ? undefined : effectFault(effect);
  if (fault !== undefined) refuse(['effect', fault.key], fault.message);
  if (obligations !== undefined && expect !== 'allow' && expect !== 'ask')
    refuse(['obligations'], 'only allow and ask have obligations; remove the obligations.');
  return [...faults, ...findTextFaults(one)];
}

/** Checks strings that the schema does not parse. The schema already refuses other types. */
function findTextFaults(one: SuiteCase): readonly PolicyProblem[] {
  const { time, message } = one as { readonly time?: unknown; readonly message?: unknown };
  const isTime = typeof time !== 'string' || (/^\d{4}-\d\d-\d\d[Tt]/.test(time) && !Number.isNaN(Date.parse(time)));
  return [
    ...(isTime
      ? []
      : problemAt(
          one.placeOf(['time']),
          `"${String(time).slice(0, 40)}" is not a time; write it as 2026-01-05T12:00:00Z.`,
        )),
    ...(typeof message !== 'string' || isPattern(message)
      ? []
      : problemAt(one.placeOf(['message']), 'this is not a regular expression; correct it.')),
  ];
}

/** Whether a case expects a verdict of a list. */
export function isVerdict(expect: ExpectedOutcome): expect is 'always' | 'maybe' | 'never' {
  return expect === 'always' || expect === 'maybe' || expect === 'never';
}

function isPattern(text: string): boolean {
  try {
    new RegExp(text, 'u');
    return true;
  } catch {
    return false;
  }
}
