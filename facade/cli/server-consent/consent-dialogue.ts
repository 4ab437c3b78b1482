/** Owns how `approve` speaks with whoever decides: what is shown, what is asked, what a named hash agrees to; refuses a hash of anything else than what is shown. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { ServerConfig } from '../../config/config.ts';
import { type ProbeOpenings, probeOpeningsOf } from '../../consent/servers/consent-probe.ts';
import type { Io } from '../command-io.ts';
import { json } from '../print.ts';
import { askYes, isInteractive } from '../terminal-prompt.ts';
import { inRows } from '../terminal-rows.ts';
import type { ConsentOptions, OwnerContext } from './owner-context.ts';

/** Stands for the tools hash with `--any-tools`: what nobody has seen has none. */
export const ANY = 'any';

/** What `approve` is told. */
export interface ApproveOptions extends ConsentOptions, ProbeOpenings {
  readonly name: string;
  /** What is agreed to: the start hash, then the tools hash. */
  readonly yes?: readonly string[];
  readonly anyTools?: true;
}

/** One run of the command. */
export interface ConsentDialogue {
  readonly server: ServerConfig;
  readonly desk: OwnerContext;
  readonly options: ApproveOptions;
  readonly io: Io;
  /** What has been shown so far, for `--json`. */
  readonly shown: Record<string, unknown>;
}

/** Words after `--yes` that nothing would be done with are a mistake, and agree to nothing. Throws USAGE. */
export function checkWords({ yes = [], anyTools }: ApproveOptions): void {
  const [, second, third] = yes;
  if (third !== undefined)
    throw new TollgateError('USAGE', {
      detail: 'More than two words stand after --yes.',
      next: 'Name the start hash, then the tools hash, and nothing else; the name of the server stands before --yes.',
    });
  if (anyTools === true && second !== undefined && second !== ANY)
    throw new TollgateError('USAGE', {
      detail: `With --any-tools the second word after --yes is ${ANY}: nobody has seen those tools, so they have no hash.`,
      next: `Name the start hash, then ${ANY}; or leave --any-tools out.`,
    });
}

/** By its hash, or by a person at a terminal; otherwise says what to type. */
export async function agrees(
  hearing: ConsentDialogue,
  {
    named,
    question,
    next,
  }: { readonly named: string | undefined; readonly question: string; readonly next: readonly string[] },
): Promise<boolean> {
  const { io, options, server, shown } = hearing;
  if (named !== undefined) return true;
  if (isInteractive(io) && io.isTTY && options.json !== true && options.yes === undefined) {
    if (await askYes(io, question)) return true;
    tell(hearing, 'Not approved.');
    return false;
  }
  const flags = [...(options.anyTools === true ? ['any-tools'] : []), ...probeOpeningsOf(options)].map(
    (flag) => `--${flag}`,
  );
  const command = ['tollgate approve', server.name, ...flags, '--yes', ...next].join(' ');
  shown.next = command;
  tell(hearing, `A person must agree to this. Whoever has read it types:\n  ${command}`);
  return false;
}

/** A hash that was copied from another screen is no consent to this one. Throws PIN_MISMATCH. */
export function checkHash(
  { io, options, shown }: ConsentDialogue,
  {
    named,
    actual,
    what,
  }: { readonly named: string | undefined; readonly actual: string; readonly what: 'start' | 'tools' },
): void {
  if (named === undefined || named === actual) return;
  if (options.json === true) io.stdout(json({ ...shown, approved: false }));
  throw new TollgateError('PIN_MISMATCH', {
    detail: `The ${what} hash that was named is not that of what is there now${what === 'tools' ? '; the start hash is' : ''}.`,
    next: `Read what is shown above, and name its ${what} hash: all 64 digits of it.`,
  });
}

/** What is shown, where data was not asked for. */
export function print({ io, options }: ConsentDialogue, text: string): void {
  if (options.json !== true) io.stdout(inRows(io, text));
}

/** What is said beside it. */
export function tell({ io, options }: ConsentDialogue, text: string): void {
  if (options.json !== true) io.stderr(`${text}\n`);
}
