/**
 * The facts of a shell command: the literal words of its simple commands, and whether one of them starts other
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

/** A longer command has no words, so that parsing stays cheap. */
const MAX_CHARS = 16 * 1024;
/** Control characters are allowed only as blanks and line ends. Outside of quotes, only printable ASCII is allowed. */
const STRANGE = /[\0-\x08\x0b-\x1f\x7f]/;
const FOREIGN = /[^\x20-\x7e\t\n]/;
/**
 * A line continuation after anything but a blank, or at the end of the command. Bash joins lines before it reads
 * tokens, so `"$\` followed by `((id);id)"` on the next line is a command substitution. The parser joins them later and
 * sees text.
 */
const JOINED = /[^ \t\n]\\\n|\\$/;

/**
 * Returns the literal words of every simple command in a Bash text, in order, also inside lists, pipelines, groups,
 * subshells, `if` and `while`. The whole text has no words if it contains anything that the value of a word depends on
 * (expansions, globs, assignments, functions), output to a file, a program that runs its words as code, or a syntax
 * error: a guess would let `$CMD` bypass a rule about `rm`. A command without words is opaque. A command with words is
 * opaque if a program in it may start other programs (see catalogs/programs/literal-programs.ts).
 */
export function commandFact(text: string): CommandFact {
  const words = literalWords(text);
  return words === undefined || words.some(runsItsWords)
    ? { text, opaque: true, words: [] }
    : { text, opaque: !words.every(isLiteralCommand), words };
}

/**
 * Returns the literal words of every simple command, no matter what the programs start; undefined unless all of them
 * are literal.
 */
export function literalWords(text: string): readonly (readonly string[])[] | undefined {
  const words = text.length > MAX_CHARS || STRANGE.test(text) || JOINED.test(text) ? undefined : readScript(text);
  return words?.length === 0 ? undefined : words;
}

/** Thrown when words are not known. Never leaves this file. */
class Opaque extends Error {}

function readScript(text: string): string[][] | undefined {
  try {
    const script = parse(text);
    if (script.errors !== undefined && script.errors.length > 0) return undefined;
    return readAll(script.commands);
  } catch (thrown) {
    // The parser gave up with an error of its own or a stack overflow: the command is not understood.
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
      node.redirects.forEach(checkRedirection);
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
    else checkRedirection(part);
  }
  return words;
}

/**
 * Joining streams and discarding output are allowed. Every other redirection reads or writes a file that no word names.
 */
function checkRedirection(part: Redirection): void {
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

/** Bash expands a tilde also after `=` and `:`. */
function isLiteral(part: WordPart | { readonly type: 'Literal'; readonly text: string }): boolean {
  if (part.type === 'SingleQuoted') return true;
  if (part.type === 'DoubleQuoted') return part.parts.every(({ type }) => type === 'Literal');
  return part.type === 'Literal' && !FOREIGN.test(part.text) && !/[=:]~|[*?[\]{}!]/.test(part.text);
}
