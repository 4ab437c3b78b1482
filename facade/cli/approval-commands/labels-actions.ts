/** Runs `labels list` and `labels clear`: an owner at the terminal decides, and the audit records it. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { ConsentEntry } from '../../audit/audit-entry.ts';
import { clearSticky, listSticky, type StickyLabel } from '../../call/run-labels.ts';
import type { Config } from '../../config/config.ts';
import { didYouMean, quote } from '../../config/config-problems.ts';
import { openState } from '../../state/sqlite-state.ts';
import type { State } from '../../state/state-port.ts';
import { type CommonOptions, readForOwner, readPrincipal } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { recordActs, signed } from '../command-state.ts';
import { json, printable, table } from '../print.ts';

/** Prints the sticky labels that stand. Throws CONFIG_INVALID, IDENTITY for a principal that is no owner, STATE_FAILED. */
export async function runLabelList(options: LabelOptions, io: Io): Promise<number> {
  const config = readForOwner(options, io);
  readOwner(config, options, io);
  const labels = await withState(config, listSticky);
  if (options.json === true) io.stdout(json({ labels }));
  else if (labels.length > 0)
    io.stdout(
      table(
        io,
        ['PRINCIPAL', 'LABEL', 'SINCE'],
        labels.map(({ principal, label, since }) => [principal, label, new Date(since).toISOString()]),
      ),
    );
  else io.stderr('No principal carries a sticky label.\n');
  return EXIT.ok;
}

/**
 * Clears the named labels of a principal, or all of them. Each is recorded before it is cleared.
 * Throws IDENTITY for a principal that is no owner, USAGE for a label that the principal does not carry, AUDIT_FAILED, STATE_FAILED.
 */
export async function runLabelClear(
  options: LabelOptions & { readonly principal: string; readonly labels: readonly string[] },
  io: Io,
): Promise<number> {
  const config = readForOwner(options, io);
  const by = readOwner(config, options, io);
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
  if (options.json === true) io.stdout(json({ principal: options.principal, cleared: names }));
  else
    io.stderr(
      `Cleared for ${printable(options.principal)}: ${printable(names.join(', '))}. It holds from the next call on, in every process.\n`,
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
      detail: `${quote(principal)} carries no sticky label.`,
      next: '`tollgate labels list` shows who carries one.',
    });
  const known = own.map(({ label }) => label);
  const missing = labels.find((label) => !known.includes(label));
  if (missing !== undefined)
    throw new TollgateError('USAGE', {
      detail: `${quote(principal)} does not carry the label ${quote(missing)}: ${didYouMean(missing, known)}`,
      next: '`tollgate labels list` shows who carries which.',
    });
  return labels.length === 0 ? own : own.filter(({ label }) => labels.includes(label));
}

function readOwner(config: Config, options: LabelOptions, io: Io): string {
  const { id, owner } = readPrincipal(config, options, io);
  if (owner !== true)
    throw new TollgateError('IDENTITY', {
      detail: `${id} is no owner, and only an owner sees and clears labels.`,
      next: 'Use --as with a principal that has `owner: true`.',
    });
  return id;
}

async function withState<T>(config: Config, work: (state: State) => Promise<T> | T): Promise<T> {
  const state = openState(config.state);
  try {
    return await work(state);
  } finally {
    await state.close();
  }
}

/** A principal that was taken out of the configuration is known by its id alone. */
function actOf({ principals }: Config, { principal: id, label }: StickyLabel, by: string): ConsentEntry {
  const { role = '', profiles = [], client = '' } = principals.find((principal) => principal.id === id) ?? {};
  return {
    type: 'approval',
    event: 'label-cleared',
    id: label,
    outcome: 'allow',
    principal: { id, role, profiles, origin: client },
    by,
  };
}
/** What a command about labels is told on the command line. */
export interface LabelOptions extends Pick<CommonOptions, 'config' | 'json'> {
  readonly as?: string;
}
