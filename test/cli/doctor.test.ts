/** Tests `tollgate doctor`: its findings about servers, clients and own files, `--fix`, and the ids in docs/cli.md. */

import { chmodSync, mkdirSync, readFileSync, rmSync, statSync, utimesSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { type DoctorFinding, FINDINGS, type FindingId } from '../../facade/attention/doctor-findings.ts';
import { EXIT } from '../../facade/cli/command-io.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { APP_MODULE } from '../../facade/main.ts';
import { openPlaces } from '../../facade/secrets/secrets.ts';
import { atHome, type Home, WITH_INSTALLERS } from '../clients/home.ts';
import { VALUES } from '../clients/samples.ts';
import { approveAll } from '../consent/approve-servers.ts';
import { codeIn, rowsOf, sectionOf } from '../docs/markdown.ts';
import { inFull } from '../harness/full-tests.ts';
import { dataOf, start } from './terminal.ts';

interface Data {
  readonly ok: boolean;
  readonly findings: readonly (DoctorFinding & { readonly fixable: boolean })[];
  readonly mended: readonly FindingId[];
}

/** The findings about the machine are tested in test/sandbox/isolation-doctor.test.ts. */
const wiring = { ...APP_MODULE, examine: async () => [] };
const doctor = (home: Home, ...words: readonly string[]) =>
  start(home.project, ['doctor', ...words], { env: home.env }, wiring).ended;
const look = async (home: Home, ...words: readonly string[]) =>
  dataOf<Data>((await doctor(home, '--json', ...words)).out);
const of = ({ findings }: Data, id: FindingId) =>
  findings.filter((finding) => finding.id === id && finding.state !== 'ok');
const config = (home: Home) => loadConfig(home.project.file, { env: home.env, home: home.project.home });

describe('tollgate doctor', () => {
  inFull('lists the servers that each client starts without Tollgate, with the command that moves them', async () => {
    await atHome(
      ['claude-code', 'cursor', 'codex', 'zed'],
      async (home) => {
        const { ok, findings } = await look(home);
        expect(ok).toBe(true);
        expect(findings.filter(({ id }) => id === 'bypass').map(({ seen, fix }) => [seen, fix])).toEqual([
          ['starts without Tollgate: github, sentry', 'tollgate export --client claude-code --replace'],
          ['starts without Tollgate: linear', 'tollgate export --client cursor --user --replace'],
          ['starts without Tollgate: postgres-zed, older, extension', 'tollgate export --client zed --replace'],
          ['starts without Tollgate: context7, figma', 'tollgate export --client codex --replace'],
        ]);
        const { out } = await doctor(home);
        for (const value of VALUES) expect(out).not.toContain(value);
        await home.run(['export', '--client', 'codex', '--replace', '--secrets', 'vault', '--yes']);
        expect((await look(home)).findings.filter(({ id }) => id === 'bypass')).toHaveLength(3);
      },
      WITH_INSTALLERS,
    );
  });

  it('lists them without a configuration too', async () => {
    await atHome(['cursor'], async (home) => {
      expect((await look(home, '--config', 'none.yaml')).findings.find(({ id }) => id === 'bypass')?.seen).toContain(
        'linear',
      );
    });
  });

  it('lists servers without approval, and creates no state for that', async () => {
    await atHome(['cursor'], async (home) => {
      await home.run(['import', '--all', '--yes']);
      const state = config(home).state;
      expect(of(await look(home), 'unapproved')).toMatchObject([
        {
          state: 'weak',
          fix: 'tollgate approve linear',
          seen: expect.stringContaining('no one has approved it') as string,
        },
      ]);
      expect(home.exists(path.relative(home.project.home, path.join(state, 'state.db')))).toBe(false);
      await approveAll(config(home), ['linear']);
      expect(of(await look(home), 'unapproved')).toEqual([]);
    });
  });

  it('lists servers that differ from what was approved as missing, with the reason', async () => {
    await atHome(
      [],
      async (home) => {
        home.project.write('work/a.txt', '');
        home.project.write('server.mjs', 'one');
        home.project.write('tool', '#!/bin/sh\n');
        chmodSync(path.join(home.project.folder, 'tool'), 0o755);
        await approveAll(config(home), ['same', 'edited', 'removed']);
        expect(of(await look(home), 'changed-approval')).toEqual([]);
        home.project.write('server.mjs', 'two');
        rmSync(path.join(home.project.folder, 'tool'));
        const data = await look(home);
        expect([data.ok, (await doctor(home)).code]).toEqual([false, EXIT.unexpected]);
        expect(of(data, 'changed-approval')).toMatchObject([
          {
            name: 'server edited',
            state: 'missing',
            seen: 'Server "edited" waits for its owner, because it changed: a file that it runs differs from what was approved.',
            fix: 'The owner reviews the change and approves it with `tollgate approve edited`.',
          },
          {
            name: 'server removed',
            state: 'missing',
            seen: 'Server "removed" cannot start: the program that its command names does not exist.',
          },
        ]);
        expect((await home.run(['servers'])).err).toContain(
          'Server "removed" cannot start: the program that its command names does not exist.',
        );
      },
      `version: 1
workspace: ./work
servers:
  same: {command: node, args: [--version], profiles: [default]}
  edited: {command: node, args: [server.mjs], profiles: [default]}
  removed: {command: ./tool, profiles: [default]}
`,
    );
  });

  it('lists unusable servers and missing secrets of servers that a profile reaches', async () => {
    await atHome(
      [],
      async (home) => {
        const data = await look(home);
        expect([data.ok, (await doctor(home)).code]).toEqual([false, EXIT.unexpected]);
        expect(of(data, 'unusable-server').map(({ name }) => name)).toEqual(['server gone']);
        expect(of(data, 'fetching-server')).toMatchObject([
          {
            name: 'server fetched',
            state: 'missing',
            seen: 'npx downloads its package at each start, and its sandbox has no network',
            fix: 'install the package, and name its own program',
          },
        ]);
        expect((await home.run(['check'])).err).toContain(
          'warning: fetched cannot start: npx downloads its package at each start, and its sandbox has no network; ' +
            'install the package, and name its own program\n',
        );
        expect(of(data, 'secret-missing').map(({ name, fix }) => [name, fix])).toEqual([
          ['secret a.key', 'tollgate secret set a.key'],
          ['secret b.key', 'set the variable NO_SUCH where Tollgate runs'],
        ]);
        expect((await home.run(['check'])).err).toContain(
          'warning: secret b.key is missing, and b cannot start without it; ' +
            'set the variable NO_SUCH where Tollgate runs\n',
        );
        await openPlaces({ state: config(home).state, env: {} }).vault.set('a.key', 'a-value-of-it');
        expect(of(await look(home), 'secret-missing').map(({ name }) => name)).toEqual(['secret b.key']);
      },
      `version: 1
include: [none.json]
secrets: {b.key: {env: NO_SUCH}}
servers:
  a: {command: x, env: {K: "\${secret:a.key}"}, profiles: [default]}
  b: {command: x, env: {K: "\${secret:b.key}"}, profiles: [default]}
  gone: {profiles: [default]}
  fetched: {command: npx, args: [-y, some-server], profiles: [default]}
  idle: {command: y, env: {K: "\${secret:idle.key}"}}
`,
    );
  });

  it('lists missing programs and scripts', async () => {
    await atHome(
      [],
      async (home) => {
        const { findings } = dataOf<Data>((await home.run(['doctor', '--json'])).out);
        const lacking = findings
          .filter(({ id }) => id === 'program-missing' || id === 'script-missing')
          .map(({ id, name, seen }) => [id, name, seen]);
        expect(lacking).toEqual([
          ['program-missing', 'server a', 'the program no-such-program does not exist'],
          ['script-missing', 'server b', 'gone/index.js does not exist'],
        ]);
      },
      `version: 1
servers:
  a: {command: no-such-program, profiles: [default]}
  b: {command: ${JSON.stringify(process.execPath)}, args: [gone/index.js, other], profiles: [default]}
  idle: {command: no-such-program}
`,
    );
  });
});

describe('tollgate doctor --fix', () => {
  it('makes readable files private and removes old backups; without --fix nothing changes', async () => {
    await atHome(['cursor'], async (home) => {
      await home.run(['import', '--all', '--copy', '--secrets', 'vault', '--yes']);
      const { state } = config(home);
      const [backup = ''] = (await import('../../facade/clients/changes/backups.ts'))
        .listBackups(state)
        .map(({ file }) => file);
      utimesSync(backup, 1, 1);
      chmodSync(state, 0o755);
      chmodSync(path.join(state, 'vault.key'), 0o644);
      const before = await look(home);
      expect(before.ok).toBe(false);
      for (const id of ['state-folder', 'vault-files', 'old-backups'] as const)
        expect(of(before, id)).toMatchObject([{ fixable: true }]);
      expect((await doctor(home)).err).toContain(
        'tollgate doctor --fix does this: state-folder, vault-files, old-backups.',
      );
      expect([statSync(state).mode & 0o777, statSync(path.join(state, 'vault.key')).mode & 0o777]).toEqual([
        0o755, 0o644,
      ]);
      const { err } = await doctor(home, '--fix');
      expect(err).toContain(`fixing state folder: chmod 700 ${state}`);
      expect([statSync(state).mode & 0o777, statSync(path.join(state, 'vault.key')).mode & 0o777]).toEqual([
        0o700, 0o600,
      ]);
      expect(statSync(backup, { throwIfNoEntry: false })).toBeUndefined();
      expect(await look(home, '--fix')).toMatchObject({ mended: [] });
    });
  });

  it('approves no server, moves none and asks for no secret', async () => {
    await atHome(['cursor'], async (home) => {
      await home.run(['import', '--all', '--yes']);
      const before = home.snapshot();
      const data = await look(home, '--fix');
      expect(of(data, 'unapproved')).toHaveLength(1);
      expect(of(data, 'bypass')).toHaveLength(1);
      expect(home.snapshot()).toEqual(before);
    });
  });

  it('reports a repair that failed', async () => {
    await atHome([], async (home) => {
      const { state } = config(home);
      mkdirSync(state, { recursive: true });
      chmodSync(state, 0o755);
      const finding: DoctorFinding = {
        id: 'opa',
        name: 'x',
        state: 'missing',
        seen: 's',
        fix: 'f',
        repair: () => {
          throw Object.assign(new Error('no'), { code: 'EPERM' });
        },
      };
      const { err, code } = await start(
        home.project,
        ['doctor', '--fix'],
        { env: home.env },
        { ...APP_MODULE, examine: async () => [finding] },
      ).ended;
      expect(err).toContain('fixing x: f\n  not done (EPERM)\n');
      expect(code).toBe(EXIT.unexpected);
    });
  });
});

describe('the ids of findings', () => {
  const ROOT = path.join(import.meta.dirname, '..', '..');
  const ids = Object.keys(FINDINGS) as FindingId[];

  it('are the same in docs/cli.md, with what --fix repairs', () => {
    const rows = rowsOf(sectionOf('docs/cli.md', '## tollgate doctor')).filter(
      (row) => row.length === 3 && row[0]?.startsWith('`'),
    );
    expect(rows.map(([id = '']) => codeIn(id)[0]).sort()).toEqual([...ids].sort());
    for (const [id = '', , fixed = ''] of rows)
      expect(fixed, id).toBe(FINDINGS[codeIn(id)[0] as FindingId] === 'fix' ? 'yes' : 'no');
  });

  it('are all used by the code', () => {
    const text = [
      'facade/cli/configuration/doctor-command.ts',
      'facade/attention/own-files.ts',
      'facade/attention/cheap-findings.ts',
      'facade/cli/configuration/doctor-servers.ts',
      'adapters/sandbox/isolation-doctor.ts',
    ]
      .map((file) => readFileSync(path.join(ROOT, file), 'utf8'))
      .join('\n');
    expect(ids.filter((id) => !text.includes(`'${id}'`))).toEqual([]);
  });
});
