/** Tests internal servers (CY-02) over stdio and a private socket: their allowed tools, their pin and their audit. */

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
import { inFull } from '../harness/full-tests.ts';
import { partOf } from '../harness/slices.ts';
import { specOf } from '../sandbox/sandbox-fixture.ts';
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

type Transport = 'stdio' | 'socket';
const misbehave = (how: string): void => writeFileSync(mode, how);
const executed = (): string => (existsSync(`${mode}.log`) ? readFileSync(`${mode}.log`, 'utf8') : '');

async function listen(): Promise<ChildProcess> {
  const child = spawn(process.execPath, [SCRIPT, mode, socket], { stdio: ['ignore', 'ignore', 'pipe'] });
  children.push(child);
  await once(child.stderr as NodeJS.ReadableStream, 'data');
  return child;
}

async function facade(transport: Transport, pin?: string, more = ''): Promise<TestFacade> {
  const connection =
    transport === 'socket'
      ? `socket: ${JSON.stringify(socket)}, reconnectBackoffMs: 100`
      : `command: ${JSON.stringify(process.execPath)}, args: ${JSON.stringify([SCRIPT, mode])}, isolation: direct`;
  const pinned = pin === undefined ? '' : `, pin: ${JSON.stringify(pin)}`;
  const started = await startFacade(
    `version: 1
workspace: ./workspace
state: ./state
servers: {notes: {${connection}, trust: internal, tools: {allow: [find, add]}${pinned}${more}}}
principals: [{id: alice, stdio: true}]
profiles: {default: {servers: [notes], expose: {primitives: workspace, tools: ["notes.*"]}}}
rules: [{id: own, outcome: allow, when: {trust: [internal]}}]
`,
    { folder },
  );
  facades.push(started);
  return started;
}

const problemOf = (one: TestFacade): string => one.assembled.catalog.problems.get('notes')?.message ?? '';
const listedTools = async (one: TestFacade, session: Session): Promise<readonly string[]> =>
  (await one.list(session)).map(({ name }) => name).filter((name) => name.startsWith('notes_'));

const pins = new Map<Transport, string>();

/** Returns the pin, which the refusal of a server without a pin contains. It is the same in every test. */
async function pinOf(transport: Transport): Promise<string> {
  const known = pins.get(transport);
  if (known !== undefined) return known;
  const one = await facade(transport);
  await one.list(one.open('alice'));
  expect(problemOf(one)).toContain('has no pin');
  const pin = /`pin: (sha256:[0-9a-f]{64})`/.exec(problemOf(one))?.[1] ?? '';
  await one.close();
  facades.length = 0;
  pins.set(transport, pin);
  return pin;
}

describe.each<Transport>(['stdio', 'socket'])('an internal server over %s' + verifies('CY-02'), (transport) => {
  inFull('offers only its allowed tools, even if rules allow others', async () => {
    if (transport === 'socket') await listen();
    const one = await facade(transport, await pinOf(transport));
    const session = one.open('alice');
    expect(await listedTools(one, session)).toEqual(['notes_find', 'notes_add']);
    expect((await one.call(session, 'notes_add', { text: 'hello' })).text).toBe('add: hello');
    expect((await one.call(session, 'notes_find', { text: 'hello' })).result?.structuredContent).toEqual({ count: 1 });
    expect((await one.call(session, 'notes_admin', {})).code).toBe('UNKNOWN_TOOL');
    expect(executed()).toBe('add\nfind\n');
  });

  const different = ['other words', 'other schema', 'one less', 'twice'];
  inFull.each(transport === 'stdio' ? different : partOf(different, 1))(
    'is refused completely, with a record, if its tools do not match the pin: %s',
    async (how) => {
      if (transport === 'socket') await listen();
      const pin = await pinOf(transport);
      misbehave(how);
      const one = await facade(transport, pin);
      const session = one.open('alice');
      expect(await listedTools(one, session)).toEqual([]);
      expect(problemOf(one)).toMatch(/^Internal server "notes" /);
      expect(one.records()).toContainEqual(
        expect.objectContaining({ type: 'server', event: 'tools.failed', outcome: 'error', code: 'PIN_MISMATCH' }),
      );
      for (const tool of ['notes_find', 'notes_add'])
        expect((await one.call(session, tool, { text: 'x' })).code).toMatch(/^(UNKNOWN_TOOL|SERVER_UNAVAILABLE)$/);
      expect(executed()).toBe('');
    },
  );

  inFull('matches its pin with its tools in another order', async () => {
    if (transport === 'socket') await listen();
    const pin = await pinOf(transport);
    misbehave('other order');
    const one = await facade(transport, pin);
    expect(await listedTools(one, one.open('alice'))).toHaveLength(2);
  });

  inFull('loses its tools if it changes them while it runs', async () => {
    if (transport === 'socket') await listen();
    const one = await facade(transport, await pinOf(transport));
    const session = one.open('alice');
    expect(await listedTools(one, session)).toHaveLength(2);
    misbehave('other words');
    // The server sends list_changed with the result of this call.
    expect((await one.call(session, 'notes_add', { text: 'a' })).code).toBe('');
    await expect
      .poll(async () => (await one.call(session, 'notes_add', { text: 'b' })).code, { timeout: 20_000 })
      .toMatch(/^(PIN_MISMATCH|SERVER_UNAVAILABLE|UNKNOWN_TOOL)$/);
    const before = executed();
    expect(await listedTools(one, session)).toEqual([]);
    expect((await one.call(session, 'notes_add', { text: 'c' })).code).not.toBe('');
    expect(executed()).toBe(before);
  });

  inFull(
    'causes an error of the table for every failure, and for a result that does not match its schema',
    async () => {
      if (transport === 'socket') await listen();
      const one = await facade(transport, await pinOf(transport));
      const session = one.open('alice');
      await one.list(session);
      expect((await one.call(session, 'notes_add', { texts: 1 })).code).toBe('ARGS_INVALID');
      misbehave('bad output');
      expect((await one.call(session, 'notes_find', { text: 'x' })).code).toBe('OUTPUT_INVALID');
      misbehave('gone');
      expect((await one.call(session, 'notes_add', { text: 'x' })).code).toBe('TOOL_CRASHED');
      if (transport === 'socket')
        expect((await one.call(session, 'notes_add', { text: 'x' })).code).toBe('SERVER_UNAVAILABLE');
    },
  );

  it('leaves no content of a call in the audit, the state folder or its log', async () => {
    if (transport === 'socket') await listen();
    const one = await facade(transport, await pinOf(transport));
    const session = one.open('alice');
    expect((await one.call(session, 'notes_add', { text: 'text-of-the-user' })).text).toContain('text-of-the-user');
    await one.call(session, 'notes_find', { text: 'text-of-the-user', more: 1 });
    const calls = one.records().filter(({ type }) => type === 'intent' || type === 'outcome' || type === 'decision');
    expect(calls.map(({ server, tool }) => `${String(server)}.${String(tool)}`)).toEqual(
      expect.arrayContaining(['notes.add']),
    );
    for (const file of readdirSync(path.join(folder, 'state'), { recursive: true, encoding: 'utf8' })) {
      const absolute = path.join(folder, 'state', file);
      if (!file.endsWith('.sock') && readable(absolute))
        expect(readFileSync(absolute, 'latin1'), file).not.toContain('text-of-the-user');
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
  it('is connected again after its process was restarted, and its tools are listed again', async () => {
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

  it('is reported as missing until a process listens', async () => {
    const one = await facade('socket', `sha256:${'0'.repeat(64)}`);
    await one.list(one.open('alice'));
    expect(problemOf(one)).toContain('there is none');
  });

  it('cannot be reached from a sandbox, even if its folder is visible there', async () => {
    await listen();
    const { bubblewrapOptions, planSandbox } = await import(
      '../../adapters/sandbox/bubblewrap/bubblewrap-arguments.ts'
    );
    const spec = specOf(folder, ['/bin/true'], { read: [folder], hidden: [path.dirname(socket)] });
    const plan = planSandbox(spec);
    expect(plan?.masks).toEqual([path.dirname(socket)]);
    expect(
      bubblewrapOptions(spec, plan as NonNullable<typeof plan>, { uid: 1, gid: 1, drop: false }).join(' '),
    ).toContain(`--tmpfs ${path.dirname(socket)}`);
  });
});

describe('socketFault' + verifies('CY-02'), () => {
  const uid = process.getuid?.() ?? 0;
  let server: Server;
  beforeEach(async () => {
    server = createServer().listen(socket);
    await once(server, 'listening');
  });
  afterEach(() => void server.close());

  it.each<readonly [string, string | undefined, () => void]>([
    ['accepts a socket of this user in a folder of this user', undefined, () => undefined],
    [
      'refuses a folder that other users may enter',
      'its folder is open to other users',
      () => chmodSync(path.dirname(socket), 0o710),
    ],
    [
      'refuses a folder above that all users may change',
      'a folder above it can be changed by other users',
      () => chmodSync(folder, 0o777),
    ],
    ['accepts a folder above like /tmp', undefined, () => chmodSync(folder, 0o1777)],
    [
      'refuses a plain file',
      'it is not a socket',
      () => {
        rmSync(socket);
        writeFileSync(socket, '');
      },
    ],
    [
      'refuses a link to a socket',
      'it is not a socket',
      () => {
        renameSync(socket, `${socket}.real`);
        symlinkSync(`${socket}.real`, socket);
      },
    ],
    [
      'refuses a folder that is a link',
      'its folder is a link',
      () => {
        renameSync(path.dirname(socket), path.join(folder, 'elsewhere'));
        symlinkSync(path.join(folder, 'elsewhere'), path.dirname(socket));
      },
    ],
    ['refuses a missing socket', 'there is none', () => rmSync(socket)],
  ])('%s', (_title, fault, change) => {
    change();
    expect(socketFault(socket, uid)).toBe(fault);
  });

  it('refuses a socket of another user', () => {
    expect(socketFault(socket, uid + 1)).toBe('it belongs to another user');
  });
});
