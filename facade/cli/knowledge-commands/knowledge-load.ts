/** Runs `knowledge load`: stores files as documents. It refuses binary and large files, and links to other places. */
import { readdirSync, statSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';
import { readText, realPath } from '../../config/reading/text-files.ts';
import type { Document, DocumentChange } from '../../internal-servers/knowledge-collection.ts';
import { EXIT, type Io } from '../command-io.ts';
import { json, plural, printable } from '../print.ts';
import {
  type KnowledgeContext,
  type KnowledgeOptions,
  knowledgeOwnerOf,
  labelsOf,
  recordedScope,
  withKnowledgeContext,
} from './knowledge-access.ts';

const TEXTS = /\.(md|markdown|txt)$/i;
/** Bytes. */
const MAX_FILE = 5 * 1024 * 1024;
const MAX_TOTAL = 256 * 1024 * 1024;
const MAX_FILES = 10_000;
/** Files between two progress messages. */
const PROGRESS = 100;

interface LoadOptions extends KnowledgeOptions {
  readonly paths: readonly string[];
  readonly label?: readonly string[];
  readonly memory?: true;
  readonly conversation?: string;
}

/** The result for one file. The reason contains no path. */
type Loaded = { readonly name: string; readonly chunks: number } & (
  | { readonly kept: DocumentChange }
  | { readonly refused: string }
);

/**
 * Stores files, except those that are stored already and have not changed. A refused file does not stop the others;
 * it makes the exit code 3. Throws USAGE, IDENTITY, AUDIT_FAILED, STATE_FAILED, CONFIG_INVALID.
 */
export async function runLoad(options: LoadOptions, io: Io): Promise<number> {
  return withKnowledgeContext(options, io, (context) => {
    const owner = knowledgeOwnerOf(context, options);
    const labels = labelsOf(context.config, options.label);
    if (options.memory === true && owner.user === '')
      throw new TollgateError('USAGE', { detail: 'A memory belongs to one user.', next: 'Add --user.' });
    if (options.conversation !== undefined && options.memory !== true)
      throw new TollgateError('USAGE', {
        detail: 'Only memories belong to a conversation.',
        next: 'Add --memory, or omit --conversation.',
      });
    const files = options.paths.flatMap((written) => filesOf(path.resolve(io.cwd, written)));
    if (files.length > MAX_FILES)
      throw new TollgateError('USAGE', {
        detail: `There are ${files.length} files; one command loads at most ${MAX_FILES}.`,
        next: 'Load one folder after another.',
      });
    context.begin();
    const loaded = loadAll(files, {
      context,
      io,
      make: (name, text) => ({
        kind: options.memory === true ? 'memory' : 'document',
        ...owner,
        conversation: options.conversation ?? '',
        name,
        text,
        labels,
        at: Date.now(),
      }),
    });
    const changed = loaded.filter((one) => 'kept' in one && one.kept !== 'unchanged');
    if (changed.length > 0) context.record('knowledge.loaded', { count: changed.length, whose: recordedScope(owner) });
    return report(loaded, { io, isJson: options.json === true });
  });
}

function loadAll(
  files: readonly string[],
  {
    context: { config, collection },
    io,
    make,
  }: { readonly context: KnowledgeContext; readonly io: Io; readonly make: (name: string, text: string) => Document },
): readonly Loaded[] {
  let total = 0;
  return files.map((file, index) => {
    if (index > 0 && index % PROGRESS === 0) io.stderr(`${index} of ${files.length} files\n`);
    const name = isPathWithin(file, config.folder) ? path.relative(config.folder, file) : file;
    const refuse = (refused: string): Loaded => ({ name, chunks: 0, refused });
    const read = readText(file, MAX_FILE);
    if (!read.ok) return refuse(read.reason);
    if (read.text.includes('\0')) return refuse('it is not text: it contains a NUL character');
    total += Buffer.byteLength(read.text);
    if (total > MAX_TOTAL) return refuse(`the files together are larger than ${MAX_TOTAL} bytes`);
    return { name, ...collection.keep(make(name, read.text)) };
  });
}

/** Returns the file, or the text files below a folder, sorted. It skips hidden names and does not follow links. */
function filesOf(named: string): readonly string[] {
  if (statSync(named, { throwIfNoEntry: false })?.isDirectory() !== true) return [realPath(named)];
  return readdirSync(named, { withFileTypes: true })
    .filter(({ name }) => !name.startsWith('.'))
    .sort((one, other) => (one.name < other.name ? -1 : 1))
    .flatMap((entry) => {
      const inner = path.join(named, entry.name);
      if (entry.isDirectory()) return filesOf(inner);
      return entry.isFile() && TEXTS.test(entry.name) ? [realPath(inner)] : [];
    });
}

function report(loaded: readonly Loaded[], { io, isJson }: { readonly io: Io; readonly isJson: boolean }): number {
  const count = (kept: DocumentChange): number => loaded.filter((one) => 'kept' in one && one.kept === kept).length;
  const [added, replaced, unchanged] = [count('added'), count('replaced'), count('unchanged')];
  const chunks = loaded.reduce((sum, one) => sum + one.chunks, 0);
  const refused = loaded.flatMap((one) => ('refused' in one ? [{ name: one.name, reason: one.refused }] : []));
  const code = refused.length > 0 ? EXIT.refused : EXIT.ok;
  if (isJson) {
    io.stdout(json({ added, replaced, unchanged, chunks, refused }));
    return code;
  }
  io.stderr(`${added} added, ${replaced} replaced, ${unchanged} unchanged; ${plural(chunks, 'new passage')}.\n`);
  if (loaded.length === 0) io.stderr('In a folder, only .md, .markdown and .txt files are loaded.\n');
  for (const { name, reason } of refused) io.stderr(`Left out ${printable(name)}: ${reason}.\n`);
  return code;
}
