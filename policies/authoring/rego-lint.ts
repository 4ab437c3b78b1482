/** Owns our own look at Rego, beyond what opa checks: what cannot be evaluated here, what can never fire, what nobody could find again; changes nothing. */
import { readFileSync } from 'node:fs';
import { CAPABILITIES_FILE } from '../engine/policy-library.ts';
import { adviseBuiltin } from '../rego/opa-errors.ts';
import { EXPOSE, type ParsedFile, SETS, type SetRule } from '../rego/rego-facts.ts';
import { INPUT_SCHEMA } from '../rego/rego-files.ts';
import {
  aliasesOf,
  type Expression,
  groundPath,
  packagePath,
  type Rule,
  type SourceLocation,
  type Term,
  termsIn,
} from '../rego/syntax-tree.ts';
import type { PolicyProblem } from '../rules/policy-problems.ts';

/** A fault, or something that an author should know. Only errors refuse. */
export interface PolicyFinding extends PolicyProblem {
  readonly severity: 'error' | 'warning';
}

/** Lints files that parse. `rules` are those of the sets. */
export function lintRego(files: readonly ParsedFile[], rules: readonly SetRule[]): readonly PolicyFinding[] {
  const supplied = new Set(
    (JSON.parse(readFileSync(CAPABILITIES_FILE, 'utf8')) as { builtins: readonly { name: string }[] }).builtins.map(
      ({ name }) => name,
    ),
  );
  const verbs = (
    JSON.parse(readFileSync(INPUT_SCHEMA, 'utf8')) as {
      properties: { effect: { properties: { verb: { enum: readonly string[] } } } };
    }
  ).properties.effect.properties.verb.enum;
  const used = findUsed(files);
  const findings = files.flatMap((file) =>
    [
      ...(file.module.rules ?? []).flatMap((rule) => [
        ...lintCalls(rule, supplied),
        ...lintBody(rule, { verbs, aliases: aliasesOf(file.module) }),
        ...lintUse(file, rule, used),
      ]),
    ].map((found) => at(file, found)),
  );
  return [...findings, ...rules.flatMap((rule) => [...lintMember(rule), ...lintId(rule)])];
}

interface Found {
  readonly where: SourceLocation | undefined;
  readonly severity: PolicyFinding['severity'];
  readonly message: string;
}

function at({ shown }: ParsedFile, { where, severity, message }: Found): PolicyFinding {
  return { file: shown, line: where?.row ?? 1, column: where?.col ?? 1, severity, message };
}

function error(where: SourceLocation | undefined, message: string): Found {
  return { where, severity: 'error', message };
}

/** The rules of a chain, `else` by `else`. */
function chainOf(rule: Rule): readonly Rule[] {
  return rule.else === undefined ? [rule] : [rule, ...chainOf(rule.else)];
}

interface Call {
  readonly name: string;
  readonly args: readonly Term[];
  readonly where: SourceLocation | undefined;
}

/** Every call in a part of a tree, as a term or as an expression. */
function* callsIn(part: unknown): Generator<Call> {
  if (typeof part !== 'object' || part === null) return;
  const { type, value, terms } = part as {
    readonly type?: unknown;
    readonly value?: unknown;
    readonly terms?: unknown;
  };
  const words = Array.isArray(terms) ? terms : type === 'call' ? value : undefined;
  const [operator, ...args] = Array.isArray(words) ? (words as readonly Term[]) : [];
  if (operator?.type === 'ref')
    yield {
      name: (operator.value as readonly Term[]).map((term) => String(term.value)).join('.'),
      args,
      where: operator.location,
    };
  for (const [key, child] of Object.entries(part))
    if (key !== 'location' && key !== 'annotations') yield* callsIn(child);
}

function lintCalls(rule: Rule, supplied: ReadonlySet<string>): readonly Found[] {
  return [...callsIn(rule)].flatMap((call) => {
    const advice = supplied.has(call.name) ? undefined : adviseBuiltin(call.name);
    if (advice !== undefined) return [error(call.where, `${call.name} is not available: ${advice}`)];
    return call.name === 'sprintf' ? lintFormat(call) : [];
  });
}

/** As builtins.ts formats: what it does not know stops the decision. */
function lintFormat({ args: [format, values] }: Call): readonly Found[] {
  if (format?.type !== 'string') return [];
  const verbs = [...String(format.value).matchAll(/%(.?)/gs)]
    .map(([, verb = '']) => verb)
    .filter((verb) => verb !== '%');
  const wrong = verbs.filter((verb) => !['s', 'v', 'd'].includes(verb));
  if (wrong.length > 0)
    return [
      error(
        format.location,
        `sprintf has no %${wrong[0] ?? ''} here: use %s for texts, %d for whole numbers, %v for anything`,
      ),
    ];
  const given = values?.type === 'array' ? (values.value as readonly Term[]).length : verbs.length;
  return given === verbs.length
    ? []
    : [error(format.location, `sprintf has ${verbs.length} verbs and ${given} values`)];
}

interface BodyContext {
  readonly verbs: readonly string[];
  readonly aliases: ReadonlyMap<string, readonly string[]>;
}

/** Bodies that no input satisfies. */
function lintBody(rule: Rule, context: BodyContext): readonly Found[] {
  return chainOf(rule).flatMap(({ body }) => {
    const asked = new Map<string, string>();
    const found: Found[] = [];
    for (const expression of body) {
      const never = neverHolds(expression, asked, context);
      if (never !== undefined) return [error(expression.location, `this rule can never fire: ${never}`)];
      const [server, tool] = /^([^.]+)\.(.+)$/.exec(readEquality(expression, context)?.[TOOL] ?? '')?.slice(1) ?? [];
      if (server !== undefined)
        found.push({
          where: expression.location,
          severity: 'warning',
          message: `${TOOL} is the name without the server: write input.effect.server == "${server}" and ${TOOL} == "${tool ?? ''}"`,
        });
    }
    return found;
  });
}

const TOOL = 'input.effect.tool';

/** The text that an expression demands of a part of the input, by its path. */
function readEquality(
  { terms, negated, with: mocks }: Expression,
  { aliases }: BodyContext,
): Readonly<Record<string, string>> | undefined {
  if (negated === true || mocks !== undefined || !Array.isArray(terms)) return undefined;
  const [operator, ...sides] = terms as readonly Term[];
  const name = ((operator?.value ?? []) as readonly Term[])[0]?.value;
  if (sides.length !== 2 || (name !== 'equal' && name !== 'eq')) return undefined;
  const literal = sides.find(({ type }) => type === 'string');
  const path = sides
    .map((side) => groundPath(side, aliases))
    .find((found) => found?.names[0] === 'input' && found.whole)
    ?.names.join('.');
  return literal === undefined || path === undefined ? undefined : { [path]: String(literal.value) };
}

/** `asked` holds what earlier expressions of the body demand of the input. */
function neverHolds(expression: Expression, asked: Map<string, string>, context: BodyContext): string | undefined {
  const { terms, negated, with: mocks } = expression;
  if (negated !== true && mocks === undefined && !Array.isArray(terms))
    return (terms as Term).type === 'boolean' && (terms as Term).value === false ? 'it asks for `false`' : undefined;
  const [path, value] = Object.entries(readEquality(expression, context) ?? {})[0] ?? [];
  if (path === undefined || value === undefined) return undefined;
  const before = asked.get(path);
  asked.set(path, value);
  if (before !== undefined && before !== value) return `${path} cannot be "${before}" and "${value}" at once`;
  return path === 'input.effect.verb' && !context.verbs.includes(value)
    ? `a verb is one of ${context.verbs.join(', ')}, never "${value}"`
    : undefined;
}

/** Paths of `data`, joined, that some rule reads. */
function findUsed(files: readonly ParsedFile[]): ReadonlySet<string> {
  const used = new Set<string>();
  for (const { module } of files) {
    const aliases = aliasesOf(module);
    const own = ['data', ...packagePath(module)];
    for (const name of (module.rules ?? [])
      .flatMap((rule) => chainOf(rule))
      .flatMap((rule) => [...namesIn([rule.head.key, rule.head.value, rule.head.args, rule.body])]))
      used.add([...own, name].join('.'));
    for (const term of termsIn(module.rules)) used.add((groundPath(term, aliases)?.names ?? []).join('.'));
  }
  return used;
}

/** Names that a part of a tree begins its references with, and plain names. */
function* namesIn(part: unknown): Generator<string> {
  if (typeof part !== 'object' || part === null) return;
  const { type, value } = part as { readonly type?: unknown; readonly value?: unknown };
  if (type === 'var') yield String(value);
  for (const child of Object.values(part)) yield* namesIn(child);
}

function lintUse(
  { module }: ParsedFile,
  { head, location, default: isDefault }: Rule,
  used: ReadonlySet<string>,
): readonly Found[] {
  const [root, ...names] = packagePath(module);
  const name = String(head.ref[0]?.value);
  if (root !== 'policy' || isDefault === true || name === EXPOSE || SETS.some((set) => set === name)) return [];
  if (name.startsWith('test_'))
    return [
      { where: location, severity: 'warning', message: `${name} runs only in a file *_test.rego; move it there` },
    ];
  const paths = ['data', root, ...names, name].map((_, count, all) => all.slice(0, count + 1).join('.')).slice(1);
  return paths.some((path) => used.has(path))
    ? []
    : [
        {
          where: location,
          severity: 'warning',
          message: `${name} is used by no rule; remove it, or name it ${SETS.join(', ')} if it decides`,
        },
      ];
}

/** A member that says neither is a fault at every call, and a fault denies: whoever comes from elsewhere writes `msg`. */
function lintMember({ file, rule: { head } }: SetRule): readonly PolicyFinding[] {
  const { key } = head;
  const fault = (message: string): readonly PolicyFinding[] => [at(file, error(key?.location, message))];
  if (key === undefined || !['object', 'number', 'boolean', 'null', 'array', 'set'].includes(key.type)) return [];
  if (key.type !== 'object') return fault('a reason is a text, or {"id": "…", "message": "…"}');
  const fields = new Map(
    (key.value as readonly (readonly [Term, Term])[]).map(([name, value]) => [
      name.type === 'string' ? String(name.value) : undefined,
      value.type,
    ]),
  );
  if (fields.has(undefined)) return [];
  const missing = ['id', 'message'].filter((name) => !fields.has(name));
  if (missing.length > 0)
    return fault(`a reason is {"id": "…", "message": "…"}; here is no ${missing.join(' and no ')}`);
  const odd = ['id', 'message'].find((name) =>
    ['object', 'number', 'boolean', 'null', 'array', 'set'].includes(fields.get(name) ?? ''),
  );
  return odd === undefined ? [] : fault(`${odd} of a reason must be a text`);
}

/** Without an id all texts of a package look alike in refusals and in the audit. */
function lintId({ file, rule, facts }: SetRule): readonly PolicyFinding[] {
  if (facts.id !== undefined || rule.head.key?.type === 'object') return [];
  const message = `the reason has no id of its own and will be told as policy.${facts.package}; write above the rule: # METADATA, # custom:, #   id: <name>`;
  return [at(file, { where: rule.location, severity: 'warning', message })];
}
