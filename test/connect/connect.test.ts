/** Tests `connect` and `known` as a person and a script use them: plan, credential, package, file, consents, summary, undo; and that no step leaves half of itself. */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { PassThrough } from 'node:stream';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { loadKnown } from '../../catalogs/servers/known-server.ts';
import { EXIT } from '../../facade/cli/command-io.ts';
import { type Answer, dataOf, start } from '../cli/terminal.ts';
import { verifies } from '../verifies.ts';
import { filesIn, holders, Place } from './place.ts';

const TOKEN = 'ntn_value-that-nobody-may-see-1234567890';
const PROGRAM = readFileSync(path.join(import.meta.dirname, '..', 'fixtures', 'token-server.cjs'), 'utf8');
const GIVEN = ['--credential', 'NOTION_TOKEN=env:THE_TOKEN'];

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
  // A package of ES modules names its kind; this stand-in has none.
  place.fakeNpm(loadKnown('notion'), {
    program: `import { createRequire } from 'node:module';\nconst require = createRequire(import.meta.url);\n${PROGRAM}`,
  });
});
afterEach(() => place.project.remove());

const connect = (...words: string[]): Promise<Answer> =>
  place.run(['connect', ...words], { env: { ...place.env, THE_TOKEN: TOKEN } });
const json = async (...words: string[]): Promise<Data> => dataOf<Data>((await connect(...words, '--json')).out);

/** As a script does it: each hash is taken from what was shown. */
async function throughout(...words: string[]): Promise<Data> {
  const first = await json(...words, '--yes');
  const second = await json(...words, '--yes', '--approve', first.data.start.hash);
  return json(...words, '--yes', '--approve', first.data.start.hash, second.data.tools?.hash ?? '');
}

/** All that is in a project, the state aside. */
const project = (): unknown => [...filesIn(place.project.folder)].sort();

describe('a known server' + verifies('PF-11', 'HA-29'), () => {
  it('is shown whole before anything is done', async () => {
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

  it('goes from nothing to a tool that an agent sees, without a terminal', async () => {
    const done = await throughout('notion', ...GIVEN);
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

  it('attack, a linked folder: what a cloned project leads elsewhere is not written to', async () => {
    const elsewhere = path.join(place.project.root, 'elsewhere');
    mkdirSync(elsewhere);
    symlinkSync(elsewhere, path.join(place.project.folder, 'servers'));
    const { code, err } = await connect('notion', '--yes', ...GIVEN);
    expect([code, err]).toEqual([EXIT.usage, expect.stringContaining('The folder servers is a link')]);
    expect(readdirSync(elsewhere)).toEqual([]);
  });

  it('ends with 7 and how to go on where nobody has agreed, and starts nothing', async () => {
    const { code, err } = await connect('notion', '--yes', ...GIVEN);
    expect(code).toBe(EXIT.approval);
    expect(err).toContain('The key of the vault is ');
    expect(err).toContain(
      'notion is installed and configured, and starts nothing until it is approved.\n  continue: tollgate approve notion\n  undo:     tollgate connect --undo notion\n',
    );
    const { data } = await json('notion', '--yes');
    expect(data.next).toBe(`tollgate approve notion --yes ${data.start.hash}`);
  });

  it('asks for its credential unseen, and says where to get it', async () => {
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
  ])('is given up plainly by %s at its question', async (_name, typed) => {
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
      expect.stringMatching(/Do this\? \[y\/N\] \nCANCELLED: Nothing was done\.\nRun it again when you want it\.\n$/),
    ]);
    expect([project(), existsSync(path.join(place.state, 'packages'))]).toEqual([before, false]);
  });

  it('takes a name and a profile of its own', async () => {
    await connect('notion', '--yes', '--name', 'team-notes', '--profile', 'harbor', ...GIVEN);
    const text = readFileSync(path.join(place.project.folder, 'servers', 'team-notes.yaml'), 'utf8');
    expect(text).toContain('NOTION_TOKEN: ${secret:team-notes.NOTION_TOKEN}');
    expect(text).toContain('profiles:\n  - harbor');
  });
});

describe('a credential' + verifies('PF-11'), () => {
  it('stands in no file, no output, no record and no argument', async () => {
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
    ['a file that is not there', 'NOTION_TOKEN=@none', /file for NOTION_TOKEN cannot be read: there is no such file/],
    ['one that it does not take', 'OTHER=env:THE_TOKEN', /notion takes no credential OTHER/],
  ])('given as %s is refused, and not shown', async (_name, text, words) => {
    const { code, err } = await connect('notion', '--yes', '--credential', text);
    expect([code, err]).toEqual([EXIT.usage, expect.stringMatching(words)]);
    expect(err).not.toContain(TOKEN);
    expect(existsSync(path.join(place.project.folder, 'servers'))).toBe(false);
  });

  it('may come from a file; one that is too short or has two lines is refused', async () => {
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

  it('that is missing where nobody can be asked is named, with its page', async () => {
    const { code, err } = await connect('notion', '--yes');
    expect([code, err]).toEqual([
      EXIT.usage,
      expect.stringContaining(
        'Create it at https://www.notion.so/profile/integrations and give it with --credential NOTION_TOKEN=env:VARIABLE',
      ),
    ]);
  });
});

describe('taking it back' + verifies('PF-11'), () => {
  it('restores the project byte for byte, and leaves no secret, consent or package', async () => {
    const before = project();
    await throughout('notion', ...GIVEN);
    const { code, err } = await connect('--undo', 'notion');
    expect([code, err]).toEqual([
      EXIT.ok,
      expect.stringContaining('Undone: notion is no longer connected. Deleted: notion.NOTION_TOKEN'),
    ]);
    expect(project()).toEqual(before);
    expect(existsSync(path.join(place.project.folder, 'servers'))).toBe(false);
    expect(existsSync(path.join(place.state, 'packages'))).toBe(false);
    expect((await place.run(['secret', 'list', '--json'])).out).toBe('[]\n');
    // Connected anew, nobody has agreed to it.
    expect((await json('notion', '--yes', ...GIVEN)).approved).toBe(false);
  });

  it('leaves a secret that was there before, and other files of the folder', async () => {
    const stdin = new PassThrough();
    stdin.end(TOKEN);
    await place.run(['secret', 'set', 'notion.NOTION_TOKEN'], { stdin });
    place.project.write('servers/mine.yaml', 'command: node\n');
    expect(await json('notion', '--yes')).toMatchObject({ stored: [] });
    await connect('--undo', 'notion');
    expect((await place.run(['secret', 'list', '--json'])).out).toContain('notion.NOTION_TOKEN');
    expect([...filesIn(path.join(place.project.folder, 'servers')).values()]).toEqual(['command: node\n']);
  });

  it('keeps a file that somebody has edited since, and says so', async () => {
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

  it('of what was not connected is refused, twice too', async () => {
    expect((await connect('--undo', 'notion')).code).toBe(EXIT.usage);
    expect((await connect('--undo', '../../etc')).code).toBe(EXIT.usage);
  });
});

describe('a second run and a failed one' + verifies('PF-11'), () => {
  it('changes nothing that is as it should be', async () => {
    await connect('notion', '--yes', ...GIVEN);
    const before = project();
    expect(await json('notion', '--yes')).toMatchObject({ installed: false, stored: [], written: false });
    expect(project()).toEqual(before);
  });

  it('leaves the edits of a person as they are', async () => {
    await connect('notion', '--yes', ...GIVEN);
    const file = path.join(place.project.folder, 'servers', 'notion.yaml');
    const edited = `${readFileSync(file, 'utf8')}lifetime: ephemeral\n`;
    writeFileSync(file, edited);
    expect((await json('notion', '--yes')).written).toBe(false);
    expect(readFileSync(file, 'utf8')).toBe(edited);
  });

  it('that cannot install leaves nothing, and goes on from there', async () => {
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

  it('that could not list without its secrets and its network says that it is given both', async () => {
    expect((await connect('dynatrace', '--set', 'url=https://abc12345.apps.dynatrace.com', '--dry-run')).err).toContain(
      'note: It lists its tools only with its secrets and its network',
    );
  });

  it('that finds the vault broken in the middle takes back what it began', async () => {
    const before = project();
    const known = loadKnown('notion');
    // The install is the last step before the vault is written.
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

  it('that makes a configuration which does not load is taken back', async () => {
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
  ])('that was killed %s is gone on with, and can be taken back', async (_name, left) => {
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

  it('stops on an undo that was killed half-way, and ends it the next time', async () => {
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
      'a file of another hand',
      (): void => void place.project.write('servers/notion.yaml', 'command: node\n'),
      /exists, and connect did not write it/,
    ],
  ])('is refused where the name belongs to %s', async (_name, prepare, words) => {
    prepare();
    expect(await connect('notion', '--yes', ...GIVEN)).toMatchObject({
      code: EXIT.usage,
      err: expect.stringMatching(words) as string,
    });
  });

  it('takes over the same file from a project that was cloned', async () => {
    await connect('notion', '--yes', ...GIVEN);
    rmSync(place.state, { recursive: true });
    mkdirSync(place.state);
    expect(await json('notion', '--yes', ...GIVEN)).toMatchObject({ installed: true, written: false });
  });
});

describe('who and what may not', () => {
  it('connects nothing for whoever is no owner', async () => {
    place.project.write(
      'tollgate.yaml',
      `${readFileSync(place.file, 'utf8')}principals: [{id: somebody, stdio: true}]\n`,
    );
    expect((await connect('notion', '--yes', ...GIVEN)).code).toBe(EXIT.auth);
    expect((await connect('--undo', 'notion')).code).toBe(EXIT.auth);
  });

  it('needs somebody who says yes', async () => {
    expect(await connect('notion', ...GIVEN)).toMatchObject({
      code: EXIT.usage,
      err: expect.stringContaining('There is no terminal to ask at') as string,
    });
  });

  it.each([
    [['notoin'], /did you mean "notion"/],
    [['memory', '--set', 'folder'], /not given as name=value/],
    [['filesystem', '--set', 'foldr=/x'], /has no choice "foldr", so nothing was done\.\nChoices: folder \(/],
    [['memory', '--profile', 'nope'], /There is no profile "nope".*\nGive --profile/],
    [['filesystem', '--set', 'folder=/nope/at-all'], /There is no folder "\/nope\/at-all".*\nCreate it/],
    [['notion', '--set', 'folder=/x'], /has no choice "folder".*\nThere are no choices/],
    [['https://tracker.example.com', '--set', 'folder=/x'], /has no choices/],
    [['not-exist.invalid'], /The name "not-exist\.invalid" has no address/],
    [['grafana'], /Address of Grafana/],
    [['grafana', '--set', 'url=https://user:pw@grafana.example.com'], /contains a user or a password/],
    [['grafana', '--set', 'url=ftp://grafana.example.com'], /not an http or https address/],
    [['jira', '--set', 'site=my team', '--set', 'email=a@b.c'], /letters, digits/],
    [['jira', '--set', 'site=${HOME}', '--set', 'email=a@b.c'], /letters, digits/],
    [['notion', '--name', 'Workspace!'], /cannot be called/],
    [['https://user:pw@tracker.example.com'], /contains a user or a password/],
    [['https://tracker.example.com/?q=1'], /a query or a fragment/],
    [['http://tracker.example.com'], /plain http/],
    [['ftp://tracker.example.com'], /not http or https/],
    [['https://2130706433'], /Asking|no host|USAGE/],
  ])('%j is refused', async (words, message) => {
    const { code, err } = await connect(...words, '--yes');
    expect([code, err]).toEqual([EXIT.usage, expect.stringMatching(message)]);
    expect(err).not.toMatch(/:pw@|user:pw/);
  });
});

describe('a service without a server of its own' + verifies('PF-12'), () => {
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
            return response
              .writeHead(200, { 'content-type': 'application/json' })
              .end(
                '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}',
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

  it('at a private address is refused until the address is written out', async () => {
    const { code, err } = await connect(address, '--yes');
    expect([code, err]).toEqual([EXIT.usage, expect.stringContaining('If this is correct, add --address 127.0.0.1.')]);
  });

  it('is reached through our fetch server alone, with its credential from the vault', async () => {
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
    expect(await throughout(...words)).toMatchObject({ approved: true, reach: { runs: [], asks: ['fetch'] } });
    const { allowedDomains } = (await import('yaml')).parse(
      readFileSync(path.join(place.project.folder, 'servers', 'tracker.yaml'), 'utf8'),
    ).sandbox.network as { allowedDomains: string[] };
    expect(allowedDomains).toEqual([new URL(address).host]);
    expect(holders(place.project.root, TOKEN)).toEqual([]);
    const decisions = await Promise.all(
      [{ path: '/' }, { path: '/', method: 'POST' }].map(
        async (args) => (await place.run(['try', 'tracker_fetch', JSON.stringify(args)])).code,
      ),
    );
    expect(decisions).toEqual([EXIT.ok, EXIT.approval]);
  });

  it('that answers as an MCP server is connected as one', async () => {
    const { err } = await connect(`${address}/mcp`, '--name', 'remote', '--address', '127.0.0.1', '--yes');
    expect(err).toContain('answers as an MCP server, so it is connected as one.');
    expect(readFileSync(path.join(place.project.folder, 'servers', 'remote.yaml'), 'utf8')).toContain(
      `url: ${address}/mcp`,
    );
  });

  it('that does not answer is connected all the same, and said to be silent', async () => {
    const { err } = await connect('http://127.0.0.1:1', '--name', 'silent', '--address', '127.0.0.1', '--dry-run');
    expect(err).toContain('note: It did not answer just now: The service cannot be reached (ECONNREFUSED).');
  });
});

describe('a server that wants a sign-in', () => {
  it('is configured, and says what comes next', async () => {
    const { code, err } = await connect('linear', '--yes');
    expect([code, err]).toEqual([
      EXIT.approval,
      expect.stringContaining('  tollgate login linear\n  tollgate approve linear --with-secrets\n'),
    ]);
    expect((await json('linear', '--yes')).approved).toBe(false);
  });
});

describe('tollgate known' + verifies('PF-10'), () => {
  it('lists all, and shows one whole', async () => {
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
