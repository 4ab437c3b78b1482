/** Owns `tollgate policy replay`: recorded traffic decided anew under a draft, what changed by class, and the exit code for a gate; starts nothing. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Replayed } from '../../../policies/authoring/authoring-port.ts';
import type { Recording } from '../../audit/recording/decision-recording.ts';
import { createConceal } from '../../audit/recording/recording-redaction.ts';
import { type CommonOptions, readConfig } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { type Colour, json, plural, printable, table } from '../print.ts';
import type { Wiring } from '../wiring.ts';
import { asEnforced } from './enforced-policy.ts';
import { noTraffic, readTraffic } from './recorded-traffic.ts';
import { partsAgainst } from './replay-target.ts';

/** `failOn`: classes, joined by commas. `enforced`: what is in warn or shadow counts too. */
export interface ReplayOptions extends CommonOptions {
  readonly against?: string;
  readonly since?: string;
  readonly failOn?: string;
  readonly enforced?: true;
}

/** Every class, in the order of the table; the first two change nothing. */
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
] as const satisfies readonly Replayed['class'][];
const COLOURS: Readonly<Partial<Record<Replayed['class'], Colour>>> = {
  'deny-to-allow': 'red',
  'deny-to-ask': 'yellow',
  'ask-to-allow': 'red',
  'allow-to-ask': 'yellow',
  'ask-to-deny': 'magenta',
  'allow-to-deny': 'magenta',
  obligations: 'yellow',
  'not-replayable': 'dim',
};
/** Calls of a class that the table shows; JSON has all. */
const EXAMPLES = 5;

/** A changed call with what was called. */
interface Changed extends Replayed {
  readonly tool: string;
  readonly principal: string;
  readonly exposed: string;
}

/** What a replay came to. */
interface Outcome {
  readonly counts: ReadonlyMap<Replayed['class'], number>;
  /** All that are not unchanged; for a table, the first of each class. */
  readonly changed: readonly Changed[];
  readonly total: number;
}

/** Exit code 3 when a class of --fail-on occurs, 1 when there is nothing to replay. Throws USAGE, and what refuses the draft. */
export async function runReplay(options: ReplayOptions, io: Io, { authoring }: Wiring): Promise<number> {
  const failOn = readClasses(options.failOn);
  const config = readConfig(options, io);
  const parts = asEnforced(partsAgainst(config, { draft: options.against, opa: options.opa }, io), options);
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
  const shown = { counts, total, changed: createConceal(config)(changed) };
  io.stdout(
    asJson
      ? json({
          calls: total,
          unreadable,
          classes: Object.fromEntries(CLASSES.map((name) => [name, counts.get(name) ?? 0])),
          failing,
          changed: shown.changed,
        })
      : replayText(io, shown),
  );
  if (failing.length > 0)
    io.stderr(
      `Failed: there are calls of the class ${failing.map((name) => `${name} (${counts.get(name)})`).join(', ')}.\n`,
    );
  return failing.length > 0 ? EXIT.refused : EXIT.ok;
}

/** One recording at a time is in memory. */
async function gather(
  replay: (calls: Iterable<Recording>) => AsyncIterable<Replayed>,
  recordings: Iterable<Recording>,
  most: number,
): Promise<Outcome> {
  const counts = new Map<Replayed['class'], number>();
  const changed: Changed[] = [];
  let current: Recording | undefined;
  const calls = function* (): Generator<Recording> {
    for (const recording of recordings) yield (current = recording);
  };
  for await (const one of replay(calls())) {
    const count = (counts.get(one.class) ?? 0) + 1;
    counts.set(one.class, count);
    if (one.class === 'unchanged' || current === undefined || count > most) continue;
    const { exposed, input } = current;
    changed.push({
      ...one,
      exposed,
      principal: input.principal.id,
      tool: `${input.effect.server}.${input.effect.tool}`,
    });
  }
  return { counts, changed, total: [...counts.values()].reduce((sum, count) => sum + count, 0) };
}

function replayText(io: Io, { counts, changed, total }: Outcome): string {
  const rows = CLASSES.filter((name) => counts.has(name)).map((name) => [coloured(name), String(counts.get(name))]);
  const lists = CLASSES.flatMap((name) => {
    const some = changed.filter((one) => one.class === name);
    if (some.length === 0) return [];
    const head = [
      'ID',
      'CALL',
      ...(name === 'not-replayable'
        ? ['WHY']
        : name === 'obligations'
          ? ['RULES', 'WHAT']
          : ['PRINCIPAL', 'BEFORE', 'AFTER']),
    ];
    const left = (counts.get(name) ?? 0) - some.length;
    return [`\n${name}\n${table(io, head, some.map(rowOf))}${left > 0 ? `and ${left} more; --json has all\n` : ''}`];
  });
  return `${plural(total, 'recorded call')}, decided anew\n${table(io, ['CLASS', 'CALLS'], rows)}${lists.join('')}`;
}

function rowOf(one: Changed): readonly string[] {
  const rules = (decided: Replayed['before']): string =>
    `${decided?.outcome ?? ''} ${(decided?.reasons ?? []).map(({ id }) => id).join(', ')}`;
  const start = [one.id, printable(one.exposed)];
  if (one.obligations !== undefined)
    return [
      ...start,
      rules(one.after),
      Object.entries(one.obligations)
        .map(([name, [before, after]]) => `${name}: ${JSON.stringify(before)} to ${JSON.stringify(after)}`)
        .join(', '),
    ];
  return one.class === 'not-replayable'
    ? [...start, one.why ?? '']
    : [...start, one.principal, rules(one.before), rules(one.after)];
}

function coloured(name: Replayed['class']): { readonly text: string; readonly colour: Colour } | string {
  const colour = COLOURS[name];
  return colour === undefined ? name : { text: name, colour };
}

function readClasses(text: string | undefined): readonly Replayed['class'][] {
  const names = text?.split(',').map((name) => name.trim()) ?? [];
  const known: readonly string[] = CLASSES.slice(1);
  const wrong = names.find((name) => !known.includes(name));
  if (wrong !== undefined)
    throw new TollgateError('USAGE', {
      detail: `There is no class ${printable(wrong)}.`,
      next: `Known are ${known.join(', ')}.`,
    });
  return names as readonly Replayed['class'][];
}
