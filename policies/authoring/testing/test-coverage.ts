/** Collects what tests covered: lines of the user's Rego, and YAML rules. */

import type { CallDecision } from '../../port.ts';
import { comparePlaces } from '../../rules/policy-problems.ts';
import type { CompiledRules } from '../../rules/rule-compiler.ts';

/** A line of a file, by its name in messages. */
export interface SourceLine {
  readonly file: string;
  readonly line: number;
}

/** A part of a file that no test covered. */
export interface Uncovered extends SourceLine {
  /** Id of the rule, for a YAML rule. */
  readonly rule?: string;
}

/** A coverage. `percent` is 100 if there is nothing to cover. */
export interface Coverage {
  readonly total: number;
  readonly covered: number;
  readonly percent: number;
  readonly uncovered: readonly Uncovered[];
  /** Rules about external servers, if there are none. They are not counted. */
  readonly waiting?: readonly Uncovered[];
}

interface Range {
  readonly start: { readonly row: number };
  readonly end: { readonly row: number };
}

/** The output of `opa test` and `opa eval` with `--coverage`. */
export interface OpaCoverage {
  readonly files?: Readonly<
    Record<string, { readonly covered?: readonly Range[]; readonly not_covered?: readonly Range[] }>
  >;
}

/** Covered lines of Rego in several runs of opa. */
export class LineCoverage {
  readonly #lines = new Map<string, Map<number, boolean>>();

  /** `places` maps `file:row` of opa to the user's lines. Other rows are not the user's. */
  add(coverage: OpaCoverage | undefined, places: ReadonlyMap<string, SourceLine>): void {
    for (const [file, { covered, not_covered: missed }] of Object.entries(coverage?.files ?? {})) {
      for (const row of rowsOf(missed)) this.#note(places.get(`${file}:${row}`), false);
      for (const row of rowsOf(covered)) this.#note(places.get(`${file}:${row}`), true);
    }
  }

  #note(place: SourceLine | undefined, covered: boolean): void {
    if (place === undefined) return;
    const lines = this.#lines.get(place.file) ?? new Map<number, boolean>();
    this.#lines.set(place.file, lines.set(place.line, covered || lines.get(place.line) === true));
  }

  get result(): Coverage {
    const all = [...this.#lines].flatMap(([file, lines]) =>
      [...lines].map(([line, covered]) => ({ file, line, covered })),
    );
    return coverageOf(
      all.length,
      all.filter(({ covered }) => !covered).map(({ file, line }) => ({ file, line })),
    );
  }
}

/**
 * What rule coverage is computed from. `isOurs`: whether a rule is one of Tollgate's. `hasServers`: whether any is
 * external.
 */
interface CoverageScope {
  readonly decisions: readonly CallDecision[];
  readonly isOurs: (id: string) => boolean;
  readonly hasServers: boolean;
}

/** A YAML rule is covered if it was a reason of a decision, enforced or not. A rule that is always overruled is not. */
export function ruleCoverage(
  { list, rules: located }: Pick<CompiledRules, 'list' | 'rules'>,
  { decisions, isOurs, hasServers }: CoverageScope,
): Coverage {
  const seen = new Set(decisions.flatMap(({ reasons, shadow }) => [...reasons, ...shadow].map(({ id }) => id)));
  const foreign = new Set(
    hasServers
      ? []
      : located
          .filter(({ rule }) => rule.when.trust?.every((trust) => trust === 'external') === true && !seen.has(rule.id))
          .map(({ rule }) => rule.id),
  );
  const rules = list
    .map(({ reason: { id, file, line } }): Uncovered & { readonly rule: string } => ({ file, line, rule: id }))
    .filter(({ rule }) => !isOurs(rule));
  const counted = rules.filter(({ rule }) => !foreign.has(rule));
  const waiting = rules.filter(({ rule }) => foreign.has(rule));
  return {
    ...coverageOf(
      counted.length,
      counted.filter(({ rule }) => !seen.has(rule)),
    ),
    ...(waiting.length === 0 ? {} : { waiting }),
  };
}

function coverageOf(total: number, uncovered: readonly Uncovered[]): Coverage {
  const covered = total - uncovered.length;
  const sorted = [...uncovered].sort(comparePlaces);
  return { total, covered, percent: total === 0 ? 100 : Math.floor((covered * 1000) / total) / 10, uncovered: sorted };
}

function rowsOf(ranges: readonly Range[] | undefined): readonly number[] {
  return (ranges ?? []).flatMap(({ start, end }) =>
    Array.from({ length: end.row - start.row + 1 }, (_, offset) => start.row + offset),
  );
}
