/**
 * Runs `policy replay`: decides recorded calls again with another policy, and counts what changes. It starts no server.
 */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Replayed } from '../../../policies/authoring/authoring-port.ts';
import type { Recording } from '../../audit/recording/decision-recording.ts';
import { createConceal } from '../../audit/recording/recording-redaction.ts';
import { type CommonOptions, readConfig } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { type Colour, json, plural, printable, table } from '../print.ts';
import type { Wiring } from '../wiring.ts';
import { noTraffic, readTraffic, shortDecisionId } from './recorded-traffic.ts';
import { asEnforced, partsAgainst } from './written-policy.ts';

/** Options of `policy replay`. */
export interface ReplayOptions extends CommonOptions {
  readonly against?: string;
  /** The source that `against` replaces. */
  readonly insteadOf?: string;
  readonly since?: string;
  /** Classes, separated by commas. */
  readonly failOn?: string;
  readonly enforced?: true;
}

/** How the decision on a call changed. */
type ChangeClass = Replayed['class'];

/** Every class, in the order of the table. In the first two, the outcome is the same. */
const CLASSES = [
  'unchanged',
  'reasons',
  'deny-to-allow',
  'deny-to-ask',
  'ask-to-allow',
  'allow-to-ask',
  'ask-to-deny',
  'allow-to-deny',
  'obligations',
  'not-replayable',
] as const satisfies readonly ChangeClass[];
const COLOURS: Readonly<Partial<Record<ChangeClass, Colour>>> = {
  'deny-to-allow': 'red',
  'deny-to-ask': 'yellow',
  'ask-to-allow': 'red',
  'allow-to-ask': 'yellow',
  'ask-to-deny': 'magenta',
  'allow-to-deny': 'magenta',
  obligations: 'yellow',
  'not-replayable': 'dim',
};
/** How many calls of a class the text shows; JSON has all. */
const EXAMPLES = 5;

/** A changed call with what was called. */
interface ChangedCall extends Replayed {
  readonly tool: string;
  readonly principal: string;
  readonly exposed: string;
}

interface ReplayResult {
  readonly counts: ReadonlyMap<ChangeClass, number>;
  /** The calls that are not unchanged, up to a number for each class. */
  readonly changed: readonly ChangedCall[];
  readonly total: number;
}

/**
 * Exit code 3 if a class of --fail-on occurs, 1 if there is nothing to replay. Throws USAGE, and what the load of the
 * draft throws.
 */
export async function runReplay(options: ReplayOptions, io: Io, { authoring }: Wiring): Promise<number> {
  const failOn = readClasses(options.failOn);
  const config = readConfig(options, io);
  const parts = asEnforced(partsAgainst(config, options, io), options);
  const traffic = readTraffic(config, options.since, io);
  const asJson = options.json === true;
  const { counts, changed, total } = await gather(
    (calls) => authoring.replay(parts, calls),
    traffic.recordings,
    asJson ? Infinity : EXAMPLES,
  );
  const unreadable = traffic.tell();
  if (total === 0) {
    io.stderr(unreadable > 0 ? 'No recording could be read.\n' : noTraffic(config));
    return EXIT.unexpected;
  }
  const failing = failOn.filter((name) => counts.has(name));
  const concealed = createConceal(config)(changed);
  const classes = Object.fromEntries(CLASSES.map((name) => [name, counts.get(name) ?? 0]));
  io.stdout(
    asJson
      ? json({ calls: total, unreadable, classes, failing, changed: concealed })
      : replayText(io, { counts, total, changed: concealed }),
  );
  if (failing.length === 0) return EXIT.ok;
  const found = failing.map((name) => `${name} (${counts.get(name)})`).join(', ');
  io.stderr(`Failed: there are calls of the class ${found}.\n`);
  return EXIT.refused;
}

/** Keeps one recording at a time in memory. `most`: how many changed calls of a class it returns. */
async function gather(
  replay: (calls: Iterable<Recording>) => AsyncIterable<Replayed>,
  recordings: Iterable<Recording>,
  most: number,
): Promise<ReplayResult> {
  const counts = new Map<ChangeClass, number>();
  const changed: ChangedCall[] = [];
  let current: Recording | undefined;
  const calls = function* (): Generator<Recording> {
    for (const recording of recordings) yield (current = recording);
  };
  for await (const one of replay(calls())) {
    const count = (counts.get(one.class) ?? 0) + 1;
    counts.set(one.class, count);
    if (one.class === 'unchanged' || current === undefined || count > most) continue;
    const { exposed, input } = current;
    const { server, tool } = input.effect;
    changed.push({ ...one, exposed, principal: input.principal.id, tool: `${server}.${tool}` });
  }
  return { counts, changed, total: [...counts.values()].reduce((sum, count) => sum + count, 0) };
}

function replayText(io: Io, { counts, changed, total }: ReplayResult): string {
  const rows = CLASSES.filter((name) => counts.has(name)).map((name) => {
    const colour = COLOURS[name];
    return [colour === undefined ? name : { text: name, colour }, String(counts.get(name))];
  });
  const lists = CLASSES.flatMap((name) => {
    const some = changed.filter((one) => one.class === name);
    if (some.length === 0) return [];
    const more = (counts.get(name) ?? 0) - some.length;
    const list = table(io, ['ID', 'CALL', ...headOf(name)], some.map(rowOf));
    return [`\n${name}\n${list}${more > 0 ? `and ${more} more; --json shows all\n` : ''}`];
  });
  return `${plural(total, 'recorded call')}, decided again\n${table(io, ['CLASS', 'CALLS'], rows)}${lists.join('')}`;
}

function headOf(name: ChangeClass): readonly string[] {
  if (name === 'not-replayable') return ['WHY'];
  return name === 'obligations' ? ['RULES', 'WHAT'] : ['PRINCIPAL', 'BEFORE', 'AFTER'];
}

function rowOf(one: ChangedCall): readonly string[] {
  const rules = (decided: Replayed['before']): string =>
    `${decided?.outcome ?? ''} ${(decided?.reasons ?? []).map(({ id }) => id).join(', ')}`;
  const start = [shortDecisionId(one.id), printable(one.exposed)];
  if (one.class === 'not-replayable') return [...start, one.why ?? ''];
  if (one.obligations === undefined) return [...start, one.principal, rules(one.before), rules(one.after)];
  const changes = Object.entries(one.obligations).map(
    ([name, [before, after]]) => `${name}: ${JSON.stringify(before)} to ${JSON.stringify(after)}`,
  );
  return [...start, rules(one.after), changes.join(', ')];
}

function readClasses(text: string | undefined): readonly ChangeClass[] {
  const names = text?.split(',').map((name) => name.trim()) ?? [];
  const known: readonly string[] = CLASSES.slice(1);
  const unknown = names.find((name) => !known.includes(name));
  if (unknown !== undefined)
    throw new TollgateError('USAGE', {
      detail: `There is no class ${printable(unknown)}.`,
      next: `The classes are ${known.join(', ')}.`,
    });
  return names as readonly ChangeClass[];
}
