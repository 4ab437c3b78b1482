/** Replaces one fact of a call, in the effect and in the arguments, because a policy may read both. */
import { isLiteralCommand } from '../../../catalogs/programs/literal-programs.ts';
import { readUrl } from '../../../catalogs/readers/urls.ts';
import type { CallInput, Principal } from '../../port.ts';
import { parseCallArguments } from './condition-groups.ts';

/** Returns the same call with one changed fact. */
export type CallEdit = (input: CallInput) => CallInput;

/** Changes the caller. */
export function withPrincipal(change: Partial<Principal>): CallEdit {
  return (input) => ({ ...input, principal: { ...input.principal, ...change } });
}

/** Changes the effect. */
export function withEffect(change: Partial<CallInput['effect']>): CallEdit {
  return (input) => ({ ...input, effect: { ...input.effect, ...change } });
}

/** Replaces every path of the call. */
export function withPath(path: string, inside: boolean): CallEdit {
  return (input) => {
    const { paths } = input.effect;
    const moved = withEffect({ paths: paths.map((fact) => ({ ...fact, path, inside })) })(input);
    return paths.reduce((call, { argument }) => replaceTexts(argument, path)(call), moved);
  };
}

/** Replaces every URL of the call. */
export function withUrl(url: string): CallEdit {
  const read = readUrl(url);
  return (input) => {
    const { urls } = input.effect;
    const moved = withEffect({ urls: urls.map((fact) => ({ ...fact, url, ...read })) })(input);
    return urls.reduce((call, { argument }) => replaceTexts(argument, url)(call), moved);
  };
}

/** Replaces the command by these simple commands. */
export function withCommand(words: readonly (readonly string[])[]): CallEdit {
  const text = words.map((one) => one.join(' ')).join('; ');
  const command = { text, opaque: words.some((one) => !isLiteralCommand(one)), words };
  return (input) => {
    const before = input.effect.command?.text;
    const args = parseCallArguments(input);
    const argument = Object.keys(args).find((name) => args[name] === before);
    const moved = withEffect({ command })(input);
    return argument === undefined ? moved : withArgument([argument], text)(moved);
  };
}

/** Replaces an argument at its path. Undefined removes it. */
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

/** Replaces a string, or each string of a list. */
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
