import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { CAPABILITIES, isNamed } from '../../catalogs/capabilities.ts';
import type { RawTool } from '../../catalogs/tool.ts';
import { verifies } from '../verifies.ts';

const corpora = process.env['TOLLGATE_CORPORA'] ?? path.resolve(import.meta.dirname, '../../../shared/corpora');
const tools = readdirSync(path.join(corpora, 'catalogs')).filter((name) => name.endsWith('.json'))
  .flatMap((file) => (JSON.parse(readFileSync(path.join(corpora, 'catalogs', file), 'utf8').replaceAll('{{+}}', '')) as { tools: readonly RawTool[] }).tools.map(({ name }) => name));

it('of 2,613 real tools those are a capability by name that say so, and no other' + verifies('CY-08'), () => {
  expect(tools).toHaveLength(2613);
  const named = (capability: string): readonly string[] => tools.filter((tool) => isNamed(CAPABILITIES.get(capability)!, tool));
  expect(named('pdf')).toEqual(['browser_pdf_save', 'write_pdf']);
  expect(named('in_memory_execution')).toEqual(['puppeteer_evaluate', 'browser_evaluate', 'browser_run_code_unsafe']);
  expect(named('remote_control')).toEqual([]);
  expect(named('desktop')).toEqual([]);
  expect(named('excel')).toHaveLength(24);
  expect(named('excel').filter((tool) => !/excel|workbook/.test(tool))).toEqual([]);
});
