/** Builds the description of a tool for the model: risks, the tool's own text, then what the policy decides. */
import { boundWords } from '../../catalogs/projection/argument-bounds.ts';
import { toolDescription } from '../../catalogs/text/hostile-text.ts';
import { withoutOwnKeys } from '../../catalogs/tools/own-meta-keys.ts';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import type { Exposure, ListDecision } from '../../policies/port.ts';

const DESCRIPTION_CHARS = 1024;
const CONDITION_CHARS = 450;
const RISK_WORDS = {
  approval: 'asks a person first',
  writes: 'writes',
  network: 'uses the network',
  executes: 'runs code',
} as const;
const OUTCOME_WORDS = { deny: 'refused', ask: 'a person is asked', allow: 'allowed' } as const;
/** Phrases for a rule without conditions on the call. */
const EACH_CALL = {
  deny: 'each call is refused',
  ask: 'a person is asked about each call',
  allow: 'each call is allowed',
} as const;

/**
 * A few words of risk come first (CY-13), then the schema's rules in words, then the text, so that a model reads early
 * what the tool is for. Conditions of the policy come last. The text is cut for them.
 */
export function describeTool(
  { decision, exposure }: { readonly decision: ListDecision; readonly exposure: Exposure },
  tool: RawTool,
  hints: readonly string[],
): string {
  const before = riskWords(exposure);
  const after = decision.verdict === 'maybe' ? `\n(${policyCondition(decision)})` : '';
  const description = exposure.description ?? tool.description;
  const text = toolDescription(
    { name: tool.name, hints, ...(description === undefined ? {} : { description }) },
    DESCRIPTION_CHARS - before.length - after.length,
  );
  return before + text + after;
}

/**
 * Returns the members that describe a tool whose definition is shown as its server sent it: the description, if there
 * is one, with the words of the owner, and `_meta` with what the policy decides.
 */
export function describeExactly(
  { decision, exposure }: { readonly decision: ListDecision; readonly exposure: Exposure },
  tool: RawTool,
): Partial<Pick<RawTool, 'description' | '_meta'>> {
  const { description = tool.description } = exposure;
  const risk = riskWords(exposure);
  const { _meta } = withoutOwnKeys({ _meta: tool._meta });
  return {
    ...((description !== undefined || risk !== '') && { description: risk + (description ?? '') }),
    ...(decision.verdict === 'maybe' && { _meta: { ..._meta, 'tollgate/policy': policyCondition(decision) } }),
  };
}

function riskWords({ risk = [] }: Exposure): string {
  return risk.length === 0 ? '' : `[${risk.map((one) => RISK_WORDS[one]).join('; ')}] `;
}

/**
 * Describes what decides a call, so that a model rarely tries a call that is refused. Uses as many whole phrases as
 * fit.
 */
export function policyCondition({ says = [], bounds = [] }: ListDecision): string {
  const phrases = [
    ...bounds.map(boundWords),
    ...says.map(({ outcome, say }, at) => outcomePhrase({ outcome, say, isSame: says[at - 1]?.outcome === outcome })),
  ];
  const whole = phrases.filter((_, at) => phrases.slice(0, at + 1).join('; ').length <= CONDITION_CHARS);
  if (whole.length === 0) return 'Policy judges each call by its arguments.';
  return `Policy: ${whole.join('; ')}${whole.length < phrases.length ? '; and more' : ''}.`;
}

/** `isSame`: the phrase before has the same outcome, which is then not repeated. */
function outcomePhrase({
  outcome,
  say,
  isSame,
}: NonNullable<ListDecision['says']>[number] & { readonly isSame: boolean }): string {
  if (say === '') return EACH_CALL[outcome];
  const isMessage = say.startsWith(': ');
  if (isSame) return isMessage ? say.slice(2) : `when ${say}`;
  return OUTCOME_WORDS[outcome] + (isMessage ? say : ` when ${say}`);
}
