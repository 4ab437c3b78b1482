/**
 * Installs a completion script where the shell looks for it, and removes it again. It touches no other file: a folder
 * that zsh does not search yet is named with the line to add.
 */
import { existsSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import type { Command } from 'commander';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { type ConfirmOptions, confirmWrite } from '../client-files/client-files.ts';
import { EXIT, type Io } from '../command-io.ts';
import { writeAsked } from '../output-file.ts';
import { commandLine, json, printable } from '../print.ts';
import { completionScript, type Shell } from './completion.ts';

/** Marks the files of this command. Only these are replaced and removed. zsh needs its own first line. */
const MARK = '# Written by `tollgate completion install`.\n';
/** Where Linux, Homebrew on Apple silicon and Homebrew on Intel have the code that loads completions in bash. */
const BASH_LOADERS = ['/usr/share', '/opt/homebrew/share', '/usr/local/share'].map(
  (folder) => `${folder}/bash-completion/bash_completion`,
);

/** Options of the command. */
export interface CompletionInstallOptions extends ConfirmOptions {
  readonly shell?: Shell;
  readonly undo?: true;
}

/** Writes or removes the script. Throws USAGE, CANCELLED. */
export async function runCompletionInstall(
  options: CompletionInstallOptions,
  io: Io,
  { program }: { readonly program: Command },
): Promise<number> {
  const shell = options.shell ?? shellOf(io);
  const file = placeOf(shell, io);
  const before = readOwn(file);
  const after = options.undo === true ? undefined : withMark(completionScript(shell, program));
  const isNew = before !== after;
  if (options.json !== true) io.stderr(`${printable(file)}: ${changeOf(before, after)}\n`);
  const isDone = isNew && (await confirmWrite(options, io, after === undefined ? 'Remove this?' : undefined));
  if (isDone && after === undefined) rmSync(file);
  else if (isDone) writeAsked({ file, shown: file, content: after ?? '' });
  const next = after === undefined ? undefined : nextStep(shell, file, io);
  if (options.json === true) io.stdout(json({ shell, file, changed: isDone, next: next ?? null }));
  else if (isDone || !isNew) io.stderr(closingOf({ isDone, isUndo: after === undefined, next }, io));
  return EXIT.ok;
}

/** Returns the shell of the user. Throws USAGE if there is no script for it. */
function shellOf({ env }: Io): Shell {
  const name = path.basename(env.SHELL ?? '');
  if (name === 'bash' || name === 'zsh' || name === 'fish') return name;
  throw new TollgateError('USAGE', {
    detail: name === '' ? 'SHELL does not say which shell you use.' : `There is no script for ${printable(name)}.`,
    next: 'Name a shell: tollgate completion install bash, zsh or fish.',
  });
}

function placeOf(shell: Shell, { env, home }: Io): string {
  // A relative path in these variables is to be ignored (XDG Base Directory Specification).
  const folder = (name: string, ...otherwise: readonly string[]): string => {
    const value = env[name] ?? '';
    return path.isAbsolute(value) ? value : path.join(home, ...otherwise);
  };
  const data = folder('XDG_DATA_HOME', '.local', 'share');
  const places: Readonly<Record<Shell, () => string>> = {
    bash: () => {
      const own = env.BASH_COMPLETION_USER_DIR ?? '';
      return path.join(path.isAbsolute(own) ? own : path.join(data, 'bash-completion'), 'completions', 'tollgate');
    },
    zsh: () => path.join(data, 'zsh', 'site-functions', '_tollgate'),
    fish: () => path.join(folder('XDG_CONFIG_HOME', '.config'), 'fish', 'completions', 'tollgate.fish'),
  };
  return places[shell]();
}

/** Returns the installed script, or undefined if there is none. Throws USAGE for a file of someone else. */
function readOwn(file: string): string | undefined {
  let text = '';
  try {
    text = readFileSync(file, 'utf8');
  } catch (cause) {
    if (['ENOENT', 'ENOTDIR'].includes((cause as NodeJS.ErrnoException).code ?? '')) return undefined;
  }
  if (text.split('\n', 2).some((line) => `${line}\n` === MARK)) return text;
  throw new TollgateError('USAGE', {
    detail: `${printable(file)} exists, and \`tollgate completion install\` did not write it.`,
    next: 'Look at it. If you do not need it, remove it and try again.',
  });
}

/** Puts the mark into the first line, or after a first line that the shell needs. */
function withMark(script: string): string {
  const [first = '', ...rest] = script.split('\n');
  return first.startsWith('#') ? `${first}\n${MARK}${rest.join('\n')}` : MARK + script;
}

function changeOf(before: string | undefined, after: string | undefined): string {
  if (after === undefined) return before === undefined ? 'does not exist' : 'is removed';
  if (before === undefined) return 'is a new file';
  return before === after ? 'is up to date' : 'is replaced by the script of this version';
}

/** Returns what the user must do before the shell finds the script. */
function nextStep(shell: Shell, file: string, { env, home }: Io): string | undefined {
  if (shell === 'bash' && !BASH_LOADERS.some((loader) => existsSync(loader)))
    return `Install bash-completion, or add this line to ~/.bashrc: source ${commandLine([file])}`;
  if (shell !== 'zsh') return undefined;
  const folder = path.dirname(file);
  const settings = path.join(env.ZDOTDIR ?? home, '.zshrc');
  const isSearched = existsSync(settings) && readFileSync(settings, 'utf8').includes(folder);
  return isSearched
    ? undefined
    : `Add this line to ${printable(settings)}, before the line with compinit: fpath=(${commandLine([folder])} $fpath)`;
}

interface Closing {
  readonly isDone: boolean;
  readonly isUndo: boolean;
  readonly next: string | undefined;
}

function closingOf({ isDone, isUndo, next }: Closing, { self }: Io): string {
  if (isUndo) return isDone ? 'Removed.\n' : 'There is nothing to undo.\n';
  const undo = `To undo: ${commandLine([...self, 'completion', 'install', '--undo'])}\n`;
  const start = next ?? 'Start a new shell to use it.';
  return isDone ? `Written. ${start}\n${undo}` : `${start}\n`;
}
