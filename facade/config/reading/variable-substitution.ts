/** Fills in `${…}` in a text: one pass, no nesting, after parsing. Unset variables and unknown forms are refused. */

/** The variables of a text. `inputs` is set only for files of clients. */
export interface Variables {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** workspaceFolder, userHome, configDir, stateFolder, tollgateFolder. */
  readonly folders: ReadonlyMap<string, string>;
  readonly inputs?: ReadonlyMap<string, InputVariable>;
  /** True if `${secret:NAME}` is allowed: it stays as it is, and is filled in when the server is started or reached. */
  readonly secrets?: boolean;
}

/** An entry of `inputs` in a client's file. Tollgate cannot ask for its value, so it is read from the environment. */
export interface InputVariable {
  readonly default?: string;
}

/** The text with its variables filled in. `fromOutside`: the values from the environment, for the redactor. */
export type Substitution =
  | { readonly ok: true; readonly text: string; readonly fromOutside: readonly string[] }
  | { readonly ok: false; readonly reason: string };

/** Returns the environment variable for `${input:id}`: `api-key` → `TOLLGATE_INPUT_API_KEY`. */
function inputVariable(id: string): string {
  return `TOLLGATE_INPUT_${id.toUpperCase().replace(/[^A-Z0-9]/g, '_')}`;
}

/**
 * Fills in `${VAR}`, `${VAR:-default}`, `${VAR:?message}`, `${env:VAR}`, `${input:id}` and the folders (Compose and VS
 * Code style). `$$` is a literal `$` in tollgate.yaml, and unchanged in clients' files, where it has no meaning. Never
 * throws.
 */
export function substitute(text: string, variables: Variables): Substitution {
  if (!text.includes('$')) return { ok: true, text, fromOutside: [] };
  const fromOutside: string[] = [];
  let references = 0;
  let reason: string | undefined;
  const filled = text.replace(
    /\$\$|\$\{([^{}]*)(\}?)/g,
    (whole, inner: string | undefined, close: string | undefined) => {
      if (inner === undefined) return variables.inputs === undefined ? '$' : whole;
      const found =
        close === ''
          ? fail('a `${` is never closed; close it, or write `$$` for a plain `$`')
          : lookUp(inner, variables);
      if (!found.ok) {
        reason ??= found.reason;
        return '';
      }
      if (found.outside) fromOutside.push(found.value);
      if (found.reference === true) references += 1;
      return found.value;
    },
  );
  // A variable, or text after `$$`, must not form the name of a secret that the file does not name.
  if (filled.split('${secret:').length - 1 > references)
    reason ??=
      'the filled-in text contains ${secret:…}, which was not written as such; change the variable or the text';
  return reason === undefined ? { ok: true, text: filled, fromOutside } : { ok: false, reason };
}

type Found =
  | { readonly ok: true; readonly value: string; readonly outside: boolean; readonly reference?: true }
  | { readonly ok: false; readonly reason: string };

const EXPRESSION = /^(?:(env|input|secret):)?([A-Za-z_][\w.-]*)(?::([-?])(.*))?$/s;

function lookUp(inner: string, variables: Variables): Found {
  const [, kind, name, operator, rest = ''] = EXPRESSION.exec(inner) ?? [];
  if (name === undefined)
    return fail(
      'a `${…}` of an unknown form; the forms are ${VAR}, ${VAR:-default}, ${VAR:?message}, ${env:VAR}, ' +
        '${secret:NAME} and the folders; `$$` is a plain `$`',
    );
  if (kind === 'input') return lookUpInput(name, variables);
  if (kind === 'secret') return keepSecret({ name, isPlain: operator === undefined }, variables);
  if (kind === undefined && variables.folders.has(name))
    return { ok: true, value: variables.folders.get(name) ?? '', outside: false };
  // Object.hasOwn: `${constructor}` must not reach a prototype.
  const value = Object.hasOwn(variables.env, name) ? variables.env[name] : undefined;
  if (operator === '-' && !value) return { ok: true, value: rest, outside: false };
  if (operator === '?' && !value)
    return fail(`variable ${name} is not set: ${rest || 'it is required'}; set it in the environment`);
  if (value === undefined)
    return fail(
      `variable ${name} is not set, and an empty text would change the meaning; set it, or write \${${name}:-default}`,
    );
  return { ok: true, value, outside: true };
}

/** Keeps a reference to a secret, where it is allowed: process lists and logs must not show secrets. */
function keepSecret(
  { name, isPlain }: { readonly name: string; readonly isPlain: boolean },
  variables: Variables,
): Found {
  if (variables.inputs !== undefined)
    return fail(
      '${secret:…} is only allowed in tollgate.yaml: a file that others write must not use secrets; ' +
        'define the server there',
    );
  if (variables.secrets !== true)
    return fail(
      '${secret:…} outside env and headers of a server: ' +
        'others would see it there, in process lists and logs; pass it in env or headers',
    );
  if (!isPlain) return fail('${secret:…} takes only a name, because a missing secret must not become another text');
  return { ok: true, value: `\${secret:${name}}`, outside: false, reference: true };
}

function lookUpInput(id: string, variables: Variables): Found {
  if (variables.inputs === undefined) return fail("${input:…} is only allowed in clients' files; write ${env:NAME}");
  const variable = inputVariable(id);
  const value = Object.hasOwn(variables.env, variable) ? variables.env[variable] : undefined;
  if (value !== undefined) return { ok: true, value, outside: true };
  const fallback = variables.inputs.get(id)?.default;
  if (fallback !== undefined) return { ok: true, value: fallback, outside: false };
  return fail(`input ${id} has no value, and no one can be asked here; set ${variable} in the environment`);
}

function fail(reason: string): { readonly ok: false; readonly reason: string } {
  return { ok: false, reason };
}
