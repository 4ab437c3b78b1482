/** Owns `knowledge load`: which files become documents; refuses what is no text, what is too large, and links that lead elsewhere. */
import { readdirSync, statSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';
import { readText, realPath } from '../../config/reading/text-files.ts';
import type { DocumentChange } from '../../internal-servers/knowledge-collection.ts';
import { EXIT, type Io } from '../command-io.ts';
import { json, plural, printable } from '../print.ts';
import {
  type KnowledgeContext,
  knowledgeOwnerOf,
  type LoadOptions,
  labelsOf,
  scopeOfFact,
  withKnowledgeContext,
} from './knowledge-access.ts';

const TEXTS = /\.(md|markdown|txt)$/i;
const MAX_FILE = 5 * 1024 * 1024;
const MAX_TOTAL = 256 * 1024 * 1024;
const MAX_FILES = 10_000;
/** Files between two words to a waiting person. */
const PROGRESS = 100;

/** What became of one file; the reason names no folder. */
type Loaded = { readonly name: string; readonly chunks: number } & (
  | { readonly kept: DocumentChange }
  | { readonly refused: string }
);

/**
 * Takes in files. What was taken in before and has not changed is left alone; a file that is refused keeps no other from being
 * taken in, and makes the exit code 3. Throws USAGE, IDENTITY, AUDIT_FAILED, STATE_FAILED, CONFIG_INVALID.
 */
export async function runLoad(options: LoadOptions & { readonly paths: readonly string[] }, io: Io): Promise<number> {
  return withKnowledgeContext(options, io, (desk) => {
    const owner = knowledgeOwnerOf(desk, options);
    const labels = labelsOf(desk.config, options.label);
    if (options.memory === true && owner.user === '')
      throw new TollgateError('USAGE', { detail: 'A memory belongs to somebody.', next: 'Add --user.' });
    if (options.conversation !== undefined && options.memory !== true)
      throw new TollgateError('USAGE', {
        detail: 'Only memories belong to a conversation.',
        next: 'Add --memory, or leave --conversation out.',
      });
    const files = options.paths.flatMap((written) => filesOf(path.resolve(io.cwd, written)));
    if (files.length > MAX_FILES)
      throw new TollgateError('USAGE', {
        detail: `${files.length} files are more than the ${MAX_FILES} that are taken in at once.`,
        next: 'Load folder by folder.',
      });
    desk.begin();
    const loaded = loadAll(files, {
      desk,
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
    if (changed.length > 0) desk.record('knowledge.loaded', { count: changed.length, whose: scopeOfFact(owner) });
    return answer(loaded, { io, isJson: options.json === true });
  });
}

type Make = (name: string, text: string) => Parameters<KnowledgeContext['shelf']['keep']>[0];

function loadAll(
  files: readonly string[],
  { desk, io, make }: { readonly desk: KnowledgeContext; readonly io: Io; readonly make: Make },
): readonly Loaded[] {
  let total = 0;
  return files.map((file, index) => {
    if (index > 0 && index % PROGRESS === 0) io.stderr(`${index} of ${files.length} files\n`);
    const name = isPathWithin(file, desk.config.folder) ? path.relative(desk.config.folder, file) : file;
    const read = readText(file, MAX_FILE);
    if (!read.ok) return { name, chunks: 0, refused: read.reason };
    if (read.text.includes('\0')) return { name, chunks: 0, refused: 'it is no text: it holds a NUL character' };
    total += Buffer.byteLength(read.text);
    if (total > MAX_TOTAL) return { name, chunks: 0, refused: `together the files are larger than ${MAX_TOTAL} bytes` };
    return { name, ...desk.shelf.keep(make(name, read.text)) };
  });
}

/** The file itself, or what a folder holds of texts, in order; what begins with a dot is left out, and links in it are not followed. */
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

function answer(loaded: readonly Loaded[], { io, isJson }: { readonly io: Io; readonly isJson: boolean }): number {
  const of = (kept: DocumentChange): number => loaded.filter((one) => 'kept' in one && one.kept === kept).length;
  const chunks = loaded.reduce((sum, one) => sum + one.chunks, 0);
  const refused = loaded.flatMap((one) => ('refused' in one ? [{ name: one.name, reason: one.refused }] : []));
  if (isJson)
    io.stdout(json({ added: of('added'), replaced: of('replaced'), unchanged: of('unchanged'), chunks, refused }));
  else
    io.stderr(
      `${of('added')} added, ${of('replaced')} replaced, ${of('unchanged')} unchanged; ${plural(chunks, 'passage')} new.${loaded.length === 0 ? ' Folders are searched for .md, .markdown and .txt.' : ''}\n`,
    );
  if (!isJson) for (const { name, reason } of refused) io.stderr(`Left out ${printable(name)}: ${reason}.\n`);
  return refused.length > 0 ? EXIT.refused : EXIT.ok;
}
