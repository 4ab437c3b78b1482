/**
 * Attacks on the time between the digest and the start, by name: files that change while a start waits, while the
 * program runs, and after a person approved.
 * Covers: facade/consent.
 */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { inspectStart } from '../../adapters/stdio/start-inspection.ts';
import { ServerPool } from '../../adapters/supervisor/server-pool.ts';
import type { ServerSettings } from '../../adapters/supervisor/server-settings.ts';
import type { AdapterOptions } from '../../adapters/supervisor/supervisor.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { openAudit } from '../../facade/audit/audit-log.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { probeForConsent } from '../../facade/consent/servers/consent-probe.ts';
import { refuseOther, reviewStart } from '../../facade/consent/servers/consent-review.ts';
import { Consents } from '../../facade/consent/servers/server-consents.ts';
import { APP_MODULE } from '../../facade/main.ts';
import { Redactor } from '../../facade/output/redactor.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import { isRunning } from '../process/child.ts';
import { verifies } from '../verifies.ts';
import { ACT_OF_BOSS, withConsents } from './consent-facade.ts';
import { scriptedServer } from './scripted-server.ts';

let folder: string;
let script: string;
let mark: string;
beforeEach(() => {
  folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-gap-')));
  [script, mark] = [path.join(folder, 'server.mjs'), path.join(folder, 'evil-ran')];
  writeFileSync(script, scriptedServer({}));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const evil = (): void => {
  const before = `writeFileSync(${JSON.stringify(mark)}, String(process.pid));`;
  writeFileSync(script, scriptedServer({}, { before }));
};

/**
 * Creates a pool with an approval of the present script. `asked` is called before each answer of the consent, with the
 * number of answers.
 */
async function poolWith({
  asked = () => undefined,
  secret = () => undefined,
}: {
  readonly asked?: (times: number) => void;
  readonly secret?: () => void;
}): Promise<{ readonly pool: ServerPool; readonly settings: ServerSettings }> {
  const settings: ServerSettings = {
    name: 'one',
    transport: 'stdio',
    command: process.execPath,
    args: [script],
    env: { KEY: '${secret:a}' },
    headers: {},
    isolation: 'direct',
    connectTimeoutMs: 5000,
    maxRetries: 0,
    reconnectBackoffMs: 100,
  };
  const factsNow = async (): Promise<string> => JSON.stringify(await inspectStart(settings, folder));
  const approved = await factsNow();
  let times = 0;
  const options: AdapterOptions = {
    host: { workspace: folder, folder, hidden: [], secrets: () => Promise.resolve(secret()).then(() => 'value') },
    onStderr: () => undefined,
    grace: { closeMs: 100, termMs: 100 },
    consent: async () => {
      const refusal =
        (await factsNow()) === approved ? undefined : new TollgateError('SERVER_UNAVAILABLE', { detail: 'it differs' });
      asked(++times);
      return refusal;
    },
  };
  return { pool: new ServerPool({ servers: 5, connections: 1 }, options), settings };
}

describe('the start of a server whose file changes', () => {
  it('is refused if the new file was approved while the old one was inspected' + verifies('HA-15'), async () => {
    const state = openState(folder);
    const settings = {
      name: 'one',
      transport: 'stdio',
      command: process.execPath,
      args: [script],
      env: {},
      headers: {},
    } as const;
    const agree = async (consents: Consents): Promise<void> => {
      const start = await consents.approveStart({ facts: await consents.factsOf(settings), ...ACT_OF_BOSS });
      await consents.approveAnyTools('one', { start, hints: false, ...ACT_OF_BOSS });
    };
    const parts = { folder, digest: (text: string) => `keyed ${text}` };
    const owner = new Consents(state, { ...parts, inspect: inspectStart });
    await agree(owner);
    const running = new Consents(state, {
      ...parts,
      inspect: async (...asked) => {
        const seen = await inspectStart(...asked);
        evil();
        await agree(owner);
        return seen;
      },
    });
    expect(await running.refuseStart(settings)).toBeUndefined();
    expect(running.refusalOf('one')?.message).toContain('approved again with other settings');
    await state.close();
  });

  it('succeeds if nothing changes' + verifies('HA-15'), async () => {
    const { pool, settings } = await poolWith({});
    expect((await pool.add(settings).start()).name).toBe('s');
    await pool.stopAll();
  });

  it('is refused if the file changes while secrets are fetched (c045)' + verifies('HA-15'), async () => {
    const { pool, settings } = await poolWith({ secret: evil });
    await expect(pool.add(settings).start()).rejects.toThrow('it differs');
    expect(existsSync(mark)).toBe(false);
    await pool.stopAll();
  });

  it(
    'is refused if the file changes while it waits for a connection, and no secret is fetched' + verifies('HA-15'),
    async () => {
      let fetched = false;
      const { pool, settings } = await poolWith({
        asked: (times) => times === 1 && evil(),
        secret: () => (fetched = true),
      });
      await expect(pool.add(settings).start()).rejects.toThrow('it differs');
      expect([existsSync(mark), fetched]).toEqual([false, false]);
      await pool.stopAll();
    },
  );

  it(
    'is ended, and nothing of the server is read, if the file changes after the last check' + verifies('HA-15'),
    async () => {
      const { pool, settings } = await poolWith({ asked: (times) => times === 3 && evil() });
      await expect(pool.add(settings).start()).rejects.toThrow('it differs');
      await expect.poll(() => !existsSync(mark) || !isRunning(Number(readFileSync(mark, 'utf8')))).toBe(true);
      await pool.stopAll();
    },
  );
});

describe('a probe', () => {
  it(
    'runs the file that was shown, and not a file that changed after the first screen' + verifies('HA-15'),
    async () => {
      mkdirSync(path.join(folder, 'work'));
      writeFileSync(
        path.join(folder, 'tollgate.yaml'),
        `version: 1
state: ./state
workspace: ./work
servers: {one: {command: ${process.execPath}, args: [${script}], isolation: direct}}
`,
      );
      const config = loadConfig(path.join(folder, 'tollgate.yaml'), { env: {}, home: folder });
      const server = config.servers.get('one')!;
      await withConsents(config, async (consents, state) => {
        const audit = openAudit(config.audit);
        try {
          const look = await APP_MODULE.openProbe(config, { redactor: new Redactor(), audit, state });
          const shown = await reviewStart(server, consents);
          const seen = {
            probe: look,
            signal: AbortSignal.timeout(20_000),
            consent: () => refuseOther(server, shown, consents),
          };
          expect((await probeForConsent(server, { ownIsolation: true }, seen)).info.name).toBe('s');
          evil();
          await expect(probeForConsent(server, { ownIsolation: true }, seen)).rejects.toMatchObject({
            code: 'SERVER_UNAVAILABLE',
            message: expect.stringContaining('a file that it runs differs') as string,
          });
          expect(existsSync(mark)).toBe(false);
        } finally {
          await audit.close();
        }
      });
    },
  );
});

describe('a program that prints a secret', () => {
  it('is bound to the approval of the server, with its file and its script' + verifies('HA-15', 'PF-04'), async () => {
    const tool = path.join(folder, 'get-token');
    const workspace = path.join(folder, 'work');
    writeFileSync(tool, 'echo one-one');
    mkdirSync(workspace);
    writeFileSync(
      path.join(folder, 'tollgate.yaml'),
      `version: 1
state: ./state
workspace: ./work
secrets: {a: {exec: [sh, ${tool}]}}
servers:
  one: {command: ${process.execPath}, args: [${script}], isolation: direct, env: {KEY: '\${secret:a}'}}
  far: {url: 'https://far.test/mcp', headers: {X: '\${secret:a}'}}
`,
    );
    const config = loadConfig(path.join(folder, 'tollgate.yaml'), { env: {}, home: folder });
    await withConsents(config, async (consents) => {
      for (const server of config.servers.values())
        await consents.approveStart({ facts: await consents.factsOf(server), ...ACT_OF_BOSS });
      for (const server of config.servers.values()) expect(await consents.refuseProbe(server)).toBeUndefined();
      writeFileSync(tool, 'echo evil');
      for (const server of config.servers.values())
        expect((await consents.refuseProbe(server))?.message).toContain(
          'a program that prints a secret for it differs',
        );
    });
  });
});
