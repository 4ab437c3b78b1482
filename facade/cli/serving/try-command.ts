/** Runs `try`: decides a call by the stages of a real call, and sends nothing. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { CallDecision, Principal } from '../../../policies/port.ts';
import { openSession } from '../../call/identify.ts';
import { type LoweredCall, lowerCall } from '../../call/lowering/lowered-call.ts';
import { bindArguments } from '../../call/validate.ts';
import type { ExposedTool } from '../../exposure/exposed-tool.ts';
import { isWrapper } from '../../exposure/wrapped-calls.ts';
import type { AssembledFacade } from '../../runtime/assembled-facade.ts';
import { askFacade, type CommonOptions, readForOwner, readPrincipal } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { MAX_COLUMNS, printable, wrapWords } from '../print.ts';
import type { Wiring } from '../wiring.ts';
import { argumentsFor, writtenArguments } from './call-arguments.ts';
import { explainUnknown, reasonText } from './named-tool.ts';

interface TryOptions extends CommonOptions {
  readonly tool: string;
  readonly args: readonly string[];
  readonly as?: string;
  readonly explain?: true;
}

/**
 * Prints the decision. Exit code 0 for allow, 3 for deny, 7 for ask. Throws USAGE, and what the stages before the
 * policy throw.
 */
export async function runTry(options: TryOptions, io: Io, { assemble }: Pick<Wiring, 'assemble'>): Promise<number> {
  const config = readForOwner(options, io);
  const principal = readPrincipal(config, options, io);
  const written = writtenArguments(options.args, { command: 'try', io });
  return askFacade({ config, options, io, assemble }, async (assembled) => {
    const { deps } = assembled;
    // A call does not wait until all servers have listed their tools. This command does, because it must tell a missing
    // server from a missing tool.
    await deps.nameTables.tableFor(principal);
    const { exposed } = await resolveTool(assembled, principal, options.tool);
    if (isWrapper(exposed))
      throw new TollgateError('USAGE', {
        detail: `${exposed.name} is decided as the tool that it calls.`,
        next: 'Try that tool by its own name.',
      });
    const args = argumentsFor(written, exposed, 'try');
    const { bound, target, decision } = await decideOnly(assembled, { principal, exposed, args });
    const { outcome, reasons, shadow, obligations } = decision;
    const data =
      options.json === true
        ? `${JSON.stringify({ outcome, reasons, shadow, effect: target.effect, obligations, notes: bound.notes })}\n`
        : readable({
            decision,
            target,
            notes: bound.notes,
            explain: options.explain === true,
          });
    return {
      data,
      remarks: [],
      code: outcome === 'allow' ? EXIT.ok : outcome === 'ask' ? EXIT.approval : EXIT.refused,
    };
  });
}

/** A call that is decided and not made. `args`: as `argumentsFor` returns them. */
export interface DecidedCall {
  readonly principal: Principal;
  readonly exposed: ExposedTool;
  readonly args: Parameters<typeof bindArguments>[0];
}

/** Decides a call in a run of its own. Throws what the stages before the policy throw. */
export async function decideOnly({ deps }: AssembledFacade, { principal, exposed, args }: DecidedCall) {
  const bound = bindArguments(args, exposed.args);
  const target = await lowerCall(exposed, bound, {
    files: deps.files,
    spills: deps.spills,
    owner: { principal: principal.id, run: 'try' },
    labels: [],
  });
  target.pathHandles.close();
  const session = openSession(principal, 'stdio');
  const { budgets } = deps.preconditions.judge({
    caller: { decision: 'try', session, principal, run: 'try', startedAt: deps.now() },
    effect: target.effect,
    args: target.args,
  });
  const decision = await deps.policy().call({
    principal,
    run: 'try',
    effect: target.effect,
    argsText: target.argsText,
    labels: [],
    time: new Date(deps.now()).toISOString(),
  });
  const obligations = { ...decision.obligations, budgets: [...decision.obligations.budgets, ...budgets] };
  return { bound, target, decision: { ...decision, obligations } };
}

interface TryResult {
  readonly decision: CallDecision;
  readonly target: LoweredCall;
  readonly notes: readonly string[];
  readonly explain: boolean;
}

function readable({ decision, target, notes, explain }: TryResult): string {
  const row = (key: string, value: string): string => `${key.padEnd(11)}${value}`;
  const text = (rows: readonly string[]): string =>
    rows.map((line) => `${wrapWords(printable(line), MAX_COLUMNS, '    ')}\n`).join('');
  const lines = [
    decision.outcome.toUpperCase(),
    ...decision.reasons.map((reason) => `  ${reasonText(reason)}`),
    ...decision.shadow.map((reason) => `  in ${reason.mode}, would ${reason.would}: ${reasonText(reason)}`),
  ];
  if (!explain) return text(lines);
  const { effect } = target;
  lines.push('', row('effect', `${effect.verb} ${effect.server}.${effect.tool}`));
  for (const fact of effect.paths)
    lines.push(
      row('path', `${fact.path} (${fact.inside ? 'inside' : 'outside'} the workspace, argument ${fact.argument})`),
    );
  for (const fact of effect.urls) lines.push(row('host', `${fact.host} (argument ${fact.argument})`));
  if (effect.command !== undefined) {
    const { opaque, words } = effect.command;
    lines.push(row('command', [...(opaque ? ['opaque'] : []), ...words.map((one) => one.join(' '))].join(' | ')));
  }
  lines.push(
    row('caps', JSON.stringify(decision.obligations.caps)),
    row('budgets', decision.obligations.budgets.map((budget) => budget.id).join(', ') || 'none'),
    ...notes.map((note) => row('note', note)),
  );
  return text(lines);
}

/** Resolves a name as a call does. Throws the same errors; UNKNOWN_TOOL says why the tool is missing. */
async function resolveTool(assembled: AssembledFacade, principal: Principal, name: string) {
  try {
    return await assembled.deps.nameTables.resolve(principal, name);
  } catch (thrown) {
    throw await explainUnknown(thrown, { name, principal, assembled });
  }
}
