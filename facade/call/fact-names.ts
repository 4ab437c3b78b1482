/**
 * What a call reads, changes or starts, by names alone: for its first record. No argument is kept besides paths, the
 * names of programs, and hosts.
 */
import { posix } from 'node:path';
import { commandNames } from '../../catalogs/programs/command-names.ts';
import { KNOWLEDGE } from '../../catalogs/servers/shipped-servers.ts';
import type { Effect } from '../../policies/port.ts';
import type { NamedFacts } from '../audit/audit-entry.ts';
import type { AuditConfig } from '../config/config.ts';
import type { Redactor } from '../output/redactor.ts';
import type { LoweredCall } from './lowering/lowered-call.ts';

/** Returns a member `facts` for the text of a record, with the comma before it; '' if there is nothing to name. */
export type FactNames = (lowered: Pick<LoweredCall, 'effect'> | undefined) => string;

/** Names of each kind, and characters of a name. */
const MAX_NAMES = 16;
const MAX_CHARS = 200;
/** Internal servers whose arguments are private data. */
const PRIVATE: ReadonlySet<string> = new Set([KNOWLEDGE]);

/**
 * Returns what names the facts of calls. `home`: the folder that records name `~`. `workspace`: that to which paths of
 * commands are relative.
 */
export function createFactNames(
  setting: AuditConfig['facts'],
  { redactor, home, workspace }: { readonly redactor: Redactor; readonly home: string; readonly workspace: string },
): FactNames {
  if (setting === 'none') return () => '';
  const clean = (names: readonly string[]): readonly string[] | undefined => {
    if (names.length === 0) return undefined;
    const unique = [...new Set(names)];
    const shown = unique.slice(0, MAX_NAMES).map((name) => cut(redactor.redact(name).value));
    return unique.length > MAX_NAMES ? [...shown.slice(0, MAX_NAMES - 1), '…'] : shown;
  };
  return (lowered) => {
    const effect = lowered?.effect;
    if (effect === undefined || !hasFacts(effect) || PRIVATE.has(effect.server)) return '';
    const { paths, urls, command } = effect;
    const named = command === undefined ? NO_NAMES : commandNames(command);
    const files = named.paths.map((path) => inWorkspace(path, workspace));
    const facts: { [Key in keyof NamedFacts]: NamedFacts[Key] | undefined } = {
      paths: clean([...paths.map(({ path }) => path), ...files].map((path) => withoutHome(path, home))),
      programs: clean(named.programs),
      hosts: clean([...urls, ...named.hosts].map(({ host }) => (host === '' ? UNREADABLE : host))),
      opaque: command !== undefined && command.words.length === 0 ? true : undefined,
    };
    return `,"facts":${JSON.stringify(facts)}`;
  };
}

/** A host that programs could read in different ways. */
const UNREADABLE = '?';

function hasFacts({ paths, urls, command }: Effect): boolean {
  return paths.length > 0 || urls.length > 0 || command !== undefined;
}

const NO_NAMES = { paths: [], programs: [], hosts: [] };

/** A path of a command, as the paths of other calls are named: relative to the workspace, if it is in it. */
function inWorkspace(written: string, workspace: string): string {
  const path = posix.normalize(written.replace(/^\$(?:HOME|\{HOME\})(?=\/|$)/, '~')).replace(/(?<=.)\/$/, '');
  return path.startsWith(`${workspace}/`) ? path.slice(workspace.length + 1) : path;
}

/** The name of the home folder tells who the user is. A path that cannot be resolved is as the caller wrote it. */
function withoutHome(path: string, home: string): string {
  if (home.length < 2) return path;
  const [, head = '', rest = ''] = /^(unresolved:)?(.*)$/s.exec(path) ?? [];
  if (rest !== home && !rest.startsWith(`${home}/`)) return path;
  return `${head}~${rest.slice(home.length)}`;
}

function cut(name: string): string {
  return name.length <= MAX_CHARS ? name : `${name.slice(0, MAX_CHARS - 1)}…`;
}
