/** Tests `search`: the known servers, and registries that this file starts on loopback, hostile ones among them. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { loadKnown } from '../../catalogs/servers/known-server.ts';
import { EXIT } from '../../facade/cli/command-io.ts';
import { type Answer, cli, dataOf } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { verifies } from '../verifies.ts';

interface Data {
  readonly known: readonly { readonly name: string; readonly pinned: boolean; readonly connect: string }[];
  readonly registries: readonly {
    readonly servers: readonly {
      readonly name: string;
      readonly pinned: boolean;
      readonly needs: readonly string[];
      readonly deprecated: boolean;
      readonly connect?: string;
    }[];
    readonly more: boolean;
    readonly error?: { readonly code: string; readonly message: string };
  }[];
  readonly didYouMean?: string;
}

type Answering = (request: IncomingMessage, response: ServerResponse) => void;

let project: Project;
const servers: Server[] = [];

beforeEach(() => {
  project = new Project();
});
afterEach(() => {
  for (const server of servers.splice(0)) server.close().closeAllConnections();
  project.remove();
});

/** Starts a registry. Returns its address. */
async function registry(answer: Answering): Promise<string> {
  const server = createServer(answer);
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const sending =
  (body: unknown): Answering =>
  (_request, response) =>
    void response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(body));

const entry = (server: Readonly<Record<string, unknown>>, status = 'active'): unknown => ({
  server: { description: 'Notes of a team', version: '1.2.3', ...server },
  _meta: { 'io.modelcontextprotocol.registry/official': { status } },
});

const configure = (...addresses: readonly string[]): void =>
  void project.write('tollgate.yaml', `version: 1\nregistries: ${JSON.stringify(addresses)}\n`);
const search = (...words: string[]): Promise<Answer> => cli(project, ['search', ...words]);
const found = async (...words: string[]): Promise<Data> => dataOf<Data>((await search(...words, '--json')).out);
const names = async (...words: string[]): Promise<readonly string[]> =>
  (await found(...words)).known.map(({ name }) => name);

describe('a search among the known servers' + verifies('FH-22'), () => {
  it.each([
    ['name, first', ['postgres'], 'postgres'],
    ['title', ['Google', 'Maps'], 'google-maps'],
    ['description', ['debugging', 'traces'], 'chrome-devtools'],
    ['tool', ['browser_navigate'], 'playwright'],
  ])('finds one by its %s', async (_part, words, name) => {
    expect((await names(...words))[0]).toBe(name);
  });

  it('prefers servers that match every word, and finds servers for one of them otherwise', async () => {
    expect(await names('google', 'drive')).toContain('google-drive');
    expect(await names('google', 'drive')).not.toContain('google-maps');
    expect(await names('drive', 'xyzzyx')).toContain('google-drive');
  });

  it('says what is pinned, and how to connect it, without a configuration', async () => {
    const { code, out, err } = await search('postgres');
    const version = loadKnown('postgres').package?.version ?? '';
    expect([code, out]).toEqual([EXIT.ok, expect.stringMatching(new RegExp(`postgres +${version} `)) as string]);
    expect(err).toMatch(/known servers?\. To connect one: tollgate connect NAME/);
    const { known } = await found('atlassian');
    expect(known[0]).toMatchObject({ name: 'atlassian', pinned: false, connect: 'tollgate connect atlassian' });
    for (const line of out.split('\n')) expect([...line].length).toBeLessThanOrEqual(100);
  });

  it('names the word that was meant, and refuses searches without a word or with too many', async () => {
    expect((await search('postgrs')).err).toContain('Did you mean "postgres"?');
    expect((await found('slakc')).didYouMean).toBe('slack');
    expect((await search('qqqqqqqqqqq')).err).toContain('Run `tollgate known`');
    for (const words of [[' '], ['a', 'b', 'c', 'd', 'e', 'f'], ['x'.repeat(61)]])
      expect((await search(...words)).code).toBe(EXIT.usage);
  });
});

describe('a search in a registry' + verifies('FH-23'), () => {
  it('asks for the latest versions of each word, and shows what each server can be connected with', async () => {
    const asked: string[] = [];
    const address = await registry((request, response) => {
      asked.push(request.url ?? '');
      sending({
        servers: [
          entry({
            name: 'io.example/notes',
            packages: [
              {
                registryType: 'npm',
                identifier: '@example/notes',
                version: '1.2.3',
                environmentVariables: [{ name: 'NOTES_KEY', isRequired: true }, { name: 'NOTES_COLOR' }],
              },
            ],
          }),
          entry({
            name: 'io.example/notes-py',
            packages: [{ registryType: 'pypi', identifier: 'notes-py', version: '2.0.0' }],
          }),
          entry({
            name: 'io.example/notes-image',
            packages: [{ registryType: 'oci', identifier: 'ghcr.io/example/notes:3.1' }],
          }),
          entry({
            name: 'io.example/notes-remote',
            remotes: [{ type: 'streamable-http', url: 'https://notes.example/mcp' }],
          }),
          entry({ name: 'io.example/notes-old', packages: [{ registryType: 'mcpb', identifier: 'x' }] }, 'deprecated'),
          entry({ name: 'io.example/notes-gone' }, 'deleted'),
          entry({
            name: 'io.github.brave/notes',
            packages: [{ registryType: 'npm', identifier: '@brave/brave-search-mcp-server', version: '9.9.9' }],
          }),
        ],
        metadata: { nextCursor: 'more', count: 7 },
      })(request, response);
    });
    configure(`${address}/registry/`);
    const { registries } = await found('notes', 'team');
    expect(asked.sort()).toEqual([
      '/registry/v0.1/servers?search=notes&version=latest&limit=100',
      '/registry/v0.1/servers?search=team&version=latest&limit=100',
    ]);
    const [answer] = registries;
    expect(answer?.more).toBe(true);
    expect(answer?.servers.map(({ name, connect }) => [name, connect])).toEqual([
      ['io.example/notes', 'tollgate connect npm:@example/notes@1.2.3'],
      ['io.example/notes-py', 'tollgate connect pypi:notes-py@2.0.0'],
      ['io.example/notes-image', 'tollgate connect oci:ghcr.io/example/notes:3.1'],
      ['io.example/notes-remote', 'tollgate connect https://notes.example/mcp'],
      ['io.example/notes-old', undefined],
      // A known server is connected as such, with the version that was verified.
      ['io.github.brave/notes', 'tollgate connect brave-search'],
    ]);
    expect(answer?.servers[0]).toMatchObject({ pinned: false, needs: ['NOTES_KEY'], deprecated: false });
    const { code, out, err } = await search('notes');
    expect(code).toBe(EXIT.ok);
    expect(out).toContain(`io.example/notes 1.2.3
  Notes of a team
  tollgate connect npm:@example/notes@1.2.3
  needs NOTES_KEY
`);
    expect(out).toContain('io.example/notes-old 1.2.3 (deprecated)\n  Notes of a team\n  cannot be connected\n');
    expect(err).toContain('it has more, so search for a longer word. No one has verified them.');
  });

  it('warns with the code if a registry fails, shows the other results, and ends with exit code 5', async () => {
    const refusing = await registry((_request, response) => void response.writeHead(503).end());
    const web = await registry((_request, response) => void response.end('<html>'));
    const good = await registry(sending({ servers: [entry({ name: 'io.example/postgres-notes' })], metadata: {} }));
    configure(refusing, web, good, 'http://127.0.0.1:1');
    const { code, out, err } = await search('postgres');
    expect([code, out]).toEqual([EXIT.server, expect.stringContaining('io.example/postgres-notes') as string]);
    expect(out).toContain('postgres ');
    expect(err).toMatch(/Warning: SERVER_UNAVAILABLE: .* was not searched, because it answered with status 503\./);
    expect(err).toContain('its answer is not that of an MCP registry');
    expect(err).toContain('(ECONNREFUSED)');
    const { registries } = await found('postgres');
    expect(registries.map(({ error }) => error?.code)).toEqual([
      'SERVER_UNAVAILABLE',
      'SERVER_UNAVAILABLE',
      undefined,
      'SERVER_UNAVAILABLE',
    ]);
  });

  it('refuses addresses in the configuration that others can read or change', () => {
    for (const address of [
      'http://registry.example',
      'https://me:word@registry.example',
      'https://registry.example?a=1',
    ])
      expect(() => project.config(`version: 1\nregistries: ["${address}"]\n`)).toThrow(/registries\[0\]|not an https/);
    expect(project.config('version: 1\nregistries: ["https://registry.example/mcp"]\n').registries).toEqual([
      'https://registry.example/mcp',
    ]);
  });
});

describe('attack, a hostile registry' + verifies('FH-24'), () => {
  it('cannot send control characters to the terminal, or a name or command of another form', async () => {
    const nasty = '\u001b]0;owned\u0007\u202eevil\nFAKE  connect evil';
    configure(
      await registry(
        sending({
          servers: [
            entry({ name: `io.example/notes${nasty}` }),
            entry({ name: 'io.example/notes', title: nasty, description: nasty, version: nasty }),
            entry({
              name: 'io.example/notes-a',
              packages: [
                { registryType: 'npm', identifier: 'x; rm -rf ~', version: '1.0.0' },
                { registryType: 'npm', identifier: '--undo' },
                { registryType: 'npm', identifier: 'x', registryBaseUrl: 'https://evil.example' },
                { registryType: 'oci', identifier: '$(id)' },
              ],
              remotes: [
                { type: 'streamable-http', url: 'http://evil.example/mcp' },
                { type: 'streamable-http', url: 'https://evil.example/$(id)' },
                { type: 'streamable-http', url: 'https://{tenant}.example/mcp' },
                { type: 'streamable-http', url: 'https://a@evil.example/mcp' },
              ],
            }),
            null,
            7,
            { server: [] },
          ],
        }),
      ),
    );
    const { registries } = await found('notes');
    expect(registries[0]?.servers.map(({ name, connect }) => [name, connect])).toEqual([
      ['io.example/notes', undefined],
      ['io.example/notes-a', undefined],
    ]);
    for (const { out, err } of [await search('notes'), await search('notes', '--json')]) {
      expect(out + err).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202a-\u202e]/);
      expect(out + err).not.toMatch(/^FAKE/m);
    }
  });

  it('cannot fill the memory or the screen: large answers, many entries, endless cursors', async () => {
    let requests = 0;
    const endless = await registry((request, response) => {
      requests += 1;
      const many = Array.from({ length: 500 }, (_, index) => entry({ name: `io.example/notes-${index}` }));
      sending({ servers: many, metadata: { nextCursor: String(requests) } })(request, response);
    });
    const huge = await registry((_request, response) => {
      response.writeHead(200);
      const write = (): void => {
        if (!response.destroyed && response.write('x'.repeat(65_536))) setImmediate(write);
        else response.once('drain', write);
      };
      write();
    });
    configure(endless, huge);
    const { registries } = await found('notes');
    expect(requests).toBe(1);
    expect([registries[0]?.servers.length, registries[0]?.more]).toEqual([20, true]);
    expect(registries[1]?.error).toMatchObject({
      code: 'UPSTREAM_TOO_LARGE',
      message: expect.stringContaining('larger than 2 MiB') as string,
    });
  });

  it('cannot redirect to another host or port, such as an address of this network', async () => {
    const inner: string[] = [];
    const target = await registry((request, response) => {
      inner.push(request.url ?? '');
      response.end();
    });
    configure(await registry((_request, response) => void response.writeHead(302, { location: `${target}/x` }).end()));
    const { registries } = await found('notes');
    expect([registries[0]?.error?.code, inner]).toEqual(['SERVER_UNAVAILABLE', []]);
    expect(registries[0]?.error?.message).toContain('redirects to another address');
  });
});
