/** Owns what is suspicious in the way a server is started: loader variables, inline code, look-alike names, moving versions. */

/** The part of a server that decides what runs. */
export interface Spawn {
  readonly command?: string | undefined;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

/** Variables that load code into any program, whatever its command says (security.md case 65). */
const LOADERS: ReadonlySet<string> = new Set(['NODE_OPTIONS', 'LD_PRELOAD', 'LD_LIBRARY_PATH', 'LD_AUDIT', 'BASH_ENV', 'PYTHONSTARTUP', 'PERL5OPT', 'RUBYOPT', 'JAVA_TOOL_OPTIONS']);

const SHELL = ['-c', '-lc', '-ic'];
const POWERSHELL = ['-Command', '-EncodedCommand', '-c'];
/** Flags after which a program runs the next argument as code (case 64). */
const INLINE_CODE: ReadonlyMap<string, readonly string[]> = new Map(
  Object.entries({
    ...{ sh: SHELL, bash: SHELL, zsh: SHELL, dash: SHELL, ksh: SHELL, cmd: ['/c', '/C'], powershell: POWERSHELL, pwsh: POWERSHELL },
    ...{ node: ['-e', '--eval', '-p', '--print', '-pe'], npx: ['-c', '--call'], npm: ['-c', '--call'], bun: ['-e', '--eval'], deno: ['eval'] },
    ...{ python: ['-c'], python3: ['-c'], perl: ['-e', '-E'], ruby: ['-e'], docker: ['--entrypoint'] },
  }),
);

const RUNNERS: ReadonlySet<string> = new Set(['npx', 'bunx', 'pnpx', 'uvx', 'pipx']);

/** True for a variable that makes a program load foreign code. Windows ignores case, so it is ignored here. */
export function isLoaderVariable(name: string): boolean {
  const upper = name.toUpperCase();
  return LOADERS.has(upper) || upper.startsWith('DYLD_');
}

/** The name of the program, without folder and extension. */
export function programOf(command: string): string {
  return (command.split(/[/\\]/).at(-1) ?? command).replace(/\.(exe|cmd|bat)$/i, '').toLowerCase();
}

/** The flag that makes the program run code from its arguments; undefined when there is none. */
export function inlineCodeFlag({ command, args }: Spawn): string | undefined {
  const flags = INLINE_CODE.get(programOf(command ?? '')) ?? [];
  return flags.find((flag) => args.some((argument) => argument === flag || argument.startsWith(`${flag}=`)));
}

const MOUNTS = /^(?:-v|--volume|--mount|--privileged|--device|--network|--net|--pid|--ipc|--cap-add|--volumes-from)(?:=|$)|^-v./;

/** The flag with which a container is given a part of this machine; undefined when there is none. */
export function hostReachFlag({ command, args }: Spawn): string | undefined {
  if (!/^(?:docker|podman|nerdctl)$/.test(programOf(command ?? ''))) return undefined;
  return args.find((argument) => MOUNTS.test(argument))?.replace(/=.*|(?<=^-v).+/s, '');
}

/** True when the command or the package that it runs holds letters outside ASCII: look-alikes of known names (case 73). */
export function hasLookAlike({ command, args }: Spawn): boolean {
  const run = RUNNERS.has(programOf(command ?? '')) ? args : [];
  return [command ?? '', ...run.filter((argument) => !argument.startsWith('-')).slice(0, 1)].some((text) => /[^\x20-\x7e]/.test(text));
}

/** True when a runner fetches a package without an exact version, so that it may change under you (case 66). */
export function runsMovingPackage({ command, args }: Spawn): boolean {
  if (!RUNNERS.has(programOf(command ?? ''))) return false;
  const name = args.find((argument) => !argument.startsWith('-') && argument !== 'run');
  return name !== undefined && !/^[./~]/.test(name) && !/.[@=]=?v?\d+\.\d+[\w.+-]*$/.test(name);
}

/** True when starting the server would start Tollgate inside itself: clients list it once they are connected to it. */
export function isTollgate({ command, args }: Spawn): boolean {
  const first = args.filter((argument) => !argument.startsWith('-')).slice(0, 1);
  return [command ?? '', ...first].some((text) => /^tollgate(@.*)?$/.test(programOf(text)) || /\bdist\/facade\/main\.js$/.test(text.replaceAll('\\', '/')));
}
