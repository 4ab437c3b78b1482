/** What the steps of a setup share: options, the terminal, and accepting what a step has written. */
import { captureWrites } from '../../config/reading/file-replacement.ts';
import type { CommonOptions } from '../command-facade.ts';
import type { Io } from '../command-io.ts';
import { DEFAULT_CONFIG } from '../config-file.ts';
import { acceptWritten } from '../configuration/configuration-acceptance.ts';
import { commandLine } from '../print.ts';
import { isInteractive } from '../terminal-prompt.ts';
import type { Wiring } from '../wiring.ts';

/** Options of the command. */
export interface SetupOptions extends CommonOptions {
  readonly as?: string;
  /** Hashes of what the owner agrees to: of the plan, then of servers. */
  readonly yesTo?: readonly string[];
  readonly dryRun?: true;
  /** Makes one harmless call of each server without asking. */
  readonly test?: true;
  /** True, or the id of one client. */
  readonly undo?: true | string;
}

/** One run. `data`: what `--json` prints in the end. */
export interface SetupRun {
  readonly options: SetupOptions;
  readonly io: Io;
  readonly wiring: Wiring;
  readonly data: Record<string, unknown>;
  /** `--config` as it was given; the one of `options` is absolute. */
  readonly given: string;
}

/** Returns the command line that continues this run, for the same owner and configuration. */
export function setupCommand({ options, io, given }: SetupRun, words: readonly string[]): string {
  const config = given === DEFAULT_CONFIG ? [] : ['--config', given];
  const owner = options.as === undefined ? [] : ['--as', options.as];
  // The owner comes before the hashes, which take all words that follow.
  return commandLine([...io.self, 'setup', ...config, ...owner, ...words]);
}

/** Returns whether a person can be asked. Hashes on the command line answer all questions. */
export function mayAsk({ options, io }: Pick<SetupRun, 'options' | 'io'>): boolean {
  return isInteractive(io) && io.isTTY && options.json !== true && options.yesTo === undefined;
}

/** Accepts what `work` writes into the configuration. */
export async function accepted<T>({ options, io }: SetupRun, work: () => Promise<T> | T): Promise<T> {
  const { result, writes } = await captureWrites(work);
  if (writes.length > 0) await acceptWritten(options, quiet(io), writes);
  return result;
}

/** The same terminal without output, for steps that setup reports in its own words. */
export function quiet(io: Io): Io {
  return { ...io, stdout: () => undefined, stderr: () => undefined, isTTY: false };
}
