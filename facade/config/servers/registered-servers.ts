/**
 * The servers that hosts have registered: one file each in the state folder, read at each load. A server whose
 * registrar has lost the right is left out.
 */
import { linkSync, readdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { type ClientFile, readClientText } from '../../clients/client-file-reader.ts';
import type { PrincipalConfig } from '../config.ts';
import { type Problem, quote } from '../config-problems.ts';
import { replaceFile } from '../reading/file-replacement.ts';
import { readText } from '../reading/text-files.ts';
import type { WrittenServer } from '../written-config.ts';
import { SERVER_NAME } from './server-names.ts';

/**
 * What a host may write of a server: only what a client's file could say, so it grants nothing. Its texts contain no
 * variables.
 */
export type RegisteredServer = Pick<WrittenServer, 'command' | 'args' | 'env' | 'url' | 'headers' | 'transport'>;

/** One registration. `by`: the id of the principal; `profiles`: those that the server joins. */
export interface Registration {
  readonly name: string;
  readonly by: string;
  readonly at: string;
  readonly profiles: readonly string[];
  readonly server: RegisteredServer;
}

const MAX_BYTES = 64 * 1024;

/** Returns the folder, in the state folder. */
export function registeredFolder(state: string): string {
  return path.join(state, 'registered');
}

/** Returns all that can be read, by name. Never throws. */
export function readRegistrations(state: string): readonly Registration[] {
  return namesIn(registeredFolder(state)).flatMap((name) => readRegistration(state, name) ?? []);
}

/** Returns one registration; undefined if none can be read. Never throws. */
export function readRegistration(state: string, name: string): Registration | undefined {
  const read = readText(fileOf(state, name), MAX_BYTES);
  if (!read.ok) return undefined;
  try {
    const value = JSON.parse(read.text) as Registration;
    return value.name === name &&
      typeof value.by === 'string' &&
      Array.isArray(value.profiles) &&
      typeof value.server === 'object' &&
      value.server !== null
      ? value
      : undefined;
  } catch {
    // Only Tollgate writes there, so half a file counts as none.
    return undefined;
  }
}

/**
 * Writes a registration, synced to disk. False if the name exists: of two processes, one registers it. Throws what the
 * system throws.
 */
export function writeRegistration(state: string, registration: Registration): boolean {
  const file = fileOf(state, registration.name);
  // No name of a server begins like this, so no one reads it.
  const aside = path.join(registeredFolder(state), `.${process.pid}.${registration.name}`);
  replaceFile(aside, `${JSON.stringify(registration)}\n`);
  try {
    linkSync(aside, file);
    return true;
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw thrown;
  } finally {
    rmSync(aside, { force: true });
  }
}

/** Removes a registration, if it exists. */
export function removeRegistration(state: string, name: string): void {
  rmSync(fileOf(state, name), { force: true });
}

/** A valid registration: the equivalent client file, and the profiles that its registrar may add it to. */
export interface Counting {
  readonly name: string;
  readonly profiles: readonly string[];
  readonly client: ClientFile;
}

/**
 * Returns the registrations that are valid with the present principals, and a warning for each other one. Never throws.
 */
export function countingRegistrations(
  state: string,
  {
    principals,
    project,
  }: { readonly principals: readonly Pick<PrincipalConfig, 'id' | 'registers'>[]; readonly project: string },
): { readonly counting: readonly Counting[]; readonly warnings: readonly Problem[] } {
  const counting: Counting[] = [];
  const warnings: Problem[] = [];
  for (const { name, by, profiles, server } of readRegistrations(state)) {
    const shown = `registered/${name}.json`;
    const may = principals.find(({ id }) => id === by)?.registers ?? [];
    const joined = profiles.filter((profile) => may.includes(profile));
    if (joined.length === 0) {
      warnings.push({
        file: shown,
        line: 1,
        column: 1,
        message: `server ${quote(name)}: principal ${quote(by)}, who registered it, may not register it in any of its profiles now, so it is left out; name one under principals.*.registers`,
      });
      continue;
    }
    const { transport, ...rest } = server;
    const text = JSON.stringify({
      mcpServers: { [name]: { ...(transport !== undefined && { type: transport }), ...rest } },
    });
    counting.push({
      name,
      profiles: joined,
      client: readClientText(text, { shown, project, file: fileOf(state, name) }),
    });
  }
  return { counting, warnings };
}

function fileOf(state: string, name: string): string {
  return path.join(registeredFolder(state), `${name}.json`);
}

function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder)
      .map((file) => path.basename(file, '.json'))
      .filter((name) => SERVER_NAME.test(name))
      .sort();
  } catch {
    // Nothing was registered yet.
    return [];
  }
}
