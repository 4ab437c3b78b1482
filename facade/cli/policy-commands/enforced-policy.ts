/** Changes a policy so that rules in `warn` and `shadow` are enforced, for a test or a replay. It changes no file. */
import type { PolicyParts } from '../../../policies/authoring/authoring-port.ts';
import { MODE_NAMES } from '../../../policies/port.ts';

/**
 * Returns the policy with every source and rule in `enforce`, for every caller. What is `off` stays off. Without
 * `enforced` it returns the policy unchanged.
 */
export function asEnforced(parts: PolicyParts, { enforced }: { readonly enforced?: true }): PolicyParts {
  if (enforced !== true) return parts;
  return {
    ...parts,
    sources: parts.sources.map(({ modes, ...source }) => ({
      ...source,
      mode: source.mode === 'off' && modes === undefined ? 'off' : 'enforce',
    })),
    rules: parts.rules.map((document) => ({ ...document, value: enforceRules(document.value) })),
    readYaml: (file, text) => {
      const document = parts.readYaml(file, text);
      return { ...document, value: enforceRules(document.value), placeOf: (at, part) => document.placeOf(at, part) };
    },
  };
}

/** A value that is not a list of rules stays unchanged; the schema reports it. */
function enforceRules(value: unknown): unknown {
  const { rules } = (value ?? {}) as { readonly rules?: unknown };
  if (!Array.isArray(rules)) return value;
  return {
    ...(value as object),
    rules: rules.map((rule: unknown) => (isInTrial(rule) ? { ...rule, mode: 'enforce' } : rule)),
  };
}

function isInTrial(rule: unknown): rule is Readonly<Record<string, unknown>> {
  const { mode } = (rule ?? {}) as { readonly mode?: unknown };
  return (
    typeof mode === 'string' &&
    Object.hasOwn(MODE_NAMES, mode) &&
    ['warn', 'shadow'].includes(MODE_NAMES[mode as keyof typeof MODE_NAMES])
  );
}
