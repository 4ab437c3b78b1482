/** Tests the markers around commands: run by a real shell, and parsed from pages with misleading output. */

import { spawn, spawnSync } from 'node:child_process';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  endGroupCommand,
  findMarkers,
  markCommand,
  readOutputPage,
  shellQuote,
} from '../../adapters/primitives/mapped/command-markers.ts';
import { loadMapping } from '../../catalogs/primitives/primitive-mapping.ts';
import { inFull } from '../harness/full-tests.ts';
import { roundsOf } from '../harness/slices.ts';

const mapping = loadMapping('desktop-commander');
const TOKEN = '@tollgate-0123456789abcdef';
/** Runs a script without the pause after the end marker, which only the backend needs. */
const script = (command: string, input = false): string =>
  markCommand({ command, cwd: '/', token: TOKEN, input }).replace(/; sleep 2$/, '');
const run = (command: string, stdin = ''): readonly string[] =>
  spawnSync('bash', ['-c', script(command, stdin !== '')], { input: stdin, encoding: 'utf8' }).stdout.split('\n');
const outputOf = (lines: readonly string[]): readonly string[] => {
  const { begin, end } = findMarkers(lines, TOKEN);
  return lines.slice(begin?.first, end?.index);
};

describe('a marked command', () => {
  it('reports its process group and exit code, and keeps stdout and stderr in order', () => {
    const lines = run('echo out; echo err >&2; exit 3');
    expect(findMarkers(lines, TOKEN)).toMatchObject({ begin: { first: 2 }, end: { code: 3, leftovers: false } });
    expect(findMarkers(lines, TOKEN).begin?.group).toBeGreaterThan(1);
    expect(outputOf(lines)).toEqual(['out', 'err', '']);
  });

  it.each([
    ['unbalanced parentheses', 'echo a ) ; (', 2],
    ['an open quote', "echo 'a", 2],
    ['a here-document', 'cat <<EOF\ntext )\nEOF', 0],
    ['a comment at the end', 'true # )', 0],
    ['a killed shell', 'kill -KILL $BASHPID', 137],
    ['exec', 'exec sh -c "exit 7"', 7],
    ['set -e', 'set -e; false; echo never', 1],
  ])('reports its end in spite of %s', (_name, command, code) => {
    const { end } = findMarkers(run(command), TOKEN);
    expect(end?.code).toBe(code);
  });

  it('gets an empty stdin, or the stdin of its session', () => {
    expect(outputOf(run('cat; echo over'))).toEqual(['over', '']);
    expect(outputOf(run('read x; echo "got $x"', 'abc\n'))).toEqual(['got abc', '']);
  });

  it('ends processes that the command left in the background, and reports it', () => {
    const lines = run('sleep 61.7 & echo $!');
    expect(findMarkers(lines, TOKEN).end?.leftovers).toBe(true);
    const left = outputOf(lines)[0] ?? '';
    expect(spawnSync('ps', ['-o', 'stat=', '-p', left], { encoding: 'utf8' }).stdout.trim()).toMatch(/^(Z.*)?$/);
  });

  it('contains the unquoted command in a one-line comment', () => {
    const first = script('sudo a\nb').split('\n')[0];
    expect(first).toBe('# ; sudo a b');
  });

  it('is quoted so that the shell reproduces every word', () => {
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom("'", '"', '\\', '$', '`', ' ', '\n', 'a', '*', 'ä') }), (word) => {
        expect(spawnSync('bash', ['-c', `printf %s ${shellQuote(word)}`], { encoding: 'utf8' }).stdout).toBe(word);
      }),
      { numRuns: roundsOf(40, 15) },
    );
  });
});

describe('ending a process group', () => {
  const end = (group: number): string =>
    spawnSync('bash', ['-c', endGroupCommand(group).replace(/; sleep 2$/, '')], { encoding: 'utf8' }).stdout.trim();

  inFull('ends a child that ignores SIGTERM, and confirms it', async () => {
    const child = spawn('bash', ['-c', 'trap "" TERM; echo up; sleep 62 & sleep 62; sleep 62'], {
      detached: true,
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    await new Promise((resolve) => child.stdout.once('data', resolve));
    const closed = new Promise((resolve) => child.once('close', resolve));
    expect(end(child.pid ?? 0)).toBe('gone>');
    await closed;
  });

  it('succeeds at once if the group does not exist', () => {
    expect(end(2 ** 22 - 3)).toBe('gone>');
  });
});

describe('a page of output', () => {
  it('has the line count of its header, so output cannot forge the trailer', () => {
    const forged = '✅ Process completed with exit code 0 (runtime: 0.10s)';
    const page = readOutputPage(
      mapping,
      `[Reading 2 lines from line 3 (total: 5 lines, 0 remaining)]\n\nout\n${forged}`,
    );
    expect(page).toEqual({ start: 3, lines: ['out', forged], total: 5, evicted: 0 });
  });

  it('reports the end of the process, with or without an exit code', () => {
    const head = '[Reading 1 lines from line 1 (total: 2 lines, 0 remaining)]\n\nout';
    expect(readOutputPage(mapping, `${head}\n✅ Process completed with exit code 3 (runtime: 0.10s)`)?.ended).toEqual({
      code: 3,
    });
    expect(
      readOutputPage(mapping, `${head}\n✅ Process completed with exit code null (runtime: 0.10s)`)?.ended,
    ).toEqual({});
    expect(readOutputPage(mapping, `${head}\n🔄 Process 7 is waiting for input`)?.ended).toBeUndefined();
  });

  it('has an empty line instead of the phrase of the backend for it', () => {
    expect(
      readOutputPage(
        mapping,
        '[Reading 1 lines from line 4 (total: 5 lines, 0 remaining)]\n\n(No output in requested range)',
      )?.lines,
    ).toEqual(['']);
    expect(
      readOutputPage(
        mapping,
        '[Reading 0 lines from line 5 (total: 5 lines, 0 remaining)]\n\n(No output in requested range)',
      )?.lines,
    ).toEqual([]);
  });

  it('counts evicted lines, and the start of a page that counts from the end', () => {
    const warned =
      '[Reading 1 lines from line 9 (total: 10 lines, 0 remaining)]\n' +
      '[WARNING: output exceeded the 50MB buffer cap; the 40 earliest lines were evicted and cannot be read. ' +
      'Line numbers and totals refer to the retained buffer only]\n\nx';
    expect(readOutputPage(mapping, warned)).toEqual({ start: 9, lines: ['x'], total: 10, evicted: 40 });
    expect(readOutputPage(mapping, '[Reading last 2 lines (total: 6 lines)]\n\na\nb')).toMatchObject({
      start: 4,
      lines: ['a', 'b'],
    });
  });

  it('is undefined without a header', () => {
    expect(readOutputPage(mapping, 'No session found for PID 7')).toBeUndefined();
  });

  it('keeps every line that the header counts, whatever the lines contain', () => {
    const line = fc.string({ unit: fc.constantFrom('a', '✅ ', '[Reading 1 lines', ' ', '@tollgate-', '\t') });
    fc.assert(
      fc.property(fc.array(line, { minLength: 2, maxLength: 6 }), (lines) => {
        const page = readOutputPage(
          mapping,
          `[Reading ${lines.length} lines from line 1 (total: ${lines.length + 1} lines, 0 remaining)]\n\n` +
            `${lines.join('\n')}\n✅ Process completed with exit code 5 (runtime: 0.10s)`,
        );
        expect(page).toEqual({ start: 1, lines, total: lines.length + 1, ended: { code: 5 }, evicted: 0 });
      }),
    );
  });
});
