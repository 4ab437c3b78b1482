/** Checks Rego beyond opa: built-ins that cannot be evaluated here, rules that can never match, and unclear reasons. */
import { readFileSync } from 'node:fs';
import { CAPABILITIES_FILE } from '../engine/policy-library.ts';
import { adviseBuiltin } from '../rego/opa-errors.ts';
import { EXPOSE, type ParsedFile, SETS, type SetRule } from '../rego/rego-facts.ts';
import {
  type Aliases,
  aliasesOf,
  type Expression,
  elseChain,
  groundPath,
  nameOfRef,
  packagePath,
  type Rule,
  type SourceLocation,
  type Term,
  termsIn,
  valuesIn,
} from '../rego/syntax-tree.ts';
import type { PolicyProblem } from '../rules/policy-problems.ts';
import { readInputTest } from './input-lint.ts';

/** An error, or a warning that an author should know. Only errors refuse the policy. */
export interface PolicyFinding extends PolicyProblem {
  readonly severity: 'error' | 'warning';
}

/** Returns the findings in parsed files. `rules` are the rules of the sets. */
export function lintRego(files: readonly ParsedFile[], rules: readonly SetRule[]): readonly PolicyFinding[] {
  const supplied = new Set(
    (JSON.parse(readFileSync(CAPABILITIES_FILE, 'utf8')) as { builtins: readonly { name: string }[] }).builtins.map(
      ({ name }) => name,
    ),
  );
  const used = findUsed(files);
  const findings = files.flatMap((file) =>
    [
      ...(file.module.rules ?? []).flatMap((rule) => [
        ...lintCalls(rule, supplied),
        ...lintBody(rule, aliasesOf(file.module)),
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

interface Call {
  readonly name: string;
  readonly args: readonly Term[];
  readonly where: SourceLocation | undefined;
}

/** Yields every call in a part of a syntax tree, as a term or as an expression. */
function* callsIn(part: unknown): Generator<Call> {
  if (typeof part !== 'object' || part === null) return;
  const { type, value, terms } = part as {
    readonly type?: unknown;
    readonly value?: unknown;
    readonly terms?: unknown;
  };
  const words = Array.isArray(terms) ? terms : type === 'call' ? value : undefined;
  const [operator, ...args] = Array.isArray(words) ? (words as readonly Term[]) : [];
  if (operator?.type === 'ref') yield { name: nameOfRef(operator), args, where: operator.location };
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

/** Checks formats as builtins.ts does. There, an unknown verb stops the decision. */
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
        `sprintf has no %${wrong[0] ?? ''} here; use %s for strings, %d for integers, %v for anything`,
      ),
    ];
  const given = values?.type === 'array' ? (values.value as readonly Term[]).length : verbs.length;
  return given === verbs.length
    ? []
    : [error(format.location, `sprintf has ${verbs.length} verbs and ${given} values`)];
}

/** Finds bodies that no input can satisfy, and tools that are compared with their server. */
function lintBody(rule: Rule, aliases: Aliases): readonly Found[] {
  return elseChain(rule).flatMap(({ body }) => {
    const required = new Map<string, string>();
    const found: Found[] = [];
    for (const expression of body) {
      const equality = readEquality(expression, aliases);
      const never = neverTrue(expression) ?? findConflict(equality, required);
      if (never !== undefined) return [error(expression.location, `this rule can never match: ${never}`)];
      const [server, tool] = /^([^.]+)\.(.+)$/.exec(equality?.path === TOOL ? equality.text : '')?.slice(1) ?? [];
      if (server !== undefined)
        found.push({
          where: expression.location,
          severity: 'warning',
          message:
            `${TOOL} does not contain the server; write input.effect.server == "${server}" and ${TOOL} ` +
            `== "${tool ?? ''}"`,
        });
    }
    return found;
  });
}

const TOOL = 'input.effect.tool';

interface Equality {
  readonly path: string;
  readonly text: string;
}

/** Returns the text that an expression requires of a field of the input. */
function readEquality(expression: Expression, aliases: Aliases): Equality | undefined {
  const test = readInputTest(expression, aliases);
  const [value, ...others] = test?.values ?? [];
  return test?.operator === 'is' && !test.negated && value?.type === 'string' && others.length === 0
    ? { path: `input.${test.path}`, text: String(value.value) }
    : undefined;
}

function neverTrue({ terms, negated, with: mocks }: Expression): string | undefined {
  if (negated === true || mocks !== undefined || Array.isArray(terms)) return undefined;
  const { type, value } = terms as Term;
  return type === 'boolean' && value === false ? 'an expression is `false`' : undefined;
}

/** `required` collects what earlier expressions of the body require of the input. */
function findConflict(equality: Equality | undefined, required: Map<string, string>): string | undefined {
  if (equality === undefined) return undefined;
  const { path, text } = equality;
  const before = required.get(path);
  required.set(path, text);
  return before === undefined || before === text
    ? undefined
    : `${path} cannot be "${before}" and "${text}" at the same time`;
}

/** Returns the paths of `data`, with dots, that a rule reads. */
function findUsed(files: readonly ParsedFile[]): ReadonlySet<string> {
  const used = new Set<string>();
  for (const { module } of files) {
    const aliases = aliasesOf(module);
    const own = ['data', ...packagePath(module)];
    for (const name of (module.rules ?? [])
      .flatMap((rule) => elseChain(rule))
      .flatMap((rule) => [...valuesIn([rule.head.key, rule.head.value, rule.head.args, rule.body], ['var'])]))
      used.add([...own, name].join('.'));
    for (const term of termsIn(module.rules)) used.add((groundPath(term, aliases)?.names ?? []).join('.'));
  }
  return used;
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
          message: `no rule uses ${name}; remove it, or name it ${SETS.join(', ')} if it decides`,
        },
      ];
}

/**
 * A member without id or message is a fault at every call, and a fault denies. Authors of other systems often write
 * `msg`.
 */
function lintMember({ file, rule: { head } }: SetRule): readonly PolicyFinding[] {
  const { key } = head;
  const fault = (message: string): readonly PolicyFinding[] => [at(file, error(key?.location, message))];
  if (key === undefined || !['object', 'number', 'boolean', 'null', 'array', 'set'].includes(key.type)) return [];
  if (key.type !== 'object') return fault('a reason is a string, or {"id": "…", "message": "…"}');
  const fields = new Map(
    (key.value as readonly (readonly [Term, Term])[]).map(([name, value]) => [
      name.type === 'string' ? String(name.value) : undefined,
      value.type,
    ]),
  );
  if (fields.has(undefined)) return [];
  const missing = ['id', 'message'].filter((name) => !fields.has(name));
  if (missing.length > 0)
    return fault(`a reason is {"id": "…", "message": "…"}; this one has no ${missing.join(' and no ')}`);
  const wrongField = ['id', 'message'].find((name) =>
    ['object', 'number', 'boolean', 'null', 'array', 'set'].includes(fields.get(name) ?? ''),
  );
  return wrongField === undefined ? [] : fault(`${wrongField} of a reason must be a string`);
}

/** Without an id, all reasons of a package look alike in refusals and in the audit. */
function lintId({ file, rule, facts }: SetRule): readonly PolicyFinding[] {
  if (facts.id !== undefined || rule.head.key?.type === 'object') return [];
  const message =
    `the reason has no id, so refusals call it policy.${facts.package}; write above the rule: # ` +
    'METADATA, # custom:, #   id: <name>';
  return [at(file, { where: rule.location, severity: 'warning', message })];
}
