/** Runs the commands of docs/host-api.md in order, against a running gateway. */

import { spawn } from 'node:child_process';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { describeHostApi } from '../../facade/serve/host/host-api-description.ts';
import { inFull } from '../harness/full-tests.ts';
import { type HostBench, hostConfig, startHost, TOKENS } from '../host/host-bench.ts';
import { blocksOf, codeIn, readPage, rowsOf, sectionOf } from './markdown.ts';

const PAGE = 'docs/host-api.md';
const commands = blocksOf(PAGE).filter(({ text }) => text.includes('curl '));
let host: HostBench;
beforeAll(async () => {
  host = await startHost(
    hostConfig()
      .replace('  own: { }', '  own: { }\n  pages: { }')
      .replace('owner: true', 'owner: true, registers: [pages]'),
  );
}, 30_000);
afterAll(() => host.close());

/** Returns what the command prints. The listener is in this process, so the command must not block the event loop. */
function type(text: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let out = '';
    const child = spawn('bash', ['-c', text], {
      env: { PATH: process.env.PATH, HOST: host.url, TOKEN: TOKENS.host },
    });
    child.stdout.on('data', (chunk: Buffer) => (out += chunk.toString()));
    child.on('error', reject).on('close', () => resolve(out));
  });
}

describe('docs/host-api.md', () => {
  inFull('shows commands that give the shown results', async () => {
    const answers: Record<string, unknown>[] = [];
    for (const { text } of commands) answers.push(JSON.parse(await type(text)) as Record<string, unknown>);
    expect(answers.map((answer) => Object.keys(answer))).toEqual([
      ['grant'],
      ['grant'],
      ['grant'],
      ['tools'],
      ['result'],
      ['expired'],
      ['server'],
    ]);
    expect((answers[3]?.tools as { name: string }[]).map(({ name }) => name)).toEqual(['chaos_echo']);
    expect(answers[5]).toEqual({ expired: 1 });
    expect(JSON.parse(await type(commands[4]?.text ?? ''))).toMatchObject({ error: { code: 'APPROVAL_REQUIRED' } });
  });

  it('names every operation with its method and path', () => {
    const rows = rowsOf(sectionOf(PAGE, '## Operations'));
    const said = rows.flatMap(([names = '', requests = '']) =>
      codeIn(names).map((id) => `${id} ${/\/host\/v1\/[^`?]*/.exec(requests)?.[0] ?? ''}`),
    );
    expect(said.sort()).toEqual(
      describeHostApi()
        .operations.map(({ id, path }) => `${id} ${path}`)
        .sort(),
    );
    expect(readPage(PAGE)).toContain('owner: true');
  });
});
