/** Compiles `when` of a rule to the conditions that the Rego library evaluates. Refuses misleading patterns. */
import path from 'node:path';
import { mayBeLiteral } from '../../catalogs/programs/literal-programs.ts';
import type { Verb } from '../../catalogs/tools/tool-definition.ts';
import { EFFECT_KINDS, type EffectKind } from '../port.ts';
import { type ArgumentTests, compileArgumentTests, type Refuse, type RuleCondition } from './argument-tests.ts';
import {
  addHost,
  addPath,
  addText,
  addUri,
  addUrl,
  nullMap,
  type PathForms,
  PatternError,
  type PatternForms,
  splitTool,
} from './rule-patterns.ts';
import { compileTime, type TimeWindow } from './time-windows.ts';

export type { ArgumentTests };

/** The outcomes of rules, strictest first. */
export type RuleOutcome = 'deny' | 'ask' | 'allow';

/** Whether a server ships with Tollgate (CY-01). */
export type Trust = 'internal' | 'external';

/** `when` of a rule; see policies/schemas/rules.json. All fields must match; in a list, one entry is enough. */
export interface When {
  readonly kind?: EffectKind | readonly EffectKind[];
  readonly tools?: readonly string[];
  readonly servers?: readonly string[];
  readonly exceptTools?: readonly string[];
  readonly trust?: readonly Trust[];
  readonly verbs?: readonly Verb[];
  readonly roles?: readonly string[];
  readonly groups?: readonly string[];
  readonly principals?: readonly string[];
  readonly origins?: readonly string[];
  readonly profiles?: readonly string[];
  readonly owner?: boolean;
  readonly labels?: readonly string[];
  readonly paths?: readonly string[];
  readonly except?: readonly string[];
  readonly insideWorkspace?: boolean;
  readonly commands?: readonly string[];
  readonly exceptCommands?: readonly string[];
  readonly opaque?: boolean;
  readonly readable?: boolean;
  readonly hosts?: readonly string[];
  readonly schemes?: readonly string[];
  readonly urls?: readonly string[];
  readonly uri?: string | readonly string[];
  readonly asks?: AskTests;
  readonly time?: TimeWindow;
  readonly args?: Readonly<Record<string, ArgumentTests>>;
}

/** Conditions on what a server asks of the client. */
interface AskTests {
  readonly mode?: 'form' | 'url';
  /** Patterns of names, in which `*` stands for any characters. */
  readonly fields?: readonly string[];
  readonly maxTokens?: { readonly min?: number; readonly max?: number };
}

/**
 * Returns the kinds of effects that a rule is about; undefined for every kind. A rule that allows is about tools unless
 * it names kinds, so that no rule opens a kind that its author did not think of.
 */
export function kindsOf({ kind }: Pick<When, 'kind'>, outcome: RuleOutcome): readonly EffectKind[] | undefined {
  if (kind !== undefined) return oneOrMore(kind);
  return outcome === 'allow' ? ['tool'] : undefined;
}

/** Whether the rule can match calls of tools, and whether it can match other requests. */
export function kindPartsOf(when: When, outcome: RuleOutcome): { readonly tools: boolean; readonly others: boolean } {
  const kinds = kindsOf(when, outcome) ?? EFFECT_KINDS;
  return {
    tools: kinds.includes('tool') && when.uri === undefined && when.asks === undefined,
    others: kinds.some((kind) => kind !== 'tool'),
  };
}

/** Returns the list of a field that accepts one value or several. */
export function oneOrMore<T extends string>(one: T | readonly T[]): readonly T[] {
  return typeof one === 'string' ? [one] : one;
}

/** Conditions by what they read: the principal, the tool, the call. A rule without `call` can be decided in a list. */
interface RuleConditions {
  readonly principal: readonly RuleCondition[];
  readonly target: readonly RuleCondition[];
  readonly call: readonly RuleCondition[];
}

/** The rule's outcome and surroundings. `workspace` is absolute. */
interface RuleContext {
  readonly outcome: RuleOutcome;
  readonly workspace: string;
  readonly refuse: Refuse;
}

/** For deny and ask, any fact is enough to match; for allow, every fact must match. See lib/facts.rego. */
interface Reading extends RuleContext {
  readonly strict: boolean;
  readonly need: 'any' | 'every';
}

const SUBJECTS = [
  ['roles', 'role'],
  ['groups', 'group'],
  ['principals', 'principal'],
  ['origins', 'origin'],
  ['profiles', 'profile'],
] as const;

/** Compiles `when`. A refused part is left out, so the result is valid only if nothing was refused. */
export function compileWhen(when: When, context: RuleContext): RuleConditions {
  const strict = context.outcome !== 'allow';
  const reading: Reading = { ...context, strict, need: strict ? 'any' : 'every' };
  if (when.exceptTools !== undefined && !strict)
    context.refuse(['exceptTools'], 'a rule that allows must name what it allows; write `tools` instead');
  return {
    principal: compilePrincipal(when),
    target: compileTarget({ ...when, ...kindAsked(when) }, context.refuse),
    call: compileCall(when, reading),
  };
}

/** Only these kinds have what `asks` reads; see lib/requests.rego. So lists of other kinds do not depend on it. */
function kindAsked({ kind, asks }: When): Pick<When, 'kind'> {
  if (kind !== undefined || asks === undefined) return {};
  return { kind: asks.maxTokens === undefined ? 'elicitation' : 'sampling' };
}

function compilePrincipal(when: When): readonly RuleCondition[] {
  return [
    ...SUBJECTS.flatMap(([key, of]) => (when[key] === undefined ? [] : [{ of, any: setOf(when[key]) }])),
    ...(when.owner === undefined ? [] : [{ owner: when.owner }]),
  ];
}

/** Compiles the conditions on kind, server, tool and verb. Budgets use them too. */
export function compileTarget(
  {
    kind,
    tools,
    servers,
    exceptTools,
    trust,
    verbs,
  }: Pick<When, 'kind' | 'tools' | 'exceptTools' | 'servers' | 'trust' | 'verbs'>,
  refuse: Refuse,
): readonly RuleCondition[] {
  return [
    ...(kind === undefined ? [] : [{ kinds: setOf(oneOrMore(kind)) }]),
    ...(servers === undefined ? [] : [{ servers: setOf(servers) }]),
    ...(trust === undefined ? [] : [{ trust: setOf(trust) }]),
    ...(verbs === undefined ? [] : [{ verbs: setOf(verbs) }]),
    ...(tools === undefined ? [] : [compileTools('tools', tools, refuse)]),
    ...(exceptTools === undefined ? [] : [{ exceptTools: compileTools('exceptTools', exceptTools, refuse) }]),
  ];
}

function compileTools(field: string, tools: readonly string[], refuse: Refuse): RuleCondition {
  const exact: string[] = [];
  const patterns: { server: PatternForms; tool: PatternForms }[] = [];
  eachOf({ field, patterns: tools, refuse }, (pattern) => {
    const [server, tool] = splitTool(pattern);
    if (!pattern.includes('*')) exact.push(pattern);
    else patterns.push({ server: formsOf(server, addText), tool: formsOf(tool, addText) });
  });
  return { exact: setOf(exact), patterns };
}

function compileCall(when: When, reading: Reading): readonly RuleCondition[] {
  const { strict, need, refuse } = reading;
  return [
    ...compilePaths(when, reading),
    ...compileUrls(when, reading),
    ...compileCommands(when, reading),
    ...compileRequests(when, reading),
    ...(when.labels === undefined ? [] : [{ over: 'labels', need, labels: setOf(when.labels) }]),
    ...(when.time === undefined
      ? []
      : [{ need, ...compileTime(when.time, (path, message) => refuse(['time', ...path], message)) }]),
    ...compileArgumentTests(when.args ?? {}, { strict, refuse: (path, message) => refuse(['args', ...path], message) }),
  ];
}

/** Compiles the conditions of lib/requests.rego. */
function compileRequests({ uri, asks = {} }: When, { need, refuse }: Reading): readonly RuleCondition[] {
  const { mode, fields, maxTokens } = asks;
  const { min, max } = maxTokens ?? {};
  if (min !== undefined && max !== undefined && min > max)
    refuse(['asks', 'maxTokens'], `no number is at least ${min} and at most ${max}; swap them`);
  const refuseAsk: Refuse = (path, message) => refuse(['asks', ...path], message);
  return [
    ...(uri === undefined
      ? []
      : [{ request: 'uri', need, text: allOf('uri', oneOrMore(uri), { refuse, add: addUri }) }]),
    ...(mode === undefined ? [] : [{ request: 'mode', need, text: { equal: setOf([mode]) } }]),
    ...(fields === undefined
      ? []
      : [{ request: 'fields', need, text: allOf('fields', fields, { refuse: refuseAsk, add: addText }) }]),
    ...(maxTokens === undefined
      ? []
      : [
          {
            request: 'maxTokens',
            need,
            tests: [...(min === undefined ? [] : [{ min }]), ...(max === undefined ? [] : [{ max }])],
          },
        ]),
  ];
}

/** The schemes that a rule allows if it names none. */
const WEB_SCHEMES: readonly string[] = ['http', 'https'];

/** A URL must match hosts and schemes together. A rule that denies or asks covers every scheme unless it names some. */
function compileUrls({ hosts, schemes, urls }: When, { strict, need, refuse }: Reading): readonly RuleCondition[] {
  const effective = schemes ?? (strict ? undefined : WEB_SCHEMES);
  const set = effective === undefined ? {} : { schemes: setOf(effective) };
  for (const [index, pattern] of (schemes === undefined ? [] : (urls ?? [])).entries()) {
    const scheme = pattern.split(':', 1)[0] ?? '';
    if (schemes?.includes(scheme) === false)
      refuse(
        ['urls', index],
        `"${pattern}" can never match: \`schemes\` does not contain ${scheme}; add it, or remove ` +
          `\`schemes\`, because each URL names its own`,
      );
  }
  const any = hosts === undefined && schemes !== undefined ? ['*'] : hosts;
  return [
    ...(any === undefined
      ? []
      : [{ over: 'hosts', need, hosts: allOf('hosts', any, { refuse, add: addHost }), ...set }]),
    ...(urls === undefined ? [] : [{ over: 'urls', need, urls: allOf('urls', urls, { refuse, add: addUrl }) }]),
  ];
}

/**
 * `insideWorkspace` limits the globs to one side: the same path must match both. An exception is as narrow as an allow
 * if the rule denies or asks, and as wide as a deny if it allows, so that it never opens more than it seems to.
 */
function compilePaths(
  { paths, except, insideWorkspace }: When,
  { strict, need, workspace, refuse }: Reading,
): readonly RuleCondition[] {
  if (paths === undefined && insideWorkspace === undefined) {
    if (except !== undefined)
      refuse(['except'], '`except` leaves out some of the paths of a rule; add `paths` or `insideWorkspace`');
    return [];
  }
  const side = { insideWorkspace, workspace, refuse };
  const all = { inside: { all: true }, outside: { all: true } } as const;
  const forms = paths === undefined ? all : pathForms('paths', paths, { ...side, strict });
  return [
    {
      over: 'paths',
      need,
      inside: insideWorkspace === false ? {} : forms.inside,
      outside: insideWorkspace === true ? {} : forms.outside,
      ...(except === undefined ? {} : { except: pathForms('except', except, { ...side, strict: !strict }) }),
    },
  ];
}

interface PathSide extends Pick<Reading, 'strict' | 'workspace' | 'refuse'> {
  readonly insideWorkspace: boolean | undefined;
}

/** Refuses globs that match only paths on the other side of the workspace. */
function pathForms(
  field: 'paths' | 'except',
  globs: readonly string[],
  { insideWorkspace, refuse, ...placing }: PathSide,
): PathForms {
  const forms: PathForms = { inside: {}, outside: {} };
  eachOf({ field, patterns: globs, refuse }, (glob) => {
    const own: PathForms = { inside: {}, outside: {} };
    addPath(own, glob, placing);
    if (insideWorkspace === true && isEmpty(own.inside))
      throw new PatternError(
        `"${glob}" can never match: it is outside the workspace, and insideWorkspace is true; write ` +
          'it relative to the workspace',
      );
    if (insideWorkspace === false && isEmpty(own.outside))
      throw new PatternError(
        `"${glob}" can never match: it is in the workspace, and insideWorkspace is false; write an absolute path`,
      );
    addPath(forms, glob, placing);
  });
  return forms;
}

function isEmpty(forms: PatternForms): boolean {
  return Object.keys(forms).length === 0;
}

/** `starts` lets an allow match commands that start other programs. `anywhere` lets a deny match any of their words. */
function compileCommands(
  { commands, exceptCommands, opaque, readable }: When,
  { outcome, need, refuse }: Reading,
): readonly RuleCondition[] {
  if (exceptCommands !== undefined && outcome === 'allow')
    refuse(['exceptCommands'], 'a rule that allows must name what it allows; write `commands` instead');
  if (commands !== undefined && outcome === 'allow' && opaque !== true) {
    commands.forEach((command, index) => {
      if (!mayBeLiteral(command.trim().split(/\s+/)))
        refuse(
          ['commands', index],
          `"${command}" starts other programs or may do so, so this rule never allows it; write it ` +
            `in a rule of its own with \`opaque: true\``,
        );
    });
  }
  const reach = { ...(opaque === true ? { starts: true } : {}), ...(outcome === 'deny' ? { anywhere: true } : {}) };
  const conditions: RuleCondition[] = [];
  if (commands !== undefined) {
    const first = firstWords({ field: 'commands', commands, refuse, byName: need === 'any' });
    conditions.push({ over: 'commands', need, first, ...reach });
  }
  if (exceptCommands !== undefined) {
    const except = firstWords({ field: 'exceptCommands', commands: exceptCommands, refuse, byName: false });
    conditions.push({ over: 'commands', need, except });
  }
  if (opaque !== undefined) conditions.push({ opaque });
  if (readable !== undefined) conditions.push({ readable });
  return conditions;
}

/** Returns, by first word, the words that must follow it. With `byName`, `/usr/bin/git` also means `git`. */
function firstWords({
  field,
  commands,
  refuse,
  byName,
}: {
  field: string;
  commands: readonly string[];
  refuse: Refuse;
  byName: boolean;
}): Record<string, string[][]> {
  const first = nullMap<string[][]>();
  eachOf({ field, patterns: commands, refuse }, (command) => {
    const [head, ...rest] = command.trim().split(/\s+/);
    if (head === undefined || head === '' || /[*|;&<>$`"']/.test(command)) {
      throw new PatternError(
        `"${command}" is not a list of literal words: write how the command begins, such as git or git push`,
      );
    }
    const name = path.posix.basename(head);
    for (const word of new Set(byName && name !== '' ? [head, name] : [head])) (first[word] ??= []).push(rest);
  });
  return first;
}

function allOf(
  field: string,
  patterns: readonly string[],
  { refuse, add }: { refuse: Refuse; add: (forms: PatternForms, pattern: string) => void },
): PatternForms {
  const forms: PatternForms = {};
  eachOf({ field, patterns, refuse }, (pattern) => add(forms, pattern));
  return forms;
}

/** Processes each entry of a list by itself, so that all faults are reported at once. */
function eachOf(
  { field, patterns, refuse }: { field: string; patterns: readonly string[]; refuse: Refuse },
  take: (pattern: string) => void,
): void {
  for (const [index, pattern] of patterns.entries()) {
    try {
      take(pattern);
    } catch (thrown) {
      if (!(thrown instanceof PatternError)) throw thrown;
      refuse([field, index], thrown.message);
    }
  }
}

/** Returns one pattern as forms. Throws PatternError. */
export function formsOf(pattern: string, add: (forms: PatternForms, pattern: string) => void): PatternForms {
  const forms: PatternForms = {};
  add(forms, pattern);
  return forms;
}

/** Returns a list as an object, because Rego finds keys of an object fast. */
export function setOf(values: readonly string[]): Record<string, true> {
  const set = nullMap<true>();
  for (const value of values) set[value] = true;
  return set;
}
