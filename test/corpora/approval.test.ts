/**
 * Tests approvals with attacks/approval_cases.json: what changes the hash, what does not, and what is refused or shown
 * before a person is asked.
 */
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import Libsql from 'libsql';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { inspectStart } from '../../adapters/stdio/start-inspection.ts';
import type { ServerDefinition } from '../../facade/config/config.ts';
import { faultsOf, remarksOf } from '../../facade/config/servers/server-definition-rules.ts';
import { ConsentStore } from '../../facade/consent/servers/consent-store.ts';
import { type StartSettings, startFacts, startHash } from '../../facade/consent/servers/start-facts.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import { verifies } from '../verifies.ts';
import { readCases } from './corpus.ts';

interface Written {
  readonly transport: 'stdio' | 'http';
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string;
  readonly url?: string;
  readonly sandbox: { readonly net: readonly string[]; readonly write: readonly string[] };
}

interface Case {
  readonly id: string;
  readonly base: Written;
  readonly change: Partial<Written> & { readonly _store?: string; readonly _race?: string };
  readonly same_hash: boolean;
  readonly why: string;
  readonly class: string;
}

const cases = readCases<Case>('attacks/approval_cases.json', ['base', 'change', 'same_hash', 'why', 'class']);
/**
 * Cases about the file or about a race have no hash. Each has its own test, which is found by the words of the case.
 */
const ELSEWHERE: readonly { readonly about: RegExp; readonly file: string; readonly test: string }[] = [
  {
    about: /truncat|invalid JSON|corrupt|cut short/i,
    file: 'corpora/approval.test.ts',
    test: 'cut short, nothing is approved',
  },
  {
    about: /writable|another user|owned by|permission/i,
    file: 'corpora/approval.test.ts',
    test: 'of another user, it is refused',
  },
  {
    about: /symlink|symbolic|\blink\b/i,
    file: 'corpora/approval.test.ts',
    test: 'a link is refused, and what it leads to is left alone',
  },
  {
    about: /revoked|withdrawn/i,
    file: 'consent/running-facade-attacks.test.ts',
    test: 'refuses the next call (c043)',
  },
  {
    about: /(config|file|binary|script|program).*(swapped|changed|replaced)|between hash and spawn/i,
    file: 'consent/digest-start-race.test.ts',
    test: 'is refused if the file changes while secrets are fetched (c045)',
  },
  {
    about: /tools?\/list|tool (set|definition)/i,
    file: 'consent/running-facade-attacks.test.ts',
    test: 'are found at the next start (c046), even without a notification of the server',
  },
];
const isHashed = ({ change }: Case): boolean => change._store === undefined && change._race === undefined;

const settingsOf = ({ transport, command, args, env, cwd, url, sandbox: { net, write } }: Written): StartSettings => ({
  name: 'acme',
  transport,
  command,
  args,
  env,
  cwd,
  headers: {},
  ...(url !== undefined && { url }),
  isolation: 'sandbox',
  sandbox: {
    filesystem: { allowRead: [], allowWrite: write, denyRead: [] },
    network: { allowedDomains: net },
    limits: { memoryMb: 256, processes: 64, fileMb: 256 },
  },
});
const hashOf = async (written: Written): Promise<string> =>
  startHash(
    await startFacts(settingsOf(written), { folder: '/', inspect: inspectStart, digest: (text) => `keyed ${text}` }),
  );
const definitionOf = ({ transport, command, args, env, cwd }: Written): ServerDefinition => ({
  transport,
  command,
  args,
  env,
  cwd,
  headers: {},
});

describe('approval cases of the corpus', () => {
  it('are all covered: by their hash, or by a test that is named for them', () => {
    for (const {
      id,
      change: { _store, _race },
    } of cases.filter((one) => !isHashed(one))) {
      const found = ELSEWHERE.find(({ about }) => about.test(_store ?? _race ?? ''));
      expect(found, `${id}: no test judges ${_store ?? _race}`).toBeDefined();
      const { file = '', test = '' } = found ?? {};
      expect(readFileSync(path.join(import.meta.dirname, '..', file), 'utf8'), id).toContain(test);
    }
  });

  it.each(cases.filter(isHashed).map((one) => [one.id, one.why, one] as const))(
    '%s: %s' + verifies('HA-15'),
    async (_id, _why, { base, change, same_hash: same }) => {
      const reordered = '_order' in change;
      const { _order: _ignored, ...rest } = change as Record<string, unknown>;
      const changed = { ...base, ...rest } as Written;
      const written = reordered
        ? (Object.fromEntries(Object.entries(changed).reverse()) as unknown as Written)
        : changed;
      expect((await hashOf(written)) === (await hashOf(base))).toBe(same);
    },
  );

  it.each(cases.filter(({ class: kind }) => kind === 'unicode').map((one) => [one.id, one] as const))(
    '%s is refused before Tollgate asks a person' + verifies('HA-15'),
    (_id, { base, change }) => {
      expect(
        faultsOf(definitionOf({ ...base, ...change }))
          .map(({ message }) => message)
          .join(),
      ).toContain('ASCII');
    },
  );

  it.each(
    cases
      .filter(({ class: kind, why }) => kind === 'interpreter' || /unpinned|dist-tag/.test(why))
      .map((one) => [one.id, one.why, one] as const),
  )('%s (%s) is shown on the screen' + verifies('HA-16'), (_id, _why, { base, change }) => {
    expect(remarksOf(definitionOf({ ...base, ...change }))).not.toEqual([]);
  });
});

describe('the file of approvals', () => {
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(path.join(tmpdir(), 'tollgate-store-'));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  const fresh = async (name: string): Promise<string> => {
    const state = path.join(folder, name);
    mkdirSync(state, { mode: 0o700 });
    await openState(state).close();
    return state;
  };
  /** Moves everything to one file, as a clean end does. */
  const checkpoint = (database: string): void => {
    const connection = new Libsql(database);
    connection.prepare('PRAGMA wal_checkpoint(TRUNCATE)').get();
    connection.close();
    for (const end of ['-wal', '-shm']) rmSync(database + end, { force: true });
  };
  const withStore = async <T>(state: string, work: (store: ConsentStore) => Promise<T> | T): Promise<T> => {
    const opened = openState(state);
    try {
      return await work(new ConsentStore(opened, (text) => `keyed ${text}`));
    } finally {
      await opened.close();
    }
  };
  const refused = (state: string): void =>
    expect(() => openState(state)).toThrow(
      expect.objectContaining({ code: 'STATE_FAILED', message: expect.not.stringContaining(folder) }),
    );

  it('cut short, nothing is approved, and the file is not overwritten' + verifies('HA-15'), async () => {
    for (const cut of [10, 100, 3000, 5000, 9000]) {
      const state = await fresh(`cut-${cut}`);
      await withStore(state, (store) =>
        store.put('acme', {
          hash: 'h',
          facts: { server: 'acme', transport: 'stdio', args: [], env: {}, headers: {} },
          by: 'boss',
          at: 'now',
          tools: { hints: false, by: 'boss', at: 'now' },
        }),
      );
      const database = path.join(state, 'state.db');
      checkpoint(database);
      truncateSync(database, cut);
      const before = readFileSync(database);
      const codeOrConsent = await withStore(state, (store) => store.get('acme')).catch(
        (thrown: unknown) => (thrown as { code?: string }).code,
      );
      expect([cut, codeOrConsent]).toEqual([cut, 'STATE_FAILED']);
      expect(readFileSync(database).equals(before)).toBe(true);
    }
  });

  it(
    'an entry that is not JSON, or has another seal, is damaged: it approves nothing and stays in the file' +
      verifies('HA-15'),
    async () => {
      const state = await fresh('entry');
      for (const text of ['', '{', 'null', '{"v":1}', '{"v":1,"seal":"x","body":"{}"}']) {
        const opened = openState(state);
        await opened.put('consent', 'acme', text);
        await opened.close();
        expect(await withStore(state, (store) => store.get('acme'))).toEqual({ damaged: true });
      }
    },
  );

  it.each([
    ['writable by everybody', 0o666],
    ['writable by a group', 0o620],
  ])('%s, it is refused and stays unchanged' + verifies('HA-15'), async (name, mode) => {
    const state = await fresh(name);
    chmodSync(path.join(state, 'state.db'), mode);
    refused(state);
    refused(state);
  });

  it('in a folder that every user may write, it is refused' + verifies('HA-15'), async () => {
    const state = await fresh('open');
    chmodSync(state, 0o777);
    refused(state);
  });

  it.each(['state.db', '.'])('%s of another user, it is refused' + verifies('HA-15'), async (name) => {
    const state = await fresh(`of another user ${name}`);
    chownSync(path.join(state, name), 12_345, 12_345);
    refused(state);
  });

  it('a link is refused, and its target does not change' + verifies('HA-15'), async () => {
    const state = await fresh('link');
    const elsewhere = path.join(folder, 'elsewhere.db');
    renameSync(path.join(state, 'state.db'), elsewhere);
    symlinkSync(elsewhere, path.join(state, 'state.db'));
    refused(state);
    expect(existsSync(elsewhere)).toBe(true);
  });
});
