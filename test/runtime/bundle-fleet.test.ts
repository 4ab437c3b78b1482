/** Tests facades that follow a signed bundle on a static server. */

import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Reloader } from '../../facade/runtime/reloader.ts';
import { inFull } from '../harness/full-tests.ts';
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
      `package policy.fleet

${outcome} contains {"id": "fleet-${outcome}", "message": "The fleet says ${outcome}."} if input.effect.verb == "read"
`,
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

const VERIFIED = 'verify: {keys: [fleet.pem], scope: production}';

/** Returns a configuration with this entry under `policies`. */
function policiesOf(entry: string): string {
  return `version: 1\nworkspace: ./workspace\nstate: ./state\npolicies: [${entry}]\n`;
}

async function start(poll = '1s'): Promise<void> {
  facade = new Reloadable({
    'tollgate.yaml': policiesOf(`{url: "${publisher.url}", poll: ${poll}, token: "\${env:FLEET_TOKEN}", ${VERIFIED}}`),
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
  inFull(
    'takes effect when it is published, is recorded, and is reported',
    async () => {
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
    },
    60_000,
  );

  it('is refused with a message if it is not signed, and the last good one stays in force', async () => {
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

  inFull(
    'is read from the state folder at a start without network, with a notice',
    async () => {
      await start('1h');
      await reloader?.close();
      await facade.assembled.gateway.close();
      await publisher.stop();
      await facade.start();
      const rego = expect.stringContaining('Rules in Rego bind calls, not commands') as string;
      expect(facade.assembled.notices).toEqual([rego]);
      await facade.assembled.gateway.close();
      facade.write('tollgate.yaml', policiesOf(`{url: "${publisher.url}", poll: 1s, ${VERIFIED}}`));
      await new Promise((resolve) => setTimeout(resolve, 1100));
      await facade.start();
      expect(facade.assembled.notices).toEqual([
        rego,
        expect.stringContaining('the server cannot be reached (ECONNREFUSED). The last good one is in use'),
      ]);
      expect(await facade.call(facade.open('local'), 'read', { path: 'a.txt' })).toMatchObject({ text: 'a' });
      reloader = undefined;
    },
    60_000,
  );

  inFull(
    'can be in mode shadow, which only records its decisions',
    async () => {
      await start();
      await reloader?.close();
      publisher.publish(bundles[1] ?? unsigned, '"2"');
      facade.write(
        'tollgate.yaml',
        `${policiesOf(`{url: "${publisher.url}", poll: 1s, mode: dryrun}`)}rules: [{id: all, outcome: allow, ` +
          'when: {}}]\n',
      );
      await new Promise((resolve) => setTimeout(resolve, 1100));
      await facade.reload();
      expect(await facade.call(facade.open('local'), 'read', { path: 'a.txt' })).toMatchObject({ text: 'a' });
      expect(facade.records('outcome').at(-1)).toMatchObject({
        reasons: [{ id: 'all' }],
        shadow: [{ id: 'fleet-deny', would: 'deny', mode: 'shadow' }],
      });
    },
    60_000,
  );
});

describe('a policy with a url', () => {
  const load = (entry: string): string => {
    facade = new Reloadable({
      'tollgate.yaml': policiesOf(entry),
      'fleet.pem': 'x',
      'rules.yaml': 'rules: []\n',
    });
    facade.env.T = 'token-of-the-whole-fleet';
    const { policies, secrets, controlFiles } = facade.read();
    return JSON.stringify({ policies, secrets, controlFiles }).replaceAll(facade.folder, '');
  };

  it('becomes a source, whose token is a secret and whose keys are control files', () => {
    expect(
      JSON.parse(
        load(
          '{url: "https://policies.example/b.tar.gz", poll: 5m, mode: deny, token: "${T}", ' +
            'verify: {keys: [fleet.pem]}, modes: [{profile: default, mode: dryrun}]}',
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
});
