/**
 * Tests how decisions are recorded: encrypted, authenticated, deleted in time, limited in bytes, and never delaying a
 * call.
 */
import { createHash } from 'node:crypto';
import { appendFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { isWhole, MAX_ARGS, type Recording, recordingOf } from '../../facade/audit/recording/decision-recording.ts';
import { openRecorder, type Recorder } from '../../facade/audit/recording/recorder.ts';
import { openRecording, recordingTime, sealRecording } from '../../facade/audit/recording/recording-encryption.ts';
import {
  listRecordingFiles,
  recordingBounds,
  recordingFileName,
  recordingFolder,
  sweepRecordings,
} from '../../facade/audit/recording/recording-files.ts';
import {
  findRecording,
  type ReadLine,
  readLast,
  readRecordings,
} from '../../facade/audit/recording/recording-reader.ts';
import type { EndedCall } from '../../facade/call/record.ts';
import { ALLOWED, allBytes, endedCall, MINUTE, modesIn, NOON, SETTINGS, stateFolder } from './recording-setup.ts';

/** Opens a recorder with a clock of the test. */
function open(
  over: { state?: string; facts?: 'names'; settings?: Partial<typeof SETTINGS>; clock?: { now: number } } = {},
) {
  const state = over.state ?? stateFolder();
  const settings = { ...SETTINGS, ...over.settings };
  const clock = over.clock ?? { now: NOON };
  const faults: TollgateError[] = [];
  const recorder = openRecorder({
    state,
    settings: { facts: over.facts ?? 'full', recordings: settings },
    digest: (text) => createHash('sha256').update(text).digest('hex'),
    now: () => clock.now,
    onFault: (error) => void faults.push(error),
  }) as Recorder;
  const from = (): Parameters<typeof readLast>[0] => ({ state, settings, now: clock.now });
  return { state, settings, clock, faults, recorder, from, ids: () => [...readRecordings(from())].map(idOf) };
}

const idOf = (line: ReadLine): string => ('recording' in line ? line.recording.id : line.fault);

describe('an encrypted line of a recording', () => {
  const key = Buffer.alloc(32, 7);
  const recording = recordingOf(endedCall('id-1')) as Recording;
  const written = JSON.stringify(recording);

  it('decrypts to what was encrypted, for any arguments', () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.integer({ min: 0, max: 2 ** 43 }), (value, at) => {
        const one = { ...recording, input: { ...recording.input, argsText: JSON.stringify({ value }) } };
        const text = JSON.stringify(one);
        const line = sealRecording(text, key, at);
        expect(line.endsWith('\n') && !line.slice(0, -1).includes('\n')).toBe(true);
        expect(recordingTime(line)).toBe(at);
        expect(openRecording(line, key)).toEqual({ at, text, recording: JSON.parse(text) });
      }),
    );
  });

  it('differs each time, so that equal calls cannot be recognized', () => {
    expect(sealRecording(written, key, 1)).not.toBe(sealRecording(written, key, 1));
  });

  it('is refused with another key, a changed time, a flipped bit or a cut', () => {
    const line = sealRecording(written, key, NOON);
    expect(openRecording(line, Buffer.alloc(32, 8))).toBe('it was written with another key, or changed');
    expect(openRecording(line.replace(String(NOON), String(NOON + 1)), key)).toBe(
      'it was written with another key, or changed',
    );
    const value = JSON.parse(line) as { data: string };
    const bytes = Buffer.from(value.data, 'base64');
    for (const at of [0, 20, bytes.length - 1]) {
      const changed = Buffer.from(bytes);
      changed.writeUInt8(changed.readUInt8(at) ^ 1, at);
      expect(openRecording(JSON.stringify({ ...value, data: changed.toString('base64') }), key), String(at)).toContain(
        'changed',
      );
    }
    for (const text of [line.slice(0, 40), '', '{}', 'null', '{"v":2}', '{"v":1,"at":1,"nonce":"","data":""}'])
      expect(openRecording(text, key), text).toContain('not a line of a recording');
  });
});

describe('the recording of a call', () => {
  it('does not exist if the policy was not asked', () => {
    expect(recordingOf({ ...endedCall('id-1'), judged: undefined })).toBeUndefined();
  });

  it('has no arguments if they are too large, and says how many characters they had', () => {
    const recording = recordingOf(endedCall('big', { text: 'x'.repeat(MAX_ARGS) })) as Recording;
    expect(isWhole(recording)).toBe(false);
    expect(recording.argChars).toBe(MAX_ARGS + 11);
    expect(JSON.stringify(recording)).not.toContain('xxx');
  });

  it('says why there was no decision', () => {
    const { judged, ...rest } = endedCall('failed');
    const error = new TollgateError('POLICY_FAILED', { detail: 'Too late.' });
    const ended = { ...rest, judged: { input: judged?.input }, error } as EndedCall;
    expect(recordingOf(ended)?.failed).toBe('Too late.');
    expect(recordingOf({ ...ended, kind: 'sent', error: undefined } as EndedCall)?.failed).toBe(
      'The policy gave no decision.',
    );
  });
});

describe('the recorder', () => {
  it('stores decisions in private files and folders, and they are read newest first', async () => {
    const { recorder, ids, state, from } = open();
    for (const id of ['one', 'two', 'three']) recorder.note(endedCall(id));
    expect(ids()).toEqual([]);
    await recorder.close();
    expect(ids()).toEqual(['three', 'two', 'one']);
    expect(readLast(from())?.id).toBe('three');
    expect(findRecording(from(), 'two')?.recording.decision).toEqual(ALLOWED);
    expect(findRecording(from(), 'four')).toBeUndefined();
    for (const [name, mode] of modesIn(state))
      expect(mode, name).toBe(name === '' || name === 'recording' ? 0o700 : 0o600);
  });

  it('writes nothing in plain text: no argument, no principal, no tool name', async () => {
    const { recorder, state } = open();
    recorder.note(endedCall('id-planted', { 'planted-key': 'planted-value', deep: ['planted-deep'] }));
    await recorder.close();
    for (const word of ['planted', 'mia', 'workspace', 'Sources'])
      expect(allBytes(state).replaceAll(state, ''), word).not.toContain(word);
  });

  it('writes no key and no folder unless the setting is full', () => {
    const { recorder, state } = open({ facts: 'names' });
    expect(recorder).toBeUndefined();
    expect(readdirSync(state)).toEqual([]);
    expect(readLast({ state, settings: SETTINGS, now: NOON })).toBeUndefined();
  });

  it('loses no line of several processes and snapshots that write at once', async () => {
    const first = open();
    const second = open({ state: first.state });
    for (let number = 0; number < 50; number += 1) {
      first.recorder.note(endedCall(`a${number}`));
      second.recorder.note(endedCall(`b${number}`));
      if (number % 10 === 0) await Promise.all([first.recorder.flush(), second.recorder.flush()]);
    }
    await Promise.all([first.recorder.close(), second.recorder.close()]);
    expect(new Set(first.ids()).size).toBe(100);
  });

  it('refuses to start if it cannot record: with an invalid key, or a file in the place of its folder', () => {
    const damaged = stateFolder();
    writeFileSync(path.join(damaged, 'recording.key'), 'short');
    expect(() => open({ state: damaged })).toThrow(expect.objectContaining({ code: 'STATE_FAILED' }) as Error);
    const blocked = stateFolder();
    writeFileSync(recordingFolder(blocked), '');
    expect(() => open({ state: blocked })).toThrow(expect.objectContaining({ code: 'STATE_FAILED' }) as Error);
  });

  it('reports once that it cannot write, continues, and reports it again after a recovery', async () => {
    const { recorder, state, faults, ids } = open();
    const folder = recordingFolder(state);
    const turn = async (id: string): Promise<void> => {
      recorder.note(endedCall(id));
      await recorder.flush();
    };
    rmSync(folder, { recursive: true });
    writeFileSync(folder, '');
    await turn('lost');
    await turn('lost-too');
    expect(faults.map(({ code, message }) => `${code} ${message}`)).toEqual([
      expect.stringMatching(/^STATE_FAILED A decision could not be recorded \(E\w+\)\.$/),
    ]);
    rmSync(folder);
    mkdirSync(folder);
    await turn('kept');
    expect(ids()).toEqual(['kept']);
    rmSync(folder, { recursive: true });
    await turn('lost-again');
    expect(faults).toHaveLength(2);
    await recorder.close();
  });
});

describe('the retention of recordings', () => {
  it('hides a decision when it is too old, and deletes its file soon after', async () => {
    const { recorder, clock, ids, state } = open();
    recorder.note(endedCall('old'));
    await recorder.flush();
    clock.now += 40 * MINUTE;
    recorder.note(endedCall('new'));
    await recorder.flush();
    expect(ids()).toEqual(['new', 'old']);
    clock.now = NOON + 61 * MINUTE;
    expect(ids()).toEqual(['new']);
    expect(listRecordingFiles(recordingFolder(state))).toHaveLength(2);
    clock.now = NOON + 80 * MINUTE;
    recorder.note(endedCall('newest'));
    await recorder.close();
    expect(listRecordingFiles(recordingFolder(state))).toHaveLength(2);
    expect(ids()).toEqual(['newest', 'new']);
  });

  it('also applies at a start without recording', async () => {
    const { recorder, state, clock } = open();
    recorder.note(endedCall('old'));
    await recorder.close();
    openRecorder({
      state,
      settings: { facts: 'names', recordings: SETTINGS },
      digest: String,
      now: () => clock.now + 30 * MINUTE,
      onFault: () => undefined,
    });
    expect(listRecordingFiles(recordingFolder(state))).toHaveLength(1);
    openRecorder({
      state,
      settings: { facts: 'names', recordings: SETTINGS },
      digest: String,
      now: () => clock.now + 76 * MINUTE,
      onFault: () => undefined,
    });
    expect(listRecordingFiles(recordingFolder(state))).toHaveLength(0);
  });

  it('deletes the oldest files over the limit of bytes, and ignores other files', () => {
    const folder = stateFolder();
    const names = [1, 2, 3, 4].map((number) => recordingFileName(NOON + number));
    for (const name of names) writeFileSync(path.join(folder, name), 'x'.repeat(1000));
    writeFileSync(path.join(folder, 'mine.txt'), 'x'.repeat(5000));
    sweepRecordings(folder, { ...recordingBounds(SETTINGS), maxBytes: 2500 }, NOON);
    expect(readdirSync(folder).sort()).toEqual([...names.slice(2), 'mine.txt'].sort());
  });

  it('begins a new file when one is full', async () => {
    const { recorder, state } = open({ settings: { maxBytes: 80_000 } });
    for (let number = 0; number < 12; number += 1) {
      recorder.note(endedCall(`id${number}`, { text: 'y'.repeat(3000) }));
      await recorder.flush();
    }
    await recorder.close();
    expect(listRecordingFiles(recordingFolder(state)).length).toBeGreaterThan(2);
  });
});

describe('the recording reader', () => {
  it('reports damaged lines and continues', async () => {
    const { recorder, state, from } = open();
    for (const id of ['one', 'two']) recorder.note(endedCall(id));
    await recorder.close();
    const [file] = listRecordingFiles(recordingFolder(state));
    const lines = readFileSync(file?.path ?? '', 'utf8').split('\n');
    writeFileSync(file?.path ?? '', `${lines[0]?.replace('"data":"', '"data":"AAAA')}\n${lines[1]}\n`);
    appendFileSync(file?.path ?? '', '{"v":1,"at":');
    expect([...readRecordings(from())]).toEqual([
      { file: file?.name, line: 3, fault: 'it is not a line of a recording, or only half of one' },
      expect.objectContaining({ recording: expect.objectContaining({ id: 'two' }) as object }),
      { file: file?.name, line: 1, fault: 'it was written with another key, or changed' },
    ]);
    expect(readLast(from())?.id).toBe('two');
  });

  it('never makes a key, and reports a missing or wrong one', async () => {
    const { recorder, state, from } = open();
    recorder.note(endedCall('one'));
    await recorder.close();
    writeFileSync(path.join(state, 'recording.key'), Buffer.alloc(32, 1));
    expect([...readRecordings(from())].map(idOf)).toEqual(['it was written with another key, or changed']);
    expect(() => readLast(from())).toThrow('written with another key');
    rmSync(path.join(state, 'recording.key'));
    expect(() => [...readRecordings(from())]).toThrow('recording.key is missing');
    expect(existsSync(path.join(state, 'recording.key'))).toBe(false);
  });
});
