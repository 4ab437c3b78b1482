/** Owns `tollgate policy inputs`: recorded calls as fixtures for tests, without secrets; leaves out what would be decided otherwise without them. */
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

/** `sample`: how many; `out`: a folder for files, else the suite is printed. */
export interface InputsOptions extends CommonOptions {
  readonly sample: number;
  readonly out?: string;
  readonly since?: string;
}

/** A recorded call that was decided, cleaned of secrets. */
interface Fixture {
  readonly recording: Decided;
  readonly input: CallInput;
}

type Decided = WholeRecording & { readonly decision: NonNullable<WholeRecording['decision']> };

const SCHEMA = 'yaml-language-server: $schema=../node_modules/tollgate/dist/policies/schemas/suite.json';

/** Exit code 1 when nothing was recorded. Throws USAGE for a folder that cannot be written, STATE_FAILED for recordings without a key. */
export async function runInputs(options: InputsOptions, io: Io, { authoring }: Wiring): Promise<number> {
  const config = readConfig(options, io);
  const traffic = readTraffic(config, options.since, io);
  const sample = sampleRecordings(whole(traffic.recordings), options.sample);
  traffic.tell();
  if (sample.length === 0) {
    io.stderr(noTraffic(config));
    return EXIT.unexpected;
  }
  const conceal = createConceal(config);
  const cleaned = sample.map((recording): Fixture => ({ recording, input: clean(recording.input, conceal) }));
  const fixtures = await withoutChanged(cleaned, (calls) =>
    authoring.replay(policyParts(config, options.opa === undefined ? {} : { opa: options.opa }), calls),
  );
  if (fixtures.length < cleaned.length)
    io.stderr(
      `${plural(cleaned.length - fixtures.length, 'call')} left out: without the secret in it the decision would be another.\n`,
    );
  const suite = { cases: fixtures.map(caseOf) };
  if (options.out === undefined) io.stdout(options.json === true ? json(suite) : suiteText(suite));
  else await writeAll(path.resolve(io.cwd, options.out), { out: options.out, fixtures, suite, authoring });
  if (options.out !== undefined)
    io.stderr(`${plural(fixtures.length, 'case')} in ${options.out}: recorded_suite.yaml, and inputs/ for opa.\n`);
  return EXIT.ok;
}

function* whole(recordings: Iterable<Recording>): Generator<Decided> {
  for (const recording of recordings)
    if (isWhole(recording) && recording.decision !== undefined) yield recording as Decided;
}

function clean(input: CallInput, conceal: Conceal): CallInput {
  const { argsText, effect, ...rest } = input;
  return { ...rest, effect: conceal(effect), argsText: JSON.stringify(conceal(JSON.parse(argsText) as unknown)) };
}

/** Only those that were cleaned can differ; both forms are asked of the policy of today, whatever decided then. */
async function withoutChanged(
  fixtures: readonly Fixture[],
  replay: (calls: Iterable<Decided>) => ReturnType<Authoring['replay']>,
): Promise<readonly Fixture[]> {
  const touched = fixtures.filter(
    ({ recording, input }) =>
      JSON.stringify(JSON.parse(recording.input.argsText)) !== input.argsText ||
      JSON.stringify(recording.input.effect) !== JSON.stringify(input.effect),
  );
  if (touched.length === 0) return fixtures;
  const classes: string[] = [];
  for await (const one of replay(touched.flatMap(({ recording, input }) => [recording, { ...recording, input }])))
    classes.push(JSON.stringify([one.class, one.after]));
  const changed = new Set(touched.filter((_, at) => classes[2 * at] !== classes[2 * at + 1]));
  return fixtures.filter((one) => !changed.has(one));
}

/** The facts themselves: a call of a tool could be lowered otherwise by then. */
function caseOf({ recording, input }: Fixture): Readonly<Record<string, unknown>> {
  const { principal, labels, time, run, plan, effect, argsText } = input;
  const { verb, server, tool, paths, urls, command, spill } = effect;
  const { outcome, reasons } = recording.decision;
  return {
    name: `${recording.exposed} ${outcome} by ${reasons[0]?.id ?? 'nothing'} (${recording.id})`,
    as: principal,
    time,
    run,
    ...(labels.length === 0 ? {} : { labels }),
    ...(plan === undefined || plan === 'none' ? {} : { plan }),
    effect: {
      verb,
      server,
      tool,
      ...(paths.length === 0 ? {} : { paths }),
      ...(urls.length === 0 ? {} : { urls: urls.map(({ argument, url, host }) => ({ argument, url, host })) }),
      ...(command === undefined
        ? {}
        : { command: { text: command.text, opaque: command.opaque, words: command.words } }),
      ...(spill === true ? { spill } : {}),
      args: JSON.parse(argsText) as unknown,
    },
    expect: outcome,
    ...(reasons[0] === undefined ? {} : { reason: reasons[0].id }),
  };
}

function suiteText(suite: unknown): string {
  return `# ${SCHEMA}\n${stringify(suite, { lineWidth: 0 })}`;
}

async function writeAll(
  folder: string,
  made: {
    readonly out: string;
    readonly fixtures: readonly Fixture[];
    readonly suite: unknown;
    readonly authoring: Authoring;
  },
): Promise<void> {
  const documents = await Promise.all(
    made.fixtures.map(
      async ({ recording, input }) => [`${recording.id}.json`, await made.authoring.inputText(input)] as const,
    ),
  );
  const write = (name: string, content: string): boolean =>
    writeAsked({ file: path.join(folder, name), shown: path.join(made.out, name), content });
  write('recorded_suite.yaml', suiteText(made.suite));
  for (const [name, text] of documents)
    write(path.join('inputs', name), `${JSON.stringify(JSON.parse(text), null, 2)}\n`);
}
