/** Tests that a server's own errors reveal no path of the host, except those that the caller knows. */
import { homedir } from 'node:os';
import { afterEach, describe, expect, it } from 'vitest';
import { hidePaths } from '../../facade/output/host-paths.ts';
import { type RawFacade, startRaw, tool } from '../properties/raw-facade.ts';
import { verifies } from '../verifies.ts';

describe('paths of the host in a text of a server' + verifies('HA-24', 'ST-92'), () => {
  const hide = (text: string, args = '{}'): string => hidePaths('/home/ann/project', args)(text).value;

  it.each([
    [
      "ENOENT: no such file or directory, open '/home/ann/.config/token one.json'",
      "ENOENT: no such file or directory, open '[host path]/token one.json'",
    ],
    [
      'Error: x\n    at run (/Users/ann/.npm/_npx/1/index.js:10:5)\n    at file:///opt/app/b.mjs:1:2',
      'Error: x\n    at run ([host path]/index.js:10:5)\n    at file://[host path]/b.mjs:1:2',
    ],
    ['HOME=/home/ann, cwd:/tmp/work-7/x. Then', 'HOME=[host path], cwd:[host path]/x. Then'],
    [
      'in /home/ann/project-secret/key and /home/ann/project/../.ssh/id_rsa',
      'in [host path]/key and [host path]/id_rsa',
    ],
    ['say "/home/ann/a and go on', 'say "[host path]/a and go on'],
    ['/root', '[host path]'],
  ])('are hidden: %j', (text, told) => expect(hide(text)).toBe(told));

  it.each([
    'in /home/ann/project/src/a.ts and "/home/ann/project"',
    'GET /repos/x/y failed: 404',
    'see https://example.org/home/ann/x and //cdn/usr/x',
    'a/home/b, ./tmp/x, ~/home/x, src/var/x.ts',
    'homes: /homes/x, 5 /usrs',
    '',
  ])('stay if they are not paths of the host: %j', (text) =>
    expect(hidePaths('/home/ann/project', '{}')(text)).toEqual({ value: text, count: 0 }),
  );

  it('stay if the caller wrote them, with the folders above them', () => {
    const args = JSON.stringify({ path: '/home/ann/My Docs/a.txt', command: 'cat /etc/hosts' });
    expect(hide('\'/home/ann/My Docs/a.txt\' is not in "/home/ann/My Docs"; /etc/hosts; /etc/shadow', args)).toBe(
      '\'/home/ann/My Docs/a.txt\' is not in "/home/ann/My Docs"; /etc/hosts; [host path]',
    );
  });

  it('are found in one pass', () => {
    const text = '"/home/a \''.repeat(100_000);
    const started = process.cpuUsage().user;
    hide(text);
    expect(process.cpuUsage().user - started).toBeLessThan(2_000_000);
  });
});

describe('errors of a server behind the facade' + verifies('HA-24', 'ST-92'), () => {
  let facade: RawFacade;
  afterEach(() => facade.close());

  it('contain no path of the host, as results and as JSON-RPC errors, and other results stay unchanged', async () => {
    const place = `${homedir()}/private-7/secret.txt`;
    const content = [{ type: 'text', text: `cannot open ${place}` }];
    facade = await startRaw({
      one: {
        tools: ['fails', 'throws', 'works'].map((name) => tool(name)),
        answers: {
          fails: { raw: JSON.stringify({ content, structuredContent: { at: place }, isError: true }) },
          throws: {
            error: JSON.stringify({ code: -32050, message: `no ${place}`, data: { stack: [`at ${place}:1:2`] } }),
          },
          works: { raw: JSON.stringify({ content }) },
        },
      },
    });
    const session = facade.open('me');
    await facade.list(session);
    const failed = await facade.call(session, 'one_fails', {});
    expect(JSON.stringify(failed)).toContain('cannot open [host path]/secret.txt');
    const thrown = await facade.call(session, 'one_throws', {});
    expect(thrown.error).toMatchObject({
      message: 'no [host path]/secret.txt',
      data: { stack: ['at [host path]/secret.txt:1:2'] },
    });
    expect(JSON.stringify([failed, thrown])).not.toContain('private-7');
    expect((await facade.call(session, 'one_works', {})).text).toContain(`cannot open ${place}`);
    expect((await facade.call(session, 'one_fails', { path: place })).text).toContain(`cannot open ${place}`);
  });
});
