/** Owns `knowledge set`, `list` and `forget`: facts in, names out, and what is to go; refuses to show a text, or to forget all of something by an omission. */
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { KNOWLEDGE } from '../../../catalogs/servers/shipped-servers.ts';
import { quote } from '../../config/config-problems.ts';
import { readText } from '../../config/reading/text-files.ts';
import type { Selection } from '../../internal-servers/knowledge-collection.ts';
import { EXIT, type Io } from '../command-io.ts';
import { json, table } from '../print.ts';
import { readPiped } from '../terminal-prompt.ts';
import {
  type ForgetOptions,
  type KnowledgeOptions,
  knowledgeOwnerOf,
  type LoadOptions,
  labelsOf,
  scopeOfFact,
  withKnowledgeContext,
} from './knowledge-access.ts';

const MAX_KEY = 200;
const MAX_VALUE = 16 * 1024;

/** Stores a fact. Throws USAGE, IDENTITY, AUDIT_FAILED, STATE_FAILED, CONFIG_INVALID. */
export async function runSet(
  options: LoadOptions & { readonly key: string; readonly value: string },
  io: Io,
): Promise<number> {
  const { key } = options;
  if (key.length > MAX_KEY || key.trim() !== key || key === '' || /\p{Cc}/u.test(key))
    throw new TollgateError('USAGE', {
      detail: `A key is one line of at most ${MAX_KEY} characters, without blanks around it.`,
      next: 'Take a key like team.lead.',
    });
  const value = await valueOf(options.value, io);
  return withKnowledgeContext(options, io, (desk) => {
    const owner = knowledgeOwnerOf(desk, options);
    const labels = labelsOf(desk.config, options.label);
    desk.begin();
    const kept = desk.shelf.setFact({ ...owner, key, value, labels, source: 'the owner', at: Date.now() });
    if (kept !== 'unchanged') desk.record('knowledge.set', { count: 1, whose: scopeOfFact(owner) });
    if (options.json === true) io.stdout(json({ key, kept, ...scopeOfFact(owner) }));
    else
      io.stderr(
        `${kept === 'unchanged' ? 'Nothing to change' : kept === 'added' ? 'Stored' : 'Replaced'}: ${quote(key)}.\n`,
      );
    return EXIT.ok;
  });
}

/** Prints what is stored, or what of a space and a user. Throws IDENTITY, AUDIT_FAILED, STATE_FAILED, CONFIG_INVALID, USAGE. */
export async function runList(options: KnowledgeOptions, io: Io): Promise<number> {
  return withKnowledgeContext(options, io, ({ config, shelf }) => {
    // A space that no principal has any more is shown here still, so that it can be seen and forgotten.
    const entries = shelf.list(selected(options)).map(({ at, labels, ...entry }) => ({
      ...entry,
      labels: labels === '' ? [] : labels.split(','),
      at: new Date(at).toISOString(),
    }));
    const reached = [...config.profiles.values()].some(({ servers }) => servers.includes(KNOWLEDGE));
    if (options.json === true) io.stdout(json({ entries }));
    else if (entries.length === 0) io.stderr('Nothing is stored. Begin with: tollgate knowledge load PATH\n');
    else
      io.stdout(
        table(
          io,
          ['KIND', 'SPACE', 'USER', 'NAME', 'BYTES', 'LABELS', 'SINCE'],
          entries.map((entry) => [
            entry.kind,
            entry.space,
            entry.user === '' ? 'all' : entry.user,
            entry.conversation === '' ? entry.name : `${entry.name} (${entry.conversation})`,
            String(entry.bytes),
            entry.labels.join(', '),
            entry.at.slice(0, 16),
          ]),
        ),
      );
    if (entries.length > 0 && !reached)
      io.stderr(
        'No profile lists the server knowledge, so no agent sees any of it: write profiles: {default: {servers: [knowledge]}} and expose its tools.\n',
      );
    return EXIT.ok;
  });
}

/** Takes out what is named, or with --all everything that the options select. Throws USAGE for a name of nothing, IDENTITY, AUDIT_FAILED, STATE_FAILED. */
export async function runForget(options: ForgetOptions & { readonly name?: string }, io: Io): Promise<number> {
  const { name, kind, conversation, all } = options;
  if (name === undefined && conversation === undefined && all !== true)
    throw new TollgateError('USAGE', {
      detail: 'Nothing says what to forget.',
      next: 'Write a name that `tollgate knowledge list` shows, or --conversation, or --all.',
    });
  return withKnowledgeContext(options, io, (desk) => {
    const { shelf, begin, record } = desk;
    const space = options.space ?? knowledgeOwnerOf(desk, options).space;
    const selection: Selection = {
      ...selected({ ...options, space }),
      ...(name === undefined ? {} : { name }),
      ...(kind === undefined ? {} : { kind }),
      ...(conversation === undefined ? {} : { conversation }),
    };
    begin();
    const count = shelf.forget(selection);
    if (count === 0 && name !== undefined)
      throw new TollgateError('USAGE', {
        detail: `Nothing of the name ${quote(name)} is stored there.`,
        next: '`tollgate knowledge list` shows the names, as they are to be written.',
      });
    if (count > 0) record('knowledge.forgotten', { count, whose: scopeOfFact({ space, user: options.user ?? '' }) });
    if (options.json === true) io.stdout(json({ forgotten: count }));
    else io.stderr(`Forgot ${count} of what was stored.\n`);
    return EXIT.ok;
  });
}

function selected({ space, user }: Pick<KnowledgeOptions, 'space' | 'user'>): Selection {
  return { ...(space === undefined ? {} : { space }), ...(user === undefined ? {} : { user }) };
}

/** The value itself, a file's text for `@FILE`, stdin for `-`. */
async function valueOf(written: string, io: Io): Promise<string> {
  const value =
    written === '-'
      ? await readPiped(io)
      : written.startsWith('@')
        ? fileText(path.resolve(io.cwd, written.slice(1)))
        : written;
  if (Buffer.byteLength(value) > MAX_VALUE)
    throw new TollgateError('USAGE', {
      detail: 'A fact is at most 16 KiB.',
      next: 'Load it as a document: tollgate knowledge load FILE',
    });
  if (value.includes('\0') || value.trim() === '')
    throw new TollgateError('USAGE', { detail: 'A fact is text, and not empty.', next: 'Write what is to be known.' });
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
