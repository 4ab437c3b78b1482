/** Builds the description of a tool for the model: risks, what the policy decides, then the tool's own text. */
import { boundWords } from '../../catalogs/projection/argument-bounds.ts';
import { toolDescription } from '../../catalogs/text/hostile-text.ts';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import type { Exposure, ListDecision } from '../../policies/port.ts';

const DESCRIPTION_CHARS = 1024;
const CONDITION_CHARS = 360;
const RISK_WORDS = {
  approval: 'asks a person first',
  writes: 'writes',
  network: 'uses the network',
  executes: 'runs code',
} as const;
const OUTCOME_WORDS = { deny: 'refused when', ask: 'a person is asked when', allow: 'allowed when' } as const;
/** Phrases for a rule without conditions on the call. */
const EACH_CALL = {
  deny: 'each call is refused',
  ask: 'a person is asked about each call',
  allow: 'each call is allowed',
} as const;

/**
 * Risk and conditions come first, then the schema's rules in words, then the text, because hosts cut descriptions at
 * the end (CY-13).
 */
export function describeTool(
  { decision, exposure }: { readonly decision: ListDecision; readonly exposure: Exposure },
  tool: RawTool,
  hints: readonly string[],
): string {
  const risks = (exposure.risk ?? []).map((risk) => RISK_WORDS[risk]);
  const prefix = risks.length === 0 ? '' : `[${risks.join('; ')}] `;
  const before = prefix + (decision.verdict === 'maybe' ? condition(decision) : '');
  const description = exposure.description ?? tool.description;
  return (
    before +
    toolDescription(
      { name: tool.name, hints, ...(description === undefined ? {} : { description }) },
      DESCRIPTION_CHARS - before.length,
    )
  );
}

/**
 * Describes what decides a call, so that a model rarely tries a call that is refused. Uses as many whole phrases as
 * fit.
 */
function condition({ says = [], bounds = [] }: ListDecision): string {
  const phrases = [
    ...bounds.map(boundWords),
    ...says.map(({ outcome, say }) => (say === '' ? EACH_CALL[outcome] : `${OUTCOME_WORDS[outcome]} ${say}`)),
  ];
  const whole = phrases.filter((_, at) => phrases.slice(0, at + 1).join('; ').length <= CONDITION_CHARS);
  if (whole.length === 0) return '(Policy judges each call by its arguments.) ';
  return `(Policy: ${whole.join('; ')}${whole.length < phrases.length ? '; and more' : ''}.) `;
}
