/** Owns the actions file and stat of read; refuses to show bytes as text that are none. */
import path from 'node:path';
import type { PathHandle } from '../../../catalogs/readers/path-handles.ts';
import { countLines, note, pageText } from '../../../catalogs/text/text-pages.ts';
import type { ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import { findAction, listAction, type ReadArgs } from '../search/list-actions.ts';
import { searchAction } from '../search/search-action.ts';
import { type ActionContext, fileSystemError } from './action-context.ts';
import { currentFileVersion, type FileOpener, type FileSnapshot, withFileSnapshot } from './file-snapshot.ts';
import { decodeText, mimeOf, printableName, textResult, toolFailure } from './file-text.ts';
import { judgedFileOpener, OpenFolder } from './open-folder.ts';
import { bindOpenPath } from './path-binding.ts';

/** Largest image that is given as an image, in bytes. */
const MAX_IMAGE = 1024 * 1024;

/** Reads: a page of a file (default), entries, names by glob, lines by pattern, or what a path is. */
export async function readAction(desk: ActionContext, args: ReadArgs): Promise<ToolResult> {
  const held = await bindOpenPath(desk.pathHandles.of(args.path), desk.outsideFolders);
  const result = await act(desk, held, args);
  // A long search or list may have gone on after an owner closed the folder: nothing of it is shown.
  if (!held.location.inside) await bindOpenPath(held, desk.outsideFolders);
  return result;
}

async function act(desk: ActionContext, held: PathHandle, args: ReadArgs): Promise<ToolResult> {
  const { relative } = held.location;
  try {
    switch (args.action ?? 'file') {
      case 'list':
        return await listAction(desk, held, args);
      case 'find':
        return await findAction(desk, held, args);
      case 'search':
        return await searchAction(desk, held, args);
      case 'stat':
        return await inFolder(held, (folder, name) => describe(folder, name, relative));
      default:
        return await inFolder(held, (folder, name) => readFile(desk, { folder, name, held }, args));
    }
  } catch (error) {
    throw fileSystemError(error, relative);
  }
}

/** Works on the judged entry: through its descriptor, or the open folder that holds it. */
async function inFolder(
  held: PathHandle,
  work: (folder: FileOpener, name: string) => Promise<ToolResult>,
): Promise<ToolResult> {
  const direct = judgedFileOpener(held);
  if (direct !== undefined) return work(direct, path.basename(held.location.absolute));
  const folder = await OpenFolder.around(held);
  try {
    return await work(folder, path.basename(held.location.absolute));
  } finally {
    await folder.close();
  }
}

function readFile(
  desk: ActionContext,
  { folder, name, held }: { folder: FileOpener; name: string; held: PathHandle },
  args: ReadArgs,
): Promise<ToolResult> {
  return withFileSnapshot({ folder, name, signal: desk.signal }, (file) =>
    show(desk, { file, ...held.location }, args),
  );
}

function show(
  desk: ActionContext,
  at: { file: FileSnapshot; relative: string; absolute: string },
  args: ReadArgs,
): ToolResult {
  const { file } = at;
  const decoded = decodeText(file.bytes);
  if ('binary' in decoded) return media(at.relative, file, decoded.mime);
  const page = pageText('text' in decoded ? decoded.text : decoded.lossy, { ...args, cap: desk.cap }, at.relative);
  desk.versions.note(desk.scope, at.absolute, file.version);
  const damaged =
    'lossy' in decoded
      ? note('not valid UTF-8: bytes that are no text are shown as U+FFFD; edit refuses this file')
      : undefined;
  return textResult(page.text, page.note, damaged);
}

function media(relative: string, file: FileSnapshot, mime: string): ToolResult {
  const facts = `${relative}: ${file.bytes.length} bytes, ${mime}`;
  if (!mime.startsWith('image/'))
    throw toolFailure(
      `${facts}: binary, not shown as text.`,
      `Look at it with a program, such as bash command="file …" or "xxd … | head".`,
    );
  if (file.bytes.length > MAX_IMAGE)
    throw toolFailure(
      `${facts}: images above ${MAX_IMAGE} bytes are not shown.`,
      'Make it smaller with a program: bash.',
    );
  const image = { type: 'image', data: file.bytes.toString('base64'), mimeType: mime };
  return { content: [image, { type: 'text', text: note(`${facts}, version ${file.version}`) }], isError: false };
}

async function describe(folder: FileOpener, name: string, relative: string): Promise<ToolResult> {
  const handle = await folder.openFile(name);
  const stat = await handle.stat().finally(() => handle.close());
  const kind = stat.isDirectory() ? 'directory' : stat.isFile() ? 'file' : 'other';
  const facts = [`path: ${printableName(relative)}`, `kind: ${kind}`];
  if (stat.isFile()) facts.push(`size: ${stat.size}`);
  facts.push(`mode: ${(stat.mode & 0o7777).toString(8).padStart(4, '0')}`, `modified: ${stat.mtime.toISOString()}`);
  if (stat.isFile()) facts.push(...(await content(folder, name)));
  return textResult(facts.join('\n'));
}

async function content(folder: FileOpener, name: string): Promise<readonly string[]> {
  const present = await currentFileVersion(folder, name);
  const version = `version: ${present?.version ?? 'gone'}`;
  const kind = ({ bytes }: FileSnapshot): string => {
    const decoded = decodeText(bytes);
    return 'text' in decoded ? `lines: ${countLines(decoded.text)}` : `type: ${mimeOf(bytes)}`;
  };
  return withFileSnapshot({ folder, name }, (file) => [version, kind(file)]).catch(() => [version]);
}
