/** Inspects the user's Rego before it is built: collects its rules, and reports wrong packages, sets and METADATA. */

import { createHash } from 'node:crypto';
import { groupBy } from '../../catalogs/text/collections.ts';
import { type PolicyProblem, suggest } from '../rules/policy-problems.ts';
import { RESERVED_RULE_IDS } from '../rules/rule-compiler.ts';
import { exposeFacts, findExposeFaults } from './expose-members.ts';
import { ReadAnalysis } from './read-analysis.ts';
import {
  EXPOSE,
  type ParsedFile,
  type RegoExposeRule,
  type RegoFacts,
  type RegoRule,
  SETS,
  SEVERITIES,
  type SetRule,
} from './rego-facts.ts';
import { findIdFaults, findSharedIds, RULE_ID, RULE_ID_WORDS, reservedIdMessage, writtenIds } from './rego-ids.ts';
import { findMemberFaults } from './set-members.ts';
import {
  type Annotation,
  aliasesOf,
  elseChain,
  groundPath,
  type Module,
  packagePath,
  type Rule,
  sourceOf,
  termsIn,
  valuesIn,
} from './syntax-tree.ts';

/** The part of a package name between dots. Ids and modes use these names. */
const SEGMENT = /^[A-Za-z0-9_-]+$/;
/** Names of rules that the build adds to the user's packages. */
const OURS = /^tollgate_/;

/** The result for all files. */
export interface InspectedRego {
  readonly facts: RegoFacts;
  readonly rules: readonly SetRule[];
  readonly exposes: readonly RegoExposeRule[];
  readonly problems: readonly PolicyProblem[];
}

/** Collects facts and problems of all files. */
export function inspectRego(files: readonly ParsedFile[]): InspectedRego {
  const inspector = new Inspector();
  const owners = new Map(
    files.flatMap(({ module }) =>
      (module.annotations ?? [])
        .filter(({ scope }) => scope === 'package')
        .map((annotation) => [packagePath(module).join('.'), annotation] as const),
    ),
  );
  for (const file of files) inspector.add(file, owners.get(packagePath(file.module).join('.')));
  const { packages, rules, exposes, problems } = inspector;
  const sets = Object.fromEntries(
    SETS.map((set) => [set, rules.some(({ facts }) => facts.set === set)]),
  ) as RegoFacts['sets'];
  const places = Object.fromEntries(
    rules.flatMap(({ rule, facts: { file, line } }) => writtenIds(rule).map((id) => [id, { file, line }])),
  );
  problems.push(
    ...findMisspelledSets(files),
    ...findIdFaults(rules),
    ...findSharedIds(rules),
    ...findMemberFaults(rules),
    ...findExposeFaults(exposes, new ReadAnalysis(files.map(({ module }) => module))),
  );
  return {
    exposes,
    facts: {
      packages,
      sets,
      places,
      rules: rules.map(({ facts }) => facts),
      ...(exposes.length === 0 ? {} : { exposes: exposes.map(exposeFacts) }),
      others: digestOthers(files, rules),
    },
    rules,
    problems,
  };
}

/** Returns why the user cannot use a package; undefined if the user can. */
function packageFault(names: readonly string[]): string | undefined {
  const name = names.join('.');
  const [root, ...below] = names;
  if (root === 'tollgate' || root === 'config' || (root === 'policy' && below.length === 0))
    return `the package ${name} belongs to Tollgate; write \`package policy.<name>\``;
  if (root === 'policy' && !below.every((segment) => SEGMENT.test(segment)))
    return `the package ${name} must be made of letters, digits, "_" and "-"`;
  return undefined;
}

class Inspector {
  readonly packages: { name: string; source: number }[] = [];
  readonly rules: SetRule[] = [];
  readonly exposes: RegoExposeRule[] = [];
  readonly problems: PolicyProblem[] = [];

  add(file: ParsedFile, owner: Annotation | undefined): void {
    const names = packagePath(file.module);
    const refuse = (at: { readonly row: number; readonly col: number }, message: string): void =>
      void this.problems.push({ file: file.shown, line: at.row, column: at.col, message });
    const fault = packageFault(names);
    if (fault !== undefined) return refuse({ row: 1, col: 1 }, fault);
    const isPolicy = names[0] === 'policy';
    const name = names.slice(1).join('.');
    if (isPolicy) this.packages.push({ name, source: file.source });
    for (const { names: used, at } of ownNames(file.module))
      refuse(
        at,
        `${used.slice(0, 2).join('.')} belongs to Tollgate; a policy may read only the input and its own data`,
      );
    for (const annotation of file.module.annotations ?? [])
      checkCustom(annotation, (message) => refuse(annotation.location, message));
    for (const rule of file.module.rules ?? []) {
      const message = ruleFault(rule, isPolicy);
      if (message !== undefined) refuse(rule.head.location, message);
      else if (isPolicy) this.#addRule(rule, { file, package: name, owner });
    }
  }

  #addRule(
    rule: Rule,
    context: { readonly file: ParsedFile; readonly package: string; readonly owner: Annotation | undefined },
  ): void {
    const { file, package: name, owner } = context;
    const defined = String(rule.head.ref[0]?.value);
    if (defined === EXPOSE) this.exposes.push({ file, rule, package: name });
    const set = SETS.find((known) => defined === known);
    if (set === undefined) return;
    this.rules.push({
      file,
      rule,
      facts: {
        package: name,
        set,
        file: file.shown,
        line: rule.location.row,
        digest: digestOf(rule),
        ...readCustom([...(owner === undefined ? [] : [owner]), ...(rule.annotations ?? [])]),
        ...writtenIds(rule).map((id) => ({ id }))[0],
        ...(readsKind(rule, file.module) ? { readsKind: true } : {}),
      },
    });
  }
}

/** Returns why a rule cannot be used under its name; undefined if it can. */
function ruleFault(rule: Rule, isPolicy: boolean): string | undefined {
  const defined = String(rule.head.ref[0]?.value);
  const set = SETS.find((known) => defined === known);
  if (!isPolicy)
    return set === undefined || rule.head.args !== undefined
      ? undefined
      : `\`${set}\` counts only in a package policy.<name>; move it there, or give it another name`;
  if (OURS.test(defined))
    return `\`${defined}\`: names that begin with tollgate_ are reserved for the build; choose another name`;
  if (isSetRule(rule)) return undefined;
  if (defined === EXPOSE)
    return '`expose` must be a set: write `expose contains {"tool": "server.tool", "name": "…"} if { … }`';
  return set === undefined
    ? undefined
    : `\`${set}\` must be a set: write \`${set} contains {"id": "…", "message": "…"} if { … }\``;
}

/** Helpers do not count, so that a helper in another file never decides what a rule opens. */
function readsKind(rule: Rule, module: Module): boolean {
  const aliases = aliasesOf(module);
  return [...termsIn(rule)].some(
    (term) => groundPath(term, aliases)?.names.slice(0, 3).join('.') === 'input.effect.kind',
  );
}

/** Whether a rule adds members to a set. */
function isSetRule({ head }: Rule): boolean {
  return head.ref.length === 1 && head.key !== undefined && head.value === undefined;
}

/**
 * Returns references to the library's own names. Through them a rule could read a decision that depends on this rule.
 */
function ownNames(
  module: Module,
): readonly { readonly names: readonly string[]; readonly at: { readonly row: number; readonly col: number } }[] {
  const aliases = aliasesOf(module);
  return [...termsIn(module.rules)].flatMap((term) => {
    const names = groundPath(term, aliases)?.names ?? [];
    return names[0] === 'data' && (names[1] === 'tollgate' || names[1] === 'config')
      ? [{ names, at: term.location ?? { row: 1, col: 1 } }]
      : [];
  });
}

/** Returns what METADATA says about a rule. The annotation with the narrowest scope counts. */
function readCustom(annotations: readonly Annotation[]): Pick<RegoRule, 'id' | 'title' | 'severity' | 'remediation'> {
  const order = ['package', 'subpackages', 'document', 'rule'];
  const near = [...annotations].sort((a, b) => order.indexOf(a.scope) - order.indexOf(b.scope));
  const custom = Object.assign({}, ...near.map((annotation) => annotation.custom)) as Readonly<Record<string, unknown>>;
  const title = near.findLast((annotation) => annotation.scope !== 'package' && annotation.title !== undefined)?.title;
  const kept = ['id', 'severity', 'remediation'].flatMap((key) =>
    typeof custom[key] === 'string' ? [[key, custom[key]] as const] : [],
  );
  return { ...Object.fromEntries(kept), ...(title === undefined ? {} : { title }) };
}

function checkCustom({ custom = {} }: Annotation, refuse: (message: string) => void): void {
  const { id, severity, remediation } = custom;
  if (id !== undefined && (typeof id !== 'string' || !RULE_ID.test(id))) refuse(`custom.id must be ${RULE_ID_WORDS}`);
  if (typeof id === 'string' && RESERVED_RULE_IDS.has(id)) refuse(reservedIdMessage(id));
  if (severity !== undefined && !SEVERITIES.some((known) => known === severity))
    refuse(`custom.severity must be one of ${SEVERITIES.join(', ')}`);
  if (remediation !== undefined && typeof remediation !== 'string')
    refuse('custom.remediation must be a string: what the caller can do instead');
}

function digestOf(...rules: readonly Rule[]): string {
  return createHash('sha256')
    .update(rules.map((rule) => sourceOf(rule.location) ?? JSON.stringify(rule)).join('\n'))
    .digest('hex')
    .slice(0, 16);
}

function digestOthers(files: readonly ParsedFile[], members: readonly SetRule[]): RegoFacts['others'] {
  const own = new Set(members.map(({ rule }) => rule));
  const others = files.flatMap(({ module }) =>
    (module.rules ?? []).filter((rule) => !own.has(rule)).map((rule) => ({ module, rule })),
  );
  const named = groupBy(others, ({ module, rule }) =>
    [...packagePath(module), String(rule.head.ref[0]?.value)].join('.'),
  );
  return Object.fromEntries(
    [...named]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, rules]) => [name, digestOf(...rules.map(({ rule }) => rule))]),
  );
}

/**
 * Returns a problem for each set whose name looks like a misspelled one. A helper that a rule uses may have any name.
 */
function findMisspelledSets(files: readonly ParsedFile[]): readonly PolicyProblem[] {
  const known: readonly string[] = [...SETS, EXPOSE];
  let words: ReadonlySet<string> | undefined;
  return files.flatMap((file) =>
    (packagePath(file.module)[0] === 'policy' ? (file.module.rules ?? []) : []).flatMap((rule) => {
      const name = String(rule.head.ref[0]?.value);
      const hint = isSetRule(rule) && rule.head.args === undefined && !known.includes(name) ? suggest(name, known) : '';
      if (hint === '') return [];
      words ??= new Set(files.flatMap(({ module }) => (module.rules ?? []).flatMap(wordsIn)));
      return words.has(name)
        ? []
        : [
            {
              file: file.shown,
              line: rule.head.location.row,
              column: rule.head.location.col,
              message: `nothing reads the set \`${name}\`, so it has no effect.${hint}`,
            },
          ];
    }),
  );
}

/** Returns every name and string that a rule uses, without its own name. */
function wordsIn(rule: Rule): readonly string[] {
  const parts = elseChain(rule).map(({ head, body }) => [head.key, head.value, head.args, body]);
  return [...valuesIn(parts, ['var', 'string'])];
}
