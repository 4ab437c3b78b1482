/**
 * What a shell command names, for the record of its call: programs, paths and hosts. Words are named as they are
 * written, because what Bash makes of a variable is not known. It is a hint for people; the policy reads
 * command-facts.ts.
 */
import { type Command, forEachChild, parse, type Redirect, type SyntaxNode, type Word } from 'unbash';
import { readUrl } from '../readers/urls.ts';
import { wordSet } from '../text/word-set.ts';
import { type CommandReading, commandTree } from './command-facts.ts';

/** Names in the order of the text. `host`: '' if programs could read the URL in different ways. */
export interface CommandNames {
  readonly programs: readonly string[];
  readonly paths: readonly string[];
  readonly hosts: readonly { readonly host: string }[];
}

/** Returns what a command names, also if it has parts whose programs cannot be named. */
export function commandNames(command: CommandReading): CommandNames {
  const tree = commandTree(command);
  const names = new Names();
  try {
    if (tree !== undefined) names.visit(tree);
  } catch (thrown) {
    // A tree that is too deep for the stack, or a script in a word that is none: what was found counts.
    if (!(thrown instanceof RangeError || thrown instanceof SyntaxError)) throw thrown;
  }
  return names;
}

/** Programs whose words are paths, apart from options and numbers. */
const OF_PATHS = wordSet(`
  . base32 base64 cat cd cmp cp diff file head hexdump less ln md5sum mkdir more mv nl od pushd rm rmdir sha1sum
  sha256sum shred sort source stat strings tac tail tee touch uniq wc xxd`);
const SHELLS = wordSet('bash dash ksh sh zsh');
/** Substitutions and scripts that are read: in each other, and in all. The parser reads each of them again. */
const MAX_DEPTH = 4;
const MAX_SCRIPTS = 64;
const SUBSTITUTIONS: ReadonlySet<string> = new Set([
  'CommandExpansion',
  'ProcessSubstitution',
  'ArithmeticExpansion',
  'ParameterExpansion',
]);
/** Names that are kept of each kind: more than a record has. And characters of a word that count. */
const MAX_NAMES = 64;
const MAX_CHARS = 512;
/** Options and variables whose value is not named. */
const PRIVATE = /pass|token|secret|auth|cred|header|api[-_]?key|^-H$/i;
/** Options for a name and a password. */
const OF_USER = /^(?:-u|--user|--proxy-user)$/;
/** Characters of a path that no one has to quote, and those of variables and patterns. */
const PATH = /^[\p{L}\p{M}\p{N}._/~@+,:%=^#$*?[\]{}!-]+$/u;
const HAS_FORM = /\/|^[.~]|\.\p{L}[\p{L}\p{N}]{0,9}$/u;
/** Numbers, a variable alone, the current folder, `-`, an address of mail, and `s/old/new/`. */
const NO_PATH = /^(?:[\d.]+|\$\w+|\$\{\w+\}|\.|-*|[^/]*@[^/]*\.[^/]*|[sy]([^\w\s.~-]).*\1.*\1\w*|\/dev\/null)$/u;

class Names implements CommandNames {
  readonly programs: string[] = [];
  readonly paths: string[] = [];
  readonly hosts: { readonly host: string }[] = [];
  #depth = 0;
  #scripts = 0;

  /** Visits a part of the tree with everything in it. */
  visit(node: SyntaxNode): void {
    if (node.type === 'Command') this.#noteCommand(node);
    else if (node.type === 'Redirect') this.#noteTarget(node);
    else if (node.type === 'HereString') this.#visitInside(node.target);
    else if (node.type === 'Assignment' && PRIVATE.test(node.name)) this.#visitInside(node.value);
    else if (node.type === 'Word') this.#noteWord(node);
    else if (SUBSTITUTIONS.has(node.type)) this.#visitDeeper(() => this.#visitInside(node));
    else this.#visitInside(node);
  }

  #visitInside(node: SyntaxNode | undefined): void {
    if (node !== undefined) forEachChild(node, (child) => this.visit(child));
  }

  #visitDeeper(visit: () => void): void {
    if (this.#depth >= MAX_DEPTH || this.#scripts >= MAX_SCRIPTS) return;
    this.#depth += 1;
    this.#scripts += 1;
    visit();
    this.#depth -= 1;
  }

  #noteCommand({ name, prefix, suffix }: Command): void {
    const program = name === undefined || name.value.includes('$') ? '' : lastName(name.value);
    if (program !== '' && this.programs.length < MAX_NAMES) this.programs.push(program);
    this.#visitInside(name);
    for (const part of prefix) this.visit(part);
    const ofPaths = OF_PATHS.has(program);
    let option = '';
    for (const part of suffix) {
      const text = part.type === 'Word' ? part.value : '';
      const isPrivate = PRIVATE.test(option) || (OF_USER.test(option) && text.includes(':'));
      if (part.type !== 'Word') this.visit(part);
      else if (!isPrivate) this.#noteWord(part, ofPaths);
      option = text.startsWith('-') && !text.includes('=') ? text : '';
    }
    if (SHELLS.has(program)) this.#readScript(suffix.filter((part) => part.type === 'Word'));
  }

  /** `bash -c TEXT`. */
  #readScript(words: readonly Word[]): void {
    const at = words.findIndex(({ value }) => /^-\w*c$/.test(value));
    const text = at < 0 ? undefined : words[at + 1]?.value;
    if (text !== undefined) this.#visitDeeper(() => this.visit(parse(text)));
  }

  #noteTarget({ target, operator }: Redirect): void {
    const isStream = (operator === '>&' || operator === '<&') && /^[\d-]+$/.test(target?.value ?? '');
    if (target !== undefined && !isStream) this.#noteWord(target, true);
  }

  /** Words that are an argument of an option count by their value. `isPath`: the word is one in any form. */
  #noteWord(word: Word, isPath = false): void {
    this.#visitInside(word);
    const { value } = word;
    const [, option = '', given] = /^(-{0,2}[\w-]+)=(.*)$/s.exec(value) ?? [];
    if (PRIVATE.test(option)) return;
    const glued = /^-\w(?=[/~.])/.exec(value)?.[0].length ?? 0;
    const whole = (given ?? value.slice(glued)).slice(0, MAX_CHARS);
    const text = whole.replace(/^@/, '').replace(/^file:\/\//, '');
    if (/^[a-z][a-z\d+.-]*:\/\//i.test(text)) this.#noteUrl(text);
    else if (!text.startsWith('-') && !NO_PATH.test(text) && (isPath ? !text.includes('(') : isPathLike(text)))
      this.#notePath(text);
  }

  #notePath(path: string): void {
    if (this.paths.length < MAX_NAMES) this.paths.push(path);
  }

  #noteUrl(url: string): void {
    if (this.hosts.length < MAX_NAMES) this.hosts.push(readUrl(url));
  }
}

function isPathLike(text: string): boolean {
  return PATH.test(text) && HAS_FORM.test(text);
}

/** A program by the name that the command gives it, without the folder of an absolute path. */
function lastName(program: string): string {
  return program.startsWith('/') ? program.slice(program.lastIndexOf('/') + 1) : program;
}
