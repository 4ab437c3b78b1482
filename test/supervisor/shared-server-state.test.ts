/**
 * Tests the state of servers that processes share: a command shows a server that another process runs or has given up,
 * and does not start a copy.
 * Covers: adapters/supervisor.
 */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { loadConfig } from '../../facade/config/load-config.ts';
import { OwnReports, readReports, type ServerStatus } from '../../facade/runtime/servers/server-reports.ts';
import { supervisionOwner } from '../../facade/runtime/servers/supervision.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import type { State } from '../../facade/state/state-port.ts';
import { cli, dataOf, server } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { startedIn } from '../process/child.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

let project: Project;
let facade: TestFacade | undefined;
let state: State;
beforeEach(() => {
  project = new Project();
});
afterEach(async () => {
  await state.close();
  await facade?.close();
  facade = undefined;
  project.remove();
});

const FALLEN: ServerStatus = {
  state: 'disabled',
  reason: 'Server "fallen" crashed 4 times within ten minutes of work and is disabled.',
  restarts: 3,
  badLines: 0,
};

interface Row {
  readonly name: string;
  readonly state: string;
  readonly reason: string;
  readonly version: string;
  readonly tools: number;
  readonly processes: readonly unknown[];
}

/** The description of a container engine that supports limits. */
const INFO = '{"MemoryLimit":true,"PidsLimit":true,"SecurityOptions":["name=seccomp"]}';

describe('a Tollgate process that starts', () => {
  it(
    'removes what killed processes of its folder left: folders of proxies, and containers' + verifies('HA-07'),
    async () => {
      const bin = path.join(project.folder, 'bin');
      mkdirSync(bin);
      const log = path.join(bin, 'log');
      writeFileSync(
        path.join(bin, 'docker'),
        `#!/bin/sh\necho "$@" >>'${log}'\ncase $1 in info) echo '${INFO}';; ps) echo tollgate-999999999-1-0123abcd;; esac\nexit 0\n`,
        { mode: 0o755 },
      );
      facade = await startFacade(
        `version: 1\nworkspace: ./workspace\nstate: ./state\nprograms: {docker: ${path.join(bin, 'docker')}}\nservers: {boxed: {command: x, isolation: container, sandbox: {image: "example/notes@sha256:${'0'.repeat(64)}"}}}\n`,
        { folder: project.folder, approved: [] },
      );
      const folder = loadConfig(project.file, { env: process.env, home: project.home }).state;
      state = openState(folder);
      const left = (mark: string): string => {
        const made = mkdtempSync(path.join(tmpdir(), 'tollgate-egress-'));
        writeFileSync(path.join(made, 'owner'), mark);
        return made;
      };
      const owner = supervisionOwner(folder);
      // The same state folder under its name in a container, where other processes exist.
      const elsewhere = `${createHash('sha256')
        .update(`${folder}\0${statSync('/proc/self/ns/pid').ino + 1}`)
        .digest('hex')
        .slice(0, 12)}.999999999.x`;
      expect(owner).toContain(
        createHash('sha256')
          .update(`${folder}\0${statSync('/proc/self/ns/pid').ino}`)
          .digest('hex')
          .slice(0, 12),
      );
      const [dead, own, other] = [left(owner.replace(/\.\d+\./, '.999999999.')), left(owner), left(elsewhere)];
      facade.assembled.warmUp();
      await expect
        .poll(() => (existsSync(log) ? readFileSync(log, 'utf8') : ''), { timeout: 20_000 })
        .toContain('rm --force tollgate-999999999-1-0123abcd');
      expect([dead, own, other].map((one) => existsSync(one))).toEqual([false, true, true]);
      for (const one of [own, other]) rmSync(one, { recursive: true });
    },
  );
});

describe('tollgate servers next to a running Tollgate', () => {
  it(
    'shows the state that the other reports, and starts only servers that no process runs' + verifies('PF-14', 'HE-10'),
    async () => {
      const [up, down] = [path.join(project.folder, 'up'), path.join(project.folder, 'down')];
      facade = await startFacade(
        `version: 1
workspace: ./workspace
state: ./state
limits: {connections: 1}
servers: {up: ${server(['chaos.mjs', 'ok'], `env: {CHAOS_STARTS: ${JSON.stringify(up)}}, start: eager, lifetime: keep-alive`)}, fallen: ${server(['chaos.mjs', 'ok'], `env: {CHAOS_STARTS: ${JSON.stringify(down)}}`)}}
principals: [{id: alice, stdio: true, owner: true}]
profiles: {default: {servers: [up, fallen], expose: {tools: ["up.*", "fallen.*"]}}}
rules: [{id: all, outcome: allow, when: {}}]
`,
        { folder: project.folder },
      );
      state = openState(loadConfig(project.file, { env: process.env, home: project.home }).state);
      facade.assembled.warmUp();
      await expect
        .poll(async () => (await readReports(state)).get('up'), { timeout: 20_000 })
        .toMatchObject([{ server: 'up', pid: process.pid, state: 'healthy', version: '1.2.3' }]);
      await new OwnReports(state).report(new Map([['fallen', FALLEN]]));
      // The report of a killed process.
      await state.put('health', `${'0'.repeat(32)} up`, JSON.stringify({ state: 'disabled', reason: 'Long ago.' }));

      const { out, code } = await cli(project, ['servers', '--json']);
      const rows = dataOf<{ servers: Row[] }>(out).servers.filter(({ name }) => name === 'up' || name === 'fallen');
      expect(rows).toMatchObject([
        {
          name: 'up',
          state: 'healthy',
          reason: '',
          version: '1.2.3',
          processes: [{ pid: process.pid, state: 'healthy' }],
        },
        {
          name: 'fallen',
          state: 'disabled',
          reason: FALLEN.reason,
          processes: [{ pid: process.pid, state: 'disabled' }],
        },
      ]);
      expect([code, startedIn(up).length, startedIn(down).length]).toEqual([5, 1, 0]);
      expect((await cli(project, ['servers'])).err).toContain(`fallen: ${FALLEN.reason}`);
      const { findings } = dataOf<{ findings: { id: string; name: string; state: string; seen: string }[] }>(
        (await cli(project, ['doctor', '--json'])).out,
      );
      expect(findings.filter(({ id }) => id === 'disabled-server')).toMatchObject([
        { name: 'server fallen', state: 'weak', seen: `process ${process.pid}: ${FALLEN.reason}` },
      ]);

      // After a kill or a withdrawn consent, older reports do not count.
      await cli(project, ['kill', 'fallen']);
      await cli(project, ['revoke', 'up']);
      const after = dataOf<{ servers: Row[] }>((await cli(project, ['servers', '--json'])).out).servers;
      expect(after.filter(({ name }) => name === 'up' || name === 'fallen').map((row) => row.state)).toEqual([
        'not approved',
        'killed',
      ]);
      await facade.close();
      facade = undefined;
      expect([...(await readReports(state)).keys()]).toEqual(['fallen']);
    },
  );
});
