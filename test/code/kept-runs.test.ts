/** Tests what the log of a run of code keeps, and when it is gone. */

import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { RunLog } from '../../facade/code/run-log.ts';
import { inFull } from '../harness/full-tests.ts';
import type { TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';
import { callsMade, runCode, startCodeFacade } from './code-facade.ts';

let folder: string;
let facade: TestFacade | undefined;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'tollgate-kept-'));
});
afterEach(async () => {
  await facade?.close();
  facade = undefined;
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
});

/** Returns the lines of all logs. */
function lines(): readonly { readonly t: string }[] {
  const logs = path.join(folder, 'state', 'code-runs');
  return (existsSync(logs) ? readdirSync(logs) : []).flatMap((name) =>
    readFileSync(path.join(logs, name), 'utf8')
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as { readonly t: string }),
  );
}

const THREE = `const { echo } = require('host:mcp-stories');
return ['a', 'b', 'c'].map((text) => echo({ text }));`;

it('a call writes three lines to the log, and a run one more' + verifies('CM-43'), async () => {
  facade = await startCodeFacade({ folder });
  await runCode(facade, THREE);
  const call = ['call', 'sent', 'done'];
  expect(lines().map(({ t }) => t)).toEqual(['run', ...call, ...call, ...call]);
});

inFull(
  'a run that has ended is kept for its reply alone: equal code runs anew, and the run cannot be continued' +
    verifies('CM-41'),
  async () => {
    facade = await startCodeFacade({ folder });
    const session = facade.open('alice');
    await runCode(facade, THREE, session);
    const id = readdirSync(path.join(folder, 'state', 'code-runs'))[0]?.replace('.jsonl', '');
    const resumed = await facade.call(session, 'run_code', { resume: id });
    expect([resumed.code, resumed.text]).toEqual(['ARGS_INVALID', expect.stringContaining('it has ended')]);
    expect((await runCode(facade, THREE, session)).text).toBe('["a","b","c"]');
    expect(callsMade(facade)).toEqual({ echo: 6 });
    await expect.poll(lines, { timeout: 5_000 }).toEqual([]);
    await runCode(facade, THREE, session);
    await facade.close();
    facade = undefined;
    expect(lines()).toEqual([]);
  },
);

it(
  'a log that could not be written in whole is not continued: its next line would be lost' + verifies('CM-40'),
  async () => {
    const start = { id: 'full', principal: 'alice', code: '', startedAt: 1, parallel: 8 };
    const log = RunLog.create(folder, start);
    const call = { seq: 1, module: 'm', function: 'f', args: '{}', isAsync: false };
    log.noteCall(call);
    const early = await RunLog.open(folder, 'full');
    expect(early?.calls.size).toBe(0);
    early?.close();
    log.noteSent(1);
    const long = { kind: 'result', text: 'x'.repeat(65 * 1_048_576) } as const;
    expect(() => log.noteDone(1, long, [])).toThrow(expect.objectContaining({ code: 'CODE_LIMIT' }));
    expect(() => log.noteSent(1)).toThrow(expect.objectContaining({ code: 'CODE_LIMIT' }));
    log.close();
    const again = await RunLog.open(folder, 'full');
    expect([...(again?.calls.values() ?? [])]).toEqual([
      { seq: 1, module: 'm', function: 'f', args: '{}', isSent: true },
    ]);
    again?.close();
    expect(() => again?.noteSent(1)).toThrow(expect.objectContaining({ code: 'STATE_FAILED' }));
  },
);
