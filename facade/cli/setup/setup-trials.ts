/** One harmless read call of each connected server, so that the owner sees which of them answer. */
import { ownerForStdio } from '../../config/stdio-identity.ts';
import type { Operator } from '../../serve/facade-port.ts';
import { askFacade, readForOwner, readPrincipal } from '../command-facade.ts';
import { EXIT } from '../command-io.ts';
import { chooseTrial, decideTrial, performTrial, type TrialCall } from '../connect/trial-call.ts';
import { plural, printable, table } from '../print.ts';
import { askKey } from '../terminal-prompt.ts';
import { mayAsk, type SetupRun } from './setup-run.ts';

/** What one server did. `tool`: null if it has no tool that can be called without a person's values. */
export interface ServerTrial {
  readonly server: string;
  readonly tool: string | null;
  readonly verdict?: string;
  readonly ok?: boolean;
  /** The first line of a failure, or the rule because of which the call was not made. */
  readonly why?: string;
  /** Milliseconds, with the start of the server. */
  readonly ms?: number;
}

/** Letters of a failure that a row shows. */
const MAX_WHY = 80;

/**
 * Asks once for all servers, or with `--test` makes the calls without a question. Each is a call by hand: decided,
 * budgeted and recorded. Returns undefined if no one agreed. Throws IDENTITY, CANCELLED, and as `assemble`.
 */
export async function tryServers(
  servers: readonly string[],
  { options, io, wiring }: SetupRun,
): Promise<readonly ServerTrial[] | undefined> {
  const isAsked = options.test === true;
  if (servers.length === 0 || (!isAsked && !mayAsk({ options, io }))) return undefined;
  const config = readForOwner(options, io);
  const principal = readPrincipal(config, options, io);
  const by: Operator = { by: ownerForStdio(config, { by: options.as, user: io.user }).id, user: io.user };
  let trials: readonly ServerTrial[] | undefined;
  const opening = { config, options: {}, io: { ...io, stdout: () => undefined }, assemble: wiring.assemble };
  await askFacade(opening, async (assembled) => {
    const { gateway, deps } = assembled;
    const { visible } = await deps.nameTables.tableFor(principal);
    const calls = servers.map((server) => ({ server, call: chooseTrial(visible, server) }));
    const count = calls.filter(({ call }) => call !== undefined).length;
    const question = `Make one harmless read call of each of ${plural(count, 'server')}?`;
    if (count > 0 && (isAsked || (await askKey(io, question, 'yn')) === 'y')) {
      const made: ServerTrial[] = [];
      for (const { server, call } of calls)
        made.push(call === undefined ? { server, tool: null } : await tryOne(server, call));
      trials = made;
    }
    return { data: '', remarks: [], code: EXIT.ok };

    async function tryOne(server: string, call: TrialCall): Promise<ServerTrial> {
      const since = performance.now();
      const { outcome: verdict, reasons } = await decideTrial(assembled, { principal, call });
      // The call would wait for a person, or be refused.
      if (verdict !== 'allow') return { server, tool: call.name, verdict, why: `not made: ${reasons[0]?.id ?? ''}` };
      const { ok, text } = await performTrial(gateway, { principal, call, by });
      const first = text.split('\n').find((line) => line.trim() !== '') ?? 'it said nothing';
      return {
        server,
        tool: call.name,
        verdict,
        ok,
        ...(!ok && { why: `failed: ${first}` }),
        ms: Math.round(performance.now() - since),
      };
    }
  });
  return trials;
}

/** A row for each server. */
export function trialsText(trials: readonly ServerTrial[], io: SetupRun['io']): string {
  const rows = trials.map(({ server, tool, verdict = '', ok, why = '', ms }) =>
    tool === null
      ? [server, 'none that only reads and needs no values', '', '', '']
      : [server, tool, verdict, ms === undefined ? '' : `${ms} ms`, ok === true ? 'ok' : why.slice(0, MAX_WHY)],
  );
  return table(
    io,
    ['SERVER', 'TOOL', 'VERDICT', 'TIME', 'RESULT'],
    rows.map((row) => row.map(printable)),
  );
}
