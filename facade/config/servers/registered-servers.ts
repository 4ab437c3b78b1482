/** Stores the servers that hosts have registered: one file each in the state folder, read at each load. */
import { linkSync, readdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { type ClientFile, readClientText } from '../../clients/client-file-reader.ts';
import type { PrincipalConfig } from '../config.ts';
import { fileProblem, type Problem, quote } from '../config-problems.ts';
import { replaceFile } from '../reading/file-replacement.ts';
import { readText } from '../reading/text-files.ts';
import type { WrittenServer } from '../written-config.ts';
import { SERVER_NAME } from './server-names.ts';

/** The settings that a host may register: only those of a client file, so they grant nothing. Without variables. */
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

/** Returns all registrations that can be read, sorted by name. Never throws. */
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
    // Only Tollgate writes there, so a file that does not parse is incomplete and counts as missing.
    return undefined;
  }
}

/**
 * Writes a registration, synced to disk. Returns false if the name exists, so only one of two processes registers it.
 * Throws errors of the file system.
 */
export function writeRegistration(state: string, registration: Registration): boolean {
  const file = fileOf(state, registration.name);
  // No server name begins with a dot, so no load reads the draft.
  const draft = path.join(registeredFolder(state), `.${process.pid}.${registration.name}`);
  replaceFile(draft, `${JSON.stringify(registration)}\n`);
  try {
    linkSync(draft, file);
    return true;
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw thrown;
  } finally {
    rmSync(draft, { force: true });
  }
}

/** Removes a registration, if it exists. */
export function removeRegistration(state: string, name: string): void {
  rmSync(fileOf(state, name), { force: true });
}

/** A valid registration: the equivalent client file, and the profiles that its registrar may add it to. */
export interface ValidRegistration {
  readonly name: string;
  readonly profiles: readonly string[];
  readonly client: ClientFile;
}

/** Returns the registrations that the present principals allow, and a warning for each other one. Never throws. */
export function validRegistrations(
  state: string,
  {
    principals,
    project,
  }: { readonly principals: readonly Pick<PrincipalConfig, 'id' | 'registers'>[]; readonly project: string },
): { readonly valid: readonly ValidRegistration[]; readonly warnings: readonly Problem[] } {
  const valid: ValidRegistration[] = [];
  const warnings: Problem[] = [];
  for (const { name, by, profiles, server } of readRegistrations(state)) {
    const shown = `registered/${name}.json`;
    const allowed = principals.find(({ id }) => id === by)?.registers ?? [];
    const joinedProfiles = profiles.filter((profile) => allowed.includes(profile));
    if (joinedProfiles.length === 0) {
      warnings.push(
        fileProblem(
          shown,
          `server ${quote(name)}: principal ${quote(by)}, who registered it, may not register it in any of its ` +
            'profiles now, so it is left out; name one under principals.*.registers',
        ),
      );
      continue;
    }
    const { transport, ...rest } = server;
    const text = JSON.stringify({
      mcpServers: { [name]: { ...(transport !== undefined && { type: transport }), ...rest } },
    });
    valid.push({
      name,
      profiles: joinedProfiles,
      client: readClientText(text, { shown, project, file: fileOf(state, name) }),
    });
  }
  return { valid, warnings };
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
