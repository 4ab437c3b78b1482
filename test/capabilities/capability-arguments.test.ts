/** Tests which names and arguments use a capability. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { literalWords } from '../../catalogs/programs/command-facts.ts';
import { type Capability, isNamed, isOn, isUsed, TOOL_CAPABILITIES } from '../../catalogs/tools/tool-capabilities.ts';
import { verifies } from '../verifies.ts';

interface Cases {
  readonly names: Readonly<Record<string, readonly string[]>>;
  readonly arguments: readonly {
    readonly tool: string;
    readonly args: Readonly<Record<string, unknown>>;
    readonly uses: readonly string[];
  }[];
  readonly commands: readonly { readonly command: string; readonly uses: readonly string[] }[];
}

const cases = parse(readFileSync(path.join(import.meta.dirname, 'capability-cases.yaml'), 'utf8')) as Cases;

function capability(name: string): Capability {
  return TOOL_CAPABILITIES.get(name) as Capability;
}

function named(tool: string): readonly string[] {
  return [...TOOL_CAPABILITIES.values()].filter((one) => isNamed(one, tool)).map(({ name }) => name);
}

function used(tool: string, args: Readonly<Record<string, unknown>>, paths: readonly string[] = []): readonly string[] {
  const text = args.command;
  const words = typeof text === 'string' ? literalWords(text) : undefined;
  const command = typeof text === 'string' ? { command: { text, ...(words !== undefined && { words }) } } : {};
  return [...TOOL_CAPABILITIES.values()]
    .filter((one) => isUsed(one, { tool, args, paths, ...command }))
    .map(({ name }) => name);
}

it('a server is recognized by its mapping, or by the tools that it has together', () => {
  const like = new Set(['start_process', 'edit_block', 'write_pdf', 'more']);
  for (const name of ['pdf', 'excel', 'in_memory_execution', 'remote_control']) {
    expect(isOn(capability(name), { mapping: 'desktop-commander', tools: new Set<string>() })).toBe(true);
    expect(isOn(capability(name), { mapping: undefined, tools: like })).toBe(true);
    expect(isOn(capability(name), { mapping: 'server-filesystem', tools: new Set([...like].slice(1)) })).toBe(false);
  }
  expect(isOn(capability('desktop'), { mapping: 'desktop-commander', tools: like })).toBe(false);
});

describe('capabilities as data' + verifies('CY-08'), () => {
  it('say in words what they allow and risk, and have a budget', () => {
    expect([...TOOL_CAPABILITIES.keys()]).toEqual([
      'pdf',
      'excel',
      'in_memory_execution',
      'remote_control',
      'desktop',
      'cross_workspace',
    ]);
    for (const { title, allows, risk, budget } of TOOL_CAPABILITIES.values()) {
      for (const text of [title, allows, risk]) expect(text.length).toBeGreaterThan(5);
      expect(budget.calls).toBeGreaterThan(0);
      expect(budget.bytes).toBeGreaterThan(0);
    }
  });

  it.each(Object.entries(cases.names))('the name %s: %j', (tool, uses) => {
    expect(named(tool)).toEqual(uses);
  });

  it.each(cases.arguments)('arguments of $tool $args: $uses', ({ tool, args, uses }) => {
    expect(used(tool, args)).toEqual(uses);
  });

  it('follow a link to its target', () => {
    expect(used('read_file', { path: 'notes' }, ['secret/report.pdf'])).toEqual(['pdf']);
  });

  it.each(cases.commands)('the command $command: $uses', ({ command, uses }) => {
    expect(used('start_process', { command })).toEqual(uses);
  });

  it('of the host belong to host profiles only', () => {
    expect(capability('desktop')).toMatchObject({ host: true, names: [], files: [] });
    expect(used('click', { x: 1 })).toEqual([]);
  });
});
