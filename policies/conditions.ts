/** Owns the translation of a rule's `when` into the conditions that lib/*.rego judges; refuses patterns that mislead and combinations that can never hold. */
import type { Verb } from '../catalogs/tool.ts';
import { addHost, addPath, addText, nullMap, PatternError, splitTool, type Forms, type PathForms } from './patterns.ts';

/** The outcomes of rules, gravest first. */
export type Outcome = 'deny' | 'ask' | 'allow';

/** Tests on one argument; all that are given must hold. Absent values pass no test but `present: false`. */
export interface ArgumentTests {
  readonly equals?: unknown;
  readonly in?: readonly unknown[];
  readonly prefix?: string;
  readonly pattern?: string;
  readonly min?: number;
  readonly max?: number;
  readonly present?: boolean;
}

/** `when` of a rule, as policies/schemas/rules.json describes it. All fields must hold; one entry of a list suffices. */
export interface When {
  readonly tools?: readonly string[];
  readonly servers?: readonly string[];
  readonly verbs?: readonly Verb[];
  readonly roles?: readonly string[];
  readonly groups?: readonly string[];
  readonly principals?: readonly string[];
  readonly origins?: readonly string[];
  readonly profiles?: readonly string[];
  readonly labels?: readonly string[];
  readonly paths?: readonly string[];
  readonly insideWorkspace?: boolean;
  readonly commands?: readonly string[];
  readonly opaque?: boolean;
  readonly hosts?: readonly string[];
  readonly args?: Readonly<Record<string, ArgumentTests>>;
}

/** One condition of the library. Its keys decide which check of lib/match.rego or lib/facts.rego reads it. */
export type Condition = Readonly<Record<string, unknown>>;

/** Conditions by what they read: the principal, the tool, the call. A rule without the last can be judged in a list. */
export interface Conditions {
  readonly principal: readonly Condition[];
  readonly target: readonly Condition[];
  readonly call: readonly Condition[];
}

/** Tells which part of `when` a fault lies in. */
export class ConditionError extends Error {
  readonly path: readonly (string | number)[];

  constructor(path: readonly (string | number)[], message: string) {
    super(message);
    this.path = path;
  }
}

const SUBJECTS = [['roles', 'role'], ['groups', 'group'], ['principals', 'principal'], ['origins', 'origin'], ['profiles', 'profile']] as const;

/** Compiles `when` for a rule with this outcome. `workspace` is absolute. Throws ConditionError. */
export function compileWhen(when: When, outcome: Outcome, workspace: string): Conditions {
  const strict = outcome !== 'allow';
  const need = strict ? 'any' : 'every';
  return {
    principal: SUBJECTS.flatMap(([key, of]) => (when[key] === undefined ? [] : [{ of, any: setOf(when[key]) }])),
    target: compileTarget(when),
    call: [
      ...compilePaths(when, { strict, workspace }),
      ...(when.hosts === undefined ? [] : [{ over: 'hosts', need, hosts: each('hosts', when.hosts, addHost) }]),
      ...(when.commands === undefined ? [] : [{ over: 'commands', need, first: compileCommands(when.commands) }]),
      ...(when.opaque === undefined ? [] : [{ opaque: when.opaque }]),
      ...(when.labels === undefined ? [] : [{ over: 'labels', need, labels: setOf(when.labels) }]),
      ...Object.entries(when.args ?? {}).flatMap(([path, tests]) => compileArgument(path, tests, strict)),
    ],
  };
}

/** Conditions on server, tool and verb; budgets use them too. */
export function compileTarget(when: Pick<When, 'tools' | 'servers' | 'verbs'>): readonly Condition[] {
  const { tools, servers, verbs } = when;
  return [
    ...(servers === undefined ? [] : [{ servers: setOf(servers) }]),
    ...(verbs === undefined ? [] : [{ verbs: setOf(verbs) }]),
    ...(tools === undefined ? [] : [compileTools(tools, servers)]),
  ];
}

function compileTools(tools: readonly string[], servers: readonly string[] | undefined): Condition {
  const exact: string[] = [];
  const patterns: { server: Forms; tool: Forms }[] = [];
  for (const [index, pattern] of tools.entries()) {
    const [server, tool] = at(['tools', index], () => splitTool(pattern));
    if (servers !== undefined && !server.includes('*') && !servers.includes(server)) {
      throw new ConditionError(['tools', index], `"${pattern}" can never match: \`servers\` of this rule does not name ${server}`);
    }
    if (!pattern.includes('*')) exact.push(pattern);
    else patterns.push({ server: formsOf(server, addText), tool: formsOf(tool, addText) });
  }
  return { exact: setOf(exact), patterns };
}

/** `insideWorkspace` narrows the side on which the globs are looked for: the same path must meet both. */
function compilePaths(when: When, options: { strict: boolean; workspace: string }): readonly Condition[] {
  const { paths, insideWorkspace } = when;
  if (paths === undefined && insideWorkspace === undefined) return [];
  const forms: PathForms = { inside: {}, outside: {} };
  for (const [index, glob] of (paths ?? []).entries()) at(['paths', index], () => addPath(forms, glob, options));
  const all: PathForms = paths === undefined ? { inside: { all: true }, outside: { all: true } } : forms;
  return [{
    over: 'paths',
    need: options.strict ? 'any' : 'every',
    inside: insideWorkspace === false ? {} : all.inside,
    outside: insideWorkspace === true ? {} : all.outside,
  }];
}

/** By first word, the words that must follow it. */
function compileCommands(commands: readonly string[]): Record<string, string[][]> {
  const first = nullMap<string[][]>();
  for (const [index, command] of commands.entries()) {
    const [head, ...rest] = command.trim().split(/\s+/);
    if (head === undefined || head === '' || /[*|;&<>$`"']/.test(command)) {
      throw new ConditionError(['commands', index], `"${command}" is no list of literal words: write how the command begins, such as git or git push`);
    }
    (first[head] ??= []).push(rest);
  }
  return first;
}

function compileArgument(dotted: string, tests: ArgumentTests, strict: boolean): readonly Condition[] {
  const path = dotted.split('.');
  if (path.includes('')) throw new ConditionError(['args', dotted], `"${dotted}" is no path of argument names joined by dots`);
  const { present, ...others } = tests;
  const conditions: Condition[] = [];
  if (present !== undefined) conditions.push({ path, present: strict ? (present ? 'somewhere' : 'not plainly') : (present ? 'plainly' : 'nowhere') });
  if (Object.keys(others).length > 0) conditions.push({ over: 'argument', need: strict ? 'any' : 'every', path, ...compileTests(dotted, others, strict) });
  return conditions;
}

function compileTests(dotted: string, tests: Omit<ArgumentTests, 'present'>, strict: boolean): Condition {
  const { pattern, min, max } = tests;
  const numeric = min !== undefined || max !== undefined;
  const textual = tests.prefix !== undefined || pattern !== undefined;
  const where = ['args', dotted];
  if (numeric && textual) throw new ConditionError(where, 'a value cannot be both a number (min, max) and a text (prefix, pattern): remove one of them');
  if (min !== undefined && max !== undefined && min > max) throw new ConditionError(where, `no number is at least ${min} and at most ${max}`);
  if (pattern !== undefined && !strict && !(pattern.startsWith('^') && pattern.endsWith('$'))) {
    throw new ConditionError([...where, 'pattern'], 'a pattern that allows must describe the whole value: begin it with ^ and end it with $');
  }
  return {
    ...(numeric ? { reads: 'number' } : {}),
    ...(textual ? { reads: 'string' } : {}),
    tests: [
      ...('equals' in tests ? [{ equals: tests.equals }] : []),
      ...(tests.in === undefined ? [] : [{ among: tests.in }]),
      ...(tests.prefix === undefined ? [] : [{ prefix: tests.prefix }]),
      // The group keeps `^a|b$` from allowing whatever begins with a or ends with b.
      ...(pattern === undefined ? [] : [{ pattern: strict ? pattern : `\\A(?:${pattern})\\z` }]),
      ...(min === undefined ? [] : [{ min }]),
      ...(max === undefined ? [] : [{ max }]),
    ],
  };
}

function each(field: string, patterns: readonly string[], add: (forms: Forms, pattern: string) => void): Forms {
  const forms: Forms = {};
  for (const [index, pattern] of patterns.entries()) at([field, index], () => add(forms, pattern));
  return forms;
}

/** One pattern as forms. Throws PatternError. */
export function formsOf(pattern: string, add: (forms: Forms, pattern: string) => void): Forms {
  const forms: Forms = {};
  add(forms, pattern);
  return forms;
}

/** A list as the object that Rego looks keys up in. */
export function setOf(values: readonly string[]): Record<string, true> {
  const set = nullMap<true>();
  for (const value of values) set[value] = true;
  return set;
}

function at<T>(path: readonly (string | number)[], run: () => T): T {
  try {
    return run();
  } catch (thrown) {
    if (thrown instanceof PatternError) throw new ConditionError(path, thrown.message);
    throw thrown;
  }
}
