/** Reads the files under `servers/` next to tollgate.yaml: one server each, named by its file. */
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { fileProblem, type Path, type Problem, quote } from '../config-problems.ts';
import { readText } from '../reading/text-files.ts';
import { readYaml, type YamlFile } from '../reading/yaml-document.ts';

/** The folder, next to tollgate.yaml. */
export const SERVER_FOLDER = 'servers';

const MAX_BYTES = 64 * 1024;

type Plain = Readonly<Record<string, unknown>>;

/** Returns the file of a server in a project. `folder`: that of tollgate.yaml. */
export function serverFileOf(folder: string, name: string): string {
  return path.join(folder, SERVER_FOLDER, `${name}.yaml`);
}

/**
 * Returns tollgate.yaml with every file of `folder` as an entry under `servers`. Each value still knows its file, for
 * messages. `drafts`: texts that replace files, by name of the server. Never throws.
 */
export function joinServerFiles(
  yaml: YamlFile,
  folder: string,
  drafts: ReadonlyMap<string, string> = new Map(),
): YamlFile {
  const drafted = [...drafts].map(([name, text]) => ({ name, file: readYaml(`${SERVER_FOLDER}/${name}.yaml`, text) }));
  const found = [...readFiles(folder).filter(({ name }) => !drafts.has(name)), ...drafted];
  if (found.length === 0) return yaml;
  const root = isMap(yaml.value) ? yaml.value : {};
  const own = isMap(root.servers) ? root.servers : {};
  // An entry without a definition adds its settings to the server of the file.
  const defined = new Set(Object.keys(own).filter((name) => !isOverlay(own[name])));
  const files = new Map<string, YamlFile>();
  const problems: Problem[] = [...yaml.problems];
  for (const { name, file } of found) {
    problems.push(...file.problems, ...faultsOf(name, file, defined));
    defined.add(name);
    files.set(name, file);
  }
  const settingsOf = (name: string): Plain => (Object.hasOwn(own, name) && isMap(own[name]) ? own[name] : {});
  const entries = [...files].map(([name, { value }]) => [name, { ...entryOf(value), ...settingsOf(name) }] as const);
  // A section of the wrong type stays as it is, and is refused later.
  const servers =
    root.servers === undefined || isMap(root.servers)
      ? {
          servers: {
            ...own,
            ...Object.fromEntries(entries.filter(([name]) => !Object.hasOwn(own, name) || isOverlay(own[name]))),
          },
        }
      : {};
  const fileAt = ([section, name, key]: Path): YamlFile | undefined => {
    const isOwn =
      Object.hasOwn(own, String(name)) &&
      (!isOverlay(own[String(name)]) || Object.hasOwn(settingsOf(String(name)), String(key)));
    return section === 'servers' && !isOwn ? files.get(String(name)) : undefined;
  };
  return {
    file: yaml.file,
    value: { ...root, ...servers },
    problems,
    placeOf: (at, part) => fileAt(at)?.placeOf(at.slice(2), part) ?? yaml.placeOf(at, part),
    fileOf: (at) => fileAt(at)?.file ?? yaml.file,
  };
}

/** Returns a warning for each TOML file in `folder`, because these are not read until they are imported. */
export function ignoredServerFiles(folder: string): readonly Problem[] {
  const all = listFiles(folder, /\.(?:ya?ml|toml)$/);
  const known = new Set(all.filter((base) => !base.endsWith('.toml')).map(nameOf));
  return all
    .filter((base) => base.endsWith('.toml') && !known.has(nameOf(base)))
    .map((base) =>
      fileProblem(
        `${SERVER_FOLDER}/${base}`,
        'the file is not read, because a server here is a YAML file; import it with: tollgate import ' +
          `${SERVER_FOLDER}/${base}`,
      ),
    );
}

/**
 * Returns the control files that programs of servers must not read. Of the folder `servers`, these are only the
 * definitions, because the program of a server may be next to them (`servers/NAME.js`).
 */
export function hiddenFrom(controlFiles: readonly string[]): readonly string[] {
  return controlFiles.flatMap((file) =>
    path.basename(file) === SERVER_FOLDER
      ? listFiles(file, /\.(?:ya?ml|toml)$/).map((base) => path.join(file, base))
      : [file],
  );
}

function readFiles(folder: string): readonly { readonly name: string; readonly file: YamlFile }[] {
  return listFiles(folder, /\.ya?ml$/).map((base) => {
    const shown = `${SERVER_FOLDER}/${base}`;
    const read = readText(path.join(folder, base), MAX_BYTES);
    const file = read.ok ? readYaml(shown, read.text) : unreadableFile(shown, read.reason);
    return { name: nameOf(base), file };
  });
}

function nameOf(base: string): string {
  return base.replace(/\.(?:ya?ml|toml)$/, '');
}

function listFiles(folder: string, pattern: RegExp): readonly string[] {
  try {
    return readdirSync(folder)
      .filter((base) => !base.startsWith('.') && pattern.test(base))
      .sort();
  } catch {
    // The folder does not exist, or it is a file, so there are no servers in it.
    return [];
  }
}

function unreadableFile(file: string, reason: string): YamlFile {
  return {
    file,
    value: {},
    problems: [fileProblem(file, `the server's file cannot be read: ${reason}; correct it, or remove it`)],
    placeOf: () => ({ line: 1, column: 1 }),
  };
}

function faultsOf(
  name: string,
  { file, value, placeOf, problems }: YamlFile,
  defined: ReadonlySet<string>,
): readonly Problem[] {
  const fault = (at: Path, message: string): readonly Problem[] => [{ file, ...placeOf(at, 'value'), message }];
  if (problems.length > 0) return [];
  if (!isMap(value))
    return fault(
      [],
      'the file contains no server: write its keys as under `servers` in tollgate.yaml, such as command and args',
    );
  if (defined.has(name))
    return fault(
      [],
      `server ${quote(name)} is defined elsewhere too, in tollgate.yaml or in a file of the same name; keep ` +
        'one of them',
    );
  if (value.name !== undefined && value.name !== name)
    return fault(['name'], `the name of the server is ${quote(name)}, after its file; write that, or rename the file`);
  return [];
}

/** Returns whether an entry of tollgate.yaml only adds settings to a server that is defined elsewhere. */
function isOverlay(entry: unknown): boolean {
  return isMap(entry) && ['command', 'url', 'socket'].every((key) => entry[key] === undefined);
}

function entryOf(value: unknown): Plain {
  if (!isMap(value)) return {};
  const { name: _name, ...entry } = value;
  return entry;
}

function isMap(value: unknown): value is Plain {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
