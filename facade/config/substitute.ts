/** Owns `${…}` in text: one pass, no nesting, after parsing; refuses unset variables and forms that it does not know. */

/** What may stand in `${…}`. `inputs` is given for clients' files only. */
export interface Variables {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** workspaceFolder, userHome, configDir. */
  readonly folders: ReadonlyMap<string, string>;
  readonly inputs?: ReadonlyMap<string, InputVariable>;
}

/** One entry of `inputs` in a client's file: its value here comes from the environment, as nobody can be asked. */
export interface InputVariable {
  readonly default?: string;
}

/** The text with its variables filled in. `fromOutside` holds each value that came from the environment, for the redactor. */
export type Substitution =
  | { readonly ok: true; readonly text: string; readonly fromOutside: readonly string[] }
  | { readonly ok: false; readonly reason: string };

/** The environment variable that answers `${input:id}`: `api-key` → `TOLLGATE_INPUT_API_KEY`. */
export function inputVariable(id: string): string {
  return `TOLLGATE_INPUT_${id.toUpperCase().replace(/[^A-Z0-9]/g, '_')}`;
}

/**
 * Fills in `${VAR}`, `${VAR:-default}`, `${VAR:?message}`, `${env:VAR}`, `${input:id}` and the folders (Compose and VS Code
 * style). `$$` is a literal `$` in tollgate.yaml and stays as it is in clients' files, where it has no meaning. Never throws.
 */
export function substitute(text: string, variables: Variables): Substitution {
  if (!text.includes('$')) return { ok: true, text, fromOutside: [] };
  const fromOutside: string[] = [];
  let reason: string | undefined;
  const filled = text.replace(/\$\$|\$\{([^{}]*)(\}?)/g, (whole, inner: string | undefined, close: string | undefined) => {
    if (inner === undefined) return variables.inputs === undefined ? '$' : whole;
    const found = close === '' ? fail('a `${` is never closed; close it, or write `$$` for a plain `$`') : lookUp(inner, variables);
    if (!found.ok) {
      reason ??= found.reason;
      return '';
    }
    if (found.outside) fromOutside.push(found.value);
    return found.value;
  });
  return reason === undefined ? { ok: true, text: filled, fromOutside } : { ok: false, reason };
}

type Found = { readonly ok: true; readonly value: string; readonly outside: boolean } | { readonly ok: false; readonly reason: string };

const EXPRESSION = /^(?:(env|input):)?([A-Za-z_][\w.-]*)(?::([-?])(.*))?$/s;

function lookUp(inner: string, variables: Variables): Found {
  const [, kind, name, operator, rest = ''] = EXPRESSION.exec(inner) ?? [];
  if (name === undefined) return fail('a `${…}` of an unknown form; known are ${VAR}, ${VAR:-default}, ${VAR:?message}, ${env:VAR} and the folders; `$$` is a plain `$`');
  if (kind === 'input') return lookUpInput(name, variables);
  if (kind === undefined && variables.folders.has(name)) return { ok: true, value: variables.folders.get(name) ?? '', outside: false };
  // Object.hasOwn: `${constructor}` must not reach a prototype.
  const value = Object.hasOwn(variables.env, name) ? variables.env[name] : undefined;
  if (operator === '-' && !value) return { ok: true, value: rest, outside: false };
  if (operator === '?' && !value) return fail(`variable ${name} is not set: ${rest || 'it is required'}; set it in the environment`);
  if (value === undefined) return fail(`variable ${name} is not set: an empty text in its place would change the meaning; set it, or write \${${name}:-default}`);
  return { ok: true, value, outside: true };
}

function lookUpInput(id: string, variables: Variables): Found {
  if (variables.inputs === undefined) return fail('${input:…} exists in clients\' files only; write ${env:NAME}');
  const variable = inputVariable(id);
  const value = Object.hasOwn(variables.env, variable) ? variables.env[variable] : undefined;
  if (value !== undefined) return { ok: true, value, outside: true };
  const preset = variables.inputs.get(id)?.default;
  if (preset !== undefined) return { ok: true, value: preset, outside: false };
  return fail(`input ${id} has no value: nobody can be asked here; set ${variable} in the environment`);
}

function fail(reason: string): { readonly ok: false; readonly reason: string } {
  return { ok: false, reason };
}
