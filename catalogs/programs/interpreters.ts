/**
 * Finds where an interpreter takes its code from, by the words that start it. An unknown option is never taken for a
 * harmless one.
 */

import { longPattern } from '../text/long-pattern.ts';

/** Options of one kind of interpreter. Short ones by their letters, which appear alone or in a cluster. */
interface Family {
  readonly names: string;
  /** Code follows these, or a person types it. */
  readonly inline: string;
  /** These take a value: the rest of the word, else the next word. */
  readonly values?: string;
  /** These take the rest of the word, if any. */
  readonly attached?: string;
  readonly flags?: string;
  /** These print something and end. */
  readonly info?: string;
  readonly long?: RegExp;
  readonly longValues?: RegExp;
  readonly longFlags?: RegExp;
  /** First words that are code or take it, and those after which the rest counts. */
  readonly inlineWords?: RegExp;
  readonly before?: RegExp;
  readonly others?: RegExp;
  /** For `-m`: modules that run code from the command line. */
  readonly modules?: RegExp;
}

const NONE = /(?!)/;
const FAMILIES: readonly Family[] = [
  {
    names: 'sh bash zsh dash ksh mksh ash rbash fish',
    inline: 'cs',
    values: 'oO',
    flags: 'aBbCEeiflhkmnpPrtTuvxHL',
    long: /^--(?:command|init-command)$/,
    longValues: /^--(?:rcfile|init-file)$/,
    longFlags: /^--(?:login|posix|norc|noprofile|restricted|verbose|no-config|private|interactive)$/,
  },
  {
    names: 'python pypy jython ipython',
    inline: 'ci',
    values: 'WXQm',
    flags: 'bBdEIOPqsSuvx',
    info: 'Vh',
    longValues: /^--check-hash-based-pycs$/,
    longFlags: NONE,
    modules: longPattern()`
      ^(?:code|codeop|pdb|timeit|asyncio|idlelib.*|IPython.*|ptpython.*|bpython.*|cProfile|profile|trace
      |jupyter_console|doctest)$`,
  },
  {
    names: 'node nodejs tsx ts-node electron',
    inline: 'epi',
    values: 'rCO',
    flags: 'cTP',
    info: 'vh',
    long: /^--(?:eval|print|interactive|run)$/,
    longValues: longPattern()`
      ^--(?:require|import|loader|experimental-loader|title|conditions|env-file(?:-if-exists)?|input-type|inspect-port
      |icu-data-dir|openssl-config|redirect-warnings|report-dir(?:ectory)?|tls-[\w-]+|unhandled-rejections|watch-path
      |test-[\w-]+|disable-warning|dns-result-order|diagnostic-dir|trace-event-[\w-]+|tsconfig|project
      |stack-trace-limit|localstorage-file)$`,
    longFlags: longPattern()`
      ^--(?:no-|experimental-|trace-|enable-|use-|harmony|expose|inspect|watch|preserve-symlinks|check|test$|abort-on
      |allow-|permission|pending-|throw-|force-|insecure-|esm$|transpile-only$|files$)`,
    inlineWords: /^(?:inspect|repl)$/,
    before: /^watch$/,
  },
  {
    names: 'deno',
    inline: '',
    values: 'cL',
    flags: 'Aqrw',
    info: 'Vh',
    long: /^--eval$/,
    longValues: /^--(?:config|import-map|lock|cert|location|seed|log-level|preload|import|env-file)$/,
    longFlags: /^--(?:allow-|deny-|no-|unstable|quiet|reload|watch|inspect|check|cached-only|frozen|node-modules-dir)/,
    inlineWords: /^(?:eval|repl|jupyter)$/,
    before: /^(?:run|serve)$/,
    others: /^(?:test|fmt|lint|check|install|add|cache|task|compile|doc|info|bench|upgrade|types|publish|init)$/,
  },
  {
    names: 'bun',
    inline: 'ep',
    values: 'rcd',
    flags: 'b',
    info: 'vh',
    long: /^--(?:eval|print)$/,
    longValues: /^--(?:preload|require|import|cwd|config|env-file|define|port|filter|tsconfig-override)$/,
    longFlags: /^--(?:watch|hot|smol|bun|silent|no-|prefer-|inspect|if-present)/,
    inlineWords: /^(?:repl|exec)$/,
    before: /^run$/,
    others: /^(?:test|install|i|add|remove|update|build|pm|create|init|link|x)$/,
  },
  {
    names: 'ruby jruby',
    inline: 'e',
    values: 'IrCE',
    attached: 'WTxK0Fi',
    flags: 'acdlnpsSwyU',
    info: 'hv',
    longValues: /^--(?:encoding|external-encoding|internal-encoding)$/,
    longFlags: /^--(?:enable|disable|yjit|jit|verbose|debug)/,
  },
  { names: 'perl', inline: 'eEd', values: 'I', attached: 'l0iFCxDV', flags: 'npawWXtTsScuUf', info: 'vh' },
  {
    names: 'php',
    inline: 'raBRE',
    values: 'cdzStF',
    flags: 'nqCsHlw',
    info: 'vhim',
    long: /^--(?:run|process-begin|process-code|process-end|interactive)$/,
    longValues: /^--(?:php-ini|define|server|docroot|zend-extension|process-file)$/,
    longFlags: /^--(?:no-php-ini|no-header|timing)$/,
  },
  { names: 'lua luajit', inline: 'ei', values: 'l', attached: 'jO', flags: 'EW', info: 'v' },
  {
    names: 'r rscript julia osascript elixir groovy scala clojure ghc',
    inline: 'eEi',
    values: 'lLJCtp',
    flags: 'sq',
    long: /^--(?:eval|exec|print|interactive)$/,
    longValues: /^--(?:expr|project|threads)$/,
    longFlags: /^--(?:vanilla|slave|quiet|no-|startup-file)/,
  },
  { names: 'irb ghci jshell groovysh', inline: 'abcdefghijklmnopqrstuvwxyz', inlineWords: /^/ },
  {
    names: 'tclsh guile sbcl',
    inline: 'ce',
    flags: 'sq',
    long: /^--(?:eval|load)$/,
    longFlags: /^--(?:script|non-interactive|noinform|no-)/,
  },
  {
    names: 'powershell pwsh',
    inline: '',
    long: /^--?(?:c|co\w*|e|ec|en\w*|i|in\w*)$/i,
    longValues: /^--?(?:ex\w*|ep|v\w*|w\w*|o\w*|psc\w*|cus\w*|set\w*)$/i,
    longFlags: /^--?(?:no\w*|mta|sta|l\w*)$/i,
  },
  {
    names: 'npx npm pnpm yarn bunx',
    inline: 'c',
    values: 'p',
    flags: 'yqg',
    long: /^--call$/,
    longValues: /^--(?:package|registry|prefix|workspace)$/,
    longFlags: /^--/,
  },
];
const BY_NAME: ReadonlyMap<string, Family> = new Map(
  FAMILIES.flatMap((family) => family.names.split(' ').map((name): [string, Family] => [name, family])),
);

/** Programs that only start another one, and words between the two. */
const WRAPPERS = longPattern()`
  ^(?:sudo|doas|env|nohup|exec|time|nice|ionice|chrt|taskset|command|timeout|stdbuf|setsid|unshare|chroot|strace|flock
  |xargs|npx|npm|pnpm|pnpx|yarn|bunx|bun|x|uvx|uv|pipx|pipenv|poetry|pdm|hatch|rye|conda|mamba|mise|direnv|busybox
  |toybox|tini|dumb-init|xvfb-run|caffeinate|run|dlx|--)$`;
const STDIN = /^(?:-|\/dev\/(?:stdin|tty|fd\/.*)|\/proc\/[^/]+\/(?:task\/[^/]+\/)?fd\/.*|con|conin\$)$/i;

/**
 * Where the code comes from: `option` names what says so. `repl`: a person types it. `unknown`: an option that may take
 * any of the words after it.
 */
export interface CodeSource {
  readonly from: 'inline' | 'stdin' | 'repl' | 'unknown' | 'file' | 'nothing';
  readonly option?: string;
}

const LONGEST_NAME = 64;

/** Returns the name of a program without folder, version and extension, in lower case: `/bin/python3.11` → python. */
export function interpreterName(word: string): string {
  const name = word
    .toLowerCase()
    .replace(/^.*[/\\]/, '')
    .replace(/\.(?:exe|cmd|bat)$/, '');
  // The pattern looks back from each character, so its cost is quadratic in the name's length; no interpreter has a
  // longer name.
  return name.length > LONGEST_NAME ? name : name.replace(/(?<=^[a-z-]{2,})-?\d[\d.]*t?$/, '');
}

/** Returns what each program among the words would run: the first, and those that wrappers before it start. */
export function startedBy(words: readonly string[]): readonly (readonly string[])[] {
  const all = words.flatMap((word, at) => splitString(word, words[at - 1]));
  const starts: (readonly string[])[] = [];
  for (let at = 0; at < all.length; at += 1) {
    const word = all[at] ?? '';
    const isStarted = at === 0 || (!word.startsWith('-') && !/^\w+=/.test(word));
    if (isStarted) starts.push(all.slice(at));
    const isValue = at > 0 && /^-/.test(all[at - 1] ?? '');
    if (!WRAPPERS.test(interpreterName(word)) && !isValue && !/^-|^\w+=|^\d/.test(word)) break;
  }
  return starts;
}

/**
 * Returns the option with which a command runs code from its own words, or from its input; undefined if it does not.
 */
export function inlineCode(words: readonly string[]): string | undefined {
  for (const started of startedBy(words)) {
    const source = codeSource(started);
    if (source?.from === 'inline' || source?.from === 'stdin') return source.option;
  }
  return undefined;
}

/** Returns where an interpreter takes its code from; undefined for another program. */
export function codeSource([program = '', ...words]: readonly string[]): CodeSource | undefined {
  const name = interpreterName(program);
  if (name === 'cmd') return cmdSource(words);
  const family = BY_NAME.get(name);
  return family === undefined ? undefined : sourceIn(family, words);
}

function cmdSource(words: readonly string[]): CodeSource {
  const option = words.find((word) => /^\/[ckr]/i.test(word));
  return option === undefined ? { from: 'repl' } : { from: 'inline', option };
}

function sourceIn(family: Family, words: readonly string[]): CodeSource {
  let isUnsure = false;
  for (let at = 0; at < words.length; at += 1) {
    const word = words[at] ?? '';
    const isOption = word.startsWith('-') && word !== '-' && word !== '--';
    const step = isOption
      ? optionStep(family, word, words[at + 1])
      : wordStep(family, word === '--' ? (words[at + 1] ?? '-') : word);
    if (step === 'unknown') isUnsure = true;
    else if (step === 'value') at += 1;
    else if (typeof step === 'object' && !(isUnsure && step.from === 'file')) return step;
  }
  return { from: isUnsure ? 'unknown' : 'repl' };
}

type Step = 'next' | 'value' | 'unknown' | CodeSource;

function wordStep({ inlineWords = NONE, before = NONE, others = NONE }: Family, word: string): Step {
  if (before.test(word)) return 'next';
  if (others.test(word)) return { from: 'nothing' };
  if (STDIN.test(word)) return { from: 'stdin', option: word };
  return inlineWords.test(word) || /^data:/i.test(word)
    ? { from: 'inline', option: word.slice(0, 20) }
    : { from: 'file' };
}

function optionStep(family: Family, word: string, next: string | undefined): Step {
  const { long = NONE, longValues = NONE, longFlags = NONE } = family;
  const [name = '', value] = word.split(/=(.*)/s);
  if (long.test(name)) return { from: 'inline', option: name };
  if (longValues.test(name))
    return /^data:/i.test(value ?? next ?? '')
      ? { from: 'inline', option: name }
      : value === undefined
        ? 'value'
        : 'next';
  if (/^--(?:version|help)$/.test(name)) return { from: 'nothing' };
  if (longFlags.test(name)) return 'next';
  if (word.startsWith('--')) return value === undefined ? 'unknown' : 'next';
  return clusterStep(family, word, next);
}

function clusterStep(family: Family, word: string, next: string | undefined): Step {
  for (let at = 1; at < word.length; at += 1) {
    const step = letterStep(family, { word, letter: word.charAt(at), rest: word.slice(at + 1), next });
    if (step !== undefined) return step;
  }
  return 'next';
}

/** One letter of a cluster of short options, the rest of its word, and the next word. */
interface ClusterLetter {
  readonly word: string;
  readonly letter: string;
  readonly rest: string;
  readonly next: string | undefined;
}

/** Returns what a letter says; undefined for a flag, after which the next letter counts. */
function letterStep(family: Family, at: ClusterLetter): Step | undefined {
  const { inline, attached = '', flags = '', info = '', values = '' } = family;
  const { word, letter, rest } = at;
  if (inline.includes(letter)) return { from: 'inline', option: optionOf(word) };
  if (info.includes(letter)) return { from: 'nothing' };
  const module = moduleStep(family, at);
  if (module !== undefined) return module;
  if (attached.includes(letter)) return 'next';
  if (values.includes(letter)) return valueStep(at);
  if (!flags.includes(letter)) return 'unknown';
  return rest === '' ? 'next' : undefined;
}

function optionOf(word: string): string {
  return word.replace(/=.*/s, '');
}

/** Letters that load a module or a file in one kind of interpreter only. */
function moduleStep(
  { inline, attached = '', modules }: Family,
  { word, letter, rest, next }: ClusterLetter,
): Step | undefined {
  if (letter === 'm' && modules !== undefined)
    return modules.test(rest === '' ? (next ?? 'code') : rest)
      ? { from: 'inline', option: optionOf(word) }
      : { from: 'file' };
  if (letter === 'f' && inline.includes('R'))
    return wordStep({ names: '', inline: '' }, rest === '' ? (next ?? '-') : rest);
  // Perl loads a module with it, or runs the code after the module's name.
  if (/[mM]/.test(letter) && attached.includes('F'))
    return /^-?[\w:]+(?:=[\w,:]*)?$/.test(rest) ? 'next' : { from: 'inline', option: word.slice(0, 2) };
  return undefined;
}

/** The value of an option may be code itself, as an address of data. */
function valueStep({ word, rest, next }: ClusterLetter): Step {
  if (/^data:/i.test(rest === '' ? (next ?? '') : rest)) return { from: 'inline', option: optionOf(word) };
  return rest === '' ? 'value' : 'next';
}

/** `env -S 'node -e 1'`: one word that is split. */
function splitString(word: string, before: string | undefined): readonly string[] {
  const [, attached] = /^(?:-S|--split-string=)(.+)$/s.exec(word) ?? [];
  if (attached !== undefined) return attached.trim().split(/\s+/);
  return before === '-S' || before === '--split-string' ? word.trim().split(/\s+/) : [word];
}
