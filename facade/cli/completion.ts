/** Owns completion scripts: made from the commands themselves, so that they cannot differ from them. */
import type { Command } from 'commander';
import { TollgateError } from '../../catalogs/errors.ts';
import { EXIT, type Io } from './io.ts';

/** Prints the script for one shell. Throws USAGE for another. */
export function runCompletion(shell: string, program: Command, io: Io): number {
  const commands = program.commands.map((command) => ({ name: command.name(), about: command.description(), words: command.options.map((option) => option.long ?? option.short ?? '') }));
  const script = SCRIPTS.get(shell);
  if (script === undefined) throw new TollgateError('USAGE', { detail: `"${shell}" is not one of bash, zsh, fish`, next: 'tollgate completion bash > ~/.local/share/bash-completion/completions/tollgate' });
  io.stdout(script(commands));
  return EXIT.ok;
}

interface Known {
  readonly name: string;
  readonly about: string;
  readonly words: readonly string[];
}

const SCRIPTS: ReadonlyMap<string, (commands: readonly Known[]) => string> = new Map([
  ['bash', (commands: readonly Known[]) => `_tollgate() {
  local cur="\${COMP_WORDS[COMP_CWORD]}" words="${commands.map((one) => one.name).join(' ')}"
  if [ "$COMP_CWORD" -gt 1 ]; then
    case "\${COMP_WORDS[1]}" in
${commands.map((one) => `      ${one.name}) words="${one.words.join(' ')}" ;;`).join('\n')}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _tollgate tollgate
`],
  ['zsh', (commands: readonly Known[]) => `#compdef tollgate
local -a commands
commands=(
${commands.map((one) => `  '${one.name}:${one.about.replaceAll("'", '')}'`).join('\n')}
)
if (( CURRENT == 2 )); then
  _describe command commands
else
  case "$words[2]" in
${commands.map((one) => `    ${one.name}) compadd -- ${one.words.join(' ')} ;;`).join('\n')}
  esac
  _files
fi
`],
  ['fish', (commands: readonly Known[]) => `${commands.map((one) => `complete -c tollgate -n __fish_use_subcommand -a ${one.name} -d '${one.about.replaceAll("'", '')}'
${one.words.filter((word) => word.startsWith('--')).map((word) => `complete -c tollgate -n '__fish_seen_subcommand_from ${one.name}' -l ${word.slice(2)}`).join('\n')}`).join('\n')}
`],
]);
