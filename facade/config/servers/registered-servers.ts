/** Owns the servers that hosts have registered: one file each in the state folder, read at each load; refuses those whose registrar may not register them any more. */
import { linkSync, readdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { type ClientFile, readClientText } from '../../cli/clients/client-file-reader.ts';
import type { PrincipalConfig } from '../config.ts';
import { type Problem, quote } from '../config-problems.ts';
import { replaceFile } from '../reading/file-replacement.ts';
import { readText } from '../reading/text-files.ts';
import { SERVER_NAME } from './server-names.ts';

/** What a host registers: what another client's file could say of a server, so that it grants nothing. No text of it is a variable. */
export interface RegisteredServer {
  readonly command?: string;
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly url?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly transport?: 'stdio' | 'http' | 'sse';
}

/** One registration. `by`: the id of the principal; `profiles`: those that the server joins. */
export interface Registration {
  readonly name: string;
  readonly by: string;
  readonly at: string;
  readonly profiles: readonly string[];
  readonly server: RegisteredServer;
}

const MAX_BYTES = 64 * 1024;

/** The folder, in the state folder. */
export function registeredFolder(state: string): string {
  return path.join(state, 'registered');
}

/** All that can be read, by name. Never throws. */
export function readRegistrations(state: string): readonly Registration[] {
  return namesIn(registeredFolder(state)).flatMap((name) => readRegistration(state, name) ?? []);
}

/** One registration; undefined where there is none that can be read. Never throws. */
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
    // Nobody but Tollgate writes there: half of a file is none.
    return undefined;
  }
}

/** Writes a registration, synced to disk. False when there is one of the name: of two processes one registers it. Throws what the system throws. */
export function writeRegistration(state: string, registration: Registration): boolean {
  const file = fileOf(state, registration.name);
  // No name of a server begins so: it is read by nobody.
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

/** Removes a registration, if it is there. */
export function removeRegistration(state: string, name: string): void {
  rmSync(fileOf(state, name), { force: true });
}

/** A registration that counts: the file of a client that says the same, and the profiles that its registrar may add it to. */
export interface Counting {
  readonly name: string;
  readonly profiles: readonly string[];
  readonly client: ClientFile;
}

/** The registrations that count by the principals of now, and a line for each that does not. Never throws. */
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
