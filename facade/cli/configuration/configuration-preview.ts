/** Checks a configuration as a change would leave it, before anything is written. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { diffIndices } from 'node-diff3';
import { asTollgateError, TollgateError } from '../../../catalogs/errors/error-table.ts';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';
import { readPlaces, stageAccepted } from '../../config/accepted-config.ts';
import type { Config } from '../../config/config.ts';
import type { Problem } from '../../config/config-problems.ts';
import { loadConfig } from '../../config/load-config.ts';
import { type CommonOptions, readConfig } from '../command-facade.ts';
import type { Io } from '../command-io.ts';
import type { Wiring } from '../wiring.ts';

/** The new texts of files by absolute path; undefined: the file is removed. */
export type NewTexts = ReadonlyMap<string, string | undefined>;

/** What an undo is checked with. */
export interface PreviewContext {
  readonly options: Pick<CommonOptions, 'config'>;
  readonly io: Io;
  readonly wiring: Pick<Wiring, 'check'>;
  /** The command that is run again when the named lines are corrected. */
  readonly again: string;
}

/** More lines than this are not compared, because repeated lines cost the product of their numbers. */
const MAX_LINES = 2000;

/**
 * Throws CONFIG_INVALID or POLICY_INVALID, with the lines as they are on the disk now, if the configuration loads now
 * and would not load with the new texts. A configuration that is refused already does not hinder an undo.
 */
export async function refuseBroken(texts: NewTexts, { options, io, wiring, again }: PreviewContext): Promise<void> {
  const now = await loaded(() => readConfig(options, io));
  if (now === undefined) return;
  const isChecked = (await loaded(() => wiring.check(now, {}))) !== undefined;
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-preview-'));
  try {
    const config = loadConfig(now.file, { env: io.env, home: io.home, at: stagedWith(texts, now, folder) });
    if (isChecked) await wiring.check(config, {});
  } catch (thrown) {
    const { code, data } = asRefusal(thrown);
    const problems = ((data.problems ?? []) as readonly Problem[]).map((one) => placedNow(one, texts, now));
    throw new TollgateError(code, {
      detail: 'Undoing would leave a configuration that does not load, so nothing was undone.',
      next: `Nothing was undone: these lines would be refused then. Correct them, and run: ${again}`,
      data: { problems },
      cause: thrown,
    });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Returns undefined for a configuration that is refused. */
async function loaded<T>(load: () => Promise<T> | T): Promise<T | undefined> {
  try {
    return await load();
  } catch (thrown) {
    if (asTollgateError(thrown).code !== 'OPA_MISSING') asRefusal(thrown);
    return undefined;
  }
}

function asRefusal(thrown: unknown): TollgateError {
  const error = asTollgateError(thrown);
  if (error.code !== 'CONFIG_INVALID' && error.code !== 'POLICY_INVALID') throw thrown;
  return error;
}

/** Writes the places with new texts into a folder, and returns where a load reads each file. */
function stagedWith(texts: NewTexts, { reads }: Config, folder: string): (file: string) => string {
  const places = reads.filter((place) => [...texts.keys()].some((file) => isPathWithin(file, place)));
  const files = new Map(readPlaces(places).files);
  for (const [file, text] of texts)
    if (text === undefined) files.delete(file);
    else if (places.some((place) => isPathWithin(file, place))) files.set(file, Buffer.from(text));
  return stageAccepted(folder, { places, files }).at;
}

/** Returns a problem with the place that its line has on the disk, where other lines are still there. */
function placedNow(problem: Problem, texts: NewTexts, { folder }: Config): Problem {
  const [file, text] = [...texts].find(([one]) => path.relative(folder, one) === problem.file) ?? [];
  if (file === undefined || text === undefined) return problem;
  const [present, fresh] = [readFileSync(file, 'utf8').split('\n'), text.split('\n')];
  if (Math.max(present.length, fresh.length) > MAX_LINES) return problem;
  const earlier = diffIndices(fresh, present).filter(({ buffer1: [start] }) => start < problem.line);
  const shift = earlier.reduce((sum, { buffer1, buffer2 }) => {
    const isIn = problem.line <= buffer1[0] + buffer1[1];
    return sum + (isIn ? 0 : buffer2[1] - buffer1[1]);
  }, 0);
  const line = problem.line + shift;
  const word = /^[^\s,\]}]+/.exec(fresh[problem.line - 1]?.slice(problem.column - 1) ?? '')?.[0] ?? '';
  const at = present[line - 1]?.indexOf(word, problem.column - 1) ?? -1;
  return { ...problem, line, column: at < 0 ? problem.column : at + 1 };
}
