/**
 * Makes the changes of a policy that would allow a group of approved calls: exceptions of the rules that ask, rules
 * that keep asking about everything else that the exceptions would open, and a rule that allows.
 */
import { matchesGlobs } from '../../../catalogs/readers/path-globs.ts';
import type { Verb } from '../../../catalogs/tools/tool-definition.ts';
import type { PolicyParts } from '../../engine/compiled-parts.ts';
import type { CallInput } from '../../port.ts';
import type { LocatedRule } from '../../rules/configured-names.ts';
import type { When } from '../../rules/rule-conditions.ts';
import type { YamlRule } from '../../rules/rule-schema.ts';
import type { ApprovedGroup, CallShape } from './approved-calls.ts';

/** The condition that has exceptions for each kind of calls. */
const EXCEPTION_FIELDS = { paths: 'except', command: 'exceptCommands', tool: 'exceptTools' } as const;

/** Values to add to a list of a rule, with the place of the list, or of `when` if the rule has no such list. */
export interface RuleException {
  readonly id: string;
  readonly file: string;
  readonly line: number;
  readonly column: number;
  readonly field: (typeof EXCEPTION_FIELDS)[CallShape['kind']];
  readonly add: readonly string[];
}

/** The changes for one group of calls. */
export interface ChangeDraft {
  readonly group: ApprovedGroup;
  readonly exceptions: readonly RuleException[];
  /** Rules that ask about what the exceptions would open besides the approved calls. */
  readonly guards: readonly YamlRule[];
  /** Needed if no rule of the policy allows the calls. */
  readonly allow: YamlRule;
}

/** What drafts are made with. */
export interface SuggestionContext {
  readonly settings: PolicyParts['settings'];
  /** The YAML rules of the policy, by id. */
  readonly rules: ReadonlyMap<string, LocatedRule>;
  /** Ids that are taken. Those of the draft are added. */
  readonly taken: Set<string>;
}

/** All verbs. */
export const VERBS: readonly Verb[] = ['read', 'write', 'destructive', 'execute'];
const PRIMITIVES = ['read', 'write', 'edit', 'bash'] as const;
/** Name of the document of new rules in messages. */
const NEW_RULES = 'suggested rules';

/** Returns the changes for a group, or why there are none. */
export function draftChanges(group: ApprovedGroup, context: SuggestionContext): ChangeDraft | string {
  const asking = [...group.asks].map((id) => context.rules.get(id) ?? id);
  const exceptions: RuleException[] = [];
  const scopes: LocatedRule[] = [];
  for (const located of asking) {
    if (typeof located === 'string') return `${located} is not a rule in YAML, so it can have no exception`;
    const exception = exceptionFor(located, group.shape);
    if (typeof exception === 'string') return exception;
    exceptions.push(exception);
    scopes.push(located);
  }
  const slug = slugOf(group.shape);
  const guards = distinct(scopes.flatMap(({ rule }) => guardsOf(rule, group, context)));
  const idOf = (stem: string): string => freeId(`${stem}-${slug}`, context.taken);
  return {
    group,
    exceptions,
    guards: guards.map(({ message, when }, at) => ({
      id: idOf(`ask-${at + 1}`),
      outcome: 'ask',
      ...(message === undefined ? {} : { message }),
      when,
    })),
    allow: { id: idOf('allow'), outcome: 'allow', when: allowing(group) },
  };
}

/** Returns globs of the files that decide what is allowed, and of the programs of servers. */
export function controlGlobs(rules: ReadonlyMap<string, LocatedRule>): readonly string[] {
  return ['control-files', 'start-files'].flatMap((id) => rules.get(id)?.rule.when.paths ?? []);
}

/** Whether the changes for this shape can concern a call at all. */
export function concerns(shape: CallShape, { effect }: Pick<CallInput, 'effect'>): boolean {
  if (shape.kind === 'tool') return `${effect.server}.${effect.tool}` === shape.tool;
  if (shape.kind === 'paths') return effect.paths.some(({ path, inside }) => inside && matchesGlobs(shape.globs, path));
  return (effect.command?.words ?? []).some((words) => shape.words.every((word, at) => words[at] === word));
}

/**
 * Returns the draft as it fits next to others: its guards do not ask about a longer command that another draft is
 * about.
 */
export function nextTo(draft: ChangeDraft, others: readonly ChangeDraft[]): ChangeDraft {
  const { shape } = draft.group;
  if (shape.kind !== 'command') return draft;
  const longer = others.flatMap(({ group: { shape: other } }) =>
    other.kind === 'command' &&
    other.words.length > shape.words.length &&
    shape.words.every((word, at) => other.words[at] === word)
      ? [other.words.join(' ')]
      : [],
  );
  if (longer.length === 0) return draft;
  const guards = draft.guards.map((guard) =>
    guard.when.args?.[shape.argument] === undefined
      ? guard
      : { ...guard, when: { ...guard.when, exceptCommands: longer } },
  );
  return { ...draft, guards };
}

/** Returns the policy with these changes. `allows`: the drafts whose rule that allows is needed. */
export function withChanges(
  parts: PolicyParts,
  drafts: readonly Pick<ChangeDraft, 'exceptions' | 'guards'>[],
  allows: readonly YamlRule[],
): PolicyParts {
  const added = new Map<string, RuleException[]>();
  for (const exception of drafts.flatMap(({ exceptions }) => exceptions)) {
    const list = added.get(exception.id) ?? [];
    list.push(exception);
    added.set(exception.id, list);
  }
  const rules = [...drafts.flatMap(({ guards }) => guards), ...allows];
  const edited = (value: unknown): unknown => editRules(value, added);
  return {
    ...parts,
    rules: [
      ...parts.rules.map((document) => ({ ...document, value: edited(document.value) })),
      ...(rules.length === 0
        ? []
        : [
            {
              file: NEW_RULES,
              mode: 'enforce' as const,
              value: { rules },
              placeOf: (at: readonly (string | number)[]) => ({ line: Number(at[1] ?? 0) + 1, column: 1 }),
            },
          ]),
    ],
    readYaml: (file, text) => {
      const document = parts.readYaml(file, text);
      return { ...document, value: edited(document.value), placeOf: (at, part) => document.placeOf(at, part) };
    },
  };
}

function editRules(value: unknown, added: ReadonlyMap<string, readonly RuleException[]>): unknown {
  const { rules } = (value ?? {}) as { readonly rules?: readonly YamlRule[] };
  if (!Array.isArray(rules)) return value;
  const edit = (rule: YamlRule): YamlRule => {
    const more = added.get(rule.id) ?? [];
    const listOf = (field: RuleException['field']): Pick<When, RuleException['field']> => {
      const add = more.filter((one) => one.field === field).flatMap((one) => one.add);
      return add.length === 0 ? {} : { [field]: [...new Set([...(rule.when[field] ?? []), ...add])] };
    };
    return more.length === 0
      ? rule
      : { ...rule, when: { ...rule.when, ...Object.assign({}, ...Object.values(EXCEPTION_FIELDS).map(listOf)) } };
  };
  return { ...(value as object), rules: (rules as readonly YamlRule[]).map(edit) };
}

/** Returns why the rule cannot have an exception for this shape. */
function obstacleOf({ rule, at }: LocatedRule, shape: CallShape): string | undefined {
  const { file, line, column } = at([]);
  const name = `${rule.id} (${file}:${line}:${column})`;
  const { paths, insideWorkspace, commands, exceptCommands, opaque, readable } = rule.when;
  if (rule.obligations !== undefined) return `the rule ${name} also sets obligations, which an exception would end`;
  if (shape.kind === 'tool') {
    const field = Object.keys(rule.when).find((one) => !ABOUT_TOOLS.has(one));
    return field === undefined
      ? undefined
      : `the rule ${name} asks about \`${field}\` too, so it can have no exception for a whole tool`;
  }
  const canExcept =
    shape.kind === 'paths'
      ? (paths ?? insideWorkspace) !== undefined
      : (commands ?? exceptCommands ?? opaque ?? readable) !== undefined;
  if (!canExcept) {
    const [fact, field] = shape.kind === 'paths' ? ['a path', 'paths'] : ['a command', 'commands'];
    return `the rule ${name} asks without a condition on ${field}, so it can have no exception for ${fact}`;
  }
  if (shape.kind === 'command' && rule.when.args?.[shape.argument] !== undefined)
    return `the rule ${name} tests the text of the command, so an exception cannot be kept exact`;
  return undefined;
}

/** Returns the exception of a rule for this shape, or why the rule can have none. */
export function exceptionFor(located: LocatedRule, shape: CallShape): RuleException | string {
  const why = obstacleOf(located, shape);
  if (why !== undefined) return why;
  const { rule, at } = located;
  const field = EXCEPTION_FIELDS[shape.kind];
  const { file, line, column } = at(rule.when[field] === undefined ? ['when'] : ['when', field]);
  return {
    id: rule.id,
    file,
    line,
    column,
    field,
    add: addedBy(shape),
  };
}

function addedBy(shape: CallShape): readonly string[] {
  if (shape.kind === 'tool') return [shape.tool];
  return shape.kind === 'paths' ? shape.globs : [shape.words.join(' ')];
}

/** Conditions that are about tools and callers only. A rule with others asks because of one call: of its labels. */
const ABOUT_TOOLS: ReadonlySet<string> = new Set([
  'tools',
  'exceptTools',
  'servers',
  'trust',
  'verbs',
  'roles',
  'groups',
  'principals',
  'origins',
  'profiles',
  'owner',
]);

/** Conditions of the asking rule that a suggestion does not keep: it names the approved paths or words instead. */
const REPLACED: ReadonlySet<string> = new Set([
  'paths',
  'except',
  'insideWorkspace',
  'commands',
  'exceptCommands',
  'opaque',
]);

type Guard = Pick<YamlRule, 'message' | 'when'>;

/**
 * Returns rules that ask about what the exceptions of one rule open: other callers, and for a path other tools,
 * servers, verbs and kinds. Programs are bound by such rules too, see docs/policies.md.
 */
function guardsOf(rule: YamlRule, group: ApprovedGroup, context: SuggestionContext): readonly Guard[] {
  const { shape, principals } = group;
  const isKept = (name: string): boolean => !REPLACED.has(name) && (shape.kind !== 'tool' || name !== 'exceptTools');
  const rest: When = Object.fromEntries(Object.entries(rule.when).filter(([name]) => isKept(name)));
  const when: When = { ...rest, ...subjectOf(shape) };
  const others = (context.settings.principals ?? []).map(({ id }) => id).filter((id) => !principals.has(id));
  const callers = others.filter((id) => when.principals?.includes(id) !== false);
  const narrowed = [
    ...(callers.length === 0 ? [] : [{ ...when, principals: callers }]),
    ...narrowerGuards(when, group, context),
  ];
  return narrowed.map((one) => ({ ...(rule.message === undefined ? {} : { message: rule.message }), when: one }));
}

/** Returns the conditions that name the approved calls. */
function subjectOf(shape: CallShape): When {
  if (shape.kind === 'tool') return { tools: [shape.tool] };
  return shape.kind === 'paths' ? { paths: shape.globs } : { commands: [shape.words.join(' ')], readable: true };
}

function narrowerGuards(when: When, group: ApprovedGroup, context: SuggestionContext): readonly When[] {
  const { shape } = group;
  if (shape.kind === 'paths') return pathGuards(when, group, context);
  return shape.kind === 'command' ? commandGuards(when, shape) : [];
}

function pathGuards(when: When, { samples }: ApprovedGroup, { settings }: SuggestionContext): readonly When[] {
  const { server } = samples[0].effect;
  const ids = toolIds(samples);
  const verbs = when.verbs ?? VERBS;
  const about = (more: When): When => ({ ...when, ...more });
  const kinds: readonly When[] =
    when.kind === undefined && when.tools === undefined && verbs.includes('read')
      ? [about({ kind: ['resource', 'prompt', 'completion', 'roots'] })]
      : [];
  if (when.tools !== undefined) {
    const tools = when.tools.filter((name) => !ids.includes(name));
    return tools.length === 0 ? kinds : [about({ tools }), ...kinds];
  }
  const elsewhere = otherServers(when, server, settings);
  const siblings =
    server === 'workspace' ? PRIMITIVES.filter((name) => !ids.includes(`workspace.${name}`) && canDo(name, verbs)) : [];
  return [
    ...(siblings.length === 0 ? [] : [about({ tools: siblings.map((name) => `workspace.${name}`) })]),
    ...elsewhere.map(about),
    ...kinds,
  ];
}

/** Whether a primitive can do one of these verbs by itself, or by the programs that it runs. */
function canDo(name: (typeof PRIMITIVES)[number], verbs: readonly Verb[]): boolean {
  if (name === 'bash') return true;
  return verbs.includes(name === 'read' ? 'read' : 'write');
}

/** Returns conditions that select the other servers which the rule is about. */
function otherServers(when: When, server: string, settings: PolicyParts['settings']): readonly When[] {
  if (when.servers !== undefined) {
    const servers = when.servers.filter((name) => name !== server);
    return servers.length === 0 ? [] : [{ servers }];
  }
  const own =
    server === 'workspace' ? 'internal' : (settings.servers.find(({ name }) => name === server)?.trust ?? 'external');
  const other = own === 'internal' ? ('external' as const) : ('internal' as const);
  const peers = settings.servers.filter(({ name, trust = 'external' }) => trust === own && name !== server);
  const canBe = (trust: 'internal' | 'external'): boolean => when.trust?.includes(trust) !== false;
  return [
    ...(canBe(other) ? [{ trust: [other] }] : []),
    ...(peers.length === 0 || !canBe(own) ? [] : [{ servers: peers.map(({ name }) => name) }]),
  ];
}

/** A longer line begins with the same words. The pattern finds the approved text with something before or after it. */
function commandGuards(when: When, { text, argument }: CallShape & { readonly kind: 'command' }): readonly When[] {
  const quoted = text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');
  return [{ ...when, args: { ...when.args, [argument]: { pattern: `(?s:.)${quoted}|${quoted}(?s:.)` } } }];
}

/** Returns conditions that match the approved calls and as little else as YAML can say. */
function allowing({ shape, samples, principals }: ApprovedGroup): When {
  const { server, verb, command } = samples[0].effect;
  const base: When = { tools: toolIds(samples), verbs: [verb], principals: [...principals].sort() };
  if (shape.kind === 'tool') return base;
  if (shape.kind === 'paths') return { ...base, paths: shape.globs };
  const places = server === 'workspace' ? ['action', 'cwd'] : [];
  const absent = places.filter((name) => !Object.hasOwn(shape.others, name));
  return {
    ...base,
    commands: [shape.words.join(' ')],
    ...(command?.opaque === true ? { opaque: true } : {}),
    args: {
      [shape.argument]: { equals: shape.text },
      ...Object.fromEntries(Object.entries(shape.others).map(([name, value]) => [name, { equals: value }])),
      ...Object.fromEntries(absent.map((name) => [name, { present: false }])),
    },
  };
}

/** Returns the tools of calls, as `server.tool`, sorted. */
export function toolIds(samples: readonly Pick<CallInput, 'effect'>[]): readonly string[] {
  return samples.map(({ effect: { server, tool } }) => `${server}.${tool}`).sort();
}

function distinct(guards: readonly Guard[]): readonly Guard[] {
  return [...new Map(guards.map((guard) => [JSON.stringify(Object.entries(guard.when).sort()), guard])).values()];
}

function slugOf(shape: CallShape): string {
  const text = addedBy(shape).join('-');
  const plain = text
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .slice(0, 40);
  return plain.replace(/^-+|-+$/g, '') || 'calls';
}

function freeId(id: string, taken: Set<string>): string {
  for (let number = 1; ; number += 1) {
    const name = number === 1 ? id : `${id}-${number}`;
    if (taken.has(name)) continue;
    taken.add(name);
    return name;
  }
}
