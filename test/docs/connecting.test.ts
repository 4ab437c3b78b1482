/**
 * Runs the commands of docs/connecting.md with the hashes that they print, against a real package and a service on this
 * machine.
 */

import { chmodSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { RUNS_ALL } from '../harness/slices.ts';
import { giveAway } from '../servers/system.ts';
import { verifies } from '../verifies.ts';
import { linkProgram, runLine } from './console.ts';
import { blocksOf } from './markdown.ts';
import { expectLike } from './transcript.ts';

const TURNS = blocksOf('docs/connecting.md')
  .filter(({ language, text }) => language === 'text' && text.startsWith('$ '))
  .flatMap(({ text }) =>
    `\n${text}`
      .split('\n$ ')
      .slice(1)
      .map((turn) => {
        const [asked = '', ...output] = turn.trimEnd().split('\n');
        return { asked, output };
      }),
  );
const SERVICE = '127.0.0.1:8765';

let project: Project;
let service: Server;
let env: Record<string, string>;
/** The values last printed, by the placeholder that stands for them on the page. */
const hashes = { START: '', TOOLS: '' };

beforeAll(async () => {
  project = new Project();
  service = createServer(
    (_request, response) => void response.writeHead(200, { 'content-type': 'application/json' }).end('{"issues": []}'),
  );
  await new Promise<void>((resolve) => service.listen(0, '127.0.0.1', resolve));
  chmodSync(project.root, 0o755);
  env = {
    PATH: linkProgram(project.root),
    HOME: project.home,
    npm_config_cache: process.env.npm_config_cache ?? path.join(process.env.HOME ?? '', '.npm'),
    TRACKER_TOKEN: 'token-of-the-tracker',
  };
  for (const [name, value] of Object.entries(process.env))
    if (/^npm_config_registry$/i.test(name) && value !== undefined) env[name] = value;
  await run('tollgate init');
  giveAway(project.folder);
});
afterAll(() => {
  service.closeAllConnections();
  service.close();
  project.remove();
});

const run = async (line: string): Promise<string> =>
  (await runLine(line, { home: project.home, folder: project.folder, env })).shown;

function filledIn(asked: string): string {
  const { port } = service.address() as AddressInfo;
  return asked
    .replace(SERVICE, `127.0.0.1:${port}`)
    .replace(/\bSTART\b/, hashes.START)
    .replace(/\bTOOLS\b/, hashes.TOOLS);
}

/** Replaces values that differ from run to run by their placeholders. */
function settle(output: string): readonly string[] {
  const { port } = service.address() as AddressInfo;
  hashes.START = /start hash {2}(\w{64})/.exec(output)?.[1] ?? hashes.START;
  hashes.TOOLS = /tools hash {2}(\w{64})/.exec(output)?.[1] ?? hashes.TOOLS;
  if (output.trim() === '') return [];
  return output
    .replaceAll(`127.0.0.1:${port}`, SERVICE)
    .replace(/\b[0-9a-f]{64}\b/g, 'HASH')
    .replace(/policies\/rules\.yaml:\d+/g, 'policies/rules.yaml:N')
    .trimEnd()
    .split('\n')
    .map((line) => line.trimEnd())
    .filter((line) => !/: \d+ s …$|^npm warn/.test(line));
}

describe('the transcripts of connecting', () => {
  it('connect a known and an unknown service, and undo both' + verifies('PF-11', 'PF-12', 'HA-29'), () => {
    const asked = TURNS.map((turn) => turn.asked);
    for (const word of [
      'connect memory --dry-run',
      'connect memory --yes --approve START TOOLS',
      `connect http://${SERVICE}`,
      'connect everything --yes --approve START TOOLS',
      'import --all --copy',
      'import --undo',
      'connect --undo tracker',
      'connect --undo memory',
    ])
      expect(
        asked.some((one) => one.includes(word)),
        word,
      ).toBe(true);
  });

  // `everything` is installed, approved and undone as `memory` is.
  const turns = RUNS_ALL ? TURNS : TURNS.filter(({ asked }) => !/ everything\b/.test(asked));
  inFull.each(turns.map((turn, number) => [number + 1, turn.asked, turn] as const))(
    '%s. %s',
    async (_number, _asked, { asked, output }) => {
      expectLike(
        settle(await run(filledIn(asked))),
        output.map((line) => line.trimEnd().replace(/policies\/rules\.yaml:\d+/g, 'policies/rules.yaml:N')),
      );
    },
    180_000,
  );
});
