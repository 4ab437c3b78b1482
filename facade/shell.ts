/** Owns the facts of a shell command: the literal words of its simple commands; whatever is not plainly literal is opaque. */
import type { CommandFact } from '../policies/port.ts';

/** Words that begin compound commands or change what follows; a command that uses one does not reduce to simple commands. */
const RESERVED = new Set(['if', 'then', 'else', 'elif', 'fi', 'for', 'while', 'until', 'do', 'done', 'case', 'esac', 'in', 'function', 'select', 'time', 'coproc', '{', '}', '!', '[[', ']]']);
/** Commands that run their arguments, a file or standard input as code: their own words say nothing about what happens. */
const INDIRECT = new Set(['eval', 'exec', 'source', '.', 'command', 'builtin', 'env', 'xargs', 'sh', 'bash', 'dash', 'zsh', 'ksh', 'alias', 'trap', 'sudo', 'nohup', 'nice', 'timeout', 'setsid', 'busybox', 'parallel']);
/** One token: an operator, blanks, a single-quoted string, a double-quoted string without expansions, or plain characters. */
const TOKEN = /(?<op>&&|\|\||\||;|\n|&(?!&|>))|(?<blank>[ \t]+)|'(?<single>[^']*)'|"(?<double>[^"$`\\!]*)"|(?<plain>[A-Za-z0-9_@%+=:,./-]+)/y;
const MAX_CHARS = 64 * 1024;

/**
 * Splits a command into the literal words of each simple command. The grammar is a small part of POSIX.1-2017 2.3 and 2.10:
 * anything outside it (expansions, globs, redirections, groups, assignments, escapes, non-ASCII outside quotes) makes the
 * whole command opaque, because a guess here would let a rule about `rm` be passed by `r''m` or `$CMD`.
 */
export function commandFact(text: string): CommandFact {
  const words = text.length > MAX_CHARS ? undefined : literalWords(text);
  return words === undefined || words.length === 0 ? { text, opaque: true, words: [] } : { text, opaque: false, words };
}

function literalWords(text: string): string[][] | undefined {
  const commands: string[][] = [[]];
  let word: string | undefined;
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < text.length) {
    const found = TOKEN.exec(text)?.groups;
    if (found === undefined) return undefined;
    const piece = found['single'] ?? found['double'] ?? found['plain'];
    if (piece !== undefined) {
      word = (word ?? '') + piece;
      continue;
    }
    if (word !== undefined) commands.at(-1)?.push(word);
    word = undefined;
    if (found['op'] !== undefined) commands.push([]);
  }
  if (word !== undefined) commands.at(-1)?.push(word);
  const simple = commands.filter((command) => command.length > 0);
  return simple.every(isSimple) ? simple : undefined;
}

function isSimple(words: readonly string[]): boolean {
  const first = words[0] ?? '';
  const name = first.slice(first.lastIndexOf('/') + 1);
  return first !== '' && !first.includes('=') && !words.some((word) => RESERVED.has(word) && word === first) && !INDIRECT.has(name);
}
