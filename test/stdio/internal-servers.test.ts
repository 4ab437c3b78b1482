/** Tests internal servers (CY-02): over stdio and on a private socket, held to named tools and their pin, in the audit without content. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { socketFault } from '../../adapters/stdio/socket-connection.ts';
import type { Session } from '../../facade/serve/facade-port.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

const SCRIPT = path.join(import.meta.dirname, '..', 'fixtures', 'notes-server.mjs');
let folder: string;
let mode: string;
let socket: string;
const facades: TestFacade[] = [];
const children: ChildProcess[] = [];

beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'tollgate-internal-'));
  mode = path.join(folder, 'mode');
  mkdirSync(path.join(folder, 'run'), { mode: 0o700 });
  socket = path.join(folder, 'run', 'notes.sock');
});
afterEach(async () => {
  await Promise.all(facades.splice(0).map((one) => one.close()));
  for (const child of children.splice(0)) child.kill('SIGKILL');
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
});

type Way = 'stdio' | 'socket';
const misbehave = (how: string): void => writeFileSync(mode, how);
const ran = (): string => (existsSync(`${mode}.log`) ? readFileSync(`${mode}.log`, 'utf8') : '');

async function listen(): Promise<ChildProcess> {
  const child = spawn(process.execPath, [SCRIPT, mode, socket], { stdio: ['ignore', 'ignore', 'pipe'] });
  children.push(child);
  await once(child.stderr as NodeJS.ReadableStream, 'data');
  return child;
}

async function facade(way: Way, pin?: string, more = ''): Promise<TestFacade> {
  const reached =
    way === 'socket'
      ? `socket: ${JSON.stringify(socket)}`
      : `command: ${JSON.stringify(process.execPath)}, args: ${JSON.stringify([SCRIPT, mode])}, isolation: direct`;
  const made = await startFacade(
    `version: 1
workspace: ./workspace
state: ./state
servers: {notes: {${reached}, trust: internal, tools: {allow: [find, add]}${pin === undefined ? '' : `, pin: ${JSON.stringify(pin)}`}${way === 'socket' ? ', reconnectBackoffMs: 100' : ''}${more}}}
principals: [{id: alice, stdio: true}]
profiles: {default: {servers: [notes], expose: {primitives: workspace, tools: ["notes.*"]}}}
rules: [{id: own, outcome: allow, when: {trust: [internal]}}]
`,
    { folder },
  );
  facades.push(made);
  return made;
}

const problemOf = (one: TestFacade): string => one.assembled.catalog.problems.get('notes')?.message ?? '';
const shown = async (one: TestFacade, session: Session): Promise<readonly string[]> =>
  (await one.list(session)).map(({ name }) => name).filter((name) => name.startsWith('notes_'));

/** The pin that the refusal of a server without one tells. */
async function pinOf(way: Way): Promise<string> {
  const one = await facade(way);
  await one.list(one.open('alice'));
  expect(problemOf(one)).toContain('has no pin');
  const pin = /`pin: (sha256:[0-9a-f]{64})`/.exec(problemOf(one))?.[1] ?? '';
  await one.close();
  facades.length = 0;
  return pin;
}

describe.each<Way>(['stdio', 'socket'])('an internal server over %s' + verifies('CY-02'), (way) => {
  it('offers the tools that it is allowed, and no other, whatever the rules say', async () => {
    if (way === 'socket') await listen();
    const one = await facade(way, await pinOf(way));
    const session = one.open('alice');
    expect(await shown(one, session)).toEqual(['notes_find', 'notes_add']);
    expect((await one.call(session, 'notes_add', { text: 'hello' })).text).toBe('add: hello');
    expect((await one.call(session, 'notes_find', { text: 'hello' })).result?.structuredContent).toEqual({ count: 1 });
    expect((await one.call(session, 'notes_admin', {})).code).toBe('UNKNOWN_TOOL');
    expect(ran()).toBe('add\nfind\n');
  });

  it.each(['other words', 'other schema', 'one less', 'twice'])(
    'is refused whole and loudly when its tools are not those of the pin: %s',
    async (how) => {
      if (way === 'socket') await listen();
      const pin = await pinOf(way);
      misbehave(how);
      const one = await facade(way, pin);
      const session = one.open('alice');
      expect(await shown(one, session)).toEqual([]);
      expect(problemOf(one)).toMatch(/^Internal server "notes" /);
      expect(one.records()).toContainEqual(
        expect.objectContaining({ type: 'server', event: 'tools.failed', outcome: 'error', code: 'PIN_MISMATCH' }),
      );
      for (const tool of ['notes_find', 'notes_add'])
        expect((await one.call(session, tool, { text: 'x' })).code).toMatch(/^(UNKNOWN_TOOL|SERVER_UNAVAILABLE)$/);
      expect(ran()).toBe('');
    },
  );

  it('is the same to its pin in any order', async () => {
    if (way === 'socket') await listen();
    const pin = await pinOf(way);
    misbehave('other order');
    const one = await facade(way, pin);
    expect(await shown(one, one.open('alice'))).toHaveLength(2);
  });

  it('loses its tools when it changes them while it runs', async () => {
    if (way === 'socket') await listen();
    const one = await facade(way, await pinOf(way));
    const session = one.open('alice');
    expect(await shown(one, session)).toHaveLength(2);
    misbehave('other words');
    // The answer to this call comes with the notice.
    expect((await one.call(session, 'notes_add', { text: 'a' })).code).toBe('');
    await expect
      .poll(async () => (await one.call(session, 'notes_add', { text: 'b' })).code, { timeout: 20_000 })
      .toMatch(/^(PIN_MISMATCH|SERVER_UNAVAILABLE|UNKNOWN_TOOL)$/);
    const before = ran();
    expect(await shown(one, session)).toEqual([]);
    expect((await one.call(session, 'notes_add', { text: 'c' })).code).not.toBe('');
    expect(ran()).toBe(before);
  });

  it('has codes of the table for every way to fail, and results that fit their schema or none', async () => {
    if (way === 'socket') await listen();
    const one = await facade(way, await pinOf(way));
    const session = one.open('alice');
    await one.list(session);
    expect((await one.call(session, 'notes_add', { texts: 1 })).code).toBe('ARGS_INVALID');
    misbehave('bad output');
    expect((await one.call(session, 'notes_find', { text: 'x' })).code).toBe('OUTPUT_INVALID');
    misbehave('gone');
    expect((await one.call(session, 'notes_add', { text: 'x' })).code).toBe('TOOL_CRASHED');
    if (way === 'socket') expect((await one.call(session, 'notes_add', { text: 'x' })).code).toBe('SERVER_UNAVAILABLE');
  });

  it('leaves nothing of what was said in the audit, the state folder or its log', async () => {
    if (way === 'socket') await listen();
    const one = await facade(way, await pinOf(way));
    const session = one.open('alice');
    expect((await one.call(session, 'notes_add', { text: 'the-words-of-the-user' })).text).toContain(
      'the-words-of-the-user',
    );
    await one.call(session, 'notes_find', { text: 'the-words-of-the-user', more: 1 });
    const calls = one.records().filter(({ type }) => type === 'intent' || type === 'outcome' || type === 'decision');
    expect(calls.map(({ server, tool }) => `${String(server)}.${String(tool)}`)).toEqual(
      expect.arrayContaining(['notes.add']),
    );
    for (const file of readdirSync(path.join(folder, 'state'), { recursive: true, encoding: 'utf8' })) {
      const absolute = path.join(folder, 'state', file);
      if (!file.endsWith('.sock') && readable(absolute))
        expect(readFileSync(absolute, 'latin1'), file).not.toContain('the-words-of-the-user');
    }
  });
});

function readable(file: string): boolean {
  try {
    readFileSync(file);
    return true;
  } catch {
    return false;
  }
}

describe('an internal server on a socket' + verifies('CY-02'), () => {
  it('comes back by itself when whoever listens there was started anew, and is asked for its tools again', async () => {
    const first = await listen();
    const one = await facade('socket', await pinOf('socket'));
    const session = one.open('alice');
    await one.list(session);
    first.kill('SIGKILL');
    await once(first, 'exit');
    rmSync(socket);
    misbehave('ok');
    await listen();
    await expect
      .poll(async () => (await one.call(session, 'notes_add', { text: 'again' })).text, { timeout: 20_000 })
      .toBe('add: again');
  });

  it('is not there before anybody listens, and the call says so', async () => {
    const one = await facade('socket', `sha256:${'0'.repeat(64)}`);
    await one.list(one.open('alice'));
    expect(problemOf(one)).toContain('there is none');
  });

  it('is not reached by what runs in a sandbox, though its folder was given', async () => {
    await listen();
    const { bubblewrapOptions, planSandbox } = await import(
      '../../adapters/sandbox/bubblewrap/bubblewrap-arguments.ts'
    );
    const jail = {
      command: '/bin/true',
      args: [],
      env: {},
      cwd: folder,
      workspace: folder,
      read: [folder],
      write: [],
      hidden: [path.dirname(socket)],
      limits: { memoryMb: 64, processes: 8, fileMb: 8 },
      input: false,
    };
    const plan = planSandbox(jail);
    expect(plan?.masks).toEqual([path.dirname(socket)]);
    expect(
      bubblewrapOptions(jail, plan as NonNullable<typeof plan>, { uid: 1, gid: 1, drop: false }).join(' '),
    ).toContain(`--tmpfs ${path.dirname(socket)}`);
  });
});

describe('a socket in whose place somebody else could put his own' + verifies('CY-02'), () => {
  const uid = process.getuid?.() ?? 0;
  let server: Server;
  beforeEach(async () => {
    server = createServer().listen(socket);
    await once(server, 'listening');
  });
  afterEach(() => void server.close());

  it.each<readonly [string, string | undefined, () => void]>([
    ['it is ours, in a folder of ours', undefined, () => undefined],
    ['its folder lets others in', 'its folder is open to other users', () => chmodSync(path.dirname(socket), 0o710)],
    [
      'a folder above can be changed by all',
      'a folder above it can be changed by other users',
      () => chmodSync(folder, 0o777),
    ],
    ['a folder above is one like /tmp', undefined, () => chmodSync(folder, 0o1777)],
    [
      'it is a plain file',
      'it is not a socket',
      () => {
        rmSync(socket);
        writeFileSync(socket, '');
      },
    ],
    [
      'it is a link',
      'it is not a socket',
      () => {
        renameSync(socket, `${socket}.real`);
        symlinkSync(`${socket}.real`, socket);
      },
    ],
    [
      'its folder is a link',
      'its folder is a link',
      () => {
        renameSync(path.dirname(socket), path.join(folder, 'elsewhere'));
        symlinkSync(path.join(folder, 'elsewhere'), path.dirname(socket));
      },
    ],
    ['it is gone', 'there is none', () => rmSync(socket)],
  ])('%s', (_what, fault, change) => {
    change();
    expect(socketFault(socket, uid)).toBe(fault);
  });

  it('it belongs to another user', () => {
    expect(socketFault(socket, uid + 1)).toBe('it belongs to another user');
  });
});
