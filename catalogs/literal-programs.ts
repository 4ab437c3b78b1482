/**
 * The programs that start no other program, and so can be judged by their words. A program that is not here starts others or
 * may: shells, interpreters, wrappers (`env`, `setarch`, `setpriv`, `npx`, the dynamic loader), editors, pagers, `ssh`. Build tools run
 * the code of the project; a rule that names one means just that, so their plain tasks count as literal.
 */

/** Programs with one reason to be here. */
interface Group {
  readonly names: string;
  /** Why no word makes them start a program, apart from `except`. */
  readonly reason: string;
  /** Options that start a program, read code, or may be short for one that does. */
  readonly except?: RegExp;
  /** The first word must be one of these. */
  readonly only?: RegExp;
}

/** Options of build tools that choose another folder, script, shell, interpreter or file of settings. */
const CHOOSES = /^--(?:prefix|script-shell|node-options|userconfig|globalconfig|shell|eval|file|include|dir|cwd|exec|call|config|rootdir|init-script|manifest|toolexec|vettool|makefile|pre|C)|^-[CfIpcExo]|=/;

const GROUPS: readonly Group[] = [
  { names: 'ls cat head tail wc echo printf pwd cd true false test [ basename dirname realpath readlink stat du df date uname id whoami groups nproc seq sleep cmp comm cut tr fold fmt nl paste join expand unexpand tac rev od xxd hexdump cksum md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum base32 base64 uniq printenv expr factor numfmt tree ps free uptime jq', reason: 'They read and print.' },
  { names: 'touch mkdir rmdir cp mv rm ln chmod chown chgrp truncate mktemp tee sync shred', reason: 'They change files that their words name.' },
  { names: 'kill : exit return break continue', reason: 'Builtins of the shell.' },
  { names: 'shutdown reboot halt poweroff', reason: 'They ask the init system to act; rules name them.' },
  { names: 'grep diff', reason: 'They read and compare files.' },
  { names: 'sort', reason: 'It sorts text.', except: /^--c/ },
  { names: 'split', reason: 'It cuts a file.', except: /^--f/ },
  { names: 'file', reason: 'It tells types of files.', except: /^-[^-]*[zZS]|^--(?:un|n)/ },
  { names: 'rg', reason: 'It searches files.', except: /^--(?:pre|hostname|search-zip)|^-[^-]*z/ },
  { names: 'find', reason: 'It lists files.', except: /^-(?:exec|ok)/ },
  { names: 'npm', reason: 'Its tasks are those of package.json; rules name them.', only: /^(?:test|t|ci|install|i|run|publish|ls|view|outdated|audit|pack|version)$/, except: CHOOSES },
  { names: 'make', reason: 'Its tasks are those of the Makefile; rules name them.', except: CHOOSES },
  { names: 'pytest', reason: 'It runs the tests of the project; rules name it.', except: CHOOSES },
  { names: 'go', reason: 'It builds and tests the module; rules name it.', only: /^(?:build|test|vet|fmt|version|list)$/, except: /^--?(?:exec|toolexec|vettool|C|modfile|overlay)/ },
  { names: 'cargo', reason: 'It builds and tests the package; rules name it.', only: /^(?:build|test|check|fmt|clippy|tree)$/, except: CHOOSES },
  { names: 'mvn gradle', reason: 'They build and test the project; rules name them.', only: /^(?:test|build|verify|check|compile|package)$/, except: /^-/ },
  { names: 'curl', reason: 'It talks to the hosts that its words name; rules name it.', except: /^-[^-]*K|^--(?:conf|ntlm-wb|eng)/ },
];

/** Subcommands of git that start no program that their words choose. The last line talks to other machines; rules name it. */
const GIT = new Set(['status diff log show add commit rev-parse ls-files ls-tree cat-file shortlog describe blame branch tag restore checkout switch reset rm mv rev-list merge-base show-ref symbolic-ref diff-tree diff-index diff-files name-rev',
  'push pull fetch clone remote'].flatMap((line) => line.split(' ')));
/** Before the subcommand only these; `-c`, `-C`, `--config-env`, `--exec-path`, `--git-dir` and `--paginate` choose programs or settings. */
const GIT_BEFORE = new Set(['--no-pager', '-P', '--no-optional-locks']);
/** External diffs, converters, editors, signatures and hooks are programs. git takes options by their beginning: `--ext` for `--ext-diff`. */
const GIT_EXCEPT = /^--(?:ext|textc|filt|show-s|exec|ed|gpg|si|veri|rec|upl|op|temp|pat|int|local-user|recurse)|^-[A-Za-z]*[SO]|^[\w-]+::|%G/;

const PROGRAMS: ReadonlyMap<string, Group> = new Map(GROUPS.flatMap((group) => group.names.split(' ').map((name): [string, Group] => [name, group])));
/** Folders of the system. A program anywhere else is another program, whatever its name. */
const SYSTEM = /^(?:\/usr)?(?:\/local)?\/s?bin\/(?=[^/]+$)/;

/** Whether a simple command, given by its literal words, starts no other program. */
export function isLiteralCommand([first = '', ...rest]: readonly string[]): boolean {
  const name = first.replace(SYSTEM, '');
  if (name === 'git') return isPlainGit(rest);
  const group = PROGRAMS.get(name);
  if (group?.only?.test(rest[0] ?? '') === false) return false;
  return group !== undefined && (group.except === undefined || !rest.some((word) => group.except?.test(word)));
}

function isPlainGit(words: readonly string[]): boolean {
  const at = words.findIndex((word) => !GIT_BEFORE.has(word));
  const [subcommand = '', ...rest] = at < 0 ? [] : words.slice(at);
  const plain = subcommand === 'commit' || subcommand === 'tag' ? withoutMessages(rest) : rest;
  return GIT.has(subcommand) && !plain.some((word) => GIT_EXCEPT.test(word));
}

/** Words without the messages: a message may begin with a dash, and is no option there. */
function withoutMessages(words: readonly string[]): readonly string[] {
  return words.filter((_, at) => words[at - 1] !== '-m' && words[at - 1] !== '-am');
}
