/**
 * Tests /readyz of a real process with a full disk and with the switch off, and the answers to clients meanwhile.
 * Covers: facade/runtime, facade/call, facade/state.
 */

import { readFileSync, rmSync } from 'node:fs';
import { request } from 'node:http';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { createAccess } from '../../facade/cli/serving/client-access.ts';
import type { AssembledFacade } from '../../facade/runtime/assembled-facade.ts';
import { createReadiness } from '../../facade/runtime/readiness.ts';
import type { SharedServices } from '../../facade/runtime/shared-services.ts';
import { serveHttp } from '../../facade/serve/http/http-listener.ts';
import { DATABASE_FILE } from '../../facade/state/sqlite-state.ts';
import type { Policy } from '../../policies/port.ts';
import { cli } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { Child } from '../process/child.ts';
import { canMountDisks, empty, fill, mountSmallDisk, NO_DISKS, unmount } from '../state/small-disk.ts';
import { startFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

const INITIALIZE = JSON.stringify({
  jsonrpc: '2.0',
  id: 1,
  method: 'initialize',
  params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 't', version: '1' } },
});

describe('the readiness of a process' + verifies('ST-28', 'FL-16'), () => {
  let project: Project;
  let child: Child | undefined;
  let url: URL;
  let token: string;
  const disk = (): string => path.join(project.folder, 'disk');

  beforeEach(async ({ skip }) => {
    project = new Project();
    skip(!canMountDisks(), NO_DISKS);
    project.write('workspace/README.md', '# Hello\n');
    mountSmallDisk(disk());
    project.write(
      'tollgate.yaml',
      `version: 1
workspace: ./workspace
state: ./state
audit: {folder: ./disk/audit}
rules: [{id: all, outcome: allow, when: {}}]
listen: {port: 0}
`,
    );
    child = new Child(project, ['serve', '--json']);
    const first = JSON.parse(await child.firstLine()) as { url: string; tokenFile: string };
    url = new URL(first.url);
    token = readFileSync(first.tokenFile, 'utf8').trim();
  });
  afterEach(async () => {
    await child?.kill('SIGKILL');
    unmount(disk());
    project.remove();
  });

  const ask = (
    method: string,
    route: string,
    more: { readonly headers?: Readonly<Record<string, string>>; readonly body?: string } = {},
  ): Promise<{ readonly status: number; readonly text: string }> =>
    new Promise((resolve, reject) => {
      const sent = request(
        {
          host: url.hostname,
          port: url.port,
          method,
          path: route,
          headers: { host: '10.0.0.7:7310', ...more.headers },
        },
        (response) => {
          let text = '';
          response
            .setEncoding('utf8')
            .on('data', (chunk: string) => void (text += chunk))
            .on('end', () => resolve({ status: response.statusCode ?? 0, text }));
        },
      );
      sent.on('error', reject).end(more.body);
    });
  const ready = async (): Promise<unknown> => JSON.parse((await ask('GET', '/readyz')).text);
  const initialize = async (): Promise<string> => {
    const { status, text } = await ask('POST', '/mcp', {
      headers: {
        host: url.host,
        authorization: `Bearer ${token}`,
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
      },
      body: INITIALIZE,
    });
    return `${status} ${(JSON.parse(text) as { error?: { data?: { code?: string } } }).error?.data?.code ?? 'ok'}`;
  };

  it(
    'fails with a full disk, when no session opens, and succeeds when there is room again' + verifies('ST-31'),
    async () => {
      expect([await ready(), await initialize()]).toEqual([{ status: 'ready' }, '200 ok']);
      fill(disk());
      await expect.poll(ready, { timeout: 20_000 }).toEqual({ status: 'failing', failing: ['audit'] });
      // The last block of the log may still have room for a record.
      await expect.poll(initialize, { timeout: 20_000 }).toBe('503 AUDIT_FAILED');
      expect((await ask('GET', '/livez')).status).toBe(200);
      empty(disk());
      await expect.poll(ready, { timeout: 20_000 }).toEqual({ status: 'ready' });
      expect(await initialize()).toBe('200 ok');
    },
  );

  it('fails in every process while the switch is off', async () => {
    await cli(project, ['off']);
    await expect.poll(ready, { timeout: 20_000 }).toEqual({ status: 'failing', failing: ['off'] });
    await cli(project, ['on']);
    await expect.poll(ready, { timeout: 20_000 }).toEqual({ status: 'ready' });
  });
});

describe('the probes of a facade whose parts fail' + verifies('FL-16'), () => {
  it.each([
    ['state', ({ config }: AssembledFacade) => rmSync(path.join(config.state, DATABASE_FILE))],
    ['policy', ({ deps }: AssembledFacade) => vi.spyOn(deps.policy(), 'list').mockRejectedValue(new Error('trap'))],
    ['audit', ({ config }: AssembledFacade) => rmSync(config.audit.folder, { recursive: true })],
  ] as const)('say 503 with the reason %s, and the process stays live', async (part, fail) => {
    const facade = await startFacade('version: 1\nworkspace: ./workspace\nstate: ./state\nlisten: {port: 0}\n');
    const { assembled } = facade;
    const server = await serveHttp({
      facade: assembled.gateway,
      listen: assembled.config.listen,
      ...createAccess(() => assembled.config, assembled.config.listen),
      drainMs: 0,
      onFault: (thrown) => {
        throw thrown;
      },
    });
    const probe = async (route: string): Promise<string> => {
      const response = await fetch(new URL(route, server.url));
      return `${response.status} ${await response.text()}`;
    };
    try {
      expect([await probe('/livez'), await probe('/readyz')]).toEqual([
        '200 {"status":"live"}',
        '200 {"status":"ready"}',
      ]);
      fail(assembled);
      await expect
        .poll(() => probe('/readyz'), { timeout: 20_000 })
        .toBe(`503 {"status":"failing","failing":["${part}"]}`);
      expect(await probe('/livez')).toBe('200 {"status":"live"}');
    } finally {
      await server.close();
      await facade.close().catch(() => undefined);
    }
  });
});

describe('a readiness check' + verifies('ST-28'), () => {
  const FINE = {
    audit: { file: '/nonexistent/a.jsonl' },
    state: { refresh: () => undefined, stops: { list: () => new Map() } },
  } as unknown as Pick<SharedServices, 'audit' | 'state'>;
  const policy = { list: async () => [] } as unknown as Policy;

  inFull('lists the part that throws or does not answer', async () => {
    expect(await createReadiness(FINE, () => policy)()).toEqual(['audit']);
    const broken = (): never => {
      throw new TollgateError('STATE_FAILED');
    };
    const state = { refresh: broken, stops: { list: () => new Map() } } as unknown as SharedServices['state'];
    const never = { list: () => new Promise(() => undefined) } as unknown as Policy;
    expect(await createReadiness({ ...FINE, state }, () => never)()).toEqual(['audit', 'state', 'policy']);
  });

  it('runs once for many simultaneous requests', async () => {
    let lists = 0;
    const counting = { list: async () => void (lists += 1) } as unknown as Policy;
    const check = createReadiness(FINE, () => counting);
    await Promise.all([check(), check(), check()]);
    expect(lists).toBe(1);
    await sleep(600);
    await check();
    expect(lists).toBe(2);
  });
});
