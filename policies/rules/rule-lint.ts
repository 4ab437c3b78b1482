/**
 * Finds faults of rules that fit the schema: fields that exclude each other, duplicates, rules without effect, wide
 * patterns.
 */

import { isDeepStrictEqual } from 'node:util';
import { matchesGlobs } from '../../catalogs/readers/path-globs.ts';
import { wordSet } from '../../catalogs/text/word-set.ts';
import { valueAt } from '../../catalogs/validation/value-position.ts';
import { EFFECT_KINDS, type EffectKind, REQUEST_KINDS } from '../port.ts';
import { type ConfiguredNames, type LocatedRule, serversOfTools } from './configured-names.ts';
import { type PolicyProblem, problemAt } from './policy-problems.ts';
import { kindsOf, oneOrMore, type When } from './rule-conditions.ts';
import { patternCovers } from './rule-patterns.ts';

/** Returns the problems of all rules that are not off. */
export function lintRules(
  rules: readonly LocatedRule[],
  known: Pick<ConfiguredNames, 'servers'>,
): readonly PolicyProblem[] {
  const active = rules.filter(({ mode }) => mode !== 'off');
  const deniers = new DenyRuleIndex(active);
  const seen = new Map<string, LocatedRule>();
  return active.flatMap((located) => [
    ...findExclusive(located, known),
    ...findImpossibleKinds(located),
    ...findWide(located),
    ...findIdleExceptions(located),
    ...findDuplicate(located, seen),
    ...deniers.findUnreachable(located),
  ]);
}

function findExclusive(
  { rule, at }: LocatedRule,
  { servers: trusts }: Pick<ConfiguredNames, 'servers'>,
): readonly PolicyProblem[] {
  const { tools = [], exceptTools = [], servers, trust, opaque, readable } = rule.when;
  const problems: PolicyProblem[] = [];
  const refuse = (path: readonly (string | number)[], message: string): void =>
    void problems.push({ ...at(['when', ...path]), message });
  tools.forEach((tool, index) => {
    const server = tool.split('.', 1)[0] ?? '';
    if (servers !== undefined && !servers.some((name) => patternCovers(server, name)))
      refuse(['tools', index], `"${tool}" can never match: \`servers\` of this rule does not contain ${server}`);
    if (servers === undefined) checkTrust(server, ['tools', index]);
  });
  (servers ?? []).forEach((server, index) => checkTrust(server, ['servers', index]));
  const subjects = tools.length > 0 ? tools : (servers ?? []).map((server) => `${server}.*`);
  exceptTools.forEach((tool, index) => {
    if (subjects.length > 0 && !subjects.some((one) => patternCovers(one, tool) || patternCovers(tool, one)))
      refuse(['exceptTools', index], `this rule is not about "${tool}", so this has no effect; remove it`);
  });
  if (subjects.length > 0 && subjects.every((one) => exceptTools.some((tool) => patternCovers(tool, one))))
    refuse(['exceptTools'], 'it leaves out all that this rule is about; remove the rule, or name less');
  if (opaque === false && readable === false)
    refuse(
      ['readable'],
      'a command that is not opaque has words, so `opaque: false` and `readable: false` never match ' +
        'together; remove one of them',
    );
  if (rule.outcome === 'allow' && readable === false && rule.when.commands !== undefined)
    refuse(
      ['commands'],
      'a command that cannot be read has no words, so `commands` and `readable: false` never match ' +
        'together in a rule that allows; remove one of them',
    );
  return problems;

  function checkTrust(server: string, path: readonly (string | number)[]): void {
    const own = trusts.get(server);
    if (trust !== undefined && own !== undefined && !trust.includes(own))
      refuse(
        path,
        `"${server}" can never match: it is ${own}, and \`trust\` of this rule contains only ${trust.join(', ')}`,
      );
  }
}

/** The kinds of effects that a call must have so that a condition can match. Other conditions fit every kind. */
const KINDS_OF_CONDITIONS: readonly (readonly [
  path: readonly (keyof When | string)[],
  kinds: readonly EffectKind[],
])[] = [
  ...(['paths', 'insideWorkspace'] as const).map(
    (field) => [[field], ['tool', 'resource', 'prompt', 'completion', 'roots']] as const,
  ),
  ...(['hosts', 'schemes', 'urls'] as const).map(
    (field) => [[field], ['tool', 'resource', 'prompt', 'completion', 'elicitation']] as const,
  ),
  ...(['commands', 'exceptCommands', 'opaque', 'readable'] as const).map((field) => [[field], ['tool']] as const),
  [['uri'], ['resource', 'completion']],
  [['asks', 'mode'], ['elicitation']],
  [['asks', 'fields'], ['elicitation']],
  [['asks', 'maxTokens'], ['sampling']],
];

/** Finds rules whose conditions no kind of effect has together, such as the paths of a sampling request. */
function findImpossibleKinds({ rule, at }: LocatedRule): readonly PolicyProblem[] {
  let kinds = kindsOf(rule.when, rule.outcome) ?? EFFECT_KINDS;
  for (const [path, having] of KINDS_OF_CONDITIONS) {
    if (valueAt(rule.when, path) === undefined) continue;
    const left = kinds.filter((kind) => having.includes(kind));
    const isImplied = rule.when.kind === undefined && rule.outcome === 'allow';
    if (left.length === 0)
      return problemAt(
        at(['when', ...path], 'key'),
        `no request of the kind ${kinds.join(' or ')} has ${path.join('.')}, so the rule can never match; ` +
          `${isImplied ? 'a rule that allows is about tools unless it has `kind`; add' : 'remove it, or write'} ` +
          `kind: ${having.length === 1 ? having[0] : `[${having.join(', ')}]`}`,
      );
    kinds = left;
  }
  return findImpossibleVerbs({ rule, at }, kinds);
}

function findImpossibleVerbs(
  { rule: { when }, at }: Pick<LocatedRule, 'rule' | 'at'>,
  kinds: readonly EffectKind[],
): readonly PolicyProblem[] {
  const { verbs } = when;
  const known = new Set(kinds.flatMap((kind) => (kind === 'tool' ? [] : [REQUEST_KINDS[kind].verb])));
  if (verbs === undefined || kinds.includes('tool') || verbs.some((verb) => known.has(verb))) return [];
  return problemAt(
    at(['when', 'verbs'], 'key'),
    `a request of the kind ${kinds.join(' or ')} is never ${verbs.join(' or ')}, so the rule can never match; ` +
      `its verb is ${[...known].join(' or ')}`,
  );
}

/** Checks only rules that allow. To refuse too much is safe; to allow too much is not. */
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
            `"${host}" matches the hosts of anyone who registers a name below it; name the hosts, or ` +
              'write * to mean any host',
          ),
        ]
      : [];
  const closed = servers !== undefined || (trust !== undefined && !trust.includes('external'));
  return [
    ...hosts.flatMap((host, index) => wide('hosts', index, host)),
    ...urls.flatMap((url, index) => wide('urls', index, /^[^:]+:\/\/([^/:]*)/.exec(url)?.[1] ?? '')),
    ...paths.flatMap((glob, index) =>
      /^\*\*(\/\*\*)*$/.test(glob)
        ? [problem(['paths', index], `"${glob}" matches every path of the workspace; write insideWorkspace: true`)]
        : [],
    ),
    ...tools.flatMap((tool, index) =>
      /^\*+\./.test(tool) && !closed
        ? [
            problem(
              ['tools', index],
              `"${tool}" allows any tool with such a name, also on a server that is added later; ` +
                `name the server, or add \`servers\``,
            ),
          ]
        : [],
    ),
  ];
}

/** Finds exceptions of paths that the rule does not match anyway, and exceptions of all that it matches. */
function findIdleExceptions({ rule, at }: LocatedRule): readonly PolicyProblem[] {
  const { paths, except = [] } = rule.when;
  if (paths === undefined) return [];
  return except.flatMap((glob, index) => {
    const place = at(['when', 'except', index]);
    if (paths.every((one) => one === glob))
      return problemAt(place, `"${glob}" leaves out all that \`paths\` names, so the rule can never match; narrow it`);
    const isOther = !glob.includes('*') && !glob.startsWith('/') && paths.every((one) => !one.startsWith('/'));
    return isOther && !matchesGlobs(paths, glob)
      ? problemAt(place, `\`paths\` does not name "${glob}", so the exception has no effect; correct it, or remove it`)
      : [];
  });
}

function findDuplicate({ rule, mode, at }: LocatedRule, seen: Map<string, LocatedRule>): readonly PolicyProblem[] {
  const key = canonical([rule.outcome, mode, rule.when, rule.obligations ?? {}]);
  const first = seen.get(key);
  if (first === undefined) {
    seen.set(key, { rule, mode, at });
    return [];
  }
  return [
    { ...at(['when'], 'key'), message: `it says the same as "${first.rule.id}" (${place(first)}); remove one of them` },
  ];
}

/** Deny rules by the first thing that each requires, so that ten thousand rules are not compared pair by pair. */
class DenyRuleIndex {
  readonly #byKey = new Map<string, LocatedRule[]>();

  constructor(rules: readonly LocatedRule[]) {
    for (const located of rules) {
      const { rule, mode } = located;
      if (rule.outcome === 'deny' && mode === 'enforce')
        for (const key of keysOf(rule.when)) this.#byKey.set(key, [...(this.#byKey.get(key) ?? []), located]);
    }
  }

  /** A rule has no effect if another rule denies all of its calls. Its author believes that it has one. */
  findUnreachable({ rule, mode, at }: LocatedRule): readonly PolicyProblem[] {
    if (rule.outcome === 'deny' || mode !== 'enforce') return [];
    const keys = [
      'any',
      ...keysOf(rule.when),
      ...(serversOfTools(rule.when.tools) ?? []).map((server) => `server ${server}`),
      ...(rule.when.verbs ?? []).map((verb) => `verb ${verb}`),
    ];
    const denier = keys.flatMap((key) => this.#byKey.get(key) ?? []).find((one) => isWithin(rule.when, one.rule.when));
    if (denier === undefined) return [];
    return problemAt(
      at(['outcome']),
      `"${denier.rule.id}" (${place(denier)}) denies every call that this rule is about, so this ` +
        'rule has no effect; narrow that rule, or turn one of them off with mode: off',
    );
  }
}

function keysOf({ tools, servers, verbs }: When): readonly string[] {
  if (tools?.every((tool) => !tool.includes('*')) === true) return tools.map((tool) => `tool ${tool}`);
  const named = servers ?? serversOfTools(tools);
  if (named !== undefined) return named.map((server) => `server ${server}`);
  return verbs?.map((verb) => `verb ${verb}`) ?? ['any'];
}

/** Whether `outer` denies every call that `inner` matches. May return false wrongly, but never true. */
function isWithin(inner: When, outer: When): boolean {
  return (Object.keys(outer) as (keyof When)[]).every((field) => {
    const [narrow, wide] = [
      field === 'servers' ? (inner.servers ?? serversOfTools(inner.tools)) : inner[field],
      outer[field],
    ];
    if (narrow === undefined) return false;
    // The exceptions of the rule that denies must be exceptions of the other rule too.
    if (field === 'except' || field === 'exceptTools')
      return outer[field]?.every((one) => inner[field]?.includes(one)) === true;
    if (field === 'kind' || field === 'uri')
      return oneOrMore<string>(narrow as string).every((one) => oneOrMore<string>(wide as string).includes(one));
    if (field === 'tools')
      return inner.tools?.every((tool) => outer.tools?.some((pattern) => patternCovers(pattern, tool))) === true;
    if (Array.isArray(narrow) && Array.isArray(wide))
      return (narrow as readonly unknown[]).every((one) => (wide as readonly unknown[]).includes(one));
    if (field === 'args')
      return Object.entries(outer.args ?? {}).every(([path, tests]) => isDeepStrictEqual(inner.args?.[path], tests));
    return isDeepStrictEqual(narrow, wide);
  });
}

/** Sorts keys and lists, so that rules that differ only in order are equal. */
function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? '';
  const entries = Object.entries(value).map(([key, inner]) => {
    const sorted = Array.isArray(inner) ? inner.map(canonical).sort() : undefined;
    return `${JSON.stringify(key)}:${sorted === undefined ? canonical(inner) : `[${sorted.join()}]`}`;
  });
  return `{${entries.sort().join()}}`;
}

function place({ at }: LocatedRule): string {
  const { file, line } = at([]);
  return `${file}:${line}`;
}

/** Top-level names that no public registry gives out (RFC 2606, RFC 6762, RFC 8375, ICANN's `internal`). */
const PRIVATE = wordSet('internal local localhost test example invalid lan corp home intranet private');
/** Second levels under which country registries give out names: `co.uk`, `com.au`. */
const SECOND_LEVELS = wordSet('ac co com edu go gob gov ltd me ne net nom or org plc sch');
/** Hosting services that give each customer a name below these. */
const HOSTERS = wordSet(`
  amazonaws.com appspot.com azurewebsites.net blogspot.com cloudfront.net deno.dev firebaseapp.com
  fly.dev github.io gitlab.io glitch.me herokuapp.com netlify.app ngrok.app ngrok.io ngrok-free.app
  onrender.com pages.dev railway.app repl.co run.app s3.amazonaws.com surge.sh trycloudflare.com
  vercel.app web.app windows.net workers.dev wordpress.com
`);

/** Whether anyone can get a matching host: true for `*.com`, `*.co.uk`, `*.github.io`; false for a plain `*`. */
function isWideHost(pattern: string): boolean {
  if (!pattern.startsWith('*.')) return false;
  const suffix = pattern.slice(2);
  const [first = '', second, ...more] = suffix.split('.');
  if (second === undefined) return !PRIVATE.has(first);
  return HOSTERS.has(suffix) || (more.length === 0 && second.length === 2 && SECOND_LEVELS.has(first));
}
