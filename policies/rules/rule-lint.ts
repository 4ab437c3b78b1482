/** Owns what is wrong with rules that are each well formed: fields that exclude each other, twins, rules that never count, patterns wider than they look. */
import { isDeepStrictEqual } from 'node:util';
import { type ConfiguredNames, type LocatedRule, serversOfTools } from './configured-names.ts';
import type { PolicyProblem } from './policy-problems.ts';
import { isWideHost } from './public-suffixes.ts';
import type { When } from './rule-conditions.ts';
import { patternCovers } from './rule-patterns.ts';

/** Problems of all rules, each at its place. Rules that are off are left alone. */
export function lintRules(
  rules: readonly LocatedRule[],
  known: Pick<ConfiguredNames, 'servers'>,
): readonly PolicyProblem[] {
  const active = rules.filter(({ mode }) => mode !== 'off');
  const deniers = new Deniers(active);
  const twins = new Map<string, LocatedRule>();
  return active.flatMap((located) => [
    ...findExclusive(located, known),
    ...findWide(located),
    ...findTwin(located, twins),
    ...deniers.findUnreachable(located),
  ]);
}

function findExclusive(
  { rule, at }: LocatedRule,
  { servers: trusts }: Pick<ConfiguredNames, 'servers'>,
): readonly PolicyProblem[] {
  const { tools = [], servers, trust, opaque, readable } = rule.when;
  const problems: PolicyProblem[] = [];
  const refuse = (path: readonly (string | number)[], message: string): void =>
    void problems.push({ ...at(['when', ...path]), message });
  tools.forEach((tool, index) => {
    const server = tool.split('.', 1)[0] ?? '';
    if (servers !== undefined && !servers.some((name) => patternCovers(server, name)))
      refuse(['tools', index], `"${tool}" can never match: \`servers\` of this rule does not name ${server}`);
    if (servers === undefined) judgeTrust(server, ['tools', index]);
  });
  (servers ?? []).forEach((server, index) => judgeTrust(server, ['servers', index]));
  if (opaque === false && readable === false)
    refuse(
      ['readable'],
      'a command that is not opaque has words, so `opaque: false` and `readable: false` never hold together; remove one of them',
    );
  if (rule.outcome === 'allow' && readable === false && rule.when.commands !== undefined)
    refuse(
      ['commands'],
      'a command that cannot be read has no words, so `commands` and `readable: false` never hold together in a rule that allows; remove one of them',
    );
  return problems;

  function judgeTrust(server: string, path: readonly (string | number)[]): void {
    const own = trusts.get(server);
    if (trust !== undefined && own !== undefined && !trust.includes(own))
      refuse(
        path,
        `"${server}" can never match: it is ${own}, and \`trust\` of this rule names ${trust.join(', ')} only`,
      );
  }
}

/** Only rules that allow: to refuse more than was meant is safe, to allow more is not. */
function findWide({ rule, at }: LocatedRule): readonly PolicyProblem[] {
  if (rule.outcome !== 'allow') return [];
  const { hosts = [], urls = [], paths = [], tools = [], servers, trust } = rule.when;
  const problem = (path: readonly (string | number)[], message: string): PolicyProblem => ({
    ...at(['when', ...path]),
    message,
  });
  const wide = (field: string, index: number, host: string): readonly PolicyProblem[] =>
    isWideHost(host)
      ? [
          problem(
            [field, index],
            `"${host}" is open to everybody who registers a name below it; name the hosts, or write * to mean any host`,
          ),
        ]
      : [];
  const closed = servers !== undefined || (trust !== undefined && !trust.includes('external'));
  return [
    ...hosts.flatMap((host, index) => wide('hosts', index, host)),
    ...urls.flatMap((url, index) => wide('urls', index, /^[^:]+:\/\/([^/:]*)/.exec(url)?.[1] ?? '')),
    ...paths.flatMap((glob, index) =>
      /^\*\*(\/\*\*)*$/.test(glob)
        ? [problem(['paths', index], `"${glob}" is every path of the workspace; write insideWorkspace: true`)]
        : [],
    ),
    ...tools.flatMap((tool, index) =>
      /^\*+\./.test(tool) && !closed
        ? [
            problem(
              ['tools', index],
              `"${tool}" allows whatever any server calls so, also one that is added later; name the server, or add \`servers\``,
            ),
          ]
        : [],
    ),
  ];
}

function findTwin({ rule, mode, at }: LocatedRule, twins: Map<string, LocatedRule>): readonly PolicyProblem[] {
  const key = canonical([rule.outcome, mode, rule.when, rule.obligations ?? {}]);
  const twin = twins.get(key);
  if (twin === undefined) {
    twins.set(key, { rule, mode, at });
    return [];
  }
  return [
    { ...at(['when'], 'key'), message: `it says the same as "${twin.rule.id}" (${place(twin)}); remove one of them` },
  ];
}

/** Denying rules under the first thing that each calls for, so that ten thousand rules are not compared with each other. */
class Deniers {
  readonly #byWord = new Map<string, LocatedRule[]>();

  constructor(rules: readonly LocatedRule[]) {
    for (const located of rules) {
      const { rule, mode } = located;
      if (rule.outcome === 'deny' && mode === 'enforce')
        for (const word of wordsOf(rule.when)) this.#byWord.set(word, [...(this.#byWord.get(word) ?? []), located]);
    }
  }

  /** A rule all of whose calls one rule denies never counts, and whoever wrote it believes that it does. */
  findUnreachable({ rule, mode, at }: LocatedRule): readonly PolicyProblem[] {
    if (rule.outcome === 'deny' || mode !== 'enforce') return [];
    const words = [
      'any',
      ...wordsOf(rule.when),
      ...(serversOfTools(rule.when.tools) ?? []).map((server) => `server ${server}`),
      ...(rule.when.verbs ?? []).map((verb) => `verb ${verb}`),
    ];
    const denier = words
      .flatMap((word) => this.#byWord.get(word) ?? [])
      .find((one) => isWithin(rule.when, one.rule.when));
    if (denier === undefined) return [];
    return [
      {
        ...at(['outcome']),
        message: `"${denier.rule.id}" (${place(denier)}) denies every call that this rule is about, so it never counts; narrow that rule, or turn one of them off with mode: off`,
      },
    ];
  }
}

function wordsOf({ tools, servers, verbs }: When): readonly string[] {
  if (tools?.every((tool) => !tool.includes('*')) === true) return tools.map((tool) => `tool ${tool}`);
  const named = servers ?? serversOfTools(tools);
  if (named !== undefined) return named.map((server) => `server ${server}`);
  return verbs?.map((verb) => `verb ${verb}`) ?? ['any'];
}

/** Does every call that `inner` allows or asks for fire a deny with `outer`? May say no where it does, never yes where it does not. */
function isWithin(inner: When, outer: When): boolean {
  return (Object.keys(outer) as (keyof When)[]).every((field) => {
    const [narrow, wide] = [
      field === 'servers' ? (inner.servers ?? serversOfTools(inner.tools)) : inner[field],
      outer[field],
    ];
    if (narrow === undefined) return false;
    if (field === 'tools')
      return inner.tools?.every((tool) => outer.tools?.some((pattern) => patternCovers(pattern, tool))) === true;
    if (Array.isArray(narrow) && Array.isArray(wide))
      return (narrow as readonly unknown[]).every((one) => (wide as readonly unknown[]).includes(one));
    if (field === 'args')
      return Object.entries(outer.args ?? {}).every(([path, tests]) => isDeepStrictEqual(inner.args?.[path], tests));
    return isDeepStrictEqual(narrow, wide);
  });
}

/** Keys in order, and lists that are sets: what differs in spelling only is the same. */
function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? '';
  return `{${Object.entries(value)
    .map(
      ([key, inner]) =>
        `${JSON.stringify(key)}:${canonical(Array.isArray(inner) ? [...(inner as unknown[])].sort((a, b) => (canonical(a) < canonical(b) ? -1 : 1)) : inner)}`,
    )
    .sort()
    .join()}}`;
}

function place({ at }: LocatedRule): string {
  const { file, line } = at([]);
  return `${file}:${line}`;
}
