/**
 * Tests the mappings as data: they are complete, classify the tools of the real servers, and render without side
 * effects.
 */

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { TollgateError } from '../../catalogs/errors/error-table.ts';
import {
  loadMapping,
  MAPPINGS,
  type MappingStep,
  parseMapping,
  renderArguments,
} from '../../catalogs/primitives/primitive-mapping.ts';
import { ARGUMENT_SCHEMAS } from '../../catalogs/primitives/primitive-schemas.ts';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import { inFull } from '../harness/full-tests.ts';
import { type Opened, openBackend } from './third-party-servers.ts';

const ACTIONS = [
  ...['file', 'list', 'find', 'search', 'stat'].map((action) => `read.${action}`),
  'write',
  'edit',
  ...['run', 'start', 'send', 'poll', 'kill', 'list'].map((action) => `bash.${action}`),
];
/** Arguments that a strategy handles itself. The policy sees them although the tool does not have them. */
const JUDGED_ONLY = new Map([
  ['start_process', ['cwd']],
  ['interact_with_process', ['session']],
  ['read_process_output', ['session']],
  ['force_terminate', ['session']],
  ['write_file', ['old_string', 'new_string']],
]);

const codeOf = (act: () => unknown): string => {
  try {
    act();
  } catch (error) {
    return (error as TollgateError).code;
  }
  return 'none';
};

describe.each(MAPPINGS)('mapping %s', (id) => {
  const mapping = loadMapping(id);
  let opened: Opened;
  let tools: readonly RawTool[];
  beforeAll(async () => {
    opened = await openBackend(id);
    tools = (await opened.inner?.listTools()) ?? [];
  });
  afterAll(() => opened.close());

  it('defines for every action a tool, or the reason why it is missing', () => {
    expect([...mapping.actions.keys()].sort()).toEqual([...ACTIONS].sort());
    for (const action of mapping.actions.values()) if ('missing' in action) expect(action.missing).toMatch(/^it /);
  });

  it('classifies exactly the tools that the real server lists', () => {
    expect([...mapping.tools.keys()].sort()).toEqual(tools.map((tool) => tool.name).sort());
  });

  it('names only arguments that the tools have, in templates and in semantics', () => {
    const argumentsOf = (name: string): readonly string[] =>
      Object.keys((tools.find((tool) => tool.name === name)?.inputSchema.properties ?? {}) as object);
    const steps: MappingStep[] = [
      ...mapping.steps.values(),
      ...[...mapping.actions.values()].flatMap((action) => ('missing' in action ? [] : [action])),
    ];
    for (const step of steps) {
      const known = [...argumentsOf(step.tool), ...(JUDGED_ONLY.get(step.tool) ?? [])];
      expect(known, step.tool).toEqual(expect.arrayContaining(Object.keys(step.arguments)));
    }
    for (const [tool, { paths = [], urls = [], command }] of mapping.tools) {
      expect(argumentsOf(tool), tool).toEqual(
        expect.arrayContaining([...paths, ...urls, ...(command === undefined ? [] : [command])]),
      );
    }
  });

  inFull('takes values from arguments of the primitives only', () => {
    for (const [key, action] of mapping.actions) {
      if ('missing' in action) continue;
      const known = Object.keys(ARGUMENT_SCHEMAS.get(key.split('.')[0] ?? '')?.properties ?? {});
      const used = Object.values(action.arguments).flatMap((template) =>
        typeof template === 'object' ? [template.from] : [],
      );
      expect(known, key).toEqual(expect.arrayContaining(used));
    }
  });

  it('never reads a tool that changes something as mere reading', () => {
    for (const tool of tools) {
      if (tool.annotations?.destructiveHint === true)
        expect(mapping.tools.get(tool.name)?.verb, tool.name).not.toBe('read');
    }
  });

  it('offers the primitives it serves, with the published schemas', async () => {
    const listed = await opened.backend.listTools();
    expect(listed.map((tool) => tool.name)).toEqual([...opened.backend.serves().keys()]);
    for (const tool of listed) expect(tool.inputSchema).toEqual(ARGUMENT_SCHEMAS.get(tool.name));
  });
});

describe('a mapping that contradicts itself', () => {
  const text = (action: string, steps = '{}'): string =>
    '{id: x, measured: y, maxFileBytes: 1, tools: {t: {verb: read}}, ' +
    `actions: {read.file: ${action}}, steps: ${steps}, texts: {}}`;

  inFull('is refused when an action or a step uses an unclassified tool', () => {
    expect(codeOf(() => parseMapping(text('{strategy: info, tool: other, arguments: {}}')))).toBe('CONFIG_INVALID');
    expect(codeOf(() => parseMapping(text('{missing: it cannot}', '{info: {tool: other, arguments: {}}}')))).toBe(
      'CONFIG_INVALID',
    );
  });

  it('is refused when it names an unknown strategy, or an unknown mapping is asked for', () => {
    expect(codeOf(() => parseMapping(text('{strategy: guess, tool: t, arguments: {}}')))).toBe('CONFIG_INVALID');
    expect(codeOf(() => loadMapping('../../../etc/passwd'))).toBe('CONFIG_INVALID');
  });
});

describe('argument templates', () => {
  const step = (template: MappingStep['arguments'][string]): MappingStep => ({ tool: 't', arguments: { a: template } });

  it('keep literals, omit absent values, and use defaults', () => {
    expect(renderArguments(step('rewrite'), {})).toEqual({ a: 'rewrite' });
    expect(renderArguments(step({ from: 'x' }), {})).toEqual({});
    expect(renderArguments(step({ from: 'x', default: 5 }), {})).toEqual({ a: 5 });
    expect(renderArguments(step({ from: 'x', default: 5 }), { x: false })).toEqual({ a: false });
  });

  it('do not read values from the prototype', () => {
    expect(renderArguments(step({ from: 'constructor' }), {})).toEqual({});
    expect(
      renderArguments(step({ from: 'x', map: { append: 'append' }, default: 'rewrite' }), { x: 'constructor' }),
    ).toEqual({
      a: 'rewrite',
    });
  });

  it('shift offsets from base 1 to base 0, and keep offsets from the end', () => {
    expect(renderArguments(step({ from: 'offset', add: -1, default: 1 }), {})).toEqual({ a: 0 });
    expect(renderArguments(step({ from: 'offset', add: -1 }), { offset: 7 })).toEqual({ a: 6 });
    expect(renderArguments(step({ from: 'offset', add: -1 }), { offset: -7 })).toEqual({ a: -7 });
  });

  it('map named values, and all others to the default', () => {
    expect(
      renderArguments(step({ from: 'mode', map: { append: 'append' }, default: 'rewrite' }), { mode: 'append' }),
    ).toEqual({
      a: 'append',
    });
    expect(
      renderArguments(step({ from: 'mode', map: { append: 'append' }, default: 'rewrite' }), { mode: 'create' }),
    ).toEqual({
      a: 'rewrite',
    });
  });

  it('extend a pattern to its whole line, and escape plain text', () => {
    expect(renderArguments(step({ from: 'pattern', as: 'matching-line' }), { pattern: 'a|b' })).toEqual({
      a: '^.*(?:a|b).*$',
    });
    expect(renderArguments(step({ from: 'pattern', as: 'matching-line' }), { pattern: 'a.b(', literal: true })).toEqual(
      {
        a: '^.*(?:a\\.b\\().*$',
      },
    );
  });

  it('make a glob independent of the folder in which the backend runs', () => {
    expect(renderArguments(step({ from: 'glob', as: 'any-depth' }), { glob: 'src/*.ts' })).toEqual({
      a: '**/src/*.ts',
    });
    expect(renderArguments(step({ from: 'glob', as: 'any-depth' }), { glob: '**/a' })).toEqual({ a: '**/a' });
    expect(renderArguments(step({ from: 'glob', as: 'any-depth' }), {})).toEqual({});
  });
});
