/** Runs `knowledge set`, `list` and `forget`. No text is shown, and `forget` needs a name, a conversation or --all. */
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { KNOWLEDGE } from '../../../catalogs/servers/shipped-servers.ts';
import { quote } from '../../config/config-problems.ts';
import { readText } from '../../config/reading/text-files.ts';
import type { Selection } from '../../internal-servers/knowledge-collection.ts';
import { EXIT, type Io } from '../command-io.ts';
import { printList, printResult } from '../print.ts';
import { readPiped } from '../terminal-prompt.ts';
import {
  type KnowledgeOptions,
  knowledgeOwnerOf,
  labelsOf,
  recordedScope,
  withKnowledgeContext,
} from './knowledge-access.ts';

/** Characters. */
const MAX_KEY = 200;
/** Bytes. */
const MAX_VALUE = 16 * 1024;

interface SetOptions extends KnowledgeOptions {
  readonly key: string;
  readonly value: string;
  readonly label?: readonly string[];
}

/** Stores a fact. Throws USAGE, IDENTITY, AUDIT_FAILED, STATE_FAILED, CONFIG_INVALID. */
export async function runSet(options: SetOptions, io: Io): Promise<number> {
  const { key } = options;
  if (key.length > MAX_KEY || key.trim() !== key || key === '' || /\p{Cc}/u.test(key))
    throw new TollgateError('USAGE', {
      detail: `A key is one line of at most ${MAX_KEY} characters, without spaces at its ends.`,
      next: 'Write a key such as team.lead.',
    });
  const value = await readValue(options.value, io);
  return withKnowledgeContext(options, io, (context) => {
    const owner = knowledgeOwnerOf(context, options);
    const labels = labelsOf(context.config, options.label);
    context.begin();
    const kept = context.collection.setFact({ ...owner, key, value, labels, source: 'the owner', at: Date.now() });
    if (kept !== 'unchanged') context.record('knowledge.set', { count: 1, whose: recordedScope(owner) });
    const verb = { unchanged: 'Not changed', added: 'Stored', replaced: 'Replaced' }[kept];
    printResult({ io, options }, { key, kept, ...recordedScope(owner) }, `${verb}: ${quote(key)}.`);
    return EXIT.ok;
  });
}

/**
 * Prints what is stored for a space and a user, or for all. Throws IDENTITY, AUDIT_FAILED, STATE_FAILED,
 * CONFIG_INVALID, USAGE.
 */
export async function runList(options: KnowledgeOptions, io: Io): Promise<number> {
  return withKnowledgeContext(options, io, ({ config, collection }) => {
    // Includes spaces that no principal has any more, so that they can be deleted.
    const entries = collection.list(selected(options)).map(({ at, labels, ...entry }) => ({
      ...entry,
      labels: labels === '' ? [] : labels.split(','),
      at: new Date(at).toISOString(),
    }));
    printList(
      { io, options },
      {
        data: { entries },
        columns: ['KIND', 'SPACE', 'USER', 'NAME', 'BYTES', 'LABELS', 'SINCE'],
        rows: entries.map((entry) => [
          entry.kind,
          entry.space,
          entry.user === '' ? 'all' : entry.user,
          entry.conversation === '' ? entry.name : `${entry.name} (${entry.conversation})`,
          String(entry.bytes),
          entry.labels.join(', '),
          entry.at.slice(0, 16),
        ]),
        empty: 'Nothing is stored. To store documents: tollgate knowledge load PATH',
        summary: entries.length === 1 ? '1 entry.' : `${entries.length} entries.`,
      },
    );
    const isListed = [...config.profiles.values()].some(({ servers }) => servers.includes(KNOWLEDGE));
    if (entries.length > 0 && !isListed)
      io.stderr(
        'No profile lists the server knowledge, so no agent can read this. Write into tollgate.yaml:\n' +
          '  profiles: {default: {servers: [knowledge]}}\n' +
          'and expose its tools.\n',
      );
    return EXIT.ok;
  });
}

interface ForgetOptions extends KnowledgeOptions {
  readonly name?: string;
  readonly kind?: 'document' | 'memory' | 'fact';
  readonly conversation?: string;
  readonly all?: true;
}

/**
 * Deletes the named entry, or with --all every entry that the options select. Throws USAGE for an unknown name,
 * IDENTITY, AUDIT_FAILED, STATE_FAILED.
 */
export async function runForget(options: ForgetOptions, io: Io): Promise<number> {
  const { name, kind, conversation, all, user } = options;
  if (name === undefined && conversation === undefined && all !== true)
    throw new TollgateError('USAGE', {
      detail: 'The command does not say what to forget.',
      next: 'Write a name that `tollgate knowledge list` shows, or --conversation, or --all.',
    });
  return withKnowledgeContext(options, io, (context) => {
    const space = options.space ?? knowledgeOwnerOf(context, options).space;
    context.begin();
    const count = context.collection.forget({
      ...selected({ ...options, space }),
      ...(name !== undefined && { name }),
      ...(kind !== undefined && { kind }),
      ...(conversation !== undefined && { conversation }),
    });
    if (count === 0 && name !== undefined)
      throw new TollgateError('USAGE', {
        detail: `Nothing is stored there under the name ${quote(name)}.`,
        next: 'Write a name exactly as `tollgate knowledge list` shows it.',
      });
    if (count > 0) context.record('knowledge.forgotten', { count, whose: recordedScope({ space, user: user ?? '' }) });
    printResult({ io, options }, { forgotten: count }, `Deleted ${count === 1 ? '1 entry' : `${count} entries`}.`);
    return EXIT.ok;
  });
}

function selected({ space, user }: Pick<KnowledgeOptions, 'space' | 'user'>): Selection {
  return { ...(space !== undefined && { space }), ...(user !== undefined && { user }) };
}

/** Returns the value itself, the text of a file for `@FILE`, or stdin for `-`. */
async function readValue(written: string, io: Io): Promise<string> {
  const value = written.startsWith('@')
    ? fileText(path.resolve(io.cwd, written.slice(1)))
    : written === '-'
      ? await readPiped(io)
      : written;
  if (Buffer.byteLength(value) > MAX_VALUE)
    throw new TollgateError('USAGE', {
      detail: 'The fact is larger than 16 KiB.',
      next: 'Store it as a document: tollgate knowledge load FILE',
    });
  if (value.includes('\0') || value.trim() === '')
    throw new TollgateError('USAGE', {
      detail: 'The fact is empty, or it is not text.',
      next: 'Write a text.',
    });
  return value;
}

function fileText(file: string): string {
  const read = readText(file, MAX_VALUE);
  if (!read.ok)
    throw new TollgateError('USAGE', {
      detail: `The file of the value cannot be read: ${read.reason}.`,
      next: 'Name a text file of at most 16 KiB.',
    });
  return read.text.replace(/\r?\n$/, '');
}
