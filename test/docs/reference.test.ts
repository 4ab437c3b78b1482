/**
 * Compares the reference pages with the code in both directions: errors, settings, rules, commands, exit codes,
 * records.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Command } from 'commander';
import { describe, expect, it } from 'vitest';
import { ERRORS, type ErrorCode } from '../../catalogs/errors/error-table.ts';
import { loadMapping } from '../../catalogs/primitives/primitive-mapping.ts';
import { EXIT, type Io } from '../../facade/cli/command-io.ts';
import { buildProgram } from '../../facade/cli/program.ts';
import type { Wiring } from '../../facade/cli/wiring.ts';
import { INSTALL_LINES } from '../../policies/rego/opa-program.ts';
import { verifies } from '../verifies.ts';
import { blocksOf, codeIn, proseOf, ROOT, readPage, rowsOf, sectionOf } from './markdown.ts';

const CODES = Object.keys(ERRORS) as ErrorCode[];

/** The error names of Harbor. The page must map each of them (HB-08). */
const SOURCE_CODES = [
  'ERR_PERMISSION_DENIED',
  'ERR_SCOPE_REQUIRED',
  'ERR_SERVER_UNAVAILABLE',
  'ERR_TOOL_NOT_FOUND',
  'ERR_TOOL_NOT_ALLOWED',
  'ERR_TOOL_TIMEOUT',
  'ERR_TOOL_FAILED',
  'ERR_PROTOCOL_ERROR',
  'ERR_INTERNAL',
  'ERR_RATE_LIMITED',
  'ERR_BUDGET_EXCEEDED',
];

describe('docs/errors.md', () => {
  it('lists only codes that the source throws', () => {
    const sources = ['adapters', 'catalogs', 'facade', 'policies'].flatMap((folder) =>
      readdirSync(path.join(ROOT, folder), { recursive: true, encoding: 'utf8' })
        .filter((name) => name.endsWith('.ts'))
        .map((name) => path.join(folder, name)),
    );
    const text = sources
      .filter((file) => file !== path.join('catalogs', 'errors', 'error-table.ts'))
      .map((file) => readFileSync(path.join(ROOT, file), 'utf8'))
      .join('\n');
    expect(CODES.filter((code) => !new RegExp(`\\b${code}\\b`).test(text))).toEqual([]);
  });

  it('has a section for every code, and no other', () => {
    const headings = [...readPage('docs/errors.md').matchAll(/^### (.*)$/gm)].map((found) => found[1]);
    expect(headings).toEqual(CODES);
  });

  it.each(CODES)('%s: has wire form, retry, what and next of the table, and says why', (code) => {
    const row = ERRORS[code];
    const section = sectionOf('docs/errors.md', `### ${code}`);
    const line = (name: string): string | undefined =>
      new RegExp(`^\\*\\*${name}\\.\\*\\* (.+)$`, 'm').exec(section)?.[1];
    const wire = row.wire === 'rpc' ? `\`rpc\` ${row.rpc}` : `\`${row.wire}\``;
    expect(section).toContain(`Wire: ${wire}. Retry: ${row.retryable ? 'yes' : 'no'}.`);
    expect(line('What happened')).toBe(row.what);
    expect(line('What to do')).toBe(row.next);
    expect(line('Why')?.length).toBeGreaterThan(15);
  });

  it('maps every error name of Harbor to a code of Tollgate' + verifies('HB-08'), () => {
    const rows = rowsOf(sectionOf('docs/errors.md', '## Names of other systems'));
    expect(rows.map(([name]) => codeIn(name ?? '')[0])).toEqual(SOURCE_CODES);
    for (const [, ours = ''] of rows) {
      const [, code = '', anchor = ''] = /^\[(\w+)\]\(#(\w+)\)$/.exec(ours) ?? [];
      expect(CODES).toContain(code);
      expect(anchor).toBe(code.toLowerCase());
    }
  });
});

interface SchemaNode {
  readonly $ref?: string;
  readonly properties?: Readonly<Record<string, SchemaNode>>;
  readonly items?: SchemaNode;
  readonly additionalProperties?: SchemaNode | boolean;
  readonly definitions?: Readonly<Record<string, SchemaNode>>;
  readonly default?: unknown;
  readonly enum?: readonly unknown[];
}

const readJson = (file: string): unknown => JSON.parse(readFileSync(path.join(ROOT, file), 'utf8'));
const SCHEMA = readJson('facade/config/tollgate.schema.json') as SchemaNode;

/** Settings that the page describes at the top level. A profile has the same keys. */
const SHARED = ['profiles.*.expose', 'profiles.*.budgets', 'profiles.*.caps'];

function* settings(node: SchemaNode, at: string): Generator<readonly [string, SchemaNode]> {
  const real = { ...SCHEMA.definitions?.[node.$ref?.split('/').at(-1) ?? ''], ...node };
  for (const [key, child] of Object.entries(real.properties ?? {})) {
    const name = at === '' ? key : `${at}.${key}`;
    yield [name, child];
    if (!SHARED.includes(name)) yield* settings(child, name);
  }
  if (real.items !== undefined) yield* settings(real.items, `${at}[]`);
  if (typeof real.additionalProperties === 'object') yield* settings(real.additionalProperties, `${at}.*`);
}

describe('docs/configuration.md', () => {
  const known = new Map(settings(SCHEMA, ''));
  const rows = rowsOf(readPage('docs/configuration.md')).filter(
    (row) => row.length === 3 && /^`[a-z]/.test(row[0] ?? ''),
  );

  it('has a row for every setting of the schema, and no other', () => {
    const documented = rows.map(([name]) => codeIn(name ?? '')[0]);
    expect([...documented].sort()).toEqual([...known.keys()].sort());
  });

  it('names the default of each setting that has one in the schema', () => {
    const wrong = rows.flatMap(([name, , shown]) => {
      const value = known.get(codeIn(name ?? '')[0] ?? '')?.default;
      const expected = value === undefined ? shown : `\`${typeof value === 'string' ? value : JSON.stringify(value)}\``;
      return shown === expected ? [] : [`${name}: ${shown}, not ${expected}`];
    });
    expect(wrong).toEqual([]);
  });

  it('names no setting in its text that does not exist', () => {
    const tops = Object.keys(SCHEMA.properties ?? {}).join('|');
    const named = [
      ...[
        'docs/configuration.md',
        'docs/policies.md',
        'docs/rules.md',
        'docs/rego.md',
        'docs/trials.md',
        'docs/catalogs.md',
        'docs/wire.md',
        'docs/audit.md',
        'docs/audit-records.md',
        'README.md',
      ].flatMap((page) => codeIn(proseOf(page))),
    ];
    const paths = named.filter((text) => new RegExp(`^(${tops})(\\[\\])?\\.[A-Za-z*.\\[\\]]+$`).test(text));
    expect(paths.length).toBeGreaterThan(100);
    expect(paths.filter((text) => !known.has(text))).toEqual([]);
  });
});

describe('docs/rules.md', () => {
  const schema = readJson('policies/schemas/rules.json') as SchemaNode;
  const part = (name: string): readonly string[] => Object.keys(schema.definitions?.[name]?.properties ?? {});
  const page = readPage('docs/rules.md');

  it('has a row for every field of a rule and of `when`, and no other', () => {
    const documented = rowsOf(sectionOf('docs/rules.md', '## Fields')).flatMap(([name]) => codeIn(name ?? ''));
    expect([...documented].sort()).toEqual([...part('rule'), ...part('when')].sort());
  });

  it('names every test of an argument and every obligation', () => {
    const named = codeIn(page);
    for (const field of [...part('tests'), ...part('obligations')]) expect(named).toContain(field);
  });

  it('gives the same ways to install opa as the message', () => {
    const lines = blocksOf('docs/rego.md')
      .find(({ language }) => language === 'text')
      ?.text.trim()
      .split('\n');
    expect(lines).toEqual(INSTALL_LINES);
  });
});

describe('docs/catalogs.md', () => {
  it('has every schema profile', () => {
    const files = readdirSync(path.join(ROOT, 'catalogs', 'profiles'))
      .filter((name) => name.endsWith('.json'))
      .map((name) => name.replace('.json', ''));
    const named = rowsOf(sectionOf('docs/catalogs.md', '## Schema profiles')).map(([name]) => codeIn(name ?? '')[0]);
    expect([...named].sort()).toEqual(files.sort());
  });

  it('says for every backend what its mapping cannot do', () => {
    const actions = new Map([
      ['read a file', 'read.file'],
      ['list', 'read.list'],
      ['find by glob', 'read.find'],
      ['search lines', 'read.search'],
      ['stat', 'read.stat'],
      ['write, append', 'write'],
      ['edit', 'edit'],
      ['bash run, sessions', 'bash.run'],
    ]);
    const rows = rowsOf(sectionOf('docs/catalogs.md', '## Backends')).filter(([name]) => actions.has(name ?? ''));
    expect(rows).toHaveLength(actions.size);
    for (const [name = '', , desktop = '', files = ''] of rows) {
      for (const [id, cell] of [
        ['desktop-commander', desktop],
        ['server-filesystem', files],
      ] as const) {
        const action = loadMapping(id).actions.get(actions.get(name) ?? '');
        expect(cell.startsWith('no'), `${name} on ${id}`).toBe(action === undefined || 'missing' in action);
      }
    }
  });

  it('names only existing reasons for quarantine', () => {
    const sources = readdirSync(path.join(ROOT, 'catalogs'), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.ts'))
      .map((name) => readFileSync(path.join(ROOT, 'catalogs', name), 'utf8'))
      .join('\n');
    const reasons = rowsOf(sectionOf('docs/catalogs.md', '## Quarantine')).flatMap(([name]) => codeIn(name ?? ''));
    expect(reasons.length).toBeGreaterThan(5);
    expect(reasons.filter((reason) => !sources.includes(reason))).toEqual([]);
  });
});

/** A command with its groups: `tollgate policy test`. */
function pathOf(command: Command): string {
  return command.parent === null ? command.name() : `${pathOf(command.parent)} ${command.name()}`;
}

/** A terminal that collects what is written to it. The commands below need nothing else. */
function terminal(): Io & { readonly said: string[] } {
  const said: string[] = [];
  const say = (text: string): void => void said.push(text);
  return {
    said,
    stdout: say,
    stderr: say,
    isTTY: false,
    env: {},
    home: tmpdir(),
    cwd: tmpdir(),
    user: 'somebody',
    self: ['tollgate'],
    stdin: process.stdin,
    out: process.stdout,
    stopped: Promise.resolve(),
  };
}

describe('docs/cli.md', () => {
  const page = 'docs/cli.md';
  const unused = (): never => {
    throw new Error('no command is run here');
  };
  const commands = buildProgram(terminal(), { assemble: unused, check: unused } as unknown as Wiring, unused).commands;
  const flagsIn = (text: string): readonly string[] =>
    rowsOf(text)
      .flatMap(([name]) => codeIn(name ?? ''))
      .filter((flag) => flag.startsWith('-'));
  const common = flagsIn(sectionOf(page, '## Common options'));
  const titleOf = (command: Command): string =>
    [
      pathOf(command),
      ...command.registeredArguments
        .filter(({ variadic }) => !variadic)
        .map((one) => (one.required ? `<${one.name()}>` : `[${one.name()}]`)),
    ].join(' ');
  const groups = commands.filter((command) => command.commands.length > 0);
  const nested = groups.flatMap((group) => group.commands);
  /** What a page says of a command itself: a group's own text ends where the first of its commands begins. */
  const ownText = (heading: string): string => sectionOf(page, heading).split(/^### /m, 1)[0] ?? '';

  it('has a section for every command, in order, and no other', () => {
    const titles = [...readPage(page).matchAll(/^## (tollgate .*)$/gm)].map((found) => found[1]);
    expect(titles).toEqual(commands.map(titleOf));
  });

  it('has a section for every command of a group under that group, and no other', () => {
    const titles = (text: string): readonly string[] =>
      [...text.matchAll(/^### (tollgate .*)$/gm)].map((found) => found[1] ?? '').sort();
    for (const group of groups)
      expect(titles(sectionOf(page, `## ${titleOf(group)}`))).toEqual(group.commands.map(titleOf).sort());
    expect(titles(readPage(page))).toEqual(nested.map(titleOf).sort());
  });

  it.each([...commands, ...nested].map((command) => [titleOf(command), command] as const))(
    '%s: every option, and no other',
    (title, command) => {
      const all = command.options.map(({ flags }) => flags);
      const own = all.filter((flag) => !common.includes(flag));
      const listed = flagsIn(ownText(`${nested.includes(command) ? '###' : '##'} ${title}`));
      if (nested.includes(command)) {
        // The section of a group may list options that several of its commands have.
        const ofGroup = flagsIn(ownText(`## ${titleOf(command.parent as Command)}`));
        expect(own.filter((flag) => !listed.includes(flag) && !ofGroup.includes(flag))).toEqual([]);
        expect(listed.filter((flag) => !own.includes(flag))).toEqual([]);
        return;
      }
      const ofCommands = command.commands.flatMap(({ options }) => options.map(({ flags }) => flags));
      expect(listed.filter((flag) => !own.includes(flag) && !ofCommands.includes(flag))).toEqual([]);
      expect(own.filter((flag) => !listed.includes(flag))).toEqual([]);
    },
  );

  it('lists all exit codes', () => {
    const rows = rowsOf(sectionOf(page, '## Exit codes')).map(([code, name]) => [name, Number(code)]);
    expect(Object.fromEntries(rows)).toEqual(EXIT);
  });

  it('lists every environment variable of Tollgate', () => {
    const files = ['facade', 'policies', 'adapters', 'catalogs'].flatMap((folder) =>
      readdirSync(path.join(ROOT, folder), { recursive: true, encoding: 'utf8' })
        .filter((name) => name.endsWith('.ts'))
        .map((name) => path.join(ROOT, folder, name)),
    );
    const used = new Set(
      files.flatMap((file) => [...readFileSync(file, 'utf8').matchAll(/TOLLGATE_[A-Z]+/g)].map(([name]) => name)),
    );
    const named = rowsOf(sectionOf(page, '## Environment'))
      .flatMap(([name]) => codeIn(name ?? ''))
      .filter((name) => name.startsWith('TOLLGATE_'));
    expect(named.map((name) => /^TOLLGATE_[A-Z]+/.exec(name)?.[0]).sort()).toEqual([...used].sort());
  });
});

describe('docs/audit-records.md', () => {
  it('has every type of record', () => {
    const sources = ['audit-entry.ts', 'audit-chain.ts']
      .map((name) => readFileSync(path.join(ROOT, 'facade', 'audit', name), 'utf8'))
      .join('\n');
    const types = [...sources.matchAll(/readonly type: (.*);/g)].flatMap((found) =>
      [...(found[1] ?? '').matchAll(/'(\w+)'/g)].map(([, type]) => type),
    );
    const named = rowsOf(sectionOf('docs/audit-records.md', '## What is written')).flatMap(([name]) =>
      codeIn(name ?? ''),
    );
    expect(named.sort()).toEqual(types.sort());
  });

  it('has every field that a record of a call can have', () => {
    const source = readFileSync(path.join(ROOT, 'facade', 'audit', 'audit-entry.ts'), 'utf8');
    const parts = [
      ...source.matchAll(/interface (?:CallFacts|IntentEntry|OutcomeEntry|DecisionEntry|BudgetEntry)\b.*?\n\}/gs),
    ]
      .map(([text]) => text)
      .join('\n');
    const fields = new Set([...parts.matchAll(/^ {2}readonly (\w+)\??:/gm)].map(([, name]) => name ?? ''));
    const named = rowsOf(sectionOf('docs/audit-records.md', '## Fields')).flatMap(([name]) => codeIn(name ?? ''));
    expect([...fields].filter((name) => !named.includes(name))).toEqual([]);
  });
});
