/** Tests `tollgate grants`: who may decide, what is printed, exit codes, and the effect in a running facade. */
import { existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { EXIT } from '../../facade/cli/command-io.ts';
import type { Grant } from '../../facade/consent/grants/grant.ts';
import { ApprovedTools } from '../../facade/consent/servers/approved-tools.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import { Project } from '../config/project.ts';
import { verifies } from '../verifies.ts';
import { cli, dataOf } from './terminal.ts';

const CONFIG = `
principals: [{id: boss, owner: true, stdio: true}, {id: guest, stdio: true, profiles: [harbor]}]
workspace: ./workspace
state: ./state
`;
const CALL = 'mcp:tools.call';
const PAGE = 'https://app.example';
let project: Project;
beforeAll(() => {
  project = new Project();
  project.write('workspace/README.md', '');
  project.write('tollgate.yaml', CONFIG);
});
afterAll(() => project.remove());

const grants = (...words: string[]): ReturnType<typeof cli> => cli(project, ['grants', ...words]);
const asBoss = (...words: string[]): ReturnType<typeof cli> => grants(...words, '--as', 'boss');

/** The beginning of an id, as a person sees it. */
const shown = ({ id }: Grant): string => id.replace('grant_', '').slice(0, 12);

describe('tollgate grants', () => {
  it('grants nothing at first, and writes no log for a list', async () => {
    expect(await grants('list')).toEqual({ code: EXIT.ok, out: '', err: 'Nothing is granted.\n' });
    expect(dataOf((await grants('list', '--json')).out)).toEqual({ grants: [] });
    const audit = path.join(project.folder, 'state', 'audit');
    expect(existsSync(audit) ? readdirSync(audit) : []).toEqual([]);
  });

  it('lets an owner add, check, list and revoke a grant' + verifies('HB-02'), async () => {
    const added = await asBoss(
      'add',
      PAGE,
      CALL,
      '--profile',
      'harbor',
      '--tools',
      'files.read_file, files.list',
      '--for',
      '2h',
      '--json',
    );
    const { grant } = dataOf<{ grant: Grant }>(added.out);
    expect(grant).toMatchObject({
      origin: PAGE,
      profile: 'harbor',
      scope: CALL,
      kind: 'once',
      tools: ['files.read_file', 'files.list'],
      by: 'boss',
    });
    expect((grant.expiresAt ?? 0) - grant.at).toBeGreaterThan(7_199_000);
    const check = (tool: string, profile = 'harbor'): ReturnType<typeof cli> =>
      grants('check', PAGE, CALL, '--profile', profile, '--tool', tool);
    expect(await check('files.read_file')).toMatchObject({ code: EXIT.ok, out: `granted by ${shown(grant)}\n` });
    expect(await check('files.wipe')).toMatchObject({ code: EXIT.refused, out: 'denied\n' });
    expect(await check('files.read_file', 'default')).toMatchObject({
      code: EXIT.approval,
      out: 'not granted: no owner has decided\n',
    });
    const { out } = await grants('list', '--origin', PAGE, '--profile', 'harbor');
    expect(out).toMatch(/^ID +ORIGIN +PROFILE +KIND +SCOPE AND TOOLS +UNTIL +BY\n/);
    expect(out).toContain(shown(grant));
    expect(await asBoss('revoke', grant.id)).toMatchObject({
      code: EXIT.ok,
      err: expect.stringContaining('It no longer applies to any call.'),
    });
    expect(await asBoss('revoke', grant.id)).toMatchObject({
      code: EXIT.usage,
      err: expect.stringContaining('There is no grant with the id'),
    });
    expect(
      (await cli(project, ['audit', 'export', '--type', 'grant'])).out
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line) as { event: string; by: string; user: string })
        .map(({ event, by, user }) => [event, by, user]),
    ).toEqual([
      ['added', 'boss', 'somebody'],
      ['revoked', 'boss', 'somebody'],
    ]);
  });

  it(
    'keeps a grant until it is revoked by the beginning of its id, and says what ended' + verifies('HB-02'),
    async () => {
      const add = async (): Promise<Grant> =>
        dataOf<{ grant: Grant }>((await asBoss('add', PAGE, 'mcp:tools.list', '--kind', 'always', '--json')).out).grant;
      const [one, two] = [await add(), await add()];
      expect((await grants('list')).out).toMatch(new RegExp(`${shown(one)} .* revoked +boss`));
      const start = (id: string): string =>
        id.slice(0, [...id].findIndex((letter, at) => letter !== (id === one.id ? two : one).id[at]) + 1);
      for (const shared of ['grant_', '', start(one.id).slice(0, -1)])
        expect(await asBoss('revoke', shared)).toMatchObject({ code: EXIT.usage });
      expect(await asBoss('revoke', start(one.id))).toMatchObject({
        code: EXIT.ok,
        err: 'Revoked: mcp:tools.list to https://app.example with profile default. It no longer applies to any call.\n',
      });
      expect((await grants('list')).out).not.toContain(one.id);
      expect((await asBoss('revoke', two.id.slice('grant_'.length, 20))).code).toBe(EXIT.ok);
    },
  );

  it('warns about an unknown tool, and grants it nevertheless', async () => {
    const state = openState(path.join(project.folder, 'state'));
    await new ApprovedTools(state).put('notes', {
      tools: [{ name: 'find', inputSchema: {} }],
      prompts: [],
      hints: false,
    });
    await state.close();
    const add = (tools: string): ReturnType<typeof cli> => asBoss('add', PAGE, CALL, '--tools', tools);
    expect(await add('notes.fnd')).toMatchObject({
      code: EXIT.ok,
      err: expect.stringMatching(
        /^warning: No approved tool of notes is called "fnd"; did you mean "find"\?\nGranted /,
      ),
    });
    expect((await add('workspce.read')).err).toMatch(
      /^warning: There is no server "workspce" yet; did you mean "workspace"\?\nGranted /,
    );
    for (const known of ['notes.find', 'notes.*', '*', 'workspace.read'])
      expect((await add(known)).err).toMatch(/^Granted /);
  });

  it('adds a denial, a grant for one tab, and a grant with an end', async () => {
    expect(await asBoss('add', PAGE, CALL, '--kind', 'deny')).toMatchObject({
      code: EXIT.ok,
      err: expect.stringMatching(
        /^Denied mcp:tools\.call to https:\/\/app\.example with profile default, until revoked\. Withdraw it with: tollgate grants revoke [0-9a-f]{12}/,
      ),
    });
    expect(await grants('check', PAGE, CALL, '--json')).toMatchObject({
      code: EXIT.refused,
      out: expect.stringContaining('"DENIED"'),
    });
    expect(await asBoss('add', PAGE, 'browser:activeTab.read', '--tab', '9')).toMatchObject({
      code: EXIT.ok,
      err: expect.stringContaining('tab 9'),
    });
    expect(await grants('check', PAGE, 'browser:activeTab.read', '--tab', '9')).toMatchObject({ code: EXIT.ok });
    expect(await grants('check', PAGE, 'browser:activeTab.read', '--session', '9')).toMatchObject({
      code: EXIT.approval,
    });
  });

  it('refuses principals that are no owner, and input that is not exact', async () => {
    expect(await grants('add', PAGE, CALL, '--as', 'guest')).toMatchObject({
      code: EXIT.auth,
      err: expect.stringContaining('only an owner grants'),
    });
    expect(await grants('revoke', `grant_${'0'.repeat(32)}`, '--as', 'guest')).toMatchObject({ code: EXIT.auth });
    for (const words of [
      ['https://app.example/', CALL],
      [PAGE, 'mcp:tools.delete'],
      [PAGE, 'tools'],
      [PAGE, CALL, '--profile', 'nope'],
      [PAGE, CALL, '--for', 'long'],
      [PAGE, CALL, '--for', '0s'],
      [PAGE, CALL, '--tools', ''],
      [PAGE, CALL, '--kind', 'always', '--tab', '1'],
      ['\u001b[2J', CALL],
    ]) {
      const answer = await asBoss('add', ...words);
      expect([words, answer.code]).toEqual([words, EXIT.usage]);
      expect(answer.err).not.toContain('\u001b');
    }
    expect(await grants('check', '*', CALL)).toMatchObject({ code: EXIT.usage });
  });
});
