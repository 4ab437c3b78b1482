/**
 * Tests edits under `tollgate run` and `tollgate serve` as processes: what they notice, print and do.
 * Covers: facade/cli/serving, facade/serve, facade/runtime.
 */

import { renameSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { Child } from './child.ts';

let project: Project;
let child: Child;

const CONFIG = 'version: 1\nworkspace: ./workspace\npolicies: [rules.yaml]\nlisten: {port: 0}\n';
const rules = (...texts: readonly string[]): string => `rules: [${texts.join(', ')}]\n`;
const READ = '{id: read, outcome: allow, when: {verbs: [read]}}';
const WRITE = '{id: write, outcome: allow, when: {verbs: [write]}}';

beforeEach(() => {
  project = new Project();
  project.write('workspace/a.txt', 'a');
  project.write('rules.yaml', rules(READ));
  project.write('tollgate.yaml', CONFIG);
});
afterEach(async () => {
  await child.kill('SIGKILL');
  project.remove();
});

const said = (text: string): Promise<void> =>
  expect
    .poll(() => child.err, { timeout: 20_000 })
    .toContain(text)
    .then(() => undefined);

describe('tollgate run', () => {
  inFull(
    'applies edits, refuses a configuration that does not load, and notifies its client of a changed list',
    async () => {
      child = new Child(project, ['run']);
      await child.hello();
      const names = async (): Promise<readonly string[]> =>
        (await child.ask('tools/list')).result?.tools?.map(({ name }) => name) ?? [];
      expect(await names()).not.toContain('write');
      project.write('rules.yaml', rules(READ, '{id: write, outcome: alow, when: {}}'));
      await said('NOT RELOADED. The previous configuration stays in force');
      await said('rules.yaml:1:');
      expect((await child.call('read', { path: 'a.txt' })).result?.content?.[0]?.text).toBe('a');
      project.write('rules.next', rules(READ, WRITE));
      renameSync(path.join(project.folder, 'rules.next'), path.join(project.folder, 'rules.yaml'));
      await said('Reloaded: policy revision');
      // Two changes may cause one notification or two.
      await expect
        .poll(() => child.lines.filter((line) => line.method === 'notifications/tools/list_changed').length, {
          timeout: 20_000,
        })
        .toBeGreaterThan(0);
      expect(await names()).toContain('write');
      expect(child.err.match(/NOT RELOADED/g)).toHaveLength(1);
    },
  );

  inFull('answers IDENTITY after its principal was removed, and ends normally', async () => {
    project.write('tollgate.yaml', `${CONFIG}principals: [{id: mia, stdio: true}]\n`);
    child = new Child(project, ['run', '--as', 'mia']);
    await child.hello();
    project.write('tollgate.yaml', `${CONFIG}principals: [{id: tom, stdio: true}]\n`);
    await said('A session of mia has ended');
    expect((await child.call('read', { path: 'a.txt' })).error?.data?.code).toBe('IDENTITY');
    child.process.stdin.end();
    expect(await child.ended).toEqual({ code: 0, signal: null });
  });

  it('ends on SIGHUP, because its terminal was closed', async () => {
    child = new Child(project, ['run']);
    await child.hello();
    expect(await child.kill('SIGHUP')).toEqual({ code: 0, signal: null });
  });
});

describe('tollgate serve', () => {
  const TOKEN = 'token-of-mia-long-enough';
  const ask = async (url: string, token: string): Promise<number> => {
    const body = JSON.stringify({
      jsonrpc: '2.0',
      id: 1,
      method: 'initialize',
      params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 't', version: '1' } },
    });
    return (
      await fetch(url, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          accept: 'application/json, text/event-stream',
          authorization: `Bearer ${token}`,
        },
        body,
      })
    ).status;
  };

  it('reloads at once on SIGHUP, checks the new tokens, and keeps its address', async () => {
    child = new Child(project, ['serve', '--json'], { env: { MIA: TOKEN } });
    const { url } = JSON.parse(await child.firstLine()) as { url: string };
    expect(await ask(url, TOKEN)).toBe(401);
    project.write('tollgate.yaml', `${CONFIG}principals: [{id: mia, token: "\${env:MIA}"}, {id: local}]\n`);
    child.process.kill('SIGHUP');
    await said('Reloaded: policy revision');
    expect(await ask(url, TOKEN)).toBe(200);
    project.write('tollgate.yaml', CONFIG.replace('port: 0', 'port: 7999'));
    await said('listen cannot change while Tollgate runs; restart it, or restore the former value');
    expect(await ask(url, TOKEN)).toBe(200);
    project.write('tollgate.yaml', CONFIG);
    await expect.poll(() => child.err.match(/Reloaded/g)?.length, { timeout: 20_000 }).toBe(2);
    expect(await ask(url, TOKEN)).toBe(401);
    expect(await child.kill('SIGTERM')).toEqual({ code: 0, signal: null });
  });
});
