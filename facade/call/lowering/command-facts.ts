/**
 * Owns the facts of a shell command: the literal words of its simple commands, and whether one of them starts other
 * programs.
 */
import {
  type AndOr,
  type Command,
  type CommandNode,
  type PipelineNode,
  parse,
  type Redirection,
  type Statement,
  type Word,
  type WordPart,
} from 'unbash';
import { isLiteralCommand, runsItsWords } from '../../../catalogs/programs/literal-programs.ts';
import type { CommandFact } from '../../../policies/port.ts';

/** Longer commands have no words: the time of a parse stays under that of a call. */
const MAX_CHARS = 16 * 1024;
/**
 * Outside quotes only ASCII that no shell reads as something else; control characters nowhere but blanks and line ends.
 */
const STRANGE = /[\0-\x08\x0b-\x1f\x7f]/;
const FOREIGN = /[^\x20-\x7e\t\n]/;
/**
 * A line that continues after anything but a blank, or at the end. Bash joins lines before it reads tokens, so `"$\`
 * and `((id);id)"` on the next line are a command substitution; the parser joins them later and sees text.
 */
const JOINED = /[^ \t\n]\\\n|\\$/;

/**
 * The literal words of every simple command in a text of Bash, in order; lists, pipelines, groups, subshells, `if` and
 * `while` are looked into. Anything that a word's value depends on (expansions, globs, assignments, functions), output
 * to files, and programs that run their words as code leave all of it without words: a guess would let `$CMD` pass a
 * rule about `rm`. So does what the parser, `unbash`, can read only with an error. A command without words is opaque.
 * One with words is opaque if a program in it starts others or may (catalogs/programs/literal-programs.ts).
 */
export function commandFact(text: string): CommandFact {
  const words = literalWords(text);
  return words === undefined || words.some(runsItsWords)
    ? { text, opaque: true, words: [] }
    : { text, opaque: !words.every(isLiteralCommand), words };
}

/**
 * The literal words of every simple command, whatever their programs start; undefined if not all of them are literal.
 */
export function literalWords(text: string): readonly (readonly string[])[] | undefined {
  const words = text.length > MAX_CHARS || STRANGE.test(text) || JOINED.test(text) ? undefined : readScript(text);
  return words?.length === 0 ? undefined : words;
}

/** What is thrown where words are not known; never leaves this file. */
class Opaque extends Error {}

function readScript(text: string): string[][] | undefined {
  try {
    const script = parse(text);
    if (script.errors !== undefined && script.errors.length > 0) return undefined;
    return readAll(script.commands);
  } catch (thrown) {
    // A parser that gives up, by its own error or the stack's, has not understood the command.
    if (thrown instanceof Opaque || thrown instanceof RangeError || thrown instanceof SyntaxError) return undefined;
    throw thrown;
  }
}

function readAll(statements: readonly Statement[]): string[][] {
  return statements.flatMap(({ command }) => readNode(command));
}

function readNode(node: PipelineNode | AndOr | CommandNode): string[][] {
  switch (node.type) {
    case 'AndOr':
      return node.commands.flatMap(readNode);
    case 'Pipeline':
      if (node.prefixes.some(({ type }) => type === 'Time') || node.operators.includes('|&')) throw new Opaque();
      return node.commands.flatMap(readNode);
    case 'Command':
      return [readCommand(node)];
    case 'Subshell':
    case 'BraceGroup':
      return readAll(node.body.commands);
    case 'While':
      return readAll([...node.clause.commands, ...node.body.commands]);
    case 'If':
      return readAll(
        [node, ...node.elif]
          .flatMap(({ clause, then }) => [...clause.commands, ...then.commands])
          .concat(node.else?.commands ?? []),
      );
    case 'Redirected':
      node.redirects.forEach(judgeRedirection);
      return readNode(node.command);
    default:
      throw new Opaque();
  }
}

function readCommand({ name, prefix, suffix }: Command): string[] {
  const words: string[] = [];
  if (name === undefined) throw new Opaque();
  for (const part of [...prefix, name, ...suffix]) {
    if (part.type === 'Assignment') throw new Opaque();
    if (part.type === 'Word') words.push(literal(part));
    else judgeRedirection(part);
  }
  return words;
}

/**
 * Joining streams and throwing output away touch no file; every other redirection reads or writes one that no word
 * names.
 */
function judgeRedirection(part: Redirection): void {
  if (part.type !== 'Redirect' || part.target === undefined || part.descriptor?.type === 'FileDescriptorVariable')
    throw new Opaque();
  const target = literal(part.target);
  const isJoin = (part.operator === '>&' || part.operator === '<&') && /^[0-2]$/.test(target);
  const isDropped = ['>', '>>', '&>', '<'].includes(part.operator) && target === '/dev/null';
  if (!isJoin && !isDropped) throw new Opaque();
}

function literal(word: Word): string {
  const parts = word.parts ?? [{ type: 'Literal', text: word.text }];
  if (word.text.startsWith('~') || !parts.every(isLiteral)) throw new Opaque();
  return word.value;
}

/** Tildes are expanded after `=` and `:` too, and an escape before a line end joins lines. */
function isLiteral(part: WordPart | { readonly type: 'Literal'; readonly text: string }): boolean {
  if (part.type === 'SingleQuoted') return true;
  if (part.type === 'DoubleQuoted') return part.parts.every(({ type }) => type === 'Literal');
  return part.type === 'Literal' && !FOREIGN.test(part.text) && !/[=:]~|[*?[\]{}!]/.test(part.text);
}
