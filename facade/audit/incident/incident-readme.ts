/** Tells the reader of a bundle what it holds, how to verify it, and what is missing. */
import { plural, printable } from '../../../catalogs/text/readable-text.ts';
import type { IncidentFacts, IncidentScope } from './incident-records.ts';

/** What was written. `notProven`: the first lines of records.jsonl without a proof, from 1. */
export interface IncidentReport {
  readonly file: string;
  readonly scope: IncidentScope;
  readonly facts: IncidentFacts;
  readonly records: number;
  readonly proven: number;
  readonly notProven: readonly number[];
  /** What is not in the bundle, one sentence each. */
  readonly missing: readonly string[];
}

const ABOUT: Readonly<Record<string, string>> = {
  'policy.json': 'revisions of the policy that decided, rules that fired with file and line, the present rules',
  'approvals.json': 'requests for approval that were still stored, without arguments',
  'versions.json': 'versions of Tollgate, Node.js and the servers; the hash of what each server starts',
};

/** Returns the text of README.txt. `documents`: the names of the documents besides records and proofs. */
export function readmeText(report: IncidentReport, documents: readonly string[]): string {
  const { file, scope, facts, records, proven, notProven, missing } = report;
  const who = [
    scope.principal === undefined ? '' : `of the principal ${scope.principal}`,
    scope.session === undefined ? '' : `of the session ${scope.session}`,
  ].filter((text) => text !== '');
  const lines = [
    `Records of Tollgate from ${scope.since} to ${scope.until}${who.length === 0 ? '' : `, ${who.join(', ')}`}.`,
    `${plural(records, 'record')}: ${facts.own} of the calls and sessions, ${facts.around} around them.`,
    '',
    'VERIFY',
    '',
    `  python3 verify-audit.py ${file} --key KEY`,
    '',
    'verify-audit.py is in docs/ of Tollgate. It needs Python 3.8 and openssl 3. Get KEY from the owner of the log in',
    'another way than this file (tollgate audit key). Without --key, the key in this bundle is used: then you only',
    'know that the bundle fits that key.',
    '',
    `${proven} of ${plural(records, 'record')} proven.`,
    ...(proven === records
      ? []
      : [
          'The others are not signed yet, or were changed after they were signed. Lines of records.jsonl: ' +
            `${notProven.join(', ')}${records - proven > notProven.length ? ', …' : ''}`,
        ]),
    'A proof shows that a record is in the signed log. It does not show that no record was left out of this bundle.',
    '',
    'FILES',
    '',
    '  records.jsonl   the records, byte for byte as in the log',
    '  proofs.json     a proof of each record, the checkpoint and the key',
    '  checkpoint.txt  the last checkpoint of the log, if it has one',
    '  key.txt         the verifier key of the log, if it is known',
    ...documents.map((name) => `  ${name.padEnd(14)}  ${ABOUT[name] ?? ''}`),
    '',
    'NOT IN THIS BUNDLE',
    '',
    '  Arguments and results of calls, recorded arguments, and values of secrets. Records hold none of them; the other',
    '  files had registered secrets replaced by [redacted].',
    '  Records that were moved to an archive before (tollgate audit archive).',
    ...(facts.changed === 0 ? [] : [`  ${plural(facts.changed, 'record')} changed after they were written.`]),
    ...[...facts.cut].sort().map((kind) => `  More than 10,000 ${kind}: the others are only in records.jsonl.`),
    ...missing.map((sentence) => `  ${sentence}`),
  ];
  return `${lines.map(printable).join('\n')}\n`;
}
