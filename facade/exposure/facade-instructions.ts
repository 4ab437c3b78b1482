/** The `instructions` of the facade: what it is and how to use it, and what servers say about themselves (HA-32). */
import { escapeHostile } from '../../catalogs/text/hostile-text.ts';

/** What the facade says about a principal's view. */
export interface FacadeView {
  readonly profiles: readonly string[];
  readonly primitives: readonly string[];
  /** Ids of the rules that refuse or ask, in order. */
  readonly rules: readonly string[];
  /** Whether only reading runs until a plan is approved. */
  readonly hasPlan: boolean;
}

/** Bytes of the facade's own part. */
const OWN_BYTES = 1_000;
/** Characters of the instructions of one server. */
const SERVER_CHARS = 2_000;

/** Returns the facade's own part: primitives, profile and rules, in at most 1 kB. */
export function facadeInstructions({ profiles, primitives, rules, hasPlan }: FacadeView): string {
  const text =
    `Tollgate stands between you and your tools (profile: ${profiles.join(', ')}). ` +
    (primitives.length === 0 ? '' : `Prefer its own tools: ${primitives.join(', ')}. `) +
    'The policy decides each call. ' +
    'A refusal names its rule and what to do next, so do not repeat a refused call unchanged. ' +
    'Long results are cut: the notice at the end names the exact call for the rest.' +
    (hasPlan
      ? ' At first only reading runs: present a plan to the user. When an owner has approved it, the rest runs too.'
      : '');
  const shown: string[] = [];
  let left = OWN_BYTES - Buffer.byteLength(text) - 40;
  for (const id of rules) {
    left -= Buffer.byteLength(id) + 2;
    if (left < 0) break;
    shown.push(id);
  }
  if (shown.length === 0) return text;
  const more = rules.length - shown.length;
  return `${text} Rules: ${shown.join(', ')}${more > 0 ? ` and ${more} more` : ''}.`;
}

/** Returns what a server says about itself, under its name. */
export function serverInstructions(server: string, text: string): string {
  const { text: safe } = escapeHostile(text);
  const short = safe.length > SERVER_CHARS ? `${safe.slice(0, SERVER_CHARS).replace(/[\ud800-\udbff]$/, '')}…` : safe;
  return `Server ${server} says about itself:\n${short}`;
}
