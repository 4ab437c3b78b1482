/** Tests changes of servers in clients' files: every other byte stays, and what cannot be changed is refused. */
import fc from 'fast-check';
import { type ParseError, parseTree, printParseErrorCode } from 'jsonc-parser';
import { describe, expect, it } from 'vitest';
import { changeServers } from '../../facade/clients/client-file-edit.ts';
import { readClientText } from '../../facade/clients/client-file-reader.ts';
import { type ClientFormat, clientOf } from '../../facade/clients/client-formats.ts';
import { roundsOf } from '../harness/slices.ts';
import { randomFile } from './jsonc.ts';

const format = (id: string): ClientFormat => {
  const found = clientOf(id);
  if (found === undefined) throw new Error(`no client ${id}`);
  return found;
};
const cursor = format('cursor');
const codex = format('codex');
const add = { name: 'tollgate', value: { command: 'tollgate', args: ['run'] } };
const ADDED = '"tollgate": {\n      "command": "tollgate",\n      "args": [\n        "run"\n      ]\n    }';

describe('changeServers in JSON', () => {
  it.each([
    [
      'of nothing',
      '',
      `{
  "mcpServers": {
    "tollgate": {
      "command": "tollgate",
      "args": [
        "run"
      ]
    }
  }
}
`,
    ],
    [
      'behind the last entry and its comment',
      '{\n  "mcpServers": {\n    "a": {"url":   "x"} // mine\n    // below\n  },\n  "z": 1\n}\n',
      `{\n  "mcpServers": {\n    "a": {"url":   "x"}, // mine\n    ${ADDED}\n    // below\n  },\n  "z": 1\n}\n`,
    ],
    [
      'behind a comma at the end',
      '{\n  "mcpServers": {\n    "a": {}, // mine\n  },\n}\n',
      `{\n  "mcpServers": {\n    "a": {}, // mine\n    ${ADDED},\n  },\n}\n`,
    ],
    [
      'in one line',
      '{"mcpServers": {"a": {}}}',
      '{"mcpServers": {"a": {}, "tollgate": {"command":"tollgate","args":["run"]}}}',
    ],
    [
      'in place of an older one',
      '{\n  "mcpServers": {\n    "tollgate": {"url": "old"} // c\n  }\n}\n',
      `{\n  "mcpServers": {\n    ${ADDED} // c\n  }\n}\n`,
    ],
    [
      'without the container',
      '{\n  "theme": "dark"\n}\n',
      `{\n  "theme": "dark",\n  "mcpServers": {\n    ${ADDED}\n  }\n}\n`,
    ],
    [
      'with tabs',
      '{\n\t"mcpServers": {\n\t\t"a": {}\n\t}\n}\n',
      '{\n\t"mcpServers": {\n\t\t"a": {},\n\t\t"tollgate": {\n\t\t\t"command": "tollgate",\n\t\t\t"args": [\n\t\t\t\t"run"\n\t\t\t]\n\t\t}\n\t}\n}\n',
    ],
  ])('gains an entry %s', (_name, text, wanted) => {
    expect(changeServers(text, cursor, { add, remove: [] })).toBe(wanted);
  });

  it.each([
    [
      'the first',
      '{"mcpServers": {\n  // one\n  "a": {"x": ","},\n  // two\n  "b": {}\n}}',
      'a',
      '{"mcpServers": {\n  // one\n  // two\n  "b": {}\n}}',
    ],
    [
      'the last',
      '{"mcpServers": {\n  "a": {}, // one\n  // two\n  "b": {}\n}}',
      'b',
      '{"mcpServers": {\n  "a": {} // one\n  // two\n}}',
    ],
    ['the only one', '{"mcpServers": {"a": {}}}', 'a', '{"mcpServers": {}}'],
    [
      'one before a comma at the end',
      '{"mcpServers": {"a": {}, "b": {} /* c */,}}',
      'b',
      '{"mcpServers": {"a": {},  /* c */}}',
    ],
  ])('loses %s entry, and no comment', (_name, text, name, wanted) => {
    expect(changeServers(text, cursor, { remove: [['mcpServers', name]] })).toBe(wanted);
  });

  it.each([
    ['a key that stands twice', '{"mcpServers": {"a": {}, "a": {}}}'],
    ['a key that stands twice elsewhere', '{"x": [{"y": 1, "y": 2}], "mcpServers": {}}'],
    ['a broken file', '{"mcpServers": {'],
    ['a list of servers', '{"mcpServers": []}'],
    ['no object', '[]'],
    ['nesting without end', `{"mcpServers": ${'['.repeat(100_000)}`],
  ])('is refused for %s', (_name, text) => {
    expect(() => changeServers(text, cursor, { add, remove: [] })).toThrowError(
      expect.objectContaining({ code: 'USAGE' }) as Error,
    );
  });

  it('adds the input for the token to VS Code only once', () => {
    const input = { id: 'tollgate-token', description: 'd' };
    const once = changeServers(
      '{\n  // mine\n  "inputs": [{"id": "a", "type": "promptString"}]\n}\n',
      format('vscode'),
      { add, remove: [], input },
    );
    expect(once).toContain('// mine');
    expect(changeServers(once, format('vscode'), { add, remove: [], input })).toBe(once);
    expect(JSON.parse(once.replace(/\/\/.*/, ''))).toMatchObject({
      inputs: [{ id: 'a' }, { type: 'promptString', id: 'tollgate-token', password: true }],
    });
  });

  it('keeps every comment and every other value of any file', () => {
    const comments = (text: string): number =>
      (text.match(/\/\/ a "comment", with \{brackets\}|\/\* and\r?\n another \*\//g) ?? []).length;
    fc.assert(
      fc.property(randomFile('mcpServers'), fc.nat(), ({ text, names }, pick) => {
        const gone = names.length === 0 ? [] : [names[pick % names.length] ?? ''];
        const before = readClientText(text.replace('\uFEFF', ''), {
          shown: 'f',
          project: '/',
          file: '/f.json',
          format: cursor,
        });
        const after = changeServers(text, cursor, { add, remove: gone.map((name) => ['mcpServers', name]) });
        expect(after.startsWith('\uFEFF')).toBe(text.startsWith('\uFEFF'));
        expect(after.includes('\r\n')).toBe(text.includes('\r\n'));
        const errors: ParseError[] = [];
        parseTree(after.replace('\uFEFF', ''), errors, { allowTrailingComma: true });
        expect(errors.map(({ error }) => printParseErrorCode(error))).toEqual([]);
        const read = readClientText(after.replace('\uFEFF', ''), {
          shown: 'f',
          project: '/',
          file: '/f.json',
          format: cursor,
        });
        expect(read.entries.map(({ original }) => original)).toEqual([
          ...before.entries.map(({ original }) => original).filter((name) => !gone.includes(name)),
          'tollgate',
        ]);
        // A comment inside the removed entry is removed with it.
        if (gone.length === 0) expect(comments(after)).toBe(comments(text));
      }),
      { numRuns: roundsOf(300, 80) },
    );
  });
});

/** With the line ends of Windows. */
const TOML = `# mine
model = "m" # yes

[mcp_servers.a]
command = "x"
args = ["""
[mcp_servers.no]
"""]

[mcp_servers.a.env]
K = "v"

# b
[mcp_servers."b c"]
url = "https://x"
`.replaceAll('\n', '\r\n');

describe('changeServers in TOML', () => {
  it('adds a table at the end, with the line ends of the file', () => {
    expect(changeServers('model = "m"\n', codex, { add, remove: [] })).toBe(
      'model = "m"\n\n[mcp_servers.tollgate]\ncommand = "tollgate"\nargs = [ "run" ]\n',
    );
    expect(changeServers('', codex, { add, remove: [] })).toBe(
      '[mcp_servers.tollgate]\ncommand = "tollgate"\nargs = [ "run" ]\n',
    );
    expect(changeServers(TOML, codex, { add, remove: [] })).toBe(
      `${TOML}\r\n[mcp_servers.tollgate]\r\ncommand = "tollgate"\r\nargs = [ "run" ]\r\n`,
    );
  });

  it('removes a table with the tables below it; comments of the next table stay', () => {
    const text = TOML.replace('"""\r\n[mcp_servers.no]\r\n"""', '"y"');
    expect(changeServers(text, codex, { remove: [['mcp_servers', 'a']] })).toBe(
      '# mine\r\nmodel = "m" # yes\r\n\r\n# b\r\n[mcp_servers."b c"]\r\nurl = "https://x"\r\n',
    );
    expect(changeServers(text, codex, { remove: [['mcp_servers', 'b c']] })).toBe(
      `${text.slice(0, text.indexOf('# b'))}# b\r\n`,
    );
    expect(
      changeServers(text, codex, {
        remove: [
          ['mcp_servers', 'a'],
          ['mcp_servers', 'b c'],
        ],
      }),
    ).toBe('# mine\r\nmodel = "m" # yes\r\n\r\n# b\r\n');
  });

  it('replaces the table of Tollgate', () => {
    const once = changeServers(TOML, codex, { add: { name: 'tollgate', value: { url: 'u' } }, remove: [] });
    expect(changeServers(once, codex, { add, remove: [] })).toBe(changeServers(TOML, codex, { add, remove: [] }));
  });

  it.each([
    ['a table that is part of a line', '[mcp_servers]\na = {command = "x"}\n', 'a'],
    ['a header within a text', TOML, 'a'],
    ['broken text', 'a = \n', 'a'],
    ['a key twice', 'a = 1\na = 2\n[mcp_servers.a]\n', 'a'],
  ])('is refused for %s', (_name, text, name) => {
    expect(() => changeServers(text, codex, { remove: [['mcp_servers', name]] })).toThrowError(
      expect.objectContaining({ code: 'USAGE' }) as Error,
    );
  });

  it('keeps the bytes of every other table', () => {
    const line = fc.constantFrom(
      '',
      '# c [x]',
      'k1 = "a # b"',
      'k2 = [1, 2] # d',
      'k3 = 1979-05-27T07:32:00Z',
      "k4 = '''\n[mcp_servers.fake]\n'''",
    );
    const table = fc.uniqueArray(line, { maxLength: 5 }).map((lines) => lines.join('\n'));
    fc.assert(
      fc.property(table, table, table, (top, other, own) => {
        const before = `${top}\n[other]\n${other}\n`;
        const text = `${before}[mcp_servers.x]\n${own}\n[last]\n${top}\n`;
        // A table header inside a string may mislead the editor. It must refuse then, not write.
        let after: string;
        try {
          after = changeServers(text, codex, { remove: [['mcp_servers', 'x']] });
        } catch (thrown) {
          expect(thrown).toMatchObject({ code: 'USAGE' });
          return;
        }
        expect(after.startsWith(before)).toBe(true);
        expect(after).toContain(`[last]\n${top}\n`);
      }),
    );
  });
});
