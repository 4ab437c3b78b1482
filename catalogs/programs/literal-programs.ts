/**
 * Programs whose words say what they do. A program of the first table starts no other program, so its words tell
 * everything. A program in no table starts others or may: build tools, interpreters, wrappers (`setarch`, `npx`, the
 * dynamic loader), editors, `ssh`. Programs of the last list run their words or their input as code, so their words
 * tell nothing.
 */

import { longPattern } from '../text/long-pattern.ts';
import { wordSet } from '../text/word-set.ts';

/** Programs that are in the table for one reason. */
interface Group {
  readonly names: string;
  /** Why no word makes them start a program, except the words in `except`. */
  readonly reason: string;
  /**
   * Options that start a program, load code, or may abbreviate one that does: GNU programs and curl accept abbreviated
   * options.
   */
  readonly except?: RegExp;
  /** The required first word: without it, the program reads options from a file in its home, which is the workspace. */
  readonly needs?: RegExp;
}

const GROUPS: readonly Group[] = [
  {
    names: 'ls cat head tail wc pwd basename dirname realpath readlink stat du df tree',
    reason: 'They read files and folders, and print.',
  },
  { names: 'date uname id whoami groups nproc ps free uptime printenv', reason: 'They print what the system says.' },
  {
    names: 'echo printf seq expr factor numfmt true false sleep',
    reason: 'They calculate from their words, and print.',
  },
  { names: 'test [', reason: 'They compare words and look at files.' },
  {
    names: 'cmp comm cut tr fold fmt nl paste join expand unexpand tac rev od xxd hexdump uniq base32 base64 jq',
    reason: 'They read text and print it changed; no option names a program.',
  },
  {
    names: 'cksum md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum',
    reason: 'They compute sums of files.',
  },
  {
    names: 'touch mkdir rmdir cp mv rm ln chmod chown chgrp truncate mktemp tee sync shred',
    reason: 'They change files that their words name; no option names a program.',
  },
  { names: 'cd : exit return break continue kill', reason: 'Builtins of the shell; kill sends signals.' },
  { names: 'grep', reason: 'It reads files; patterns are not code.' },
  { names: 'diff', reason: 'It compares files.', except: /^-[^-]*l|^--pa/ },
  { names: 'sort', reason: 'It sorts text.', except: /^--c/ },
  { names: 'split', reason: 'It cuts a file.', except: /^--f/ },
  {
    names: 'file',
    reason: 'It tells types of files; it starts programs to look into compressed ones.',
    except: /^-[^-]*[zZS]|^--(?:un|n)/,
  },
  {
    names: 'rg',
    reason: 'It searches files; options name programs that convert them.',
    except: /^--(?:pre|hostname|search-zip)|^-[^-]*z/,
  },
  { names: 'find', reason: 'It lists and deletes files.', except: /^-(?:exec|ok)/ },
  {
    names: 'curl',
    reason:
      'It talks to hosts that its words name; a file of settings, an engine and a login of NTLM are code or start it.',
    needs: /^(?:-q|--disable$)/,
    except: /^-[^-]*K|^--(?:conf|nt|en)|pkcs11:/,
  },
];

/**
 * Subcommands of git that start only git, with the environment of adapters/primitives/shell/git-environment.ts: no
 * hook, pager, editor, signature or monitor. Those that talk to other machines (`push`, `fetch`, `clone`, `remote`,
 * `submodule`) start `ssh` and helpers.
 */
const GIT = wordSet(`
  status diff log show add commit rev-parse ls-files ls-tree cat-file shortlog describe blame branch tag restore
  checkout switch reset rm mv rev-list merge-base show-ref symbolic-ref diff-tree diff-index diff-files name-rev
`);
/**
 * Before the subcommand only these are allowed; `-c`, `-C`, `--config-env`, `--exec-path`, `--git-dir` and `--paginate`
 * choose programs or settings.
 */
const GIT_BEFORE = new Set(['--no-pager', '-P', '--no-optional-locks']);
/**
 * External diffs, converters, editors, signatures and hooks are programs. git accepts abbreviated options: `--ext` for
 * `--ext-diff`.
 */
const GIT_EXCEPT = longPattern()`
  ^--(?:ext|textc|filt|show-s|exec|ed|gpg|si|veri|rec|upl|op|temp|pat|int|local-user|recurse)
  |^-[A-Za-z]*[SO]|^[\w-]+::|%G`;

/**
 * Programs that run their words, a file or their input as code, and builtins that change the meaning of later names.
 */
const RUNS_WORDS = wordSet(`
  sh bash dash zsh ksh fish eval exec source . command builtin env xargs trap sudo doas nohup nice ionice timeout time
  setsid stdbuf busybox toybox parallel watch flock script chroot unshare nsenter taskset chrt prlimit
  alias unalias hash enable export declare typeset local readonly unset read mapfile readarray getopts let set shopt
  bind complete compgen compopt fc jobs wait
`);
/**
 * Words with which programs do: they start programs, evaluate subscripts such as `a[$(id)]` inside quoted words, or set
 * a variable: `printf 'a%n' PATH; ls` runs `1/ls`.
 */
const RUNS_OPTIONS: ReadonlyMap<string, RegExp> = new Map([
  ['printf', /^-v|%[^%A-Za-z]*[hjlLtz]*n/],
  ['test', /^-[vR]$/],
  ['[', /^-[vR]$/],
  ['find', /^-(?:exec|ok)/],
]);

const PROGRAMS: ReadonlyMap<string, Group> = new Map(
  GROUPS.flatMap((group) => group.names.split(' ').map((name): [string, Group] => [name, group])),
);
/** Folders of the system. A program in any other folder is another program, whatever its name. */
const SYSTEM = /^(?:\/usr)?(?:\/local)?\/s?bin\/(?=[^/]+$)/;

/** Names of the programs that start no other one; git is judged by its subcommand. */
export const LITERAL_PROGRAMS: readonly string[] = [...PROGRAMS.keys()];

/** Returns whether a simple command, given by its literal words, starts no other program. */
export function isLiteralCommand([first = '', ...rest]: readonly string[]): boolean {
  const name = first.replace(SYSTEM, '');
  if (name === 'git') return isPlainGit(rest);
  const group = PROGRAMS.get(name);
  if (group === undefined || group.needs?.test(rest[0] ?? '') === false) return false;
  return group.except === undefined || !rest.some((word) => group.except?.test(word));
}

/** Returns whether some command that begins with these words starts no other program. */
export function mayBeLiteral(words: readonly string[]): boolean {
  const whole = words.join(' ').replace(SYSTEM, '');
  return whole === 'git' || PROGRAMS.get(whole)?.needs !== undefined || isLiteralCommand(words);
}

/**
 * Returns whether a simple command runs its words or its input as code, so that its words do not say which program
 * runs.
 */
export function runsItsWords([first = '', ...rest]: readonly string[]): boolean {
  const name = first.slice(first.lastIndexOf('/') + 1);
  const options = RUNS_OPTIONS.get(name);
  return (
    name === '' ||
    first.includes('=') ||
    RUNS_WORDS.has(name) ||
    (options !== undefined && rest.some((word) => options.test(word)))
  );
}

function isPlainGit(words: readonly string[]): boolean {
  const at = words.findIndex((word) => !GIT_BEFORE.has(word));
  const [subcommand = '', ...rest] = at < 0 ? [] : words.slice(at);
  const plain = subcommand === 'commit' || subcommand === 'tag' ? withoutMessages(rest) : rest;
  return GIT.has(subcommand) && !plain.some((word) => GIT_EXCEPT.test(word));
}

/** Returns the words without messages: a message may begin with a dash, and is no option there. */
function withoutMessages(words: readonly string[]): readonly string[] {
  return words.filter((_, at) => words[at - 1] !== '-m' && words[at - 1] !== '-am');
}
