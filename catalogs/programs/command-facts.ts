/**
 * The facts of a shell command: the literal words of its simple commands, and whether one of them starts other
 * programs.
 */
import {
  type AndOr,
  type Command,
  type CommandNode,
  type ParsedScript,
  type PipelineNode,
  parse,
  type Redirection,
  type Statement,
  type Word,
  type WordPart,
} from 'unbash';
import { isLiteralCommand, runsItsWords } from './literal-programs.ts';

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

/** What is known of a shell command: the words of each simple command, and whether the rest may do anything. */
export interface CommandReading {
  readonly text: string;
  /** True if one of its programs starts other programs, or may do so, and true if `words` is empty. */
  readonly opaque: boolean;
  /** Empty if the command does not reduce to literal words. */
  readonly words: readonly (readonly string[])[];
}

/**
 * Returns the literal words of every simple command in a Bash text, in order, also inside lists, pipelines, groups,
 * subshells, `if` and `while`. The whole text has no words if it contains anything that the value of a word depends on
 * (expansions, globs, assignments, functions), output to a file, a program that runs its words as code, or a syntax
 * error: a guess would let `$CMD` bypass a rule about `rm`. A command without words is opaque. A command with words is
 * opaque if a program in it may start other programs (see literal-programs.ts).
 */
export function commandFact(text: string): CommandReading {
  const script = parseCommand(text);
  const words = readWords(text, script);
  const fact =
    words instanceof Opaque || words.some(runsItsWords)
      ? { text, opaque: true, words: [] }
      : { text, opaque: !words.every(isLiteralCommand), words };
  if (!(script instanceof Opaque)) PARSED.set(fact, script);
  return fact;
}

/** The trees of commands, so that a record of a call can name what is in its command without parsing it again. */
const PARSED = new WeakMap<CommandReading, ParsedScript>();

/**
 * Returns the tree of a command, also of one that has no words here. Bash may read such a text in another way, so the
 * tree is for people and never for the policy. Undefined if the text is too long or cannot be parsed.
 */
export function commandTree(command: CommandReading): ParsedScript | undefined {
  const known = PARSED.get(command);
  if (known !== undefined || command.text.length > MAX_CHARS) return known;
  const script = parseText(command.text);
  return script instanceof Opaque ? undefined : script;
}

/**
 * Returns the literal words of every simple command, no matter what the programs start; undefined unless all of them
 * are literal.
 */
export function literalWords(text: string): readonly (readonly string[])[] | undefined {
  const read = readWords(text);
  return read instanceof Opaque ? undefined : read;
}

/** Why a command is opaque, for the refusal of a call: what was found first, and what to write instead. */
export interface OpaqueReason {
  readonly what: string;
  readonly next: string;
}

/** Returns why a command is opaque; undefined if it is not. Both texts are parts of a sentence and a whole one. */
export function explainOpaque(text: string): OpaqueReason | undefined {
  const read = readWords(text);
  if (read instanceof Opaque) return read.reason;
  const code = read.find(runsItsWords);
  if (code !== undefined)
    return { what: `${programName(code)} runs its words or its input as code`, next: 'Call the program itself.' };
  const other = read.find((words) => !isLiteralCommand(words));
  return other && { what: `${programName(other)} starts other programs, or may do so`, next: '' };
}

/** Returns the program of a command for messages, with its subcommand for git. */
function programName(words: readonly string[]): string {
  const named = words.slice(0, words[0] === 'git' ? 2 : 1).join(' ');
  return named.length > 40 ? `${named.slice(0, 39)}…` : named;
}

/** Thrown when words are not known. Never leaves this file. */
class Opaque extends Error {
  readonly reason: OpaqueReason;

  constructor(what: string, next = 'Write literal words.') {
    super(what);
    this.reason = { what, next };
  }
}

const otherForm = (): Opaque => new Opaque('it has an assignment, a function, a loop over words or another such form');
const redirection = (): Opaque =>
  new Opaque('it redirects to or from a file', 'Use the tools write and edit to change files.');
const expansion = (): Opaque =>
  new Opaque('it has a variable, a substitution, a glob, a brace, a tilde or a letter that is not ASCII');

function readWords(text: string, script = parseCommand(text)): string[][] | Opaque {
  if (script instanceof Opaque) return script;
  if (script.errors !== undefined && script.errors.length > 0) return new Opaque('it has a syntax error');
  try {
    const words = readAll(script.commands);
    return words.length === 0 ? new Opaque('it has no program') : words;
  } catch (thrown) {
    return opaqueOf(thrown);
  }
}

function parseCommand(text: string): ParsedScript | Opaque {
  if (text.length > MAX_CHARS) return new Opaque(`it is longer than ${MAX_CHARS} characters`);
  if (STRANGE.test(text)) return new Opaque('it has control characters');
  if (JOINED.test(text)) return new Opaque('it has a line continuation without a blank before it');
  return parseText(text);
}

function parseText(text: string): ParsedScript | Opaque {
  try {
    return parse(text);
  } catch (thrown) {
    return opaqueOf(thrown);
  }
}

/** The parser may give up with its error or a stack overflow: the command is not understood. */
function opaqueOf(thrown: unknown): Opaque {
  if (thrown instanceof Opaque) return thrown;
  if (thrown instanceof RangeError || thrown instanceof SyntaxError) return new Opaque('it cannot be parsed');
  throw thrown;
}

function readAll(statements: readonly Statement[]): string[][] {
  return statements.flatMap(({ command }) => readNode(command));
}

function readNode(node: PipelineNode | AndOr | CommandNode): string[][] {
  switch (node.type) {
    case 'AndOr':
      return node.commands.flatMap(readNode);
    case 'Pipeline':
      if (node.prefixes.some(({ type }) => type === 'Time') || node.operators.includes('|&')) throw otherForm();
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
      throw otherForm();
  }
}

function readCommand({ name, prefix, suffix }: Command): string[] {
  const words: string[] = [];
  if (name === undefined) throw otherForm();
  for (const part of [...prefix, name, ...suffix]) {
    if (part.type === 'Assignment') throw otherForm();
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
    throw redirection();
  const target = literal(part.target);
  const isJoin = (part.operator === '>&' || part.operator === '<&') && /^[0-2]$/.test(target);
  const isDropped = ['>', '>>', '&>', '<'].includes(part.operator) && target === '/dev/null';
  if (!isJoin && !isDropped) throw redirection();
}

function literal(word: Word): string {
  const parts = word.parts ?? [{ type: 'Literal', text: word.text }];
  if (word.text.startsWith('~') || !parts.every(isLiteral)) throw expansion();
  return word.value;
}

/** Bash expands a tilde also after `=` and `:`. */
function isLiteral(part: WordPart | { readonly type: 'Literal'; readonly text: string }): boolean {
  if (part.type === 'SingleQuoted') return true;
  if (part.type === 'DoubleQuoted') return part.parts.every(({ type }) => type === 'Literal');
  return part.type === 'Literal' && !FOREIGN.test(part.text) && !/[=:]~|[*?[\]{}!]/.test(part.text);
}
