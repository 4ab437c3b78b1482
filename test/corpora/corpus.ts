/**
 * Reads the cases and catalogs of a corpora folder. A missing, empty or malformed file fails with its name and place.
 */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';

/** The folder of the cases: `TOLLGATE_CORPORA`, otherwise the one next to the project. */
function corpora(): string {
  return path.resolve(process.env.TOLLGATE_CORPORA ?? path.resolve(import.meta.dirname, '../../../shared/corpora'));
}

/**
 * Returns the value of a JSON file. Removes the marks that prevent false alarms of secret scanners. Throws with the
 * name of the file.
 */
export function readCorpus(file: string): unknown {
  try {
    return JSON.parse(readFileSync(path.join(corpora(), file), 'utf8').replaceAll('{{+}}', ''));
  } catch (cause) {
    throw new Error(`${file}: not readable as JSON in ${corpora()}`, { cause });
  }
}

/**
 * Returns the cases of a file: a list, or a list under `cases`. `keys` are the keys of a case that the suite reads
 * besides `id`. Throws if there are no cases, if a case has no such key, and if two cases have the same id.
 */
export function readCases<T extends { readonly id: string }>(
  file: string,
  keys: readonly (keyof T & string)[],
): readonly T[] {
  const value = readCorpus(file) as { readonly cases?: unknown } | readonly unknown[] | null;
  const cases: unknown = Array.isArray(value) ? value : (value as { readonly cases?: unknown } | null)?.cases;
  if (!Array.isArray(cases) || cases.length === 0) throw new Error(`${file}: no cases`);
  const ids = new Set<string>();
  for (const [at, one] of (cases as unknown[]).entries()) {
    if (typeof one !== 'object' || one === null) throw new Error(`${file}: case ${at} is no object`);
    const { id } = one as { readonly id?: unknown };
    if (typeof id !== 'string' || id === '') throw new Error(`${file}: case ${at} has no id`);
    if (ids.has(id)) throw new Error(`${file}: two cases have the id ${id}`);
    ids.add(id);
    const missing = keys.find((key) => !(key in one));
    if (missing !== undefined) throw new Error(`${file}: case ${id} has no ${missing}`);
  }
  return cases as readonly T[];
}

/**
 * As `readCases`, for cases with a tool. A definition without an input schema gets an empty one. Such a case is about
 * its words, and without a schema no server may list it.
 */
export function readTools<T extends { readonly id: string; readonly tool: RawTool }>(
  file: string,
  keys: readonly (keyof T & string)[],
): readonly T[] {
  return readCases<T>(file, keys).map((one) => ({
    ...one,
    tool: 'inputSchema' in one.tool ? one.tool : { ...(one.tool as RawTool), inputSchema: { type: 'object' } },
  }));
}

/** Throws if a field of a case has a value that no test of the suite knows. */
export function requireKnown<T extends { readonly id: string }>(
  file: string,
  cases: readonly T[],
  { field, known }: { readonly field: keyof T & string; readonly known: readonly unknown[] },
): void {
  for (const one of cases)
    if (!known.includes(one[field]))
      throw new Error(
        `${file}: case ${one.id} has the ${field} ${JSON.stringify(one[field])}, which no test ` +
          `judges; known are ${known.join(', ')}`,
      );
}

/** Returns the name under which tests configure the server of a file, which is named without its ending. */
export function serverNameOf(file: string): string {
  return `s-${file
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/-+$/, '')}`;
}

/** Returns the tools of each server in `catalogs/`. Throws if there are no files, or if a file lists no tools. */
export function readCatalogs(): ReadonlyMap<string, readonly RawTool[]> {
  const files = readdirSync(path.join(corpora(), 'catalogs'))
    .filter((name) => name.endsWith('.json'))
    .sort();
  if (files.length === 0) throw new Error('catalogs: no cases');
  const catalogs = new Map<string, readonly RawTool[]>();
  for (const file of files) {
    const { tools } = readCorpus(`catalogs/${file}`) as { readonly tools?: unknown };
    if (!Array.isArray(tools) || tools.length === 0) throw new Error(`catalogs/${file}: no cases`);
    const bad = (tools as Partial<RawTool>[]).findIndex(
      (tool) => typeof tool.name !== 'string' || typeof tool.inputSchema !== 'object',
    );
    if (bad !== -1) throw new Error(`catalogs/${file}: tool ${bad} has no name or no inputSchema`);
    const server = serverNameOf(file.replace(/\.json$/, ''));
    if (catalogs.has(server)) throw new Error(`catalogs/${file}: another file has the same server name ${server}`);
    catalogs.set(server, tools as readonly RawTool[]);
  }
  return catalogs;
}

/** A tool with the server that lists it. */
export interface Listed {
  readonly server: string;
  readonly tool: RawTool;
}

/** Returns the tools of all catalogs. */
export function listAll(catalogs: ReadonlyMap<string, readonly RawTool[]>): readonly Listed[] {
  return [...catalogs].flatMap(([server, tools]) => tools.map((tool) => ({ server, tool })));
}

/** Returns why an honest tool may be quarantined: characters that hide text, or hints that contradict its name. */
export function isWithheldRightly(tool: RawTool): boolean {
  // The characters of docs/description-audit.md: invisible, changing the direction of text, or controlling a terminal.
  const hidden = /[\p{Cf}\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]/u.test(
    JSON.stringify(tool).replace(/\\u([0-9a-f]{4})/gi, (_escape, hex: string) =>
      String.fromCharCode(Number.parseInt(hex, 16)),
    ),
  );
  const annotations = tool.annotations ?? {};
  const lies =
    annotations.readOnlyHint === true && /(^|[_.\-/\s])(delete|remove|destroy|drop|wipe|purge|erase)/i.test(tool.name);
  return hidden || lies;
}

/** The share of honest tools that must pass. In the collection of docs/description-audit.md, 2 of 2,613 do not. */
export function mostWithheld(tools: number): number {
  return Math.max(2, Math.ceil(tools / 100));
}
