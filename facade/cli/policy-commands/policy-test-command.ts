/** Runs `policy test`: runs suites and Rego tests, and prints the results. It starts no server and opens no state. */
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Coverage, Drafting, TestReport, Uncovered } from '../../../policies/authoring/authoring-port.ts';
import { type DraftContext, draftCall, draftTools } from '../../call/lowering/draft-call.ts';
import type { Config } from '../../config/config.ts';
import { didYouMean, listNames, quote } from '../../config/config-problems.ts';
import { controlRule, policyParts } from '../../runtime/policy-parts.ts';
import { asPrincipal } from '../../serve/http/token-authentication.ts';
import { type CommonOptions, readConfig } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { MAX_COLUMNS, paint, plural, printable, wrapWords } from '../print.ts';
import type { Wiring } from '../wiring.ts';
import { asEnforced, type DraftOptions, withDraft } from './written-policy.ts';

interface TestOptions extends CommonOptions, DraftOptions {
  /** Relative to the current folder. */
  readonly paths: readonly string[];
  /** Percent, of the rules and of the lines of Rego each. */
  readonly threshold?: number;
  readonly enforced?: true;
}

/** A person at a terminal is told after this time that the tests are still running, ms. */
const PATIENCE_MS = 1_000;
/** How many uncovered places are shown without `--threshold`. */
const SHOWN = 5;

/**
 * Exit code 1 if a test fails or the coverage is below the threshold. Throws what `Authoring.test` throws.
 */
export async function runPolicyTest(
  options: TestOptions,
  io: Io,
  { authoring, serveOffline }: Pick<Wiring, 'authoring' | 'serveOffline'>,
): Promise<number> {
  const named = readConfig(options, io);
  const config = withDraft(named, options, io);
  const patience = setTimeout(
    () => io.stderr('Still running. Rego is built on the first run, and after each change.\n'),
    PATIENCE_MS,
  );
  if (!io.isTTY) clearTimeout(patience);
  try {
    const report = await authoring.test({
      parts: asEnforced(policyParts(config, options), options),
      nextTo: policyParts(named, options).sources,
      paths: options.paths.map((one) => path.resolve(io.cwd, one)),
      draft: drafting(config, { config, served: await serveOffline(config) }),
      ownRules: controlRule(config).value.rules.map(({ id }) => id),
    });
    const missed = missedCoverage(report, options.threshold);
    const passed =
      missed.length === 0 &&
      report.cases.every(({ faults }) => faults.length === 0) &&
      report.rego.every((test) => test.passed || test.skipped);
    io.stdout(
      options.json === true
        ? `${JSON.stringify({ passed, ...report })}\n`
        : reportText(report, { missed, isPart: options.paths.length > 0 }, io),
    );
    return passed ? EXIT.ok : EXIT.unexpected;
  } finally {
    clearTimeout(patience);
  }
}

/** Returns the principals and calls that suites may write. Its methods throw IDENTITY for an unknown principal. */
export function drafting(config: Config, context: DraftContext): Drafting {
  const ids = config.principals.map(({ id }) => id);
  return {
    principal(id) {
      const [only, ...others] = config.principals;
      const found = id === undefined ? only : config.principals.find((principal) => principal.id === id);
      if (found !== undefined && (id !== undefined || others.length === 0)) return asPrincipal(found);
      throw new TollgateError('IDENTITY', {
        detail:
          id === undefined
            ? `The case does not name its principal, and there are several: ${listNames(ids)}.`
            : `There is no principal ${quote(id)}; ${didYouMean(id, ids)}`,
        next: 'Write `as` with one of them, or a principal written out: {id, role, groups}.',
      });
    },
    call: (principal, call) => draftCall(context, principal, call),
    tools: (principal, tool) => draftTools(context, principal, tool),
  };
}

/** Returns one line for each coverage below the threshold. */
function missedCoverage({ coverage: { rules, rego } }: TestReport, threshold = 0): readonly string[] {
  const below = (name: string, part: Coverage | undefined): readonly string[] =>
    part === undefined || part.percent >= threshold
      ? []
      : [`${name}: ${part.percent} % covered, ${threshold} % required. Not covered: ${placeList(part.uncovered)}`];
  return [...below('YAML rules', rules), ...below('lines of Rego', rego)];
}

/** `isPart`: only some suites ran, so places that they do not cover are not reported. */
function reportText(
  { cases, rego, coverage, notCompared }: TestReport,
  { missed, isPart }: { readonly missed: readonly string[]; readonly isPart: boolean },
  io: Io,
): string {
  const fail = paint(io, 'red', 'FAIL');
  const failed = [
    ...cases
      .filter(({ faults }) => faults.length > 0)
      .map(
        ({ file, line, name, faults }) => `${file}:${line}  ${printable(name)}: ${faults.map(printable).join('; ')}`,
      ),
    ...rego
      .filter((test) => !test.passed && !test.skipped)
      .map(({ name, file, line, detail }) => `${file}:${line}  ${name}${indented(detail)}`),
  ];
  const skipped = rego.filter((test) => test.skipped).length;
  const counts = [
    `${cases.length + rego.length - failed.length - skipped} passed`,
    paint(io, failed.length > 0 ? 'red' : 'dim', `${failed.length} failed`),
    ...(skipped === 0 ? [] : [`${skipped} skipped`]),
  ];
  const { rules } = coverage;
  const covered = [
    ...(rules.total === 0 ? [] : [`${rules.covered} of ${plural(rules.total, 'YAML rule')} decided a case`]),
    ...(coverage.rego === undefined ? [] : [`${coverage.rego.percent} % of Rego lines ran`]),
  ];
  const hints = [
    ...(missed.length > 0 || failed.length > 0
      ? []
      : uncoveredHint([...rules.uncovered, ...(coverage.rego?.uncovered ?? [])])),
    ...(rules.waiting === undefined
      ? []
      : [`These rules wait for external servers, and there are none: ${placeList(rules.waiting.slice(0, SHOWN))}`]),
  ];
  const lines = [
    ...failed.map((text) => `${fail} ${text}`),
    ...missed.map((text) => `${fail} ${wrapWords(text, MAX_COLUMNS - 5, '  ')}`),
    `${counts.join(', ')}. ${covered.join(', ')}${covered.length === 0 ? '' : '.'}`.trimEnd(),
    ...(isPart ? [] : hints.map((text) => paint(io, 'dim', wrapWords(text, MAX_COLUMNS, '  ')))),
    ...(notCompared === undefined
      ? []
      : [wrapWords(`The cases ran in WebAssembly only. ${notCompared}`, MAX_COLUMNS, '  ')]),
  ];
  return lines.map((line) => `${line}\n`).join('');
}

function uncoveredHint(places: readonly Uncovered[]): readonly string[] {
  if (places.length === 0) return [];
  const more = places.length > SHOWN ? `, and ${places.length - SHOWN} more` : '';
  return [`Not covered: ${placeList(places.slice(0, SHOWN))}${more}`];
}

function indented(detail: string | undefined): string {
  return detail === undefined ? '' : `\n${detail}`.replaceAll('\n', '\n    ');
}

function placeList(places: readonly Uncovered[]): string {
  return places
    .map(({ file, line, rule }) => (rule === undefined ? `${file}:${line}` : `${rule} (${file}:${line})`))
    .join(', ');
}
