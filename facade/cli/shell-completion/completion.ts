/** Makes completion scripts from the help of the commands, so that the two cannot differ. */
import type { Command } from 'commander';
import { EXIT, type Io } from '../command-io.ts';

/** A shell with a completion script. */
export type Shell = 'bash' | 'zsh' | 'fish';

/** Prints the script for one shell. */
export function runCompletion(
  { shell }: { readonly shell: Shell },
  io: Io,
  { program }: { readonly program: Command },
): number {
  io.stdout(completionScript(shell, program));
  return EXIT.ok;
}

/** Returns the script for one shell, made from the commands of `program`. */
export function completionScript(shell: Shell, program: Command): string {
  return SCRIPTS[shell](program.commands.map(knownOf));
}

interface Known {
  readonly name: string;
  /** Without quotes, because it is put between quotes. */
  readonly about: string;
  /** The values of arguments and the names of subcommands. */
  readonly operands: readonly string[];
  readonly flags: readonly string[];
}

function knownOf(command: Command): Known {
  const operands = command.registeredArguments.flatMap((argument) => argument.argChoices ?? []);
  const flags = [command, ...command.commands].flatMap(({ options }) => options.flatMap(({ long }) => long ?? []));
  return {
    name: command.name(),
    about: command.description().replaceAll(/['":]/g, ''),
    operands: [...operands, ...command.commands.map((child) => child.name())],
    flags: [...new Set([...flags, '--help'])],
  };
}

const words = ({ operands, flags }: Known): string => [...operands, ...flags].join(' ');

/** Options whose value is a path; the shell completes files for them. */
const PATHS = ['-c', '--config', '--opa', '--folder'];

const SCRIPTS: Readonly<Record<Shell, (commands: readonly Known[]) => string>> = {
  bash: (commands) => `_tollgate() {
  local cur="\${COMP_WORDS[COMP_CWORD]}" words="${commands.map(({ name }) => name).join(' ')}"
  case "\${COMP_WORDS[COMP_CWORD-1]}" in ${PATHS.join('|')}) return ;; esac
  if [ "$COMP_CWORD" -gt 1 ]; then
    case "\${COMP_WORDS[1]}" in
${commands.map((one) => `      ${one.name}) words="${words(one)}" ;;`).join('\n')}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _tollgate tollgate
`,
  zsh: (commands) => `#compdef tollgate
local -a commands
commands=(
${commands.map(({ name, about }) => `  '${name}:${about}'`).join('\n')}
)
if (( CURRENT == 2 )); then
  _describe command commands
else
  case "$words[2]" in
${commands.map((one) => `    ${one.name}) compadd -- ${words(one)} ;;`).join('\n')}
  esac
  _files
fi
`,
  fish: (commands) =>
    commands
      .flatMap((one) => [
        `complete -c tollgate -n __fish_use_subcommand -a ${one.name} -d '${one.about}'`,
        ...(one.operands.length === 0
          ? []
          : [`complete -c tollgate -n '__fish_seen_subcommand_from ${one.name}' -a '${one.operands.join(' ')}'`]),
        ...one.flags.map(
          (flag) => `complete -c tollgate -n '__fish_seen_subcommand_from ${one.name}' -l ${flag.slice(2)}`,
        ),
      ])
      .map((line) => `${line}\n`)
      .join(''),
};
