/** Tests `connect` and `known` at a terminal and from a script. A step that fails leaves nothing behind. */

import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { PassThrough } from 'node:stream';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { loadKnown } from '../../catalogs/servers/known-server.ts';
import { EXIT } from '../../facade/cli/command-io.ts';
import { type Answer, dataOf, start } from '../cli/terminal.ts';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';
import { filesIn, holders, Place } from './place.ts';

const TOKEN = 'ntn_value-that-no-one-may-see-1234567890';
const PROGRAM = readFileSync(path.join(import.meta.dirname, '..', 'fixtures', 'token-server.cjs'), 'utf8');
const GIVEN = ['--credential', 'NOTION_TOKEN=env:THE_TOKEN'];

const REFUSED = parse(readFileSync(path.join(import.meta.dirname, 'refused-arguments.yaml'), 'utf8')) as readonly {
  readonly arguments: readonly string[];
  readonly says: string;
}[];

interface Data {
  readonly written: boolean;
  readonly installed: boolean;
  readonly stored: readonly string[];
  readonly approved: boolean;
  readonly data: {
    readonly start: { readonly hash: string };
    readonly tools?: { readonly hash: string };
    readonly next: string;
  };
  readonly reach: { readonly runs: readonly string[]; readonly asks: readonly string[] };
}

let place: Place;

beforeEach(() => {
  place = new Place();
  // The package.json of a real package says that it has ES modules. The fake package has none.
  place.fakeNpm(loadKnown('notion'), {
    program: `import { createRequire } from 'node:module';
const require = createRequire(import.meta.url);
${PROGRAM}`,
  });
});
afterEach(() => place.project.remove());

const connect = (...words: string[]): Promise<Answer> =>
  place.run(['connect', ...words], { env: { ...place.env, THE_TOKEN: TOKEN } });
const json = async (...words: string[]): Promise<Data> => dataOf<Data>((await connect(...words, '--json')).out);

/** Connects as a script does: takes each hash from the output before. */
async function connectFully(...words: string[]): Promise<Data> {
  const first = await json(...words, '--yes');
  const second = await json(...words, '--yes', '--approve', first.data.start.hash);
  return json(...words, '--yes', '--approve', first.data.start.hash, second.data.tools?.hash ?? '');
}

/** Returns all files of the project, without the state. */
const project = (): unknown => [...filesIn(place.project.folder)].sort();

describe('connecting a known server' + verifies('PF-11', 'HA-29'), () => {
  it('shows everything that it will do before it does anything', async () => {
    const before = project();
    const { code, err } = await connect('notion', '--dry-run');
    expect(code).toBe(EXIT.ok);
    expect(err).toContain(
      'installs @notionhq/notion-mcp-server 2.5.2 into the state folder, without running its scripts',
    );
    expect(err).toContain('stores NOTION_TOKEN in the vault as notion.NOTION_TOKEN');
    expect(err).toContain('reaches api.notion.com');
    expect(err).toContain('+ args:\n    +   - ${stateFolder}/packages/notion/2.5.2/');
    expect(err).toContain('Nothing was done.');
    expect([project(), existsSync(place.calls), existsSync(path.join(place.state, 'vault.json'))]).toEqual([
      before,
      false,
      false,
    ]);
  });

  inFull('installs, approves and lists a tool for an agent, without a terminal', async () => {
    const done = await connectFully('notion', ...GIVEN);
    expect(done).toMatchObject({
      approved: true,
      installed: false,
      stored: ['notion.NOTION_TOKEN'],
      reach: { runs: ['API-get-self'], asks: ['API-post-page'] },
    });
    const { out } = await place.run(['tools', '--json']);
    expect(
      dataOf<{ tools: { server: string; tool: string }[] }>(out)
        .tools.filter(({ server }) => server === 'notion')
        .map(({ tool }) => tool),
    ).toEqual(['API-get-self', 'API-post-page']);
  });

  inFull('makes one harmless call with --test, and shows its answer' + verifies('PF-18', 'FH-56'), async () => {
    await connectFully('notion', ...GIVEN);
    const { data } = await json('notion', '--yes');
    const hashes = [data.start.hash, data.tools?.hash ?? ''];
    const { code, err, out } = await connect('notion', '--yes', '--test', '--approve', ...hashes);
    expect([code, err]).toEqual([EXIT.ok, expect.stringMatching(/notion_API-get-self answered:\n {4}token of 40: /)]);
    expect(err + out).not.toContain(TOKEN);
    const { out: log } = await place.run(['audit', 'export']);
    expect(log).toMatch(/"type":"outcome".*"API-get-self"|"API-get-self".*"type":"outcome"/);
    const again = await connect('notion', '--yes', '--test', '--json', '--approve', ...hashes);
    expect(dataOf(again.out)).toMatchObject({ test: { tool: 'notion_API-get-self', arguments: {}, ok: true } });
    expect((await connect('notion', '--yes', '--approve', ...hashes)).err).not.toContain('answered');
  });

  it('attack, a linked folder: does not write through a link that a cloned project contains', async () => {
    const elsewhere = path.join(place.project.root, 'elsewhere');
    mkdirSync(elsewhere);
    symlinkSync(elsewhere, path.join(place.project.folder, 'servers'));
    const { code, err } = await connect('notion', '--yes', ...GIVEN);
    expect([code, err]).toEqual([EXIT.usage, expect.stringContaining('The folder servers is a link')]);
    expect(readdirSync(elsewhere)).toEqual([]);
  });

  it('exits with 7, starts nothing and prints how to continue if no one has approved', async () => {
    const { code, err } = await connect('notion', '--yes', ...GIVEN);
    expect(code).toBe(EXIT.approval);
    expect(err).toContain('The key of the vault is ');
    expect(err).toContain(
      `notion is installed and configured, and starts nothing until it is approved.
  continue: tollgate approve notion
  undo:     tollgate connect --undo notion
`,
    );
    const { data } = await json('notion', '--yes');
    expect(data.next).toBe(`tollgate approve notion --yes ${data.start.hash}`);
  });

  it('asks for the credential without an echo, and prints where to get it', async () => {
    const stdin = Object.assign(new PassThrough(), { isTTY: true, setRawMode: () => undefined });
    const running = start(place.project, ['connect', 'notion', '--yes'], { env: place.env, stdin });
    await expect.poll(() => running.said.err).toContain('Value (not shown): ');
    expect(running.said.err).toContain(
      'Integration secret (NOTION_TOKEN). Where to get it: https://www.notion.so/profile/integrations',
    );
    stdin.write(`${TOKEN}\n`);
    const { code, out, err } = await running.ended;
    expect([code, out + err]).toEqual([EXIT.approval, expect.not.stringContaining(TOKEN)]);
  });

  it.each([
    ['the end of the input', '\u0004'],
    ['a signal', undefined],
  ])('ends as cancelled at %s, and changes nothing', async (_name, typed) => {
    const before = project();
    const stdin = Object.assign(new PassThrough(), { isTTY: true, setRawMode: () => undefined });
    const running = start(place.project, ['connect', 'notion', ...GIVEN], {
      env: { ...place.env, THE_TOKEN: TOKEN },
      stdin,
    });
    await expect.poll(() => running.said.err).toContain('Do this? [y/N] ');
    if (typed === undefined) running.stop();
    else stdin.write(typed);
    const { code, err } = await running.ended;
    expect([code, err]).toEqual([
      EXIT.unexpected,
      expect.stringMatching(
        /Do this\? \[y\/N\] \nCANCELLED: You cancelled the prompt, so nothing was done\.\nRun it again\.\n$/,
      ),
    ]);
    expect([project(), existsSync(path.join(place.state, 'packages'))]).toEqual([before, false]);
  });

  it('uses the name and the profile that the user gives', async () => {
    await connect('notion', '--yes', '--name', 'team-notes', '--profile', 'harbor', ...GIVEN);
    const text = readFileSync(path.join(place.project.folder, 'servers', 'team-notes.yaml'), 'utf8');
    expect(text).toContain('NOTION_TOKEN: ${secret:team-notes.NOTION_TOKEN}');
    expect(text).toContain('profiles:\n  - harbor');
  });
});

describe('a credential for connect' + verifies('PF-11'), () => {
  it('appears in no file, output, record or argument', async () => {
    const answers = [await connect('notion', '--yes', ...GIVEN)];
    const { data } = await json('notion', '--yes');
    answers.push(
      await connect('notion', '--yes', '--approve', data.start.hash),
      await connect('--undo', 'notion', '--json'),
    );
    expect(answers.map(({ out, err }) => out + err).join('')).not.toContain(TOKEN);
    expect(holders(place.project.root, TOKEN)).toEqual([]);
    expect(readFileSync(place.calls, 'utf8')).not.toContain(TOKEN);
  });

  it.each([
    ['a value on the command line', `NOTION_TOKEN=${TOKEN}`, /not given as NAME=env:VARIABLE or NAME=@FILE/],
    ['a value without a name', TOKEN, /not given as NAME=env:VARIABLE/],
    ['a variable that is not set', 'NOTION_TOKEN=env:NO_SUCH', /variable NO_SUCH for NOTION_TOKEN is not set/],
    ['a missing file', 'NOTION_TOKEN=@none', /file for NOTION_TOKEN cannot be read: there is no such file/],
    ['a credential that it does not use', 'OTHER=env:THE_TOKEN', /notion takes no credential OTHER/],
  ])('is refused and not shown if it is given as %s', async (_name, text, words) => {
    const { code, err } = await connect('notion', '--yes', '--credential', text);
    expect([code, err]).toEqual([EXIT.usage, expect.stringMatching(words)]);
    expect(err).not.toContain(TOKEN);
    expect(existsSync(path.join(place.project.folder, 'servers'))).toBe(false);
  });

  it('is read from a file, and refused if it is too short or has two lines', async () => {
    place.project.write('token', `${TOKEN}\n`);
    place.project.write('short', 'abc');
    place.project.write('lines', 'abcdefgh\nsecond');
    for (const file of ['short', 'lines'])
      expect((await connect('notion', '--yes', '--credential', `NOTION_TOKEN=@${file}`)).code).toBe(EXIT.usage);
    expect((await json('notion', '--yes', '--credential', 'NOTION_TOKEN=@token')).stored).toEqual([
      'notion.NOTION_TOKEN',
    ]);
    place.project.write('other', 'a-key-of-another-form');
    expect((await connect('notion', '--yes', '--credential', 'NOTION_TOKEN=@other')).err).toContain(
      'NOTION_TOKEN does not have the form of a credential of Notion',
    );
  });

  it('is named with the page that issues it if it is missing and there is no terminal', async () => {
    const { code, err } = await connect('notion', '--yes');
    expect([code, err]).toEqual([
      EXIT.usage,
      expect.stringContaining(
        'Create it at https://www.notion.so/profile/integrations and give it with ' +
          '--credential NOTION_TOKEN=env:VARIABLE',
      ),
    ]);
  });
});

describe('connect --undo' + verifies('PF-11'), () => {
  inFull('restores the project byte for byte, and leaves no secret, consent or package', async () => {
    const before = project();
    await connectFully('notion', ...GIVEN);
    const { code, err } = await connect('--undo', 'notion');
    expect([code, err]).toEqual([
      EXIT.ok,
      expect.stringContaining('Undone: notion is no longer connected. Deleted: notion.NOTION_TOKEN'),
    ]);
    expect(project()).toEqual(before);
    expect(existsSync(path.join(place.project.folder, 'servers'))).toBe(false);
    expect(existsSync(path.join(place.state, 'packages'))).toBe(false);
    expect((await place.run(['secret', 'list', '--json'])).out).toBe('[]\n');
    // The approval is gone: a new connection needs a new one.
    expect((await json('notion', '--yes', ...GIVEN)).approved).toBe(false);
  });

  it('keeps a secret that existed before, and other files in the folder', async () => {
    const stdin = new PassThrough();
    stdin.end(TOKEN);
    await place.run(['secret', 'set', 'notion.NOTION_TOKEN'], { stdin });
    place.project.write('servers/mine.yaml', 'command: node\n');
    expect(await json('notion', '--yes')).toMatchObject({ stored: [] });
    await connect('--undo', 'notion');
    expect((await place.run(['secret', 'list', '--json'])).out).toContain('notion.NOTION_TOKEN');
    expect([...filesIn(path.join(place.project.folder, 'servers')).values()]).toEqual(['command: node\n']);
  });

  it('refuses to remove a file that was edited since, and says so', async () => {
    await connect('notion', '--yes', ...GIVEN);
    const file = path.join(place.project.folder, 'servers', 'notion.yaml');
    writeFileSync(file, `${readFileSync(file, 'utf8')}lifetime: ephemeral\n`);
    const { code, err } = await connect('--undo', 'notion');
    expect([code, err]).toEqual([
      EXIT.usage,
      expect.stringContaining('servers/notion.yaml was edited after connect wrote it'),
    ]);
    rmSync(file);
    expect((await connect('--undo', 'notion')).code).toBe(EXIT.ok);
  });

  it('refuses a server that is not connected, and a path', async () => {
    expect((await connect('--undo', 'notion')).code).toBe(EXIT.usage);
    expect((await connect('--undo', '../../etc')).code).toBe(EXIT.usage);
  });
});

describe('connect, run again or interrupted,' + verifies('PF-11'), () => {
  it('changes nothing if everything is done', async () => {
    await connect('notion', '--yes', ...GIVEN);
    const before = project();
    expect(await json('notion', '--yes')).toMatchObject({ installed: false, stored: [], written: false });
    expect(project()).toEqual(before);
  });

  it('keeps the edits of a person', async () => {
    await connect('notion', '--yes', ...GIVEN);
    const file = path.join(place.project.folder, 'servers', 'notion.yaml');
    const edited = `${readFileSync(file, 'utf8')}lifetime: ephemeral\n`;
    writeFileSync(file, edited);
    expect((await json('notion', '--yes')).written).toBe(false);
    expect(readFileSync(file, 'utf8')).toBe(edited);
  });

  it('leaves nothing after an installation that fails', async () => {
    place.npm('exit 1');
    const before = project();
    const { code, err } = await connect('notion', '--yes', ...GIVEN);
    expect([code, err]).toEqual([EXIT.unexpected, expect.stringContaining('INSTALL_FAILED')]);
    expect([
      project(),
      existsSync(path.join(place.state, 'vault.json')),
      existsSync(path.join(place.state, 'connected')),
    ]).toEqual([before, false, false]);
  });

  it('tells that the probe gets secrets and network, for a server that lists only with them', async () => {
    expect((await connect('dynatrace', '--set', 'url=https://abc12345.apps.dynatrace.com', '--dry-run')).err).toContain(
      'note: It lists its tools only with its secrets and its network',
    );
  });

  it('undoes its changes if the vault fails in the middle', async () => {
    const before = project();
    const known = loadKnown('notion');
    // The installation is the last step before the vault is written.
    place.fakeNpm(known, { program: '' });
    writeFileSync(
      path.join(place.bin, 'npm'),
      readFileSync(path.join(place.bin, 'npm'), 'utf8').concat(
        `\nmkdir -p '${place.state}'; mkdir '${path.join(place.state, 'vault.lock')}'\n`,
      ),
    );
    const { code, err } = await connect('notion', '--yes', ...GIVEN);
    expect([code, err]).toEqual([EXIT.unexpected, expect.stringMatching(/STATE_FAILED|VAULT_FAILED|INTERNAL/)]);
    expect([project(), existsSync(path.join(place.state, 'connected', 'notion.json'))]).toEqual([before, false]);
  });

  it('undoes its changes if the configuration does not load', async () => {
    place.project.write(
      'tollgate.yaml',
      `${readFileSync(place.file, 'utf8')}limits: {servers: 1}\nservers: {one: {command: node}}\n`,
    );
    const before = project();
    const { code, err } = await connect('notion', '--yes', ...GIVEN);
    expect([code, err]).toEqual([EXIT.usage, expect.stringContaining('2 servers, and 1 are allowed')]);
    expect(project()).toEqual(before);
    expect((await place.run(['secret', 'list', '--json'])).out).toBe('[]\n');
  });

  it.each([
    ['before the secret is stored', { secret: false, file: false }],
    ['before the file is written', { secret: true, file: false }],
    ['before it was approved', { secret: true, file: true }],
  ])('continues after it was killed %s, and can be undone', async (_name, left) => {
    const before = project();
    await connect('notion', '--yes', ...GIVEN);
    if (!left.file) rmSync(path.join(place.project.folder, 'servers'), { recursive: true });
    if (!left.secret) await place.run(['secret', 'rm', 'notion.NOTION_TOKEN']);
    const again = await json('notion', '--yes', ...(left.secret ? [] : GIVEN));
    expect(again).toMatchObject({
      installed: false,
      written: !left.file,
      stored: left.secret ? [] : ['notion.NOTION_TOKEN'],
    });
    await connect('--undo', 'notion');
    expect(project()).toEqual(before);
    expect((await place.run(['secret', 'list', '--json'])).out).toBe('[]\n');
  });

  it('completes an undo that was interrupted', async () => {
    const before = project();
    await connect('notion', '--yes', ...GIVEN);
    rmSync(path.join(place.project.folder, 'servers', 'notion.yaml'));
    expect((await connect('--undo', 'notion')).code).toBe(EXIT.ok);
    expect(project()).toEqual(before);
  });

  it.each([
    [
      'a server of tollgate.yaml',
      (): void =>
        void place.project.write(
          'tollgate.yaml',
          `${readFileSync(place.file, 'utf8')}servers: {notion: {command: node}}\n`,
        ),
      /There is a server notion already, in tollgate\.yaml/,
    ],
    [
      'a file that connect did not write',
      (): void => void place.project.write('servers/notion.yaml', 'command: node\n'),
      /exists, and connect did not write it/,
    ],
  ])('refuses a name that belongs to %s', async (_name, prepare, words) => {
    prepare();
    expect(await connect('notion', '--yes', ...GIVEN)).toMatchObject({
      code: EXIT.usage,
      err: expect.stringMatching(words) as string,
    });
  });

  it('adopts the same file from a cloned project', async () => {
    await connect('notion', '--yes', ...GIVEN);
    rmSync(place.state, { recursive: true });
    mkdirSync(place.state);
    expect(await json('notion', '--yes', ...GIVEN)).toMatchObject({ installed: true, written: false });
  });
});

describe('connect refuses', () => {
  it('users who are not owners', async () => {
    place.project.write(
      'tollgate.yaml',
      `${readFileSync(place.file, 'utf8')}principals: [{id: somebody, stdio: true}]\n`,
    );
    expect((await connect('notion', '--yes', ...GIVEN)).code).toBe(EXIT.auth);
    expect((await connect('--undo', 'notion')).code).toBe(EXIT.auth);
  });

  it('to continue if there is no terminal to ask for a yes', async () => {
    expect(await connect('notion', ...GIVEN)).toMatchObject({
      code: EXIT.usage,
      err: expect.stringContaining('There is no terminal to ask at') as string,
    });
  });

  it.each(REFUSED)('the arguments $arguments', async ({ arguments: words, says }) => {
    const { code, err } = await connect(...words, '--yes');
    expect([code, err]).toEqual([EXIT.usage, expect.stringMatching(says)]);
    expect(err).not.toMatch(/:pw@|user:pw/);
  });
});

describe('connecting a service without its own MCP server' + verifies('PF-12'), () => {
  let service: Server;
  let address: string;

  beforeEach(async () => {
    service = createServer((request, response) => {
      const chunks: Buffer[] = [];
      request
        .on('data', (chunk: Buffer) => chunks.push(chunk))
        .on('end', () => {
          const isHello = Buffer.concat(chunks).includes('"initialize"');
          if (request.url === '/mcp' && isHello)
            return response.writeHead(200, { 'content-type': 'application/json' }).end(
              JSON.stringify({
                jsonrpc: '2.0',
                id: 1,
                result: { protocolVersion: '2025-06-18', capabilities: {}, serverInfo: { name: 'x', version: '1' } },
              }),
            );
          return response
            .writeHead(200, { 'content-type': 'application/json' })
            .end(JSON.stringify({ sent: request.headers['x-api-key'] ?? null }));
        });
    });
    await new Promise<void>((resolve) => service.listen(0, '127.0.0.1', resolve));
    address = `http://127.0.0.1:${(service.address() as AddressInfo).port}`;
  });
  afterEach(() => {
    service.closeAllConnections();
    service.close();
  });

  it('refuses a private address until the user writes it', async () => {
    const { code, err } = await connect(address, '--yes');
    expect([code, err]).toEqual([EXIT.usage, expect.stringContaining('If this is correct, add --address 127.0.0.1.')]);
  });

  inFull('reaches only the service, through the fetch server, with the credential from the vault', async () => {
    const words = [
      address,
      '--name',
      'tracker',
      '--address',
      '127.0.0.1',
      '--header',
      'X-Api-Key',
      '--credential',
      'X-Api-Key=env:THE_TOKEN',
    ];
    expect(await connectFully(...words)).toMatchObject({ approved: true, reach: { runs: [], asks: ['fetch'] } });
    const { allowedDomains } = parse(readFileSync(path.join(place.project.folder, 'servers', 'tracker.yaml'), 'utf8'))
      .sandbox.network as { allowedDomains: string[] };
    expect(allowedDomains).toEqual([new URL(address).host]);
    expect(holders(place.project.root, TOKEN)).toEqual([]);
    const decisions = await Promise.all(
      [{ path: '/' }, { path: '/', method: 'POST' }].map(
        async (args) => (await place.run(['try', 'tracker_fetch', JSON.stringify(args)])).code,
      ),
    );
    expect(decisions).toEqual([EXIT.ok, EXIT.approval]);
  });

  it('connects an address that answers as an MCP server as one', async () => {
    const { err } = await connect(`${address}/mcp`, '--name', 'remote', '--address', '127.0.0.1', '--yes');
    expect(err).toContain('answers as an MCP server, so it is connected as one.');
    expect(readFileSync(path.join(place.project.folder, 'servers', 'remote.yaml'), 'utf8')).toContain(
      `url: ${address}/mcp`,
    );
  });

  it('connects a service that does not answer, and says so', async () => {
    const { err } = await connect('http://127.0.0.1:1', '--name', 'silent', '--address', '127.0.0.1', '--dry-run');
    expect(err).toContain('note: It did not answer just now: The service cannot be reached (ECONNREFUSED).');
  });
});

describe('connecting a server that needs a sign-in', () => {
  it('configures it, and prints the next command', async () => {
    const { code, err } = await connect('linear', '--yes');
    expect([code, err]).toEqual([
      EXIT.approval,
      expect.stringContaining('  continue: tollgate approve linear --with-secrets\n'),
    ]);
    expect((await json('linear', '--yes')).approved).toBe(false);
  });
});

describe('tollgate known' + verifies('PF-10'), () => {
  it('lists all known servers, and shows one completely', async () => {
    const { out } = await place.run(['known']);
    expect(out).toMatch(/^notion +credential +Pages/m);
    expect(out).toMatch(/^memory +nothing/m);
    expect(out).toMatch(/^linear +sign-in/m);
    expect((await place.run(['known', 'jira'])).out).toContain('choose        --set site=…: Name of the site');
    expect((await place.run(['known', 'memory'])).out).toContain('reaches       nothing: it has no network');
    expect((await place.run(['known', 'github'])).out).toContain('it was not tried for this catalog');
    expect((await place.run(['known', 'linear'])).out).toContain('tollgate login linear, in a browser');
    expect(dataOf<{ name: string }>((await place.run(['known', 'notion', '--json'])).out)).toEqual(loadKnown('notion'));
    expect(dataOf<{ servers: unknown[] }>((await place.run(['known', '--json'])).out).servers.length).toBeGreaterThan(
      25,
    );
    expect((await place.run(['known', 'none'])).code).toBe(EXIT.usage);
  });
});
