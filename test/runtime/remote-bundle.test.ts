/** Tests bundles that are fetched: polling, verification, stored bundles, and attacks. */

import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { checkBundle } from '../../policies/engine/policy-loader.ts';
import type { BundleServer } from '../../policies/port.ts';
import { type Bundle, packBundle, unpackBundle } from '../../policies/rego/bundles/bundle-format.ts';
import { bundleName, RemoteBundle } from '../../policies/rego/bundles/remote-bundle.ts';
import { inFull } from '../harness/full-tests.ts';
import { buildBundle, keyPair, Publisher, signBundle } from './bundle-server.ts';

const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);
const plain = (wasm: string, more: Readonly<Record<string, string>> = {}): Buffer =>
  packBundle(new Map(Object.entries({ 'policy.wasm': wasm, ...more }).map(([name, text]) => [name, bytesOf(text)])));
const wasmOf = (bundle: Bundle): string => new TextDecoder().decode(bundle.wasm).slice(0, 20);

let publisher: Publisher;
let folder: string;
const open: RemoteBundle[] = [];

beforeEach(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'tollgate-remote-'));
  publisher = await new Publisher().start();
  publisher.publish(plain('one'), '"1"');
});
afterEach(async () => {
  vi.useRealTimers();
  for (const one of open.splice(0)) one.close();
  await publisher.stop();
  rmSync(folder, { recursive: true, force: true });
});

function remote(
  server: Partial<BundleServer> = {},
  check: (bundle: Bundle) => Promise<void> = () => Promise.resolve(),
): RemoteBundle {
  const whole = { url: publisher.url, pollMs: 60_000, ...server };
  const one = new RemoteBundle({ server: whole, name: bundleName(whole), cache: folder, check, ids: [] });
  open.push(one);
  return one;
}

/** Makes the last request seem old. */
function age(): void {
  const kept = path.join(folder, 'bundles');
  for (const name of readdirSync(kept)) utimesSync(path.join(kept, name), new Date(0), new Date(0));
}

describe('a fetched bundle', () => {
  it('is fetched once in a polling interval', async () => {
    expect(wasmOf(await remote().load())).toBe('one');
    publisher.publish(plain('two'), '"2"');
    expect(wasmOf(await remote().load())).toBe('one');
    expect(publisher.statuses).toEqual([200]);
    age();
    expect(wasmOf(await remote().load())).toBe('two');
    expect(publisher.statuses).toEqual([200, 200]);
  });

  it('is refused before it is stored if a rule has an id of a rule in YAML', async () => {
    const facts = {
      rules: [{ id: 'fleet-deny', package: 'fleet', file: 'fleet.rego', line: 3 }],
      places: {},
    } as unknown as NonNullable<Bundle['facts']>;
    const bundle = { ...(await remote().load()), facts };
    await expect(checkBundle(bundle, ['other', 'fleet-deny'])).rejects.toMatchObject({
      code: 'POLICY_INVALID',
      message: expect.stringContaining('a rule with the id "fleet-deny"') as string,
    });
    await expect(checkBundle(bundle, ['other'])).rejects.not.toMatchObject({
      message: expect.stringContaining('fleet-deny') as string,
    });
  });

  it('is requested with its ETag, and reused if there is no newer one', async () => {
    await remote().load();
    age();
    expect(wasmOf(await remote().load())).toBe('one');
    expect(publisher.statuses).toEqual([200, 304]);
    // The answer counts as a poll, so the next load makes no request.
    await remote().load();
    expect(publisher.statuses).toEqual([200, 304]);
  });

  it('may come from a server without ETags', async () => {
    publisher.publish(plain('one'));
    await remote().load();
    age();
    expect(wasmOf(await remote().load())).toBe('one');
    expect(publisher.statuses).toEqual([200, 200]);
  });

  it('is loaded from the stored file without network, with a notice; without a file, the load is refused', async () => {
    await remote().load();
    age();
    await publisher.stop();
    const offline = remote();
    expect(wasmOf(await offline.load())).toBe('one');
    expect(offline.remarks).toEqual([
      expect.stringMatching(
        /^The bundle 127\.0\.0\.1:\d+\/fleet\/bundle\.tar\.gz could not be updated: the server cannot be reached \(ECONNREFUSED\)\. The last good one is in use; it was current at 1970-/,
      ),
    ]);
    rmSync(path.join(folder, 'bundles'), { recursive: true });
    await expect(remote().load()).rejects.toMatchObject({
      code: 'POLICY_INVALID',
      message: expect.stringContaining('the server cannot be reached (ECONNREFUSED)') as string,
    });
  });

  it('is stored in private files', async () => {
    await remote().load();
    const [name = ''] = readdirSync(path.join(folder, 'bundles'));
    expect(statSync(path.join(folder, 'bundles')).mode & 0o777).toBe(0o700);
    expect(statSync(path.join(folder, 'bundles', name)).mode & 0o777).toBe(0o600);
  });

  it.each([
    ['cut short', (bytes: Buffer) => bytes.subarray(0, bytes.length - 3)],
    [
      'changed in one byte',
      (bytes: Buffer) => Buffer.from(bytes.map((byte, index) => (index === bytes.length - 5 ? byte ^ 1 : byte))),
    ],
    ['emptied', () => Buffer.alloc(0)],
  ])('is fetched again if its stored file was %s', async (_what, tear) => {
    await remote().load();
    const [name = ''] = readdirSync(path.join(folder, 'bundles'));
    const file = path.join(folder, 'bundles', name);
    writeFileSync(file, tear(readFileSync(file)));
    expect(wasmOf(await remote().load())).toBe('one');
    expect(publisher.statuses).toEqual([200, 200]);
  });

  it('stays in use if a newer one does not load', async () => {
    await remote().load();
    age();
    publisher.publish(plain('two'), '"2"');
    const picky = remote({}, () =>
      Promise.reject(new TollgateError('POLICY_INVALID', { detail: 'It was built by another version of Tollgate.' })),
    );
    expect(wasmOf(await picky.load())).toBe('one');
    expect(picky.remarks).toEqual([
      expect.stringContaining('could not be updated: It was built by another version of Tollgate. The last good one'),
    ]);
    expect(wasmOf(await remote().load())).toBe('two');
  });
});

describe('a fetched bundle is refused', () => {
  it.each([
    ['that is not gzip', bytesOf('<html>Sign in</html>'), 'it cannot be read (Z_DATA_ERROR)'],
    ['without a policy', packBundle(new Map([['data.json', bytesOf('{}')]])), 'it has no policy.wasm'],
    [
      'with data under a name of the library',
      plain('x', { 'data.json': '{"tollgate": {}}' }),
      'its data uses the name "tollgate"',
    ],
    ['with data that is not JSON', plain('x', { 'data.json': '{secret' }), 'a JSON file in it is invalid'],
  ])('%s', async (_what, bytes, why) => {
    publisher.publish(bytes, '"x"');
    await expect(remote().load()).rejects.toMatchObject({
      code: 'POLICY_INVALID',
      message: expect.stringContaining(why) as string,
    });
  });

  it.each([[404], [401], [500]])('with the status %i', async (status) => {
    publisher.answer = (_request, response) => (response.writeHead(status).end('no'), true);
    await expect(remote().load()).rejects.toMatchObject({
      message: expect.stringContaining(`the server answered with status ${status}`) as string,
    });
  });

  it('if it is too large, before it is complete', async () => {
    let sent = 0;
    publisher.answer = (_request, response) => {
      const piece = Buffer.alloc(4 * 1024 * 1024);
      const more = (): void => {
        sent += 1;
        if (sent < 100 && !response.destroyed) response.write(piece, () => setImmediate(more));
        else response.end();
      };
      response.writeHead(200);
      more();
      return true;
    };
    await expect(remote().load()).rejects.toMatchObject({
      message: expect.stringContaining('it is larger than 67108864 bytes') as string,
    });
    expect(sent).toBeLessThan(40);
  });

  inFull('if it unpacks to more than is allowed', async () => {
    // 300 MiB. The parts of a gzip file are unpacked as one, and one part is packed in a twentieth of the time.
    const part = packBundle(new Map([['policy.wasm', Buffer.alloc(15 * 1024 * 1024)]]));
    publisher.publish(Buffer.concat(Array.from({ length: 20 }, () => part)), '"bomb"');
    await expect(remote().load()).rejects.toMatchObject({
      message: expect.stringContaining('ERR_BUFFER_TOO_LARGE') as string,
    });
  });

  it('if the server never answers', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    let asked = false;
    publisher.answer = () => (asked = true);
    const refused = expect(remote().load()).rejects.toMatchObject({
      message: expect.stringContaining('the server took too long') as string,
    });
    while (!asked) await new Promise((resolve) => setImmediate(resolve));
    vi.advanceTimersByTime(10_000);
    await refused;
  });

  it('after redirects without https, and after endless ones', async () => {
    publisher.answer = (_request, response) => (
      response.writeHead(302, { location: 'http://elsewhere.example/bundle.tar.gz' }).end(), true
    );
    await expect(remote().load()).rejects.toMatchObject({
      message: expect.stringContaining('redirects to a URL without https') as string,
    });
    publisher.answer = (_request, response) => (response.writeHead(302, { location: '/again' }).end(), true);
    await expect(remote().load()).rejects.toMatchObject({
      message: expect.stringContaining('redirects more than 3 times') as string,
    });
    publisher.answer = (_request, response) => (response.writeHead(302, { location: 'http://[' }).end(), true);
    await expect(remote().load()).rejects.toMatchObject({
      message: expect.stringContaining('an invalid URL') as string,
    });
  });

  it('not after a redirect within the server', async () => {
    publisher.answer = (request, response) =>
      request.url === '/fleet/bundle.tar.gz'
        ? (response.writeHead(301, { location: '/v2/bundle.tar.gz' }).end(), true)
        : false;
    expect(wasmOf(await remote({ token: 'token-of-the-fleet' }).load())).toBe('one');
    expect(publisher.asked.map(({ path: at, token }) => [at, token])).toEqual([
      ['/fleet/bundle.tar.gz', 'Bearer token-of-the-fleet'],
      ['/v2/bundle.tar.gz', 'Bearer token-of-the-fleet'],
    ]);
  });

  it('with messages that contain neither token nor query', async () => {
    await publisher.stop();
    const thrown = await remote({ url: `${publisher.url}?sig=query-secret`, token: 'token-secret' })
      .load()
      .catch((error: TollgateError) => error);
    expect(
      JSON.stringify([
        (thrown as TollgateError).message,
        (thrown as TollgateError).next,
        (thrown as TollgateError).data,
      ]),
    ).not.toMatch(/query-secret|token-secret/);
  });
});

describe('signatures of opa', () => {
  const mine = keyPair();
  const other = keyPair();
  let built: Buffer;
  let signed: Buffer;
  let keyFile: string;
  beforeAll(async () => {
    built = await buildBundle(
      'package policy.fleet\n\nallow contains {"id": "fleet", "message": "The fleet reads."} if ' +
        'input.effect.verb == "read"\n',
    );
    signed = await signBundle(built, mine.privatePem);
  }, 60_000);
  beforeEach(() => {
    keyFile = path.join(folder, 'fleet.pem');
    writeFileSync(keyFile, mine.publicPem);
  });
  const verified = (more: Partial<BundleServer> = {}): RemoteBundle => remote({ keys: [keyFile], ...more });
  const changed = (change: (files: Map<string, Uint8Array>) => void): Buffer => {
    const files = new Map(unpackBundle(signed));
    change(files);
    return packBundle(files);
  };

  it('are verified with the key, also among other keys', async () => {
    publisher.publish(signed, '"s"');
    await expect(verified().load()).resolves.toMatchObject({ data: {} });
    writeFileSync(path.join(folder, 'other.pem'), other.publicPem);
    await expect(verified({ keys: [path.join(folder, 'other.pem'), keyFile] }).load()).resolves.toBeDefined();
  });

  it.each([
    ['unsigned', () => built, 'it is not signed'],
    [
      'with a file changed',
      () => changed((files) => files.set('policy.wasm', bytesOf('evil'))),
      'was changed after it was signed',
    ],
    [
      'with a file added',
      () => changed((files) => files.set('extra.rego', bytesOf('package x'))),
      'the signature does not list',
    ],
    ['with a file removed', () => changed((files) => files.delete('data.json')), 'which is missing'],
    ['with its signature removed', () => changed((files) => files.delete('.signatures.json')), 'it is not signed'],
  ])('are required: a bundle %s is refused', async (_what, bundle, why) => {
    publisher.publish(bundle(), '"bad"');
    await expect(verified().load()).rejects.toMatchObject({
      code: 'POLICY_INVALID',
      message: expect.stringContaining(why) as string,
    });
    expect(readdirSync(folder)).toEqual(['fleet.pem']);
  });

  it('of another key or for another scope are refused', async () => {
    publisher.publish(await signBundle(built, other.privatePem), '"o"');
    await expect(verified().load()).rejects.toMatchObject({
      message: expect.stringContaining('it is not signed by any of the keys') as string,
    });
    publisher.publish(await signBundle(built, mine.privatePem, { scope: 'write' }), '"w"');
    await expect(verified().load()).rejects.toMatchObject({
      message: expect.stringContaining('its signature has another scope') as string,
    });
    await expect(verified({ scope: 'write' }).load()).resolves.toBeDefined();
  });

  it('are verified again when a stored bundle is used', async () => {
    publisher.publish(signed, '"s"');
    await verified().load();
    writeFileSync(keyFile, other.publicPem);
    await expect(verified().load()).rejects.toMatchObject({
      message: expect.stringContaining('it is not signed by any of the keys') as string,
    });
    await publisher.stop();
    await expect(verified().load()).rejects.toMatchObject({
      message: expect.stringContaining('cannot be reached') as string,
    });
  });

  it('must be on a newer bundle too, or the last good one stays in use', async () => {
    publisher.publish(signed, '"s"');
    await verified().load();
    age();
    publisher.publish(built, '"u"');
    const now = verified();
    await now.load();
    expect(now.remarks).toEqual([
      expect.stringContaining('could not be updated: it is not signed. The last good one is in use'),
    ]);
  });

  it('are refused if the key file is missing', async () => {
    publisher.publish(signed, '"s"');
    rmSync(keyFile);
    await expect(verified().load()).rejects.toMatchObject({ code: 'POLICY_INVALID' });
  });
});

describe('following a bundle', () => {
  it('reports each newer bundle and each failure once, and continues', async () => {
    const one = remote({ pollMs: 30 });
    await one.load();
    const told: string[] = [];
    one.follow({
      changed: () => told.push('changed'),
      failed: (thrown) => told.push((thrown as TollgateError).message),
    });
    await expect.poll(() => publisher.statuses.filter((status) => status === 304).length).toBeGreaterThan(1);
    expect(told).toEqual([]);
    publisher.publish(plain('two'), '"2"');
    await expect.poll(() => told).toEqual(['changed']);
    publisher.publish(bytesOf('torn'), '"3"');
    await expect.poll(() => told).toEqual(['changed', expect.stringContaining('is refused: it cannot be read')]);
    const asked = publisher.asked.length;
    await expect.poll(() => publisher.asked.length, { timeout: 20_000 }).toBeGreaterThan(asked + 1);
    expect(told).toHaveLength(2);
    publisher.publish(plain('three'), '"4"');
    await expect.poll(() => told.length, { timeout: 20_000 }).toBe(3);
    expect(told[2]).toBe('changed');
    one.close();
    const last = publisher.asked.length;
    await sleep(150);
    expect(publisher.asked.length).toBeLessThanOrEqual(last + 1);
  });

  it('polls less often while the server is down, at random times, and recovers', async () => {
    const one = remote({ pollMs: 20 });
    await one.load();
    const { port } = publisher;
    const times: number[] = [];
    publisher.answer = (_request, response) => (times.push(performance.now()), response.writeHead(503).end(), true);
    const failed = vi.fn();
    one.follow({ changed: () => undefined, failed });
    await expect.poll(() => times.length, { timeout: 20_000 }).toBeGreaterThanOrEqual(5);
    const pauses = times.slice(1).map((time, index) => time - (times[index] ?? 0));
    // A pause is at most eight polling intervals, minus a random part.
    expect(pauses[3]).toBeGreaterThan(20 * 8 * 0.8);
    expect(failed).toHaveBeenCalledTimes(1);
    expect(port).toBe(publisher.port);
  });

  inFull('uses a bundle that another process has fetched, without a request', async () => {
    // Longer than a busy machine takes to fetch a bundle.
    const [one, two] = [remote({ pollMs: 1500 }), remote({ pollMs: 1500 })];
    await one.load();
    await two.load();
    const changed = vi.fn();
    two.follow({ changed, failed: () => undefined });
    publisher.publish(plain('two'), '"2"');
    age();
    await one.load();
    const before = publisher.asked.length;
    await expect.poll(() => changed.mock.calls.length, { timeout: 20_000 }).toBe(1);
    expect(publisher.asked.length).toBe(before);
  });
});
