/** Tests reading every client's file by the table of formats, and that hostile files cost little and break nothing. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { fetchedPackage, showEntry } from '../../facade/clients/client-entry-view.ts';
import { type ClientFile, readClientText } from '../../facade/clients/client-file-reader.ts';
import { CLIENTS, type ClientId, clientOf, formatOf } from '../../facade/clients/client-formats.ts';
import { clientPlaces } from '../../facade/clients/client-places.ts';
import { findFiles } from '../../facade/clients/found-client-files.ts';
import { codeIn, rowsOf, sectionOf } from '../docs/markdown.ts';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';
import { Home } from './home.ts';
import { SAMPLES, VALUES } from './samples.ts';

const ids = CLIENTS.map(({ id }) => id);
const read = (id: ClientId): ClientFile =>
  readClientText(SAMPLES[id].text, { shown: id, project: '/p', file: `/home/me/${SAMPLES[id].file}` });
const readAny = (text: string, file = '/x/servers.json'): ClientFile =>
  readClientText(text, { shown: 'f', project: '/p', file });

describe('the files of all clients' + verifies('HA-01'), () => {
  it.each(ids)('%s: are read with their servers, and with what cannot be used', (id) => {
    const { entries, format } = read(id);
    expect(format?.id).toBe(id);
    expect(entries.filter(({ unusable }) => unusable === undefined).map(({ name }) => name)).toEqual(
      SAMPLES[id].servers,
    );
  });

  it('are found for every client on every platform', () => {
    for (const platform of ['linux', 'darwin', 'win32'] as const) {
      const places = clientPlaces({ cwd: '/p', home: '/h', env: { APPDATA: '/h/roaming' }, platform });
      expect(new Set(places.map(({ client }) => client.id))).toEqual(new Set(ids));
      for (const { file, client } of places) expect(formatOf(file)?.id, file).toBe(client.id);
    }
    expect(
      clientPlaces({ cwd: '/p', home: '/h', env: { CODEX_HOME: '/c', XDG_CONFIG_HOME: '/x' }, platform: 'linux' }).map(
        ({ file }) => file,
      ),
    ).toEqual(expect.arrayContaining(['/c/config.toml', '/x/zed/settings.json', '/x/Code/User/mcp.json']));
  });

  it('are read in all spellings of keys and transports', () => {
    const entry = (id: ClientId, name: string) => read(id).entries.find((one) => one.name === name);
    expect(entry('gemini', 'events')).toMatchObject({ transport: 'sse', url: 'https://example.org/sse' });
    expect(entry('gemini', 'local')?.env).toEqual({ TOKEN: '${GEMINI_TOKEN}' });
    expect(entry('gemini', 'http')?.dropped).toEqual(['trust']);
    expect(entry('windsurf', 'remote')).toMatchObject({ transport: 'http', url: 'https://example.org/mcp' });
    expect(entry('codex', 'figma')?.headers).toEqual({
      Authorization: 'Bearer ${env:FIGMA_TOKEN}',
      'X-Figma-Region': 'us-east-1',
    });
    expect(entry('zed', 'older')).toMatchObject({ command: 'older-mcp', args: ['-v'] });
    expect(entry('zed', 'extension')?.unusable).toContain('neither command nor url');
    expect(entry('opencode', 'oc')).toMatchObject({
      transport: 'stdio',
      command: 'npx',
      args: ['-y', 'oc-mcp@3.0.0'],
      env: { OC_KEY: '${env:OC_KEY}' },
    });
    expect(entry('opencode', 'off')?.unusable).toBe('the file disables it');
    expect(entry('vscode', 'playwright')?.sandbox).toEqual({
      filesystem: { allowWrite: ['${workspaceFolder}/shots'], denyRead: ['.env'], denyWrite: ['shots/kept'] },
      network: { allowedDomains: ['example.org'], deniedDomains: ['private.example.org'] },
    });
    expect(entry('vscode', 'playwright')?.unread).toEqual(['sandbox.network.allowLocalBinding', 'sandbox.level']);
  });

  it('become references for the variables and headers that Codex names', () => {
    const { entries } = readAny(
      `[mcp_servers.a]
command = "x"
env_vars = ["A"]
[mcp_servers.b]
url = "https://x"
env_http_headers = { "X-K" = "K" }
`,
      '/x/config.toml',
    );
    expect(entries.map(({ env, headers }) => [env, headers])).toEqual([
      [{ A: '${env:A}' }, {}],
      [{}, { 'X-K': '${env:K}' }],
    ]);
  });

  it.each([
    ['a root that is the map itself', '{"a": {"command": "x"}, "b": {"url": "https://x"}}', ['a', 'b']],
    ['settings of VS Code', '{"mcp": {"servers": {"a": {"command": "x"}}}}', ['a']],
    ['a server that is called servers', '{"mcp": {"servers": {"command": "x"}}}', ['servers']],
    ['a root that is something else', '{"a": {"command": "x"}, "b": 1}', []],
  ])('%s', (_name, text, names) => {
    expect(readAny(text).entries.map(({ original }) => original)).toEqual(names);
  });

  it('give no servers under a key of another client', () => {
    expect(read('gemini').entries.map(({ original }) => original)).toEqual(['http', 'events', 'local']);
  });

  it('give the place of the table in TOML', () => {
    expect(read('codex').entries.map(({ place }) => place.line)).toEqual([4, 12]);
    expect(readAny('[mcp_servers\n', '/x/a.toml').warnings[0]).toMatchObject({
      line: 1,
      message: expect.stringContaining('not TOML') as string,
    });
  });
});

it('are documented: every client, its files, and whether it can connect to an address', () => {
  const rows = rowsOf(sectionOf('docs/connecting.md', '## Clients'));
  expect(rows.map(([title, id = '', , http]) => [title, codeIn(id)[0], http])).toEqual(
    CLIENTS.map(({ title, id, token }) => [title, id, token === undefined ? 'no' : 'yes']),
  );
  for (const { id, places } of CLIENTS) {
    const files = rows.find(([, name]) => codeIn(name ?? '')[0] === id)?.[2] ?? '';
    for (const [root, ...parts] of places) expect(files, `${id} ${root}`).toContain(parts.join('/'));
  }
});

describe('hostile files', () => {
  it('may use keys of prototypes as names, in both syntaxes', () => {
    for (const [text, file] of [
      ['{"mcpServers": {"__proto__": {"command": "x"}, "constructor": {"command": "y"}}}', '/x/a.json'],
      ['[mcp_servers.__proto__]\ncommand = "x"\n[mcp_servers.constructor]\ncommand = "y"\n', '/x/a.toml'],
    ] as const) {
      expect(readAny(text, file).entries.map(({ original, command }) => [original, command])).toEqual([
        ['__proto__', 'x'],
        ['constructor', 'y'],
      ]);
    }
    expect(({} as Record<string, unknown>).command).toBeUndefined();
  });

  inFull('with ten megabytes of servers are read once, in order, and only the first thousand servers', () => {
    const one = (index: number): string =>
      `"s${index}": {"command": "x", "alwaysAllow": true, "args": ["${'a'.repeat(100)}"]}`;
    const text = `{"mcpServers": {\n${Array.from({ length: 70_000 }, (_, index) => one(index)).join(',\n')}}}`;
    expect(text.length).toBeGreaterThan(10_000_000);
    const { entries, warnings } = readAny(text);
    expect([entries.length, entries[999]?.name]).toEqual([1000, 's999']);
    expect(warnings[0]?.message).toContain('70000 servers');
  });

  it.each([
    ['nesting without end', '{"mcpServers": '.repeat(50_000), '/x/a.json'],
    ['nesting in TOML', `a = ${'['.repeat(50_000)}`, '/x/a.toml'],
    ['a server that is a list', '{"mcpServers": {"a": [1]}}', '/x/a.json'],
    [
      'numbers for texts',
      `{"mcpServers": {"a": {
        "command": 1, "args": 2, "url": 3, "env": 4, "headers": 5, "env_vars": 6, "sandboxEnabled": true, "sandbox": 7
      }}}`,
      '/x/a.json',
    ],
  ])('%s leave no server to use', (_name, text, file) => {
    expect(readAny(text, file).entries.filter(({ unusable }) => unusable === undefined)).toEqual([]);
  });

  it('never make the reader throw', () => {
    fc.assert(
      fc.property(
        fc.oneof(fc.string(), fc.json()),
        fc.constantFrom('/x/a.json', '/x/a.toml', '/h/.gemini/settings.json'),
        (text, file) => {
          expect(() => readAny(text, file)).not.toThrow();
        },
      ),
    );
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        const { entries } = readAny(JSON.stringify({ mcpServers: { a: value } }));
        expect(entries.length).toBe(1);
      }),
    );
  });
});

describe('what is shown of a server', () => {
  it.each(ids)('%s: has names, never a value', (id) => {
    const shown = JSON.stringify(read(id).entries.map(showEntry));
    for (const value of VALUES) expect(shown).not.toContain(value);
  });

  it.each([
    [['npx', '-y', 'pkg@1.0.0', '--token', 'SECRET'], 'npx pkg@1.0.0 … (3 more)'],
    [['npx', '--token', 'SECRET', 'pkg'], 'npx … (3 more)'],
    [['node', 'server.js', 'SECRET'], 'node server.js … (1 more)'],
    [['node', '-e', 'SECRET'], 'node … (2 more)'],
    [['server', 'SECRET'], 'server … (1 more)'],
    [['server --token SECRET'], 'server'],
    [['server'], 'server'],
  ])('%j is %s', ([command = '', ...args], shown) => {
    expect(
      showEntry({
        original: 'a',
        name: 'a',
        place: { line: 1, column: 1 },
        path: [],
        transport: 'stdio',
        command,
        args,
        env: {},
        headers: {},
        dropped: [],
        unread: [],
      }).runs,
    ).toBe(shown);
  });

  it.each([
    [['npx', '-y', '@scope/pkg@1.0.0'], '@scope/pkg'],
    [['npx', '@scope/pkg'], '@scope/pkg'],
    [['uvx', 'pkg'], 'pkg'],
    [['node', 'server.js'], undefined],
  ])('%j fetches %s', ([command = '', ...args], name) => {
    expect(fetchedPackage({ command, args })).toBe(name);
  });

  it('has only the host of an address', () => {
    const [entry] = readAny(
      '{"a": {"url": "https://me:SECRET@x.example/SECRET?key=SECRET"}, "b": {"url": "SECRET"}}',
    ).entries.map(showEntry);
    expect(entry?.runs).toBe('x.example');
    expect(showEntry(readAny('{"b": {"url": "SECRET"}}').entries[0] ?? expect.fail()).runs).toBe('an address');
  });
});

it('findFiles finds the existing files, and leaves out Tollgate itself', () => {
  const home = new Home(ids);
  try {
    home.write(
      '.cursor/mcp.json',
      '{"mcpServers": {"tollgate": {"command": "tollgate", "args": ["run"]}, "http": {"url": "https://x"}}}',
    );
    home.write('project/.cursor/mcp.json', '{"mcpServers": {"tollgate": {"url": "http://127.0.0.1:7310/mcp"}}}');
    const found = findFiles({ cwd: home.project.folder, home: home.project.home, env: {}, platform: 'linux' });
    expect(new Set(found.map(({ client }) => client?.id))).toEqual(new Set(ids));
    expect(
      found
        .filter(({ client }) => client === clientOf('cursor'))
        .map(({ shown, servers }) => [shown, servers.map(({ name }) => name)]),
    ).toEqual([
      ['.cursor/mcp.json', []],
      ['~/.cursor/mcp.json', ['http']],
    ]);
  } finally {
    home.remove();
  }
});
