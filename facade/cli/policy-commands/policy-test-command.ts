/** Owns `policy test`: which configuration is tested, and how the results are shown; starts no server and opens no state. */
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type {
  CaseResult,
  Coverage,
  Drafting,
  TestReport,
  Uncovered,
} from '../../../policies/authoring/authoring-port.ts';
import { type DraftContext, draftCall, draftTools } from '../../call/lowering/draft-call.ts';
import type { Config } from '../../config/config.ts';
import { didYouMean, listNames, quote } from '../../config/config-problems.ts';
import { controlRule, policyParts } from '../../runtime/policy-parts.ts';
import { asPrincipal } from '../../serve/http/token-authentication.ts';
import { type CommonOptions, readConfig } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { paint, plural, printable } from '../print.ts';
import type { Wiring } from '../wiring.ts';
import { asEnforced } from './enforced-policy.ts';

interface TestOptions extends CommonOptions {
  /** Relative to the current folder. */
  readonly paths: readonly string[];
  /** Percent, of rules and of lines each. */
  readonly threshold?: number;
  /** What is in warn or shadow counts too. */
  readonly enforced?: true;
}

/** Milliseconds after which a person is told that it goes on. */
const PATIENCE_MS = 1_000;
/** Uncovered places that are named without `--threshold`. */
const SHOWN = 5;

/** Exit code 0 when all pass, 1 when one fails or a coverage is below the threshold. Throws what `Authoring.test` throws. */
export async function runPolicyTest(
  options: TestOptions,
  io: Io,
  { authoring, serveOffline }: Pick<Wiring, 'authoring' | 'serveOffline'>,
): Promise<number> {
  const config = readConfig(options, io);
  const patience = setTimeout(
    () => io.stderr('Still at it: Rego is built on the first run, and after each change.\n'),
    PATIENCE_MS,
  );
  if (!io.isTTY) clearTimeout(patience);
  try {
    const report = await authoring.test({
      parts: asEnforced(policyParts(config, options.opa === undefined ? {} : { opa: options.opa }), options),
      paths: options.paths.map((one) => path.resolve(io.cwd, one)),
      draft: drafting(config, { config, served: await serveOffline(config) }),
      ownRules: controlRule(config).value.rules.map(({ id }) => id),
    });
    const missed = missing(report, options.threshold);
    const passed =
      missed.length === 0 &&
      report.cases.every(({ faults }) => faults.length === 0) &&
      report.rego.every((test) => test.passed || test.skipped);
    io.stdout(
      options.json === true
        ? `${JSON.stringify({ passed, ...report })}\n`
        : readable(report, { missed, isPart: options.paths.length > 0 }, io),
    );
    return passed ? EXIT.ok : EXIT.unexpected;
  } finally {
    clearTimeout(patience);
  }
}

/** Principals and calls as suites write them. Throws IDENTITY for a principal that is not there. */
export function drafting(config: Config, world: DraftContext): Drafting {
  const ids = config.principals.map(({ id }) => id);
  return {
    principal(id) {
      const [only, ...others] = config.principals;
      const found =
        id === undefined && others.length === 0 ? only : config.principals.find((principal) => principal.id === id);
      if (found !== undefined) return asPrincipal(found);
      const detail =
        id === undefined
          ? `It is not said who calls, and there are several principals: ${listNames(ids)}.`
          : `There is no principal ${quote(id)}; ${didYouMean(id, ids)}`;
      throw new TollgateError('IDENTITY', {
        detail,
        next: 'Write `as` with one of them, or a principal written out: {id, role, groups}.',
      });
    },
    call: (principal, call) => draftCall(world, principal, call),
    tools: (principal, tool) => draftTools(world, principal, tool),
  };
}

/** Coverages below the threshold, in words; none where there is no threshold. */
function missing({ coverage: { rules, rego } }: TestReport, threshold = 0): readonly string[] {
  const below = (name: string, part: Coverage | undefined): readonly string[] =>
    part === undefined || part.percent >= threshold
      ? []
      : [
          `${name}: ${part.percent} % covered, ${threshold} % wanted. Not covered: ${part.uncovered.map(showPlace).join(', ')}`,
        ];
  return [...below('YAML rules', rules), ...below('lines of Rego', rego)];
}

/** `isPart`: only some suites ran, so what they do not cover says nothing. */
function readable(
  report: TestReport,
  { missed, isPart }: { readonly missed: readonly string[]; readonly isPart: boolean },
  io: Io,
): string {
  const { cases, rego, coverage, notCompared } = report;
  const failed = [
    ...cases.filter(({ faults }) => faults.length > 0).map((one) => showCase(one, io)),
    ...rego
      .filter((test) => !test.passed && !test.skipped)
      .map(({ name, file, line, detail }) => {
        const indented =
          detail === undefined
            ? ''
            : `\n${detail
                .split('\n')
                .map((text) => `    ${text}`)
                .join('\n')}`;
        return `${paint(io, 'red', 'FAIL')} ${file}:${line}  ${name}${indented}`;
      }),
  ];
  const skipped = rego.filter((test) => test.skipped).length;
  const counts = [
    `${cases.length + rego.length - failed.length - skipped} passed`,
    paint(io, failed.length > 0 ? 'red' : 'dim', `${failed.length} failed`),
    ...(skipped === 0 ? [] : [`${skipped} skipped`]),
  ];
  const parts = [
    ...(coverage.rules.total === 0
      ? []
      : [`${coverage.rules.covered} of ${plural(coverage.rules.total, 'YAML rule')} decided a case`]),
    ...(coverage.rego === undefined ? [] : [`${coverage.rego.percent} % of Rego lines ran`]),
  ];
  const uncovered =
    missed.length > 0 || failed.length > 0 || isPart
      ? []
      : [...coverage.rules.uncovered, ...(coverage.rego?.uncovered ?? [])];
  const more = uncovered.length > SHOWN ? `, and ${uncovered.length - SHOWN} more` : '';
  return [
    ...failed,
    ...missed.map((text) => `${paint(io, 'red', 'FAIL')} ${text}`),
    `${counts.join(', ')}. ${parts.join(', ')}${parts.length === 0 ? '' : '.'}`.trimEnd(),
    ...(uncovered.length === 0
      ? []
      : [paint(io, 'dim', `Not covered: ${uncovered.slice(0, SHOWN).map(showPlace).join(', ')}${more}`)]),
    ...(isPart || coverage.rules.waiting === undefined
      ? []
      : [
          paint(
            io,
            'dim',
            `For servers of others, and there are none: ${coverage.rules.waiting.slice(0, SHOWN).map(showPlace).join(', ')}`,
          ),
        ]),
    ...(notCompared === undefined ? [] : [`The cases ran in the built wasm only. ${notCompared}`]),
  ]
    .map((line) => `${line}\n`)
    .join('');
}

function showCase({ file, line, name, faults }: CaseResult, io: Io): string {
  return `${paint(io, 'red', 'FAIL')} ${file}:${line}  ${printable(name)}: ${faults.map(printable).join('; ')}`;
}

function showPlace({ file, line, rule }: Uncovered): string {
  return rule === undefined ? `${file}:${line}` : `${rule} (${file}:${line})`;
}
