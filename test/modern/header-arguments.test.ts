/** Tests which arguments of a tool a client repeats in headers. */
import { describe, expect, it } from 'vitest';
import { type ExposedTool, headerArgumentsOf } from '../../facade/exposure/exposed-tool.ts';
import { verifies } from '../verifies.ts';

const marked = (inputSchema: unknown) =>
  headerArgumentsOf({ text: JSON.stringify({ name: 'a', inputSchema }) } as ExposedTool);

describe('the arguments that are repeated in headers' + verifies('PR-M07'), () => {
  it('are those that the shown schema marks, at any depth of properties', () => {
    expect(
      marked({
        type: 'object',
        properties: {
          region: { type: 'string', 'x-mcp-header': 'Region' },
          at: { type: 'object', properties: { zone: { type: 'integer', 'x-mcp-header': 'Zone-1' } } },
          plain: { type: 'string' },
        },
      }),
    ).toEqual([
      { path: ['region'], header: 'Region' },
      { path: ['at', 'zone'], header: 'Zone-1' },
    ]);
  });

  it.each([
    ['a schema without marks', { type: 'object' }],
    ['no schema', undefined],
    ['a mark that is no token', { properties: { a: { type: 'string', 'x-mcp-header': 'a b' } } }],
    ['a mark that is no text', { properties: { a: { 'x-mcp-header': 7 } } }],
    ['a mark on a number', { properties: { a: { type: 'number', 'x-mcp-header': 'A' } } }],
    ['a mark in a list', { properties: { a: { items: { 'x-mcp-header': 'A' } } } }],
    ['a mark in a choice', { anyOf: [{ properties: { a: { 'x-mcp-header': 'A' } } }] }],
  ])('are none for %s', (_name, schema) => {
    expect(marked(schema)).toEqual([]);
  });
});
