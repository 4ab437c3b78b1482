/** Tests a fleet as it is run: bundles built and signed by opa, a static server, facades that follow it. */
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Reloader } from '../../facade/runtime/reloader.ts';
import { buildBundle, keyPair, Publisher, signBundle } from './bundle-server.ts';
import { Reloadable } from './edited-project.ts';

const keys = keyPair();
const bundles: Buffer[] = [];
let unsigned: Buffer;
let publisher: Publisher;
let facade: Reloadable;
let reloader: Reloader | undefined;
let said: string[];

beforeAll(async () => {
  for (const outcome of ['allow', 'deny']) {
    unsigned = await buildBundle(
      `package policy.fleet\n\n${outcome} contains {"id": "fleet-${outcome}", "message": "The fleet says ${outcome}."} if input.effect.verb == "read"\n`,
    );
    bundles.push(await signBundle(unsigned, keys.privatePem, { scope: 'production' }));
  }
}, 120_000);
beforeEach(async () => {
  said = [];
  publisher = await new Publisher().start();
  publisher.publish(bundles[0] ?? unsigned, '"1"');
});
afterEach(async () => {
  await reloader?.close();
  await facade?.close();
  await publisher.stop();
});

async function start(poll = '1s'): Promise<void> {
  facade = new Reloadable({
    'tollgate.yaml': `version: 1\nworkspace: ./workspace\nstate: ./state\npolicies: [{url: "${publisher.url}", poll: ${poll}, token: "\${env:FLEET_TOKEN}", verify: {keys: [fleet.pem], scope: production}}]\n`,
    'fleet.pem': keys.publicPem,
    'workspace/a.txt': 'a',
  });
  facade.env.FLEET_TOKEN = 'token-of-the-whole-fleet';
  await facade.start();
  const config = facade.read();
  reloader = await Reloader.open({
    file: facade.at('tollgate.yaml'),
    home: '/home/nobody-at-all',
    inForce: { config, differing: [] },
    read: () => ({ config: facade.read(), differing: [] }),
    listening: false,
    tell: (line) => said.push(line),
    report: (thrown) => said.push(String((thrown as Error).message)),
  });
  reloader.start(facade.assembled);
}

describe('a policy that a fleet shares', () => {
  it('is taken up when it is published, as any edit is: whole, recorded, told', async () => {
    await start();
    const session = facade.open('local');
    expect(await facade.call(session, 'read', { path: 'a.txt' })).toMatchObject({ text: 'a' });
    expect(publisher.asked[0]).toMatchObject({ token: 'Bearer token-of-the-whole-fleet', status: 200 });
    publisher.publish(bundles[1] ?? unsigned, '"2"');
    await expect
      .poll(() => said, { timeout: 20_000 })
      .toEqual([expect.stringMatching(/^Reloaded: policy revision [0-9a-f]{12} is in force/)]);
    await facade.list(session);
    expect(await facade.call(session, 'read', { path: 'a.txt' })).toMatchObject({
      code: 'DENIED',
      text: expect.stringContaining('The fleet says deny.') as string,
    });
    expect(facade.records('config').map(({ event }) => event)).toEqual(['loaded', 'reloaded']);
    await expect.poll(() => facade.assembled.gateway.snapshotCount).toBe(1);
  }, 60_000);

  it('that is published without a signature is refused aloud, and the last good one stays in force', async () => {
    await start();
    const session = facade.open('local');
    publisher.publish(unsigned, '"2"');
    await expect
      .poll(() => said, { timeout: 20_000 })
      .toEqual([
        'A newer policy was NOT used. The previous policy stays in force:',
        expect.stringContaining('it is not signed'),
      ]);
    expect(facade.records('config').at(-1)).toMatchObject({
      event: 'refused',
      outcome: 'error',
      code: 'POLICY_INVALID',
    });
    expect(await facade.call(session, 'read', { path: 'a.txt' })).toMatchObject({ text: 'a' });
  }, 60_000);

  it('works at a start without network, from the state folder, and says so', async () => {
    await start('1h');
    await reloader?.close();
    await facade.assembled.gateway.close();
    await publisher.stop();
    await facade.start();
    const rego = expect.stringContaining('Rules in Rego bind calls, not commands') as string;
    expect(facade.assembled.notices).toEqual([rego]);
    await facade.assembled.gateway.close();
    facade.write(
      'tollgate.yaml',
      `version: 1\nworkspace: ./workspace\nstate: ./state\npolicies: [{url: "${publisher.url}", poll: 1s, verify: {keys: [fleet.pem], scope: production}}]\n`,
    );
    await new Promise((resolve) => setTimeout(resolve, 1100));
    await facade.start();
    expect(facade.assembled.notices).toEqual([
      rego,
      expect.stringContaining('the server cannot be reached (ECONNREFUSED). The last good one is in use'),
    ]);
    expect(await facade.call(facade.open('local'), 'read', { path: 'a.txt' })).toMatchObject({ text: 'a' });
    reloader = undefined;
  }, 60_000);

  it('can be in shadow: recorded beside what decides', async () => {
    await start();
    await reloader?.close();
    publisher.publish(bundles[1] ?? unsigned, '"2"');
    facade.write(
      'tollgate.yaml',
      `version: 1\nworkspace: ./workspace\nstate: ./state\npolicies: [{url: "${publisher.url}", poll: 1s, mode: dryrun}]\nrules: [{id: all, outcome: allow, when: {}}]\n`,
    );
    await new Promise((resolve) => setTimeout(resolve, 1100));
    await facade.reload();
    expect(await facade.call(facade.open('local'), 'read', { path: 'a.txt' })).toMatchObject({ text: 'a' });
    expect(facade.records('outcome').at(-1)).toMatchObject({
      reasons: [{ id: 'all' }],
      shadow: [{ id: 'fleet-deny', would: 'deny', mode: 'shadow' }],
    });
  }, 60_000);
});

describe('the configuration of an address', () => {
  const load = (entry: string): string => {
    facade = new Reloadable({
      'tollgate.yaml': `version: 1\nworkspace: ./workspace\nstate: ./state\npolicies: [${entry}]\n`,
      'fleet.pem': 'x',
      'rules.yaml': 'rules: []\n',
    });
    facade.env.T = 'token-of-the-whole-fleet';
    try {
      const { policies, secrets, controlFiles } = facade.read();
      return JSON.stringify({ policies, secrets, controlFiles }).replaceAll(facade.folder, '');
    } catch (thrown) {
      return JSON.stringify(
        (thrown as { data: { problems: { message: string }[] } }).data.problems.map(({ message }) => message),
      );
    }
  };

  it('becomes a source; its token is a secret, its keys decide what is allowed', () => {
    expect(
      JSON.parse(
        load(
          '{url: "https://policies.example/b.tar.gz", poll: 5m, mode: deny, token: "${T}", verify: {keys: [fleet.pem]}, modes: [{profile: default, mode: dryrun}]}',
        ),
      ),
    ).toEqual({
      policies: [
        {
          path: 'https://policies.example/b.tar.gz',
          kind: 'bundle',
          server: {
            url: 'https://policies.example/b.tar.gz',
            pollMs: 300_000,
            token: 'token-of-the-whole-fleet',
            keys: ['/fleet.pem'],
          },
          mode: 'enforce',
          modes: [{ profile: 'default', mode: 'shadow' }],
        },
      ],
      secrets: ['token-of-the-whole-fleet'],
      controlFiles: ['/tollgate.yaml', '/servers', '/fleet.pem'],
    });
  });

  it.each([
    ['{url: "http://policies.example/b.tar.gz"}', 'could be changed on the way; use https'],
    ['{url: "https://me:secret@policies.example/b.tar.gz"}', 'contains a user or password'],
    ['{url: "policies.example"}', 'is not an address'],
    ['{url: "file:///etc/passwd"}', 'could be changed on the way; use https'],
    ['{url: "https://a.example/b", path: rules.yaml}', 'needs either path or url'],
    ['{mode: warn}', 'needs either path or url'],
    ['{url: "https://a.example/b", token: pasted-token-in-clear}', 'is in the file in clear'],
    ['{url: "https://a.example/b", verify: {keys: [nowhere.pem]}}', 'the public key does not exist'],
    ['{url: "https://a.example/b", verify: {}}', 'has no keys'],
    ['{url: "https://a.example/b", poll: 60}', 'poll'],
    ['{url: "https://a.example/b", poll: 0s}', 'poll'],
    ['{path: rules.yaml, verify: {keys: [fleet.pem]}}', 'verify is for a policy with a url'],
    ['{path: rules.yaml, poll: 60s}', 'poll is for a policy with a url'],
    ['{url: "https://a.example/b"}, {url: "https://a.example/b"}', 'appears twice'],
    ['{path: rules.yaml, modes: [{mode: warn}]}', 'the mode applies to every caller'],
    ['{path: rules.yaml, modes: [{profile: nobody, mode: warn}]}', 'is not under profiles'],
    ['{path: rules.yaml, mode: audit}', 'must be one of'],
  ])('%s is refused: %s', (entry, why) => {
    const problems = load(entry);
    expect(problems).toContain(why);
    expect(problems).not.toMatch(/pasted-token|secret@/);
  });
});
