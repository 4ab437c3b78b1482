/** Tests the output of commands and the life of sessions, and that no process remains. */

import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import { OutputLog } from '../../adapters/primitives/shell/output-log.ts';
import { endProcessGroup, isGroupAlive } from '../../adapters/primitives/shell/shell-process.ts';
import { withKillSwitch } from '../../adapters/primitives/workspace/in-process-server.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { useHelpers } from '../../catalogs/programs/helper-programs.ts';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';
import { type Bench, makeBench, textsOf } from './workspace-harness.ts';

const OWN_ENV = { ...process.env };

afterEach(() => {
  for (const name of ['PATH', 'LANG', 'SECRET_TOKEN']) {
    if (OWN_ENV[name] === undefined) delete process.env[name];
    else process.env[name] = OWN_ENV[name];
  }
});

/** Returns true while a process with this word in its command line runs. Zombies have no command line. */
function runs(word: string): boolean {
  return readdirSync('/proc').some((pid) => /^\d+$/.test(pid) && commandLine(pid).includes(word));
}

function commandLine(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'latin1');
  } catch {
    return '';
  }
}

let counter = 0;
/** Returns a command that sleeps and has a unique command line. */
function sleeper(): { readonly word: string; readonly command: string } {
  counter += 1;
  const word = `98${process.pid}${counter}`;
  return { word, command: `sleep ${word}` };
}

async function poll(bench: Bench, session: string, wanted: RegExp): Promise<string> {
  let seen = '';
  for (let round = 0; round < 50 && !wanted.test(seen); round += 1)
    seen += await bench.text('bash', { action: 'poll', session, wait_ms: 200 });
  return seen;
}

describe('bash run', () => {
  it('returns stdout and stderr in order, and the exit code as data' + verifies('DC-03', 'CY-05'), async () => {
    const bench = makeBench();
    expect(await bench.text('bash', { command: 'echo out; echo err >&2; echo out2; exit 3' })).toBe(
      'exit 3\nout\nerr\nout2',
    );
    expect(await bench.text('bash', { command: 'true' })).toBe('[tollgate: no output, exit 0]');
    expect(await bench.text('bash', { command: 'false' })).toBe('exit 1\n');
    expect(await bench.text('bash', { command: 'kill -SEGV $$' })).toBe('exit 139 (SIGSEGV)\n');
    expect(await bench.text('bash', { action: 'run', command: 'cat; echo end' })).toBe('end');
    expect((await bench.call('bash', { command: 'exit 9' })).isError).toBe(false);
  });

  it('runs in the workspace with a clean environment, without secrets of the facade' + verifies('CY-18'), async () => {
    process.env.SECRET_TOKEN = 'hush';
    delete process.env.LANG;
    const bench = makeBench();
    mkdirSync(path.join(bench.root, 'sub dir'));
    expect(await bench.text('bash', { command: 'pwd; echo $TERM $NO_COLOR $PAGER $GIT_PAGER $LANG $HOME' })).toBe(
      `${bench.root}\ndumb 1 cat cat C.UTF-8 ${bench.root}`,
    );
    expect(await bench.text('bash', { command: 'env' })).not.toContain('hush');
    expect(await bench.text('bash', { command: 'pwd', cwd: 'sub dir' })).toBe(`${bench.root}/sub dir`);
    expect(await bench.failure('bash', { command: 'pwd', cwd: 'none' })).toContain('does not exist');
    expect(await bench.text('bash', { command: 'ulimit -c; ulimit -t' })).toBe('0\n3600');
  });

  it('uses sh if bash is not installed', async () => {
    process.env.PATH = '/nonexistent';
    useHelpers({ programs: { bash: '/nonexistent/bash' }, writable: [] });
    expect(await makeBench().text('bash', { command: 'echo ok; echo $PATH' })).toBe('ok\n/nonexistent');
    delete process.env.PATH;
    expect(await makeBench().text('bash', { command: 'echo $PATH' })).toBe('/usr/bin:/bin');
    useHelpers({ programs: {}, writable: [] });
  });

  it('does not search for programs in folders where agents write' + verifies('TR-53'), async () => {
    const bench = makeBench();
    bench.put('node_modules/.bin/ls', '#!/bin/sh\necho the program of the agent\n');
    chmodSync(path.join(bench.root, 'node_modules/.bin/ls'), 0o755);
    process.env.PATH = `${path.join(bench.root, 'node_modules/.bin')}:.:${OWN_ENV.PATH}`;
    useHelpers({ programs: {}, writable: [bench.root] });
    try {
      expect(await bench.text('bash', { command: 'ls -d node_modules' })).toBe('node_modules');
    } finally {
      useHelpers({ programs: {}, writable: [] });
    }
  });

  it.each(['run', 'start'])(
    'reads no startup file of the workspace, without a sandbox: %s' + verifies('TR-53'),
    async (action) => {
      const bench = makeBench({ '.bashrc': 'echo read by the shell\n', '.profile': 'echo read by the shell\n' });
      expect(
        await bench.text('bash', { action, command: 'pwd', ...(action === 'start' && { wait_ms: 20_000 }) }),
      ).toMatch(new RegExp(`^${bench.root}(?:\n\\[tollgate: [^\n]*)?$`));
    },
  );

  it('removes colors and keeps the last state of a progress line', async () => {
    const bench = makeBench();
    expect(
      await bench.text('bash', { command: String.raw`printf '\033[31mred\033[0m\n 10%%\r 50%%\r100%%\nwin\r\n'` }),
    ).toBe('red\n100%\nwin');
  });

  it('keeps head and tail of very long output and counts the rest', async () => {
    const bench = makeBench();
    const text = await bench.text('bash', { command: 'seq 1 400000' });
    expect(text.length).toBeLessThan(1.6 * 1024 * 1024);
    const [, dropped] = /\n\[tollgate: (\d+) lines here were dropped\]\n/.exec(text) ?? [];
    expect(text.startsWith('1\n2\n')).toBe(true);
    expect(text.endsWith('\n399999\n400000')).toBe(true);
    expect(text.split('\n').length - 1 + Number(dropped)).toBe(400_000);
  });

  it('cuts output over the limit, and keeps more of the tail than of the head', async () => {
    expect(await makeBench().text('bash', { command: 'seq 1 100', limit: 10 })).toBe(
      '1\n2\n3\n[tollgate: lines 4-93 of 100 were cut by limit]\n94\n95\n96\n97\n98\n99\n100',
    );
  });

  inFull('continues a slow command as a session, and reports it' + verifies('CY-05', 'HA-09'), async () => {
    const bench = makeBench();
    const [text, note] = textsOf(
      await bench.call('bash', {
        command: 'echo first; until [ -e go ]; do sleep 0.05; done; echo second; exit 4',
        timeout_ms: 3000,
      }),
    );
    expect(text).toBe('first');
    expect(note).toBe(
      '[tollgate: not finished after 3.0 s; it continues as session s1, without stdin. ' +
        'Next: bash action="poll" session="s1"]',
    );
    expect(await bench.failure('bash', { action: 'send', session: 's1', input: 'x' })).toContain('accepts no input');
    bench.put('go', '');
    const rest = await poll(bench, 's1', /has ended: exit/);
    expect(rest).toContain('second');
    expect(rest).toMatch(/\[tollgate: session s1 has ended: exit 4 after/);
  });

  it('becomes a session before the hard timeout of the call', async () => {
    const bench = makeBench();
    expect(await bench.text('bash', { command: 'sleep 5' }, { hardTimeoutMs: 600 })).toContain(
      'continues as session s1',
    );
  });

  it('ends the command and its children when the call is cancelled' + verifies('CY-18'), async () => {
    const bench = makeBench();
    const { word, command } = sleeper();
    const controller = new AbortController();
    const call = bench.call('bash', { command: `${command} & ${command}; true` }, { signal: controller.signal });
    setTimeout(() => controller.abort(), 200);
    await expect(call).rejects.toMatchObject({ code: 'CANCELLED' });
    expect(runs(word)).toBe(false);
  });

  it('ends background processes that the command leaves, and reports it', async () => {
    const bench = makeBench();
    const { word, command } = sleeper();
    expect(await bench.text('bash', { command: `${command} & echo started` })).toMatch(
      /^started\n\[tollgate: processes that the command left in the background were ended/,
    );
    expect(await bench.text('bash', { command: `${command} >/dev/null 2>&1 & echo quiet` })).toContain('were ended');
    expect(runs(word)).toBe(false);
  });

  it.each([
    {},
    { command: '  ' },
    { command: 'a\0b' },
    { command: 'true', timeout_ms: 0 },
    { command: 'true', timeout_ms: 600_001 },
    { command: 'true', limit: 0 },
    { action: 'poll' },
    { action: 'send', session: 's1', wait_ms: 30_001 },
  ])('refuses %j', async (args) => {
    await expect(makeBench().call('bash', args)).rejects.toMatchObject({ code: 'ARGS_INVALID' });
  });

  it('reports that a command is too long to be started', async () => {
    expect(await makeBench().failure('bash', { command: `: ${'x'.repeat(3_000_000)}` })).toContain('too long');
  });
});

describe('bash sessions', () => {
  it('show only new output after start, send, poll and eof' + verifies('CY-05'), async () => {
    const bench = makeBench();
    const started = await bench.text('bash', {
      action: 'start',
      command: 'printf "name? "; read name; echo "hello $name"; cat; echo bye',
      wait_ms: 20_000,
    });
    expect(started).toBe(
      'name? \n[tollgate: session s1 is running, 0 more lines to show. Next: bash action="poll" session="s1"]',
    );
    expect(await bench.text('bash', { action: 'send', session: 's1', input: 'Ada', wait_ms: 20_000 })).toMatch(
      /^hello Ada\n\[tollgate/,
    );
    expect(await bench.text('bash', { action: 'poll', session: 's1', wait_ms: 50 })).toMatch(
      /^\[tollgate: session s1 is running/,
    );
    await bench.text('bash', { action: 'send', session: 's1', input: 'no end', raw: true });
    const ended =
      (await bench.text('bash', { action: 'send', session: 's1', eof: true })) + (await poll(bench, 's1', /ended/));
    expect(ended).toContain('bye');
    expect(ended).toContain('session s1 has ended: exit 0');
    expect(await bench.text('bash', { action: 'poll', session: 's1', offset: 1 })).toMatch(
      /^name\? hello Ada\nno endbye\n\[tollgate: session s1: lines 1-2 of 2, exit 0\]$/,
    );
    expect(await bench.text('bash', { action: 'poll', session: 's1', offset: -1 })).toContain('no endbye');
    await expect(bench.call('bash', { action: 'poll', session: 's1', offset: 0 })).rejects.toMatchObject({
      code: 'ARGS_INVALID',
    });
    expect(await bench.failure('bash', { action: 'send', session: 's1', input: 'x' })).toContain('accepts no input');
  });

  it('return output page by page without losing or repeating a line', async () => {
    const bench = makeBench();
    let seen = await bench.text('bash', { action: 'start', command: 'seq 1 5000', wait_ms: 3000, limit: 700 });
    for (let round = 0; round < 20 && !seen.includes('has ended: exit'); round += 1)
      seen += `\n${await bench.text('bash', { action: 'poll', session: 's1', limit: 700 })}`;
    const lines = seen.split('\n').filter((line) => /^\d+$/.test(line));
    expect(lines).toEqual(Array.from({ length: 5000 }, (_, at) => `${at + 1}`));
  });

  it(
    'are listed with command, state, age and unread lines, in their own scope only' + verifies('CY-05', 'CY-18'),
    async () => {
      const bench = makeBench();
      expect(await bench.text('bash', { action: 'list' })).toBe('[tollgate: no sessions]');
      await bench.text('bash', {
        action: 'start',
        command: 'echo a; until [ -e go ]; do sleep 0.05; done; echo b; echo c; exit 2',
        wait_ms: 10_000,
      });
      bench.put('go', '');
      await bench.text('bash', { action: 'start', command: 'cat', wait_ms: 1 });
      await expect
        .poll(() => bench.text('bash', { action: 'list' }))
        .toMatch(
          /^s1 exit 2, age \d+(?:\.\d)? s, 2 unread lines: echo a; .*\ns2 running, age \d+(?:\.\d)? s, 0 unread lines: cat$/,
        );
      expect(await bench.text('bash', { action: 'list' }, { scope: 'b' })).toBe('[tollgate: no sessions]');
      expect(await bench.failure('bash', { action: 'poll', session: 's1' }, { scope: 'b' })).toContain(
        'no session with this id',
      );
    },
  );

  inFull('end with all their processes on kill, even if these ignore SIGTERM' + verifies('CY-18'), async () => {
    const bench = makeBench();
    const { word, command } = sleeper();
    await bench.text('bash', {
      action: 'start',
      command: `trap '' TERM; echo ready; ${command} & ${command}; ${command}`,
      wait_ms: 20_000,
    });
    await expect.poll(() => runs(word)).toBe(true);
    expect(await bench.text('bash', { action: 'kill', session: 's1' })).toContain(
      'session s1 and all its processes were ended',
    );
    expect(runs(word)).toBe(false);
    expect(await bench.text('bash', { action: 'poll', session: 's1', wait_ms: 20_000 })).toContain(
      'has ended: exit 137',
    );
  });

  inFull('are limited to sixteen; then a slow run is ended', async () => {
    const bench = makeBench();
    for (let at = 0; at < 16; at += 1) await bench.text('bash', { action: 'start', command: 'cat', wait_ms: 1 });
    expect(await bench.failure('bash', { action: 'start', command: 'cat' })).toContain('already 16 sessions');
    expect(await bench.failure('bash', { command: 'echo part; sleep 20', timeout_ms: 3000 })).toMatch(
      /limit of sessions is reached.*the command was ended\.\n.*\npart/s,
    );
    await bench.text('bash', { action: 'kill', session: 's3' });
    expect(await bench.text('bash', { action: 'start', command: 'cat', wait_ms: 1 })).toContain('session s17');
    expect(await bench.failure('bash', { action: 'poll', session: 's3' })).toContain('no session with this id');
  });

  it('receive concurrent input one after the other', async () => {
    const bench = makeBench();
    await bench.text('bash', { action: 'start', command: 'cat', wait_ms: 1 });
    const answers = await Promise.all(
      ['1', '2', '3'].map((input) => bench.text('bash', { action: 'send', session: 's1', input, wait_ms: 20_000 })),
    );
    expect(answers.map((answer) => answer.split('\n')[0])).toEqual(['1', '2', '3']);
    await expect(bench.call('bash', { action: 'send', session: 's1' })).rejects.toMatchObject({ code: 'ARGS_INVALID' });
  });

  it('return in time if the command does not read its input', async () => {
    const bench = makeBench();
    await bench.text('bash', { action: 'start', command: 'sleep 30', wait_ms: 1 });
    expect(
      await bench.text('bash', { action: 'send', session: 's1', input: 'x'.repeat(2_000_000), wait_ms: 50 }),
    ).toContain('is running');
  });

  it('survive input after the command closed its stdin', async () => {
    const bench = makeBench();
    await bench.text('bash', { action: 'start', command: 'exec <&-; sleep 0.3; exit 5', wait_ms: 50 });
    await bench.call('bash', { action: 'send', session: 's1', input: 'x', wait_ms: 100 });
    expect(await poll(bench, 's1', /ended/)).toContain('exit 5');
  });

  inFull.each(['the end of its session', 'the end of the server', 'the cancellation of its call'])(
    'are ended if they start during %s' + verifies('CY-18'),
    async (what) => {
      const { word, command } = sleeper();
      for (const turns of [0, 1, 2, 3, 5, 8, 13, 20]) {
        const bench = makeBench();
        const cancel = new AbortController();
        const call = bench
          .call('bash', { action: 'start', command, wait_ms: 1 }, { scope: 'x', signal: cancel.signal })
          .catch(() => undefined);
        for (let turn = 0; turn < turns; turn += 1) await new Promise((resolve) => setImmediate(resolve));
        if (what === 'the end of the server') await bench.server.stop();
        else cancel.abort();
        if (what === 'the end of its session') await bench.server.endScope?.('x');
        await call;
        // It already had an id when it was cancelled, so the caller finds it in the list.
        const named =
          what === 'the cancellation of its call' &&
          (await bench.text('bash', { action: 'list' }, { scope: 'x' })).includes('running');
        expect([turns, !named && runs(word)]).toEqual([turns, false]);
        await bench.server.endScope?.('x');
      }
    },
  );

  it('are killed at once when the workspace is halted, even if they ignore SIGTERM' + verifies('HA-19'), async () => {
    const bench = makeBench();
    const { word, command } = sleeper();
    const server = withKillSwitch(bench.server, () => undefined);
    await bench.text('bash', { action: 'start', command: `trap '' TERM; ${command}`, wait_ms: 50 });
    await expect.poll(() => runs(word)).toBe(true);
    server.halt(new TollgateError('SWITCHED_OFF'));
    await expect.poll(() => runs(word)).toBe(false);
  });

  it('end with their scope, with the server, and after a long idle time' + verifies('CY-18'), async () => {
    const bench = makeBench({}, 300);
    const [first, second, third] = [sleeper(), sleeper(), sleeper()];
    await bench.text('bash', { action: 'start', command: first.command, wait_ms: 1 }, { scope: 'x' });
    await bench.server.endScope?.('x');
    await bench.server.endScope?.('never seen');
    expect(runs(first.word)).toBe(false);
    await bench.text('bash', { action: 'start', command: second.command, wait_ms: 1 });
    // A poll would restart the idle time.
    await expect.poll(() => bench.text('bash', { action: 'list' })).toBe('[tollgate: no sessions]');
    expect(await bench.failure('bash', { action: 'poll', session: 's1' })).toContain('no session with this id');
    await expect.poll(() => runs(second.word)).toBe(false);
    const running = bench.call('bash', { command: third.command }, { scope: 'y' });
    await expect.poll(() => runs(third.word)).toBe(true);
    await bench.server.stop();
    expect(textsOf(await running)[0]).toContain('exit 143');
    expect(runs(third.word)).toBe(false);
  });

  it('continue after a poll is cancelled', async () => {
    const bench = makeBench();
    await bench.text('bash', { action: 'start', command: 'cat', wait_ms: 1 });
    const controller = new AbortController();
    setTimeout(() => controller.abort(), 50);
    await expect(
      bench.call('bash', { action: 'poll', session: 's1', wait_ms: 5000 }, { signal: controller.signal }),
    ).rejects.toMatchObject({ code: 'CANCELLED' });
    expect(await bench.text('bash', { action: 'send', session: 's1', input: 'still here', wait_ms: 20_000 })).toContain(
      'still here',
    );
  });

  it('count as ended if their process group does not exist', async () => {
    const { pid } = spawnSync('true');
    expect(isGroupAlive(pid)).toBe(false);
    expect(await endProcessGroup(pid)).toBe(true);
  });
});

describe('the output log', () => {
  it('is the same however the bytes are split', () => {
    const bytes = Buffer.from('é\u001b[31mred\u001b[0m\n10%\r20%\r\nlast 😀');
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 8 }), { maxLength: 30 }), (sizes) => {
        const log = new OutputLog();
        let at = 0;
        for (const size of sizes) log.push(bytes.subarray(at, (at += size)));
        log.push(bytes.subarray(at));
        expect(log.lines(1, 99).lines).toEqual(['éred', '20%', 'last 😀']);
      }),
    );
  });

  it('returns the whole output over several calls of next()', () => {
    fc.assert(
      fc.property(
        fc.array(fc.string({ unit: fc.constantFrom('a', 'b', '\n') })),
        fc.integer({ min: 1, max: 4 }),
        (chunks, limit) => {
          const log = new OutputLog();
          let seen = '';
          let finished = 0;
          for (const chunk of chunks) {
            log.push(Buffer.from(chunk));
            while (log.unread > 0) {
              const before = log.unread;
              const part = log.next(limit, 1000);
              seen += part.lines.map((line) => `${line}|`).join('');
              finished = part.to;
              if (log.unread >= before) throw new Error('no progress');
            }
          }
          expect(finished === 0 ? log.total : finished).toBe(log.total);
          expect(seen.replaceAll('|', '')).toBe(chunks.join('').replaceAll('\n', ''));
        },
      ),
    );
  });

  it('breaks an endless line, and keeps only the last state of a line that is rewritten', () => {
    const endless = new OutputLog();
    for (let round = 0; round < 40; round += 1) endless.push(Buffer.from('x'.repeat(4096)));
    expect(endless.total).toBeGreaterThan(1);
    const rewritten = new OutputLog();
    for (let round = 0; round < 20_000; round += 1) rewritten.push(Buffer.from(`${round} %\r`));
    expect(rewritten.lines(1, 9).lines).toEqual(['19999 %']);
  });

  it('returns at least one line, however long, and skips dropped lines', () => {
    const log = new OutputLog();
    log.push(Buffer.from(`${'x'.repeat(100)}\n${'y'.repeat(100)}\n`));
    expect(log.next(10, 10).lines).toEqual(['x'.repeat(100)]);
    expect(log.next(10, 10).lines).toEqual(['y'.repeat(100)]);
    expect(log.next(10, 10).lines).toEqual([]);
    for (let line = 0; line < 3000; line += 1) log.push(Buffer.from(`${line} ${'z'.repeat(1000)}\n`));
    const first = log.next(1000, Number.MAX_SAFE_INTEGER);
    expect(first.gap?.lines).toBeGreaterThan(500);
    expect(first.lines.at(-1)?.startsWith(`${first.to - 3} z`)).toBe(true);
  });
});
