/** Owns `try`: the decision on a call, by the very stages of a call up to the policy; nothing is sent. */
import { parseDoc } from '../../adapters/rpc/json.ts';
import { TollgateError } from '../../catalogs/errors.ts';
import { bindArgs } from '../args.ts';
import type { Assemble } from '../assembled.ts';
import { principalForStdio } from '../config/identity.ts';
import { loadConfig } from '../config/load.ts';
import { aim } from '../target.ts';
import { EXIT, type Io } from './io.ts';

interface TryOptions {
  readonly config: string;
  readonly tool: string;
  readonly args: string;
  readonly as?: string;
  readonly explain?: true;
  readonly json?: true;
  readonly opa?: string;
}

/** Exit code 0 for allow, 3 for deny, 7 for ask. Throws what stages 2 and 3 refuse with. */
export async function runTry(options: TryOptions, io: Io, assemble: Assemble): Promise<number> {
  const config = loadConfig(options.config, { env: io.env, home: io.home });
  const { deps, gateway } = await assemble(config, options.opa === undefined ? {} : { opa: options.opa });
  try {
    const principal = principalForStdio(config, { user: io.user, ...(options.as === undefined ? {} : { as: options.as }) });
    const { exposed } = await deps.exposures.resolve(principal, options.tool);
    const bound = bindArgs(parseArgs(options.args), exposed.args);
    const target = aim(exposed, bound, { workspace: deps.workspace, spills: deps.spills, owner: { principal: principal.id, run: 'try' } });
    const decision = await deps.policy().call({ principal, run: 'try', effect: target.effect, argsText: target.argsText, labels: [], time: new Date(deps.now()).toISOString() });
    if (options.json === true) io.stdout(`${JSON.stringify({ outcome: decision.outcome, reasons: decision.reasons, shadow: decision.shadow, effect: target.effect, obligations: decision.obligations, notes: bound.notes })}\n`);
    else io.stdout(readable({ decision, target, notes: bound.notes, explain: options.explain === true }));
    return decision.outcome === 'allow' ? EXIT.ok : decision.outcome === 'ask' ? EXIT.approval : EXIT.refused;
  } finally {
    await gateway.close();
  }
}

function parseArgs(text: string): ReturnType<typeof parseDoc> {
  try {
    return parseDoc(text);
  } catch (cause) {
    throw new TollgateError('USAGE', { detail: 'ARGS is not a JSON object', next: `Quote it: tollgate try read '{"path":"README.md"}'`, cause });
  }
}

interface Findings {
  readonly decision: Awaited<ReturnType<ReturnType<import('../call.ts').Deps['policy']>['call']>>;
  readonly target: ReturnType<typeof aim>;
  readonly notes: readonly string[];
  readonly explain: boolean;
}

function readable({ decision, target, notes, explain }: Findings): string {
  const place = ({ file, line }: { file?: string; line?: number }): string => (file === undefined ? '' : `  (${file}${line === undefined ? '' : `:${line}`})`);
  const lines = [decision.outcome.toUpperCase(), ...decision.reasons.map((reason) => `  ${reason.id}: ${reason.message}${place(reason)}`), ...decision.shadow.map((reason) => `  would also: ${reason.id}: ${reason.message}${place(reason)}`)];
  if (!explain) return `${lines.join('\n')}\n`;
  const { effect } = target;
  lines.push('', `effect     ${effect.verb} ${effect.server}.${effect.tool}`);
  for (const fact of effect.paths) lines.push(`path       ${fact.path} (${fact.inside ? 'inside' : 'outside'} the workspace, argument ${fact.argument})`);
  for (const fact of effect.urls) lines.push(`host       ${fact.host} (argument ${fact.argument})`);
  if (effect.command !== undefined) lines.push(`command    ${effect.command.opaque ? 'opaque' : effect.command.words.map((words) => words.join(' ')).join(' | ')}`);
  lines.push(`caps       ${JSON.stringify(decision.obligations.caps)}`, `budgets    ${decision.obligations.budgets.map((budget) => budget.id).join(', ') || 'none'}`, ...notes.map((text) => `note       ${text}`));
  return `${lines.join('\n')}\n`;
}
