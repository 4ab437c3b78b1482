/** Prints what a verification of the logs of several replicas found, and what it cannot show. */
import type { FleetFinding, FleetVerdict } from '../../audit/fleet/fleet-verification.ts';
import { shownPath } from '../../clients/client-places.ts';
import type { Io } from '../command-io.ts';
import { type Cell, MAX_COLUMNS, paint, plural, printable, table, wrapWords } from '../print.ts';

/** Returns one line for each log, then the findings, then how far all are proven. */
export function fleetText(io: Pick<Io, 'isTTY' | 'cwd' | 'home'>, verdict: FleetVerdict): string {
  const { logs, findings, records, heads, ok, complete } = verdict;
  const rows = logs.map(({ replica, folder, verdict: { records: count, proof, ok: isWhole } }): readonly Cell[] => [
    replica,
    count.toLocaleString('en'),
    proof.verified ? proof.signed.toLocaleString('en') : 'key unknown',
    proof.until?.slice(0, 19) ?? '',
    isWhole ? '' : { text: 'changed', colour: 'red' },
    folder === replica ? '' : shownPath(folder, io),
  ]);
  const unsigned = logs.reduce((sum, log) => sum + log.verdict.proof.unsigned, 0);
  const total = `${plural(logs.length, 'log')}, ${plural(records, 'record')}`;
  const against = heads === 0 ? '' : `, compared with ${plural(heads, 'published head')}`;
  const last = ok
    ? `${total}${against}: nothing was changed`
    : paint(io, 'red', `${total}${against}: ${plural(findings.length, 'finding')}`);
  const proven = complete ? 'verified: every record is signed' : `${plural(unsigned, 'record')} linked, not signed`;
  return [
    table(io, ['REPLICA', 'RECORDS', 'SIGNED', 'UNTIL (UTC)', 'STATE', 'FOLDER'], rows),
    '\n',
    findingsText(findings),
    `${last}\n`,
    ok && (complete || unsigned > 0) ? `${paint(io, complete ? 'green' : 'yellow', proven)}\n` : '',
  ].join('');
}

/** Returns each finding: the replica, what happened, and what to do. */
export function findingsText(findings: readonly FleetFinding[]): string {
  const lines = findings.flatMap(({ replica, what, next }) => [
    wrapWords(printable(`${replica === '' ? 'all logs' : `replica ${replica}`}: ${what}.`), MAX_COLUMNS, '  '),
    wrapWords(`  ${printable(next)}.`, MAX_COLUMNS, '  '),
  ]);
  return lines.map((line) => `${line}\n`).join('');
}

/** Returns what the verification cannot show, one paragraph for each. */
export function fleetWarnings(
  { logs, heads, unpublished }: FleetVerdict,
  { heads: asked, publicKey = [] }: { readonly heads?: true | string; readonly publicKey?: readonly string[] },
): readonly string[] {
  const found: string[] = [];
  if (heads === 0)
    found.push(
      asked === undefined
        ? 'A replica whose whole log is missing is found only with --heads: the heads that the replicas published.'
        : 'No replica has published a head there, so a missing log is not found.',
    );
  if (heads > 0 && publicKey.length === 0)
    found.push(
      'The keys are those that the heads name. Someone who can write the shared state and the logs could have ' +
        'replaced both: name keys that you noted elsewhere with --public-key.',
    );
  if (heads > 0 && unpublished.length > 0)
    found.push(
      `No head names the log of ${printable(unpublished.join(', '))}: it was retired, or its replica never reached ` +
        'the shared state.',
    );
  if (logs.some(({ verdict }) => verdict.proof.unsigned > 0))
    found.push(
      'Of records that are not signed, removed ones are found only if a later process saw them. A replica that ends ' +
        'normally signs all.',
    );
  if (logs.some(({ verdict }) => verdict.proof.signed > 0 && !verdict.proof.verified))
    found.push(
      'Name the public keys with --public-key (`tollgate audit key` prints that of a replica), or use --heads.',
    );
  return found.map((line) => wrapWords(line, MAX_COLUMNS, '  '));
}
