import { describe, expect, it } from 'vitest';
import { isNamed, TOOL_CAPABILITIES } from '../../catalogs/tools/tool-capabilities.ts';
import { verifies } from '../verifies.ts';
import { listAll, readCatalogs } from './corpus.ts';

const tools = [...new Set(listAll(readCatalogs()).map(({ tool }) => tool.name))];

/** Names that say what a tool does, by capability. */
const KNOWN: Readonly<Record<string, readonly string[]>> = {
  pdf: ['browser_pdf_save', 'write_pdf'],
  in_memory_execution: ['puppeteer_evaluate', 'browser_evaluate', 'browser_run_code_unsafe'],
};

/**
 * Computes the same answer in another way: joins the words of a name, and searches the words of the capability in it.
 */
function saysSo(name: string, runs: readonly (readonly string[])[]): boolean {
  const text = `_${name
    .replace(/([a-z0-9])([A-Z])/g, '$1_$2')
    .replace(/([A-Z])([A-Z][a-z])/g, '$1_$2')
    .replace(/[^A-Za-z0-9]+/g, '_')
    .toLowerCase()}_`;
  return runs.some((run) => text.includes(`_${run.join('_')}_`));
}

describe('capabilities by the names of real tools' + verifies('CY-08'), () => {
  it.each([...TOOL_CAPABILITIES.values()].map((capability) => [capability.name, capability] as const))(
    '%s: exactly the tools whose names say so have it',
    (name, capability) => {
      const named = tools.filter((tool) => isNamed(capability, tool));
      expect(named).toEqual(tools.filter((tool) => saysSo(tool, capability.names)));
      expect((KNOWN[name] ?? []).filter((tool) => tools.includes(tool) && !named.includes(tool))).toEqual([]);
    },
  );
});
