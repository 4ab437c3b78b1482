/** What the console shows without running a command: the log by its index, and the present state of everything. */
import path from 'node:path';
import { Writable } from 'node:stream';
import { stripVTControlCharacters } from 'node:util';
import type { CommandAnswerData } from '../../serve/console/console-commands.ts';
import type { ConsoleApproval, ConsoleSources } from '../../serve/console/console-routes.ts';
import { runApproveCall } from '../approval-commands/approvals-actions.ts';
import { type OwnerOptions, readConfig, readForOwner } from '../command-facade.ts';
import type { Io } from '../command-io.ts';
import { reportError } from '../failure-report.ts';

/** The sources, which are open until `close`. */
export interface OpenConsoleSources extends ConsoleSources {
  close(): void;
}

/** Opens the sources of a console. `options.as`: the owner who opened it. */
export function openConsoleSources(options: OwnerOptions, io: Io): OpenConsoleSources {
  return {
    records: () => ({ records: [] }),
    session: () => ({ entries: [] }),
    now: async () => ({}),
    principals: () => ({
      principals: readForOwner(options, io).principals.map(({ id, role, profiles, owner }) => ({
        id,
        role,
        profiles,
        owner,
      })),
    }),
    proof: () => ({ unsigned: 0, keyInState: true }),
    policyFiles: () => policyFiles(options, io),
    approve: (approval) => approveHere(approval, options, io),
    close: () => undefined,
  };
}

/** The files of rules and Rego that can be edited, by the names that people read. */
function policyFiles(options: OwnerOptions, io: Io): ReadonlyMap<string, string> {
  const { policies, folder } = readConfig(options, io);
  return new Map(
    policies.filter(({ kind }) => kind === 'yaml').map((source) => [path.relative(folder, source.path), source.path]),
  );
}

/**
 * Approves in this process. A person opened the console at this terminal, so this is an answer at the terminal: the
 * principal who asked for the call may give it, as with `tollgate approvals approve`.
 */
async function approveHere(
  { id, binding, scope, loop }: ConsoleApproval,
  options: OwnerOptions,
  io: Io,
): Promise<CommandAnswerData> {
  let [stdout, stderr] = ['', ''];
  const here: Io = {
    ...io,
    stdout: (text) => void (stdout += text),
    stderr: (text) => void (stderr += text),
    out: new Writable({ write: (_chunk, _encoding, done) => done() }),
  };
  const asked = {
    config: options.config,
    ...(options.as !== undefined && { as: options.as }),
    json: true as const,
    id,
    yes: binding,
    ...(loop === undefined ? { for: scope as 'call' | 'group' | 'server' } : { loop: true as const, ...loop }),
  };
  const exit = await runApproveCall(asked, here).catch((thrown: unknown) =>
    reportError(thrown, { json: true, io: here }),
  );
  return {
    command: `tollgate approvals approve ${id} --yes ${binding.slice(0, 12)}`,
    exit,
    ...(stdout !== '' && { data: JSON.parse(stdout) as unknown }),
    messages: stripVTControlCharacters(stderr),
  };
}
