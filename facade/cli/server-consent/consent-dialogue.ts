/** The dialogue of `approve`: screens, questions and hashes. It accepts only the hash of the screen that it shows. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { ServerConfig } from '../../config/config.ts';
import { type ProbeOpenings, probeOpeningsOf } from '../../consent/servers/consent-probe.ts';
import type { StartReview } from '../../consent/servers/consent-review.ts';
import { missingRefusal } from '../../consent/servers/server-refusals.ts';
import type { Io } from '../command-io.ts';
import { json } from '../print.ts';
import { askYes, isInteractive } from '../terminal-prompt.ts';
import { inRows } from '../terminal-rows.ts';
import type { ConsentOptions, OwnerContext } from './owner-context.ts';

/** The value instead of the tools hash with `--any-tools`. Unknown tools have no hash. */
export const ANY = 'any';

/** Options of `approve`. */
export interface ApproveOptions extends ConsentOptions, ProbeOpenings {
  readonly name: string;
  /** The start hash, then the tools hash. */
  readonly yes?: readonly string[];
  readonly anyTools?: true;
}

/** One run of the command. */
export interface ConsentDialogue {
  readonly server: ServerConfig;
  readonly owner: OwnerContext;
  readonly options: ApproveOptions;
  readonly io: Io;
  /** What has been shown so far, for `--json`. */
  readonly shown: Record<string, unknown>;
}

/** Refuses values after `--yes` that would have no effect. Throws USAGE, and then nothing is approved. */
export function checkHashes({ yes = [], anyTools }: ApproveOptions): void {
  const [, second, third] = yes;
  if (third !== undefined)
    throw new TollgateError('USAGE', {
      detail: 'There are more than two values after --yes.',
      next: 'Give the start hash, then the tools hash, and nothing else. Write the name of the server before --yes.',
    });
  if (anyTools === true && second !== undefined && second !== ANY)
    throw new TollgateError('USAGE', {
      detail: `With --any-tools, the second value after --yes is ${ANY}, because unknown tools have no hash.`,
      next: `Give the start hash, then ${ANY}. Or omit --any-tools.`,
    });
}

/** Returns whether a hash or a person at a terminal agrees. If not, it prints the command that approves. */
export async function agrees(
  dialogue: ConsentDialogue,
  {
    named,
    question,
    next,
  }: { readonly named: string | undefined; readonly question: string; readonly next: readonly string[] },
): Promise<boolean> {
  const { io, options, server, shown } = dialogue;
  if (named !== undefined) return true;
  if (isInteractive(io) && io.isTTY && options.json !== true && options.yes === undefined) {
    if (await askYes(io, question)) return true;
    tell(dialogue, 'Not approved.');
    return false;
  }
  const flags = [...(options.anyTools === true ? ['any-tools'] : []), ...probeOpeningsOf(options)].map(
    (flag) => `--${flag}`,
  );
  const command = ['tollgate approve', server.name, ...flags, '--yes', ...next].join(' ');
  shown.next = command;
  tell(dialogue, `A person must agree to this. After reading it, run:\n  ${command}`);
  return false;
}

/** A hash that was copied from another screen does not approve this one. Throws PIN_MISMATCH. */
export function checkHash(
  dialogue: ConsentDialogue,
  {
    named,
    actual,
    what,
  }: { readonly named: string | undefined; readonly actual: string; readonly what: 'start' | 'tools' },
): void {
  if (named === undefined || named === actual) return;
  const other = what === 'tools' ? '; the start hash matches' : '';
  refuse(
    dialogue,
    new TollgateError('PIN_MISMATCH', {
      detail: `The given ${what} hash does not match the present one${other}.`,
      next: `Read the screen above, and give its ${what} hash with all 64 digits.`,
    }),
  );
}

/** Ends the dialogue without an approval; `--json` still prints what was shown. Throws SERVER_UNAVAILABLE. */
export function checkPresence(dialogue: ConsentDialogue, { facts }: Pick<StartReview, 'facts'>): void {
  const refusal = missingRefusal(dialogue.server.name, facts);
  if (refusal !== undefined) refuse(dialogue, refusal);
}

function refuse({ io, options, shown }: ConsentDialogue, refusal: TollgateError): never {
  if (options.json === true) io.stdout(json({ ...shown, approved: false }));
  throw refusal;
}

/** Prints a screen, unless data was asked for. */
export function print({ io, options }: ConsentDialogue, text: string): void {
  if (options.json !== true) io.stdout(inRows(io, text));
}

/** Prints a message. */
export function tell({ io, options }: ConsentDialogue, text: string): void {
  if (options.json !== true) io.stderr(`${text}\n`);
}
