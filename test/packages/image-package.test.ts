/** Connects images of a registry on this machine, with the real podman. */

import { execFile, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { useHelpers } from '../../catalogs/programs/helper-programs.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { APP_MODULE } from '../../facade/main.ts';
import { pinPackage } from '../../facade/packages/package-source.ts';
import { readPackageSpec } from '../../facade/packages/package-spec.ts';
import type { PinnedPackage } from '../../facade/packages/pinned-package.ts';
import type { Answer } from '../cli/terminal.ts';
import { Place } from '../connect/place.ts';
import { inFull } from '../harness/full-tests.ts';
import { IMAGE } from '../sandbox/probe-runs.ts';
import { verifies } from '../verifies.ts';
import { connectFully } from './connecting.ts';
import { ImageRegistry } from './image-registry.ts';

/** For podman on a busy machine, ms. */
const REAL = 200_000;

let registry: ImageRegistry;
let place: Place;
let service: Server;

const REACHING = readFileSync(path.join(import.meta.dirname, '..', 'fixtures', 'reaching-server.mjs'), 'utf8');
/** Returns a server that fetches addresses. Its answers begin with a word. */
const reaching = (word: string): string =>
  REACHING.replace(
    "const tell = (id, text) => say({ id, result: { content: [{ type: 'text', text",
    (all) => `${all}: \`${word} ${'$'}{text}\``,
  );

beforeAll(async () => {
  registry = new ImageRegistry();
  service = createServer((_, response) => response.end('ok'));
  await new Promise<void>((resolve) => service.listen(0, '127.0.0.1', resolve));
  if (IMAGE !== '') await registry.open(IMAGE);
}, REAL);
afterAll(() => {
  for (const id of registry.ids) spawnSync('podman', ['rmi', '--force', id]);
  registry.close();
  service.close();
});
beforeEach(({ skip }) => {
  place = new Place();
  useHelpers({ programs: {}, writable: [] });
  skip(IMAGE === '', 'This machine has no container engine.');
});
afterEach(() => place.project.remove());

const env = (): Record<string, string> => ({ ...place.env, CONTAINERS_CONF: process.env.CONTAINERS_CONF ?? '' });
const run = (...words: string[]): Promise<Answer> => place.run(words, { env: env() });
const pin = (image: string): Promise<PinnedPackage> => {
  const spec = readPackageSpec(`oci:${image}`, { cwd: '/', home: '/' });
  if (spec === undefined) throw new Error(`${image} names no package`);
  const world = { env: env(), say: () => undefined, containerClient: APP_MODULE.containerClient };
  return pinPackage(spec, { into: place.project.root }, world);
};

describe('an image' + verifies('FH-18'), () => {
  inFull(
    'is pinned by its digest, started in a container, listed and called, also after its tag has moved',
    async () => {
      const digest = registry.push('notes:1', { program: reaching('first') });
      const { port } = service.address() as AddressInfo;
      const words = ['--host', `127.0.0.1:${port}`, '--', '--fast'];
      const before = await run('connect', `oci:${registry.image('notes:1')}`, '--yes', ...words);
      expect(before.out + before.err).toContain(digest);
      const reach = await connectFully(
        (...more) => run('connect', ...more),
        [`oci:${registry.image('notes:1')}`, ...words],
      );
      expect(reach.asks).toEqual(['reach']);
      const server = loadConfig(place.file, { env: {}, home: place.project.home }).servers.get('notes');
      expect(server).toMatchObject({
        command: 'node',
        args: ['/app/run.mjs', '--fast'],
        isolation: 'container',
        sandbox: { image: `${registry.image('notes')}@${digest}` },
      });
      registry.push('notes:1', { program: reaching('second') });
      // This process answers podman.
      await promisify(execFile)('podman', ['pull', '--quiet', '--tls-verify=false', registry.image('notes:1')]);
      const text = readFileSync(place.file, 'utf8');
      const rules = 'rules: [{id: reach, outcome: allow, when: {tools: [notes.reach]}}]\n';
      place.project.write('tollgate.yaml', text.replace(/^rules:.*/ms, rules));
      const reached = await run('call', 'notes_reach', JSON.stringify({ url: `http://127.0.0.1:${port}/` }));
      expect(reached).toMatchObject({ code: 0, out: 'first 200 ok\n' });
      const other = await run('call', 'notes_reach', '{"url": "http://127.0.0.1:9/"}');
      expect(other.out).toMatch(/^first (?!200)/);
    },
    REAL,
  );

  it.each<[what: string, image: () => string, message: string, next?: string]>([
    ['that is not there', () => registry.image('nothing:1'), 'manifest unknown'],
    ['that needs a login', () => registry.image('closed/notes:1'), 'unauthorized', 'podman login 127.0.0.1:'],
    [
      'whose bytes are others',
      () => {
        const digest = registry.push('forged:1', { program: reaching('forged') });
        registry.forge(digest);
        return registry.image(`forged@${digest}`);
      },
      'digest',
    ],
    [
      'without a program',
      () => {
        registry.push('empty:1', { program: '', entry: [] });
        return registry.image('empty:1');
      },
      'names no program (ENTRYPOINT or CMD)',
    ],
    [
      'of another registry over plain http',
      () => registry.image('notes:1').replace('127.0.0.1', '0.0.0.0'),
      'server gave HTTP response to HTTPS client',
    ],
  ])(
    '%s is refused',
    async (_what, image, message, next = '') => {
      await expect(pin(image())).rejects.toMatchObject({
        code: 'INSTALL_FAILED',
        message: expect.stringContaining(message) as string,
        next: expect.stringContaining(next) as string,
      });
    },
    REAL,
  );

  it('is refused without an engine', async () => {
    useHelpers({ programs: { podman: '/nonexistent/podman', docker: '/nonexistent/docker' }, writable: [] });
    await expect(pin(registry.image('notes:1'))).rejects.toMatchObject({
      code: 'SANDBOX_UNAVAILABLE',
      next: expect.stringContaining('apt-get install podman') as string,
    });
  });
});
