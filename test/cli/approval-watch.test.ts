/** Tests `tollgate approvals watch` with requests of another process, and the notices that it sends. */
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { useHelpers } from '../../catalogs/programs/helper-programs.ts';
import { desktopNotice } from '../../facade/attention/desktop-notice.ts';
import { EXIT } from '../../facade/cli/command-io.ts';
import { ApprovalOwner, askFor } from '../approvals/owner-context.ts';
import { Project } from '../config/project.ts';
import { verifies } from '../verifies.ts';
import { cli, dataOf, start } from './terminal.ts';

const CONFIG = `version: 1
workspace: ./workspace
state: ./state
servers: {mail: {command: node}}
principals: [{id: olga, owner: true, stdio: true}, {id: guest, stdio: true}]
profiles: {default: {servers: [mail]}}
rules: [{id: asks, outcome: ask, when: {tools: [mail.send]}}]
programs: {notify-send: PROGRAM}
`;

let project: Project;
let other: ApprovalOwner;
let notices: string;

beforeEach(() => {
  project = new Project();
  notices = path.join(project.root, 'notices');
  const program = path.join(project.root, 'bin', 'notify-send');
  mkdirSync(path.dirname(program));
  writeFileSync(
    program,
    `#!/bin/sh\nfor one in "$@"; do printf '[%s]' "$one"; done >> '${notices}'\necho >> '${notices}'\n`,
  );
  chmodSync(program, 0o755);
  project.write('workspace/README.md', '# Hello\n');
  project.write('tollgate.yaml', CONFIG.replace('PROGRAM', program));
  other = new ApprovalOwner(`${project.folder}/state`);
});
afterEach(async () => {
  useHelpers({ programs: {}, writable: [] });
  await other.close();
  project.remove();
});

const watch = (...more: readonly string[]) => ['approvals', 'watch', '--as', 'olga', ...more];
const DESKTOP = { DBUS_SESSION_BUS_ADDRESS: 'unix:path=/nowhere' };

describe('approvals watch', () => {
  it(
    'shows what waits and what comes, once each, with bell and notice, until a signal' + verifies('FH-39'),
    async () => {
      await askFor(other.state, { argsText: '{"n":1}' });
      const running = start(project, watch(), { isTTY: true, env: DESKTOP });
      await expect.poll(() => running.said.out).toContain('{"n":1}');
      await askFor(other.state, { argsText: '{"n":2,"text":"\u202e"}' });
      await expect.poll(() => running.said.out).toContain('{"n":2,');
      const [second] = (await other.all('pending')).slice(1);
      expect(running.said.out).toContain(`tollgate approvals approve ${second?.item.id}`);
      await expect.poll(() => existsSync(notices) && readFileSync(notices, 'utf8').split('\n').length).toBe(3);
      running.stop();
      const { code, out, err } = await running.ended;
      expect(code).toBe(EXIT.ok);
      expect(err).toBe('Watching for requests, with the bell and a notice on the desktop. Ctrl-C ends it.\n');
      expect(out.match(/asks for mail\.send \(write\)/g)).toHaveLength(2);
      expect(out.split('\u0007')).toHaveLength(3);
      expect(out).not.toContain('\u202e');
      expect(readFileSync(notices, 'utf8').split('\n')[0]).toBe(
        '[--app-name=Tollgate][--][Tollgate][agent asks for mail.send]',
      );
    },
  );

  it(
    'prints one line of JSON for each request, without a bell, and starts without a desktop' + verifies('FH-39'),
    async () => {
      await askFor(other.state, { argsText: '{"n":1}' });
      const running = start(project, watch('--json'));
      await expect.poll(() => running.said.out).toContain('\n');
      running.stop();
      const { code, out, err } = await running.ended;
      expect([code, err]).toEqual([EXIT.ok, 'Watching for requests. Ctrl-C ends it.\n']);
      expect(dataOf(out)).toMatchObject({ state: 'pending', server: 'mail', tool: 'send', arguments: '{"n":1}' });
      expect(existsSync(notices)).toBe(false);
    },
  );

  it('prints a line when a shown request is approved, denied or used' + verifies('FH-39'), async () => {
    await askFor(other.state, { argsText: '{"n":1}' });
    await askFor(other.state, { argsText: '{"n":2}' });
    const [text, data] = [start(project, watch()), start(project, watch('--json'))];
    await expect.poll(() => text.said.out).toContain('{"n":2}');
    await expect.poll(() => data.said.out.split('\n').length).toBe(3);
    const [first, second] = await other.all('pending');
    const line = (stored: typeof first, what: string): string => `${stored?.item.id} (mail.send) was ${what}\n`;
    await other.approveOne(first!);
    await expect.poll(() => text.said.out).toContain(line(first, 'approved by olga'));
    await other.deny(undefined, second);
    await expect.poll(() => text.said.out).toContain(line(second, 'denied by olga'));
    await expect.poll(() => data.said.out.split('\n').length).toBe(5);
    expect(await askFor(other.state, { argsText: '{"n":1}' })).toBe(`used ${first?.item.id}`);
    await expect.poll(() => text.said.out).toContain(line(first, 'approved and used'));
    await expect.poll(() => data.said.out.split('\n').length).toBe(6);
    for (const running of [text, data]) running.stop();
    await text.ended;
    const lines = (await data.ended).out
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as object);
    expect(lines.slice(2)).toMatchObject([
      { id: first?.item.id, event: 'approved', by: 'olga' },
      { id: second?.item.id, event: 'denied', by: 'olga' },
      { id: first?.item.id, event: 'used' },
    ]);
  });

  it('is for owners only' + verifies('FH-39'), async () => {
    expect(await cli(project, ['approvals', 'watch', '--as', 'guest'])).toMatchObject({ code: EXIT.auth, out: '' });
  });
});

describe('a notice on the desktop', () => {
  it('passes a name as one argument that is no option, markup or escape' + verifies('FH-39'), async () => {
    useHelpers({ programs: { 'notify-send': path.join(project.root, 'bin', 'notify-send') }, writable: [] });
    const send = desktopNotice({ env: DESKTOP, home: project.home }, 'linux');
    send?.(`--urgency=critical <b>$(id)</b> \\n"; do shell script "x`);
    await expect
      .poll(() => existsSync(notices) && readFileSync(notices, 'utf8'))
      .toBe('[--app-name=Tollgate][--][Tollgate][--urgency?critical ?b???id??/b? ?n?? do shell script ?x]\n');
  });

  it('is not sent without a session of a desktop, or if agents may write the program' + verifies('FH-39'), () => {
    const file = path.join(project.root, 'bin', 'notify-send');
    useHelpers({ programs: { 'notify-send': file }, writable: [] });
    expect(desktopNotice({ env: {}, home: project.home }, 'linux')).toBeUndefined();
    useHelpers({ programs: { 'notify-send': file }, writable: [path.dirname(file)] });
    expect(desktopNotice({ env: DESKTOP, home: project.home }, 'linux')).toBeUndefined();
  });
});
