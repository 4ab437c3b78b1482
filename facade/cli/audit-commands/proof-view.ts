/** Prints what a verification has proven, and what it cannot. */
import type { AuditVerdict } from '../../audit/chain-verification.ts';
import { type CliIo, MAX_COLUMNS, paint, plural, printable, wrapWords } from '../print.ts';

/** Returns to which time and record the log is proven, and what comes after. */
export function proofText(io: Pick<CliIo, 'isTTY'>, { ok, proof, records, archives = [] }: AuditVerdict): string {
  const { signed, unsigned, until, verified, notRead, witnessed, kept, complete } = proof;
  if (!ok) return '';
  const lines: string[] = [];
  if (signed > 0) {
    const time = until === undefined ? '' : ` to ${until.slice(0, 19).replace('T', ' ')} UTC,`;
    const what = verified ? 'verified' : 'not verified, because the key is not known:';
    lines.push(`${what}${time} record ${signed.toLocaleString('en')}`);
  } else if (records === 0 && archives.length === 0) lines.push('nothing is signed');
  if (unsigned > 0) lines.push(`${plural(unsigned, 'record')}${signed > 0 ? ' after it' : ''} linked, not signed`);
  if (notRead > 0) lines.push(`${plural(notRead, 'signed record')} in archives not read; name them with --archive`);
  const head = lines.join('; ');
  return [
    head === '' ? '' : `${paint(io, complete ? 'green' : 'yellow', wrapWords(head, MAX_COLUMNS, '  '))}\n`,
    witnessed === undefined ? '' : `witness: ${plural(witnessed.size, 'record')} seen at ${witnessed.at}\n`,
    kept === 0 ? '' : `${plural(kept, 'checkpoint')} kept elsewhere: the same log\n`,
  ].join('');
}

/** Returns what the verification cannot show, one paragraph for each. */
export function proofWarnings(
  { proof }: AuditVerdict,
  {
    isKeyWithLog,
    options,
  }: {
    readonly isKeyWithLog: boolean;
    readonly options: { readonly checkpoint?: readonly string[]; readonly expectHead?: readonly string[] };
  },
): readonly string[] {
  const { signed, unsigned, verified, replaced, witnessed } = proof;
  const found: string[] = [];
  if (unsigned > 0 && options.expectHead === undefined)
    found.push(
      'Of records that are not signed, removed ones are found only if a later process saw them. Sign with --seal.',
    );
  if (signed > 0 && !verified) found.push('Name the public key with --public-key (`tollgate audit key` prints it).');
  if (isKeyWithLog)
    found.push(
      'The signing key is in the state folder: someone who can read it can write all of the log again. Set ' +
        'audit.signing.key.',
    );
  if (signed > 0 && options.checkpoint === undefined && witnessed === undefined)
    found.push(
      'An older copy of the whole folder, and a second version of the log, are found only with --checkpoint: a ' +
        'checkpoint that was kept elsewhere.',
    );
  for (const origin of replaced)
    found.push(
      `The tree was begun again. What ${printable(origin)} signed before is proven only by a checkpoint of it ` +
        'that was kept elsewhere.',
    );
  return found.map((line) => wrapWords(line, MAX_COLUMNS, '  '));
}
