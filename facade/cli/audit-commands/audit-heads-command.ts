/** Runs `tollgate audit heads` and `retire`: the heads that replicas published, and when they are not needed. */
import { verifyFleet } from '../../audit/fleet/fleet-verification.ts';
import {
  dropHeads,
  type FoundHeads,
  type PublishedHead,
  readHeads,
  removeHead,
} from '../../audit/fleet/published-heads.ts';
import { didYouMean } from '../../config/config-problems.ts';
import { type CommonOptions, type OwnerOptions, readDecider, readForOwner } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { type DecisionContext, withDecisions, withState } from '../command-state.ts';
import { plural, printable, printList, printResult } from '../print.ts';
import { type LogOptions, logPlacesOf, usage } from './audit-command.ts';
import { readVerifierKey } from './audit-proof-command.ts';
import { findingsText } from './fleet-view.ts';

/** Prints the heads. Exit code 3 if one does not count. Throws CONFIG_INVALID, STATE_FAILED. */
export async function runAuditHeads(options: CommonOptions, io: Io): Promise<number> {
  const { heads, faults } = await withState(readForOwner(options, io), readHeads);
  printList(
    { io, options },
    {
      data: heads.map(({ checkpoint: { origin, size, root }, ...head }) => ({ origin, size, root, ...head })),
      columns: ['REPLICA', 'RECORDS', 'PUBLISHED (UTC)', 'STATE', 'LOG'],
      rows: heads.map(({ replica, checkpoint, at, ended }) => [
        replica,
        checkpoint.size.toLocaleString('en'),
        at.slice(0, 19),
        ended === true ? 'ended' : 'not ended',
        checkpoint.origin,
      ]),
      empty: 'No replica has published a head in this state.',
    },
  );
  for (const { replica, what } of faults)
    io.stderr(`replica ${printable(replica)}: its head does not count: ${printable(what)}\n`);
  return faults.length === 0 ? EXIT.ok : EXIT.refused;
}

/** Options of `retire`. */
export interface RetireOptions extends OwnerOptions, Pick<LogOptions, 'folder'> {
  readonly replica?: string;
  readonly lost?: true;
  readonly publicKey?: readonly string[];
}

/**
 * Removes the heads of replicas whose logs are complete in the folders, and records it; with `lost` also without a log.
 * Exit code 3 if a log does not agree with its head. Throws USAGE, CONFIG_INVALID, IDENTITY, STATE_FAILED,
 * AUDIT_FAILED.
 */
export async function runAuditRetire(options: RetireOptions, io: Io): Promise<number> {
  const { replica, lost, folder } = options;
  if (lost === true && replica === undefined) throw usage('Name the replica whose log is lost');
  if (lost === undefined && folder === undefined)
    throw usage('Name the folder with the collected logs with --folder; if the log is lost, write --lost');
  const { config, by } = readDecider(options, 'retires replicas', io);
  return withDecisions(config, io, async (context) => {
    const found = await readHeads(context.state);
    const isNamed = (one: { readonly replica: string }): boolean => one.replica === replica;
    const heads = found.heads.filter((head) => (replica === undefined ? head.ended === true : isNamed(head)));
    const faults = found.faults.filter(isNamed);
    if (replica !== undefined && heads.length + faults.length === 0)
      throw usage(`No head is of the replica ${printable(replica)}; ${didYouMean(replica, namesOf(found))}`);
    const { retired, findings } =
      lost === true ? { retired: heads, findings: [] } : verified({ heads, faults }, options, io);
    const gone: PublishedHead[] = [];
    for (const head of retired)
      if (await retire(head, { ...context, by, reason: lost === true ? 'lost' : 'verified' })) gone.push(head);
    if (lost === true) for (const { replica: of } of faults) await dropDamaged(of, { ...context, by });
    const names = gone.map((head) => `${head.replica} (${plural(head.checkpoint.size, 'record')})`);
    const done = names.length === 0 ? 'Nothing is retired.' : `Retired: ${printable(names.join(', '))}.`;
    const data = { retired: gone.map(({ note: _note, key: _key, ...head }) => head), findings };
    printResult({ io, options }, data, `${findingsText(findings)}${done}`);
    return findings.length === 0 ? EXIT.ok : EXIT.refused;
  });
}

function namesOf({ heads, faults }: FoundHeads): ReadonlySet<string> {
  return new Set([...heads, ...faults].map(({ replica }) => replica));
}

/** Returns the heads whose logs are in the folders as they were published, and what is wrong with the others. */
function verified(heads: FoundHeads, { folder = [], publicKey = [] }: RetireOptions, io: Io) {
  const { folders } = logPlacesOf({ folder } as LogOptions, io);
  const publicKeys = publicKey.map((given) => readVerifierKey(given, io));
  const { findings } = verifyFleet(folders, { heads, publicKeys, proof: {}, expectHeads: [] });
  const names = new Set(heads.heads.map(({ checkpoint }) => checkpoint.origin));
  const ofThese = findings.filter(({ kind, origin }) => kind === 'head' || (origin !== undefined && names.has(origin)));
  const wrong = new Set(ofThese.map(({ origin }) => origin));
  return { retired: heads.heads.filter(({ checkpoint }) => !wrong.has(checkpoint.origin)), findings: ofThese };
}

/** Records the end of a head before it is removed. */
async function retire(
  head: PublishedHead,
  { state, append, by, reason }: DecisionContext & { readonly by: string; readonly reason: string },
): Promise<boolean> {
  const { origin, size } = head.checkpoint;
  append({ type: 'proof', event: 'retired', outcome: 'allow', of: head.replica, origin, count: size, by, reason });
  return removeHead(state, head);
}

/** Removes heads that do not count, and records it. */
async function dropDamaged(
  of: string,
  { state, append, by }: DecisionContext & { readonly by: string },
): Promise<void> {
  append({ type: 'proof', event: 'retired', outcome: 'allow', of, by, reason: 'damaged head' });
  await dropHeads(state, of);
}
