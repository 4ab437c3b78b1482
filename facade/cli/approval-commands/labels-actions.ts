/** Runs `labels list` and `labels clear`. An owner at the terminal decides, and the audit records it. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { ConsentEntry } from '../../audit/audit-entry.ts';
import { clearSticky, listSticky, type StickyLabel } from '../../call/run-labels.ts';
import type { Config } from '../../config/config.ts';
import { didYouMean, quote } from '../../config/config-problems.ts';
import { auditPrincipal, type OwnerOptions, readDecider } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { recordActs, signed, withState } from '../command-state.ts';
import { printable, printList, printResult } from '../print.ts';

/** Prints the sticky labels. Throws CONFIG_INVALID, IDENTITY for a principal that is no owner, STATE_FAILED. */
export async function runLabelList(options: OwnerOptions, io: Io): Promise<number> {
  const { config } = readDecider(options, 'sees and clears labels', io);
  const labels = await withState(config, listSticky);
  printList(
    { io, options },
    {
      data: { labels },
      columns: ['PRINCIPAL', 'LABEL', 'SINCE'],
      rows: labels.map(({ principal, label, since }) => [principal, label, new Date(since).toISOString()]),
      empty: 'No principal has a sticky label.',
    },
  );
  return EXIT.ok;
}

/**
 * Clears the named labels of a principal, or all of them. Each is recorded before it is cleared.
 * Throws IDENTITY for a principal that is no owner, USAGE for a label that the principal does not have, AUDIT_FAILED,
 * STATE_FAILED.
 */
export async function runLabelClear(
  options: OwnerOptions & { readonly principal: string; readonly labels: readonly string[] },
  io: Io,
): Promise<number> {
  const { config, by } = readDecider(options, 'sees and clears labels', io);
  const cleared = await withState(config, async (state) => {
    const found = select(listSticky(state), options);
    await recordActs(
      config.audit,
      found.map((one) => signed(actOf(config, one, by), io)),
    );
    for (const one of found) await clearSticky(state, one);
    return found;
  });
  const names = cleared.map(({ label }) => label);
  printResult(
    { io, options },
    { principal: options.principal, cleared: names },
    `Cleared for ${printable(options.principal)}: ${printable(names.join(', '))}. ` +
      'This applies in every process, from the next call on.',
  );
  return EXIT.ok;
}

function select(
  all: readonly StickyLabel[],
  { principal, labels }: { readonly principal: string; readonly labels: readonly string[] },
): readonly StickyLabel[] {
  const own = all.filter((one) => one.principal === principal);
  if (own.length === 0)
    throw new TollgateError('USAGE', {
      detail: `${quote(principal)} has no sticky label.`,
      next: '`tollgate labels list` shows the principals that have one.',
    });
  const known = own.map(({ label }) => label);
  const missing = labels.find((label) => !known.includes(label));
  if (missing !== undefined)
    throw new TollgateError('USAGE', {
      detail: `${quote(principal)} does not have the label ${quote(missing)}: ${didYouMean(missing, known)}`,
      next: '`tollgate labels list` shows the labels of each principal.',
    });
  return labels.length === 0 ? own : own.filter(({ label }) => labels.includes(label));
}

function actOf(config: Config, { principal, label }: StickyLabel, by: string): ConsentEntry {
  return {
    type: 'approval',
    event: 'label-cleared',
    id: label,
    outcome: 'allow',
    principal: auditPrincipal(config, principal),
    by,
  };
}
