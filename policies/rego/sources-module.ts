/**
 * Writes the module that replaces lib/sources.rego in a build: it names the members of the user's sets and what a list
 * can use.
 */
import type { ReadLevel } from './read-analysis.ts';
import type { SetName } from './rego-facts.ts';

/** A rule of a package that contains members, or (`isGuard`) that tells which rules of the set may still match. */
export interface SourcesPart {
  /** Absent for the set itself, whose members do not contain the number of their rule. */
  readonly name?: string;
  /** The deepest level that its rules read. */
  readonly reads: ReadLevel;
  /** The input reference (in Rego, below `input`) whose text selects its members. */
  readonly key?: string;
  readonly isGuard?: boolean;
}

/** A set of a package. */
export interface FoldedSet {
  /** Without the prefix `policy.`. */
  readonly package: string;
  readonly set: SetName;
  readonly parts: readonly SourcesPart[];
  /** Rules that read a call and begin with nothing that a list could decide. */
  readonly open: readonly { readonly number: number; readonly outcomes: readonly SetName[] }[];
}

/**
 * Returns Rego that defines the same names as lib/sources.rego for these packages. `exposing`: by package, the name of
 * the rule with the members of `expose`; undefined for the set itself.
 */
export function sourcesText(folded: readonly FoldedSet[], exposing: ReadonlyMap<string, string | undefined>): string {
  const rules: string[] = [];
  const all = folded.map((set, at) =>
    entryOf(set, { name: `members_${at}`, parts: set.parts.filter(({ isGuard = false }) => !isGuard), rules }),
  );
  const known = (reads: ReadLevel): readonly string[] =>
    folded.flatMap((set, at) => {
      const [parts, open] = [set.parts.filter((part) => part.reads === reads), reads === 'group' ? set.open : []];
      if (parts.length === 0 && open.length === 0) return [];
      const openRule = { name: `open_${reads}_${at}`, parts: parts.filter(({ isGuard = false }) => isGuard), rules };
      for (const { number, outcomes } of open)
        rules.push(`${openRule.name} contains ["${number}", ${JSON.stringify(outcomes)}]`);
      const members = entryOf(set, {
        name: `${reads}_${at}`,
        parts: parts.filter(({ isGuard = false }) => !isGuard),
        rules,
      });
      const guards = ruleOf(set, openRule) || open.length > 0 ? openRule.name : 'set()';
      return [`${members.slice(0, -1)}, "open": ${guards}}`];
    });
  const exposed = [...exposing].map(([name, copy], at) => {
    rules.push(
      copy === undefined
        ? `exposed_${at} contains ["", member] if some member in ${placeOf(name)}.expose`
        : `exposed_${at} contains pair if some pair in ${placeOf(name)}.${copy}`,
    );
    return `{"name": ${JSON.stringify(name)}, "members": exposed_${at}}`;
  });
  const lists = { found: all, of_group: known('group'), of_tool: known('tool'), exposed };
  const named = Object.entries(lists).map(
    ([name, entries]) => `${name} := [\n${entries.map((entry) => `\t${entry},`).join('\n')}\n]`,
  );
  return [
    'package tollgate.sources',
    'marked := true',
    `reads_tool := ${String(lists.of_tool.length > 0)}`,
    ...rules,
    ...named,
    '',
  ].join('\n\n');
}

interface Making {
  /** Name of the rule that collects the members of the parts. */
  readonly name: string;
  readonly parts: readonly SourcesPart[];
  /** The made rules are appended here. */
  readonly rules: string[];
}

function entryOf(set: FoldedSet, making: Making): string {
  return (
    `{"name": ${JSON.stringify(set.package)}, "outcome": "${set.set}", "members": ` +
    `${ruleOf(set, making) ? making.name : 'set()'}}`
  );
}

/** Returns false if there is nothing to collect. */
function ruleOf(set: FoldedSet, { name, parts, rules }: Making): boolean {
  const where = placeOf(set.package);
  for (const part of parts) {
    if (part.name === undefined) rules.push(`${name} contains ["", member] if some member in ${where}.${set.set}`);
    else if (part.key === undefined) rules.push(`${name} contains pair if some pair in ${where}.${part.name}`);
    else
      rules.push(
        `${name} contains pair if {\n\tkey := input${part.key}\n\tis_string(key)\n\tsome pair in ` +
          `${where}.${part.name}[key]\n}`,
      );
  }
  return parts.length > 0;
}

/** Returns the Rego reference to a package below `policy`. */
function placeOf(name: string): string {
  return `data.policy${name
    .split('.')
    .map((part) => `[${JSON.stringify(part)}]`)
    .join('')}`;
}
