/** Owns how one fact of a call is replaced by another, wherever the policy may read it: in the effect and in the arguments alike. */
import { isLiteralCommand } from '../../../catalogs/programs/literal-programs.ts';
import { readUrl } from '../../../catalogs/readers/urls.ts';
import type { CallInput, Principal } from '../../port.ts';
import { parseCallArguments } from './condition-groups.ts';

/** Gives the same call with one fact changed. */
export type CallEdit = (input: CallInput) => CallInput;

/** Another caller. */
export function withPrincipal(change: Partial<Principal>): CallEdit {
  return (input) => ({ ...input, principal: { ...input.principal, ...change } });
}

/** Another effect. */
export function withEffect(change: Partial<CallInput['effect']>): CallEdit {
  return (input) => ({ ...input, effect: { ...input.effect, ...change } });
}

/** Every path of the call is this one. */
export function withPath(path: string, inside: boolean): CallEdit {
  return (input) => {
    const { paths } = input.effect;
    const moved = withEffect({ paths: paths.map((fact) => ({ ...fact, path, inside })) })(input);
    return paths.reduce((call, { argument }) => replaceTexts(argument, path)(call), moved);
  };
}

/** Every URL of the call is this one. */
export function withUrl(url: string): CallEdit {
  const read = readUrl(url);
  return (input) => {
    const { urls } = input.effect;
    const moved = withEffect({ urls: urls.map((fact) => ({ ...fact, url, ...read })) })(input);
    return urls.reduce((call, { argument }) => replaceTexts(argument, url)(call), moved);
  };
}

/** The command is these words, or cannot be read. */
export function withCommand(words: readonly string[] | 'opaque'): CallEdit {
  const text = words === 'opaque' ? '$COMMAND' : words.join(' ');
  const command = {
    text,
    opaque: words === 'opaque' || !isLiteralCommand(words),
    words: words === 'opaque' ? [] : [words],
  };
  return (input) => {
    const before = input.effect.command?.text;
    const args = parseCallArguments(input);
    const argument = Object.keys(args).find((name) => args[name] === before);
    const moved = withEffect({ command })(input);
    return argument === undefined ? moved : withArgument([argument], text)(moved);
  };
}

/** An argument by its path; undefined takes it away. */
export function withArgument(path: readonly string[], value: unknown): CallEdit {
  return (input) => ({ ...input, argsText: JSON.stringify(replaceAt(parseCallArguments(input), path, value)) });
}

function replaceAt(node: unknown, [key, ...rest]: readonly string[], value: unknown): unknown {
  if (key === undefined) return value;
  const fields =
    typeof node === 'object' && node !== null && !Array.isArray(node)
      ? (node as Readonly<Record<string, unknown>>)
      : {};
  return { ...fields, [key]: replaceAt(Object.hasOwn(fields, key) ? fields[key] : undefined, rest, value) };
}

/** A text, or each text of a list. */
function replaceTexts(argument: string, text: string): CallEdit {
  return (input) => {
    const before = parseCallArguments(input)[argument];
    if (typeof before === 'string') return withArgument([argument], text)(input);
    return Array.isArray(before)
      ? withArgument(
          [argument],
          before.map((item) => (typeof item === 'string' ? text : (item as unknown))),
        )(input)
      : input;
  };
}
