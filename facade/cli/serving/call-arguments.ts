/** Reads the arguments of a call on the command line: a JSON object, a file with one, or pairs such as `path=a.txt`. */
import path from 'node:path';
import { parseJsonDoc } from '../../../adapters/rpc/message-parser.ts';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { MAX_INPUT_BYTES } from '../../../catalogs/text/time-slices.ts';
import { quote } from '../../config/config-problems.ts';
import { readText } from '../../config/reading/text-files.ts';
import type { ExposedTool } from '../../exposure/exposed-tool.ts';
import type { Io } from '../command-io.ts';

type ArgsDoc = ReturnType<typeof parseJsonDoc>;

/** Arguments as a person wrote them. What a pair means depends on the schema of the tool. */
export type WrittenArguments = ArgsDoc | { readonly pairs: readonly (readonly [name: string, text: string])[] };

const PAIR = /^([^\s="'{[\]}@-][^\s=]*)=(.*)$/s;

/** Reads the words after the name of a tool. `command` is for the example in an error. Throws USAGE. */
export function writtenArguments(
  words: readonly string[],
  { command, io }: { readonly command: 'call' | 'try'; readonly io: Pick<Io, 'cwd'> },
): WrittenArguments {
  const [first = '{}', ...others] = words;
  const pairs = words.flatMap((word) => {
    const [, name, text] = PAIR.exec(word) ?? [];
    return name === undefined || text === undefined ? [] : [[name, text] as const];
  });
  if (words.length > 0 && pairs.length === words.length) return { pairs };
  if (others.length > 0)
    throw new TollgateError('USAGE', {
      detail: `${quote(words.find((word) => !PAIR.test(word)) ?? first)} is no pair of a name and a value.`,
      next: 'Write pairs such as path=README.md, or quote one JSON object: \'{"path": "README.md"}\'',
    });
  return first.startsWith('@') ? parseArgs(readFile(first.slice(1), io), command) : parseArgs(first, command);
}

function readFile(name: string, { cwd }: Pick<Io, 'cwd'>): string {
  const file = readText(path.resolve(cwd, name), MAX_INPUT_BYTES);
  if (file.ok) return file.text;
  throw new TollgateError('USAGE', {
    detail: `The arguments cannot be read from ${quote(name)}: ${file.reason}.`,
    next: 'After @, name a file with one JSON object.',
  });
}

/** Reads arguments as one JSON text. Throws USAGE. */
export function parseArgs(text: string, command: 'call' | 'try' | 'policy why'): ArgsDoc {
  try {
    return parseJsonDoc(text);
  } catch (cause) {
    const detail =
      cause instanceof TollgateError && cause.code !== 'WIRE_PARSE' ? cause.message : 'The arguments are not JSON.';
    throw new TollgateError('USAGE', {
      detail,
      next: `Write and quote them like this: ${exampleOf(command)}`,
      cause,
    });
  }
}

function exampleOf(command: string): string {
  return `tollgate ${command} read '{"path": "README.md"}'`;
}

/**
 * Returns written arguments as a client would send them. The value of a pair is text, unless the schema that the agent
 * sees wants another type and the value is JSON. Throws USAGE for two pairs with one name.
 */
export function argumentsFor(
  written: WrittenArguments,
  exposed: Pick<ExposedTool, 'text'> | undefined,
  command: 'call' | 'try',
): ArgsDoc {
  if (!('pairs' in written)) return written;
  const schema = exposed === undefined ? {} : (JSON.parse(exposed.text) as ShownTool).inputSchema;
  const properties = new Map(Object.entries(schema?.properties ?? {}));
  const members = written.pairs.map(([name, text]) => `${JSON.stringify(name)}:${valueOf(text, properties.get(name))}`);
  return parseArgs(`{${members.join(',')}}`, command);
}

interface ShownTool {
  readonly inputSchema?: { readonly properties?: Readonly<Record<string, unknown>> };
}

/** Returns the JSON of a value. A value that is no JSON stays text, so that validation says what is expected. */
function valueOf(text: string, property: unknown): string {
  const { type } = (property ?? {}) as { readonly type?: string | readonly string[] };
  if (type === undefined || [type].flat().includes('string')) return JSON.stringify(text);
  try {
    JSON.parse(text);
    return text;
  } catch {
    return JSON.stringify(text);
  }
}
