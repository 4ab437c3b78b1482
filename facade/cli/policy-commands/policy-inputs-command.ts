/**
 * Runs `policy inputs`: makes test fixtures from recorded calls, without secrets. A call that is decided differently
 * without its secrets is left out.
 */
import path from 'node:path';
import { stringify } from 'yaml';
import type { Authoring } from '../../../policies/authoring/authoring-port.ts';
import type { CallInput } from '../../../policies/port.ts';
import { isWhole, type Recording, type WholeRecording } from '../../audit/recording/decision-recording.ts';
import { type Conceal, createConceal } from '../../audit/recording/recording-redaction.ts';
import { sampleRecordings } from '../../audit/recording/recording-sample.ts';
import { policyParts } from '../../runtime/policy-parts.ts';
import { type CommonOptions, readConfig } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { writeAsked } from '../output-file.ts';
import { json, plural } from '../print.ts';
import type { Wiring } from '../wiring.ts';
import { noTraffic, readTraffic } from './recorded-traffic.ts';

/** Options of `policy inputs`. */
export interface InputsOptions extends CommonOptions {
  /** How many calls. */
  readonly sample: number;
  /** A folder for files. Default: the suite is printed. */
  readonly out?: string;
  readonly since?: string;
}

/** A recorded call with a decision, and its input without secrets. */
interface Fixture {
  readonly recording: Decided;
  readonly input: CallInput;
}

type Decided = WholeRecording & { readonly decision: NonNullable<WholeRecording['decision']> };

const SCHEMA = 'yaml-language-server: $schema=../node_modules/tollgate/dist/policies/schemas/suite.json';

/**
 * Exit code 1 if nothing was recorded. Throws USAGE for a folder that cannot be written, STATE_FAILED if the key of the
 * recordings is missing.
 */
export async function runInputs(options: InputsOptions, io: Io, { authoring }: Wiring): Promise<number> {
  const { out } = options;
  const config = readConfig(options, io);
  const traffic = readTraffic(config, options.since, io);
  const sample = sampleRecordings(decidedIn(traffic.recordings), options.sample);
  traffic.tell();
  if (sample.length === 0) {
    io.stderr(noTraffic(config));
    return EXIT.unexpected;
  }
  const conceal = createConceal(config);
  const cleaned = sample.map((recording): Fixture => ({ recording, input: clean(recording.input, conceal) }));
  const fixtures = await withoutChanged(cleaned, (calls) => authoring.replay(policyParts(config, options), calls));
  const omitted = cleaned.length - fixtures.length;
  if (omitted > 0)
    io.stderr(`${plural(omitted, 'call')} left out: the policy decides differently without the secret.\n`);
  const suite = { cases: fixtures.map(caseOf) };
  if (out === undefined) {
    io.stdout(options.json === true ? json(suite) : suiteText(suite));
    return EXIT.ok;
  }
  await writeAll(path.resolve(io.cwd, out), { out, fixtures, suite, authoring });
  io.stderr(`${plural(fixtures.length, 'case')} in ${out}: recorded_suite.yaml, and inputs/ for opa.\n`);
  return EXIT.ok;
}

function* decidedIn(recordings: Iterable<Recording>): Generator<Decided> {
  for (const recording of recordings)
    if (isWhole(recording) && recording.decision !== undefined) yield recording as Decided;
}

function clean(input: CallInput, conceal: Conceal): CallInput {
  const { argsText, effect, ...rest } = input;
  return { ...rest, effect: conceal(effect), argsText: JSON.stringify(conceal(JSON.parse(argsText) as unknown)) };
}

/**
 * Removes the fixtures whose decision depends on a secret. Today's policy decides both forms of each input that was
 * changed; the recorded decision does not matter.
 */
async function withoutChanged(
  fixtures: readonly Fixture[],
  replay: (calls: Iterable<Decided>) => ReturnType<Authoring['replay']>,
): Promise<readonly Fixture[]> {
  const cleaned = fixtures.filter(
    ({ recording, input }) =>
      JSON.stringify(JSON.parse(recording.input.argsText)) !== input.argsText ||
      JSON.stringify(recording.input.effect) !== JSON.stringify(input.effect),
  );
  if (cleaned.length === 0) return fixtures;
  const decisions: string[] = [];
  for await (const one of replay(cleaned.flatMap(({ recording, input }) => [recording, { ...recording, input }])))
    decisions.push(JSON.stringify([one.class, one.after]));
  const changed = new Set(cleaned.filter((_, at) => decisions[2 * at] !== decisions[2 * at + 1]));
  return fixtures.filter((one) => !changed.has(one));
}

/** Writes the facts of the effect, because a later version may lower the same call differently. */
function caseOf({ recording, input }: Fixture): Readonly<Record<string, unknown>> {
  const { principal, labels, time, run, plan, effect, argsText } = input;
  const { kind = 'tool', verb, server, tool, paths, urls, command, spill, uri, asks } = effect;
  // A suite takes paths and URLs from a URI unless they are written.
  const isRequest = kind !== 'tool';
  const { outcome, reasons } = recording.decision;
  const rule = reasons[0]?.id;
  return {
    name: `${recording.exposed} ${outcome} by ${rule ?? 'nothing'} (${recording.id})`,
    as: principal,
    time,
    run,
    ...(labels.length > 0 && { labels }),
    ...(plan !== undefined && plan !== 'none' && { plan }),
    effect: {
      ...(isRequest && { kind }),
      verb,
      server,
      tool,
      ...((isRequest || paths.length > 0) && { paths }),
      ...((isRequest || urls.length > 0) && { urls: urls.map(({ argument, url, host }) => ({ argument, url, host })) }),
      ...(command !== undefined && {
        command: { text: command.text, opaque: command.opaque, words: command.words },
      }),
      ...(spill === true && { spill }),
      ...(uri !== undefined && { uri }),
      ...(asks !== undefined && { asks }),
      args: JSON.parse(argsText) as unknown,
    },
    expect: outcome,
    ...(rule !== undefined && { reason: rule }),
  };
}

function suiteText(suite: unknown): string {
  return `# ${SCHEMA}\n${stringify(suite, { lineWidth: 0 })}`;
}

async function writeAll(
  folder: string,
  {
    out,
    fixtures,
    suite,
    authoring,
  }: {
    readonly out: string;
    readonly fixtures: readonly Fixture[];
    readonly suite: unknown;
    readonly authoring: Authoring;
  },
): Promise<void> {
  const documents = await Promise.all(
    fixtures.map(async ({ recording, input }) => [`${recording.id}.json`, await authoring.inputText(input)] as const),
  );
  const write = (name: string, content: string): boolean =>
    writeAsked({ file: path.join(folder, name), shown: path.join(out, name), content });
  write('recorded_suite.yaml', suiteText(suite));
  for (const [name, text] of documents)
    write(path.join('inputs', name), `${JSON.stringify(JSON.parse(text), null, 2)}\n`);
}
