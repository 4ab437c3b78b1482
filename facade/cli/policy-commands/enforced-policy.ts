/** Owns a policy as if all of it were enforced: what warn and shadow would decide; what is off stays off, and no file changes. */
import type { PolicyParts } from '../../../policies/authoring/authoring-port.ts';
import { MODE_NAMES } from '../../../policies/port.ts';

type Modes = keyof typeof MODE_NAMES;

/** The same sources, each in `enforce` for everybody, and so each of their rules. With `enforced` absent they stay as they are. */
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

/** A document without the modes of its rules. What is no list of rules is told by the schema, and stays. */
function enforceRules(value: unknown): unknown {
  const { rules } = (value ?? {}) as { readonly rules?: unknown };
  if (!Array.isArray(rules)) return value;
  return {
    ...(value as object),
    rules: rules.map((rule: unknown) => (isBeside(rule) ? { ...rule, mode: 'enforce' } : rule)),
  };
}

function isBeside(rule: unknown): rule is Readonly<Record<string, unknown>> {
  const { mode } = (rule ?? {}) as { readonly mode?: unknown };
  return (
    typeof mode === 'string' &&
    Object.hasOwn(MODE_NAMES, mode) &&
    ['warn', 'shadow'].includes(MODE_NAMES[mode as Modes])
  );
}
