/** Finds risks in the start of a server: loader variables, inline code, look-alike names, versions that can change. */
import { inlineCode } from '../../../catalogs/programs/interpreters.ts';
import type { ServerDefinition } from '../config.ts';

/** The part of a server that decides what runs. */
export type Spawn = Pick<ServerDefinition, 'args' | 'env'> & { readonly command?: string | undefined };

/** Variables that load code into a program, whatever its command says. All count for every program. */
const LOADERS: ReadonlySet<string> = new Set(
  `NODE_OPTIONS NODE_PATH BUN_OPTIONS TS_NODE_PROJECT LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT BASH_ENV ENV ZDOTDIR
  PROMPT_COMMAND SHELLOPTS BASHOPTS PYTHONPATH PYTHONSTARTUP PYTHONHOME PYTHONINSPECT PYTHONBREAKPOINT
  PYTHONPLATLIBDIR PYTHONUSERBASE PYTHONWARNINGS PERL5LIB PERLLIB PERL5OPT PERL5DB RUBYLIB RUBYOPT GEM_HOME GEM_PATH
  BUNDLE_GEMFILE CLASSPATH JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS _JAVA_OPTIONS DOTNET_STARTUP_HOOKS
  DOTNET_ADDITIONAL_DEPS CORECLR_PROFILER_PATH LUA_INIT LUA_PATH LUA_CPATH R_PROFILE R_PROFILE_USER R_ENVIRON PHPRC
  PHP_INI_SCAN_DIR OPENSSL_CONF OPENSSL_MODULES OPENSSL_ENGINES GCONV_PATH GIT_SSH GIT_SSH_COMMAND GIT_EXEC_PATH
  GIT_PROXY_COMMAND GIT_EXTERNAL_DIFF GIT_ASKPASS GIT_TEMPLATE_DIR GIT_CONFIG GIT_CONFIG_GLOBAL GIT_CONFIG_SYSTEM
  GIT_CONFIG_COUNT SSH_ASKPASS`.split(/\s+/),
);
/** Families of such variables. npm runs scripts and shells that its settings name. */
const LOADER_FAMILIES = new RegExp(
  '^(?:LD_|DYLD_|BASH_FUNC_|LUA_INIT_|GIT_CONFIG_(?:KEY|VALUE)_|' +
    'NPM_CONFIG_(?!(?:CACHE|REGISTRY|LOGLEVEL|OFFLINE|FUND|AUDIT|UPDATE_NOTIFIER|YES)$))',
);
/** Variables that change where a program looks for its settings, which may contain commands. */
const CONFIG_VARIABLES: ReadonlySet<string> = new Set([
  'HOME',
  'USERPROFILE',
  'XDG_CONFIG_HOME',
  'APPDATA',
  'NPM_CONFIG_REGISTRY',
  'SHELL',
  'EDITOR',
  'VISUAL',
  'PAGER',
  'BROWSER',
]);

const RUNNERS: ReadonlySet<string> = new Set(['npx', 'bunx', 'pnpx', 'uvx', 'pipx']);

/** Returns true for a variable that makes a program load foreign code. Case is ignored, as on Windows. */
export function isLoaderVariable(name: string): boolean {
  const upper = name.toUpperCase();
  return LOADERS.has(upper) || LOADER_FAMILIES.test(upper);
}

/**
 * Returns true for a variable that makes a program use other settings or programs. Its value is shown completely to the
 * person who approves the server. In included files such variables are refused.
 */
export function isConfigVariable(name: string): boolean {
  return CONFIG_VARIABLES.has(name.toUpperCase());
}

/** Returns the name of the program, without folder and extension. */
export function programOf(command: string): string {
  return (command.split(/[/\\]/).at(-1) ?? command).replace(/\.(exe|cmd|bat)$/i, '').toLowerCase();
}

/** Returns the flag that makes the program run code from its arguments; undefined if there is none. */
export function inlineCodeFlag({ command, args }: Spawn): string | undefined {
  if (command === undefined) return undefined;
  if (/^(?:docker|podman|nerdctl)$/.test(programOf(command)))
    return args.find((argument) => /^--entrypoint(?:=|$)/.test(argument))?.replace(/=.*/s, '');
  return inlineCode([command, ...args]);
}

const HOST_ACCESS =
  /^(?:-v|--volume|--mount|--privileged|--device|--network|--net|--pid|--ipc|--cap-add|--volumes-from)(?:=|$)|^-v./;

/** Returns the flag that gives a container a part of this machine; undefined if there is none. */
export function hostReachFlag({ command, args }: Spawn): string | undefined {
  if (!/^(?:docker|podman|nerdctl)$/.test(programOf(command ?? ''))) return undefined;
  return args.find((argument) => HOST_ACCESS.test(argument))?.replace(/=.*|(?<=^-v).+/s, '');
}

/** Returns true if the command or its package contains letters outside ASCII, which can imitate known names. */
export function hasLookAlike({ command, args }: Spawn): boolean {
  const packageArgs = RUNNERS.has(programOf(command ?? '')) ? args : [];
  return [command ?? '', ...packageArgs.filter((argument) => !argument.startsWith('-')).slice(0, 1)].some((text) =>
    /[^\x20-\x7e]/.test(text),
  );
}

/** Returns true if a runner downloads a package without an exact version, so that it may change. */
export function runsMovingPackage({ command, args }: Spawn): boolean {
  if (!RUNNERS.has(programOf(command ?? ''))) return false;
  const name = args.find((argument) => !argument.startsWith('-') && argument !== 'run');
  return name !== undefined && !/^[./~]/.test(name) && !/.[@=]=?v?\d+\.\d+[\w.+-]*$/.test(name);
}

/** Returns true if the server would start Tollgate, as the entry of a client that is connected to Tollgate does. */
export function isTollgate({ command, args }: Spawn): boolean {
  // Applications that do not know the PATH of a shell start npx by Node and its file.
  const words = args.filter((argument) => !argument.startsWith('-') && !/[/\\]npx-cli\.js$/.test(argument));
  const first = words.slice(0, 1);
  return [command ?? '', ...first].some(
    (text) => /^tollgate(@.*)?$/.test(programOf(text)) || /\bdist\/facade\/main\.js$/.test(text.replaceAll('\\', '/')),
  );
}
