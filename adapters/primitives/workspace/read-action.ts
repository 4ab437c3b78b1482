/** The tool `read`: its actions `file` and `stat`, and the choice of the action. */
import path from 'node:path';
import type { PathHandle } from '../../../catalogs/readers/path-handles.ts';
import { countLines, note, pageText } from '../../../catalogs/text/text-pages.ts';
import type { ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import { findAction, listAction, type ReadArgs } from '../search/list-actions.ts';
import { searchAction } from '../search/search-action.ts';
import { type ActionContext, fileSystemError } from './action-context.ts';
import {
  currentFileVersion,
  type FileOpener,
  type FileSnapshot,
  readSmallFile,
  withFileSnapshot,
} from './file-snapshot.ts';
import { decodeText, mimeOf, printableName, textResult, toolFailure, versionOf } from './file-text.ts';
import { judgedFileOpener, OpenFolder } from './open-folder.ts';
import { bindOpenPath } from './path-binding.ts';

/** Largest image that is returned as an image, in bytes. */
const MAX_IMAGE = 1024 * 1024;

/** Runs `read` of a small file in the workspace at once. Returns undefined for a call that must wait. */
export function readAtOnce(context: Omit<ActionContext, 'signal'>, args: ReadArgs): ToolResult | undefined {
  if ((args.action ?? 'file') !== 'file' || context.call.signal.aborted) return undefined;
  const pathHandle = context.pathHandles.of(args.path);
  if (!pathHandle.location.inside) return undefined;
  const bytes = readSmallFile(pathHandle, context.localDevice);
  if (bytes === undefined) return undefined;
  return showText(context, { file: { bytes, version: versionOf(bytes) }, ...pathHandle.location }, args);
}

/**
 * Runs `read`: a page of a file (default), a list of entries, files by glob, lines by pattern, or the facts of a path.
 */
export async function readAction(context: ActionContext, args: ReadArgs): Promise<ToolResult> {
  const pathHandle = await bindOpenPath(context.pathHandles.of(args.path), context.call.outsideFolders);
  const result = await runAction(context, pathHandle, args);
  // The owner may have closed the folder during a long search. Then nothing is shown.
  if (!pathHandle.location.inside) await bindOpenPath(pathHandle, context.call.outsideFolders);
  return result;
}

async function runAction(context: ActionContext, pathHandle: PathHandle, args: ReadArgs): Promise<ToolResult> {
  const { relative } = pathHandle.location;
  try {
    switch (args.action ?? 'file') {
      case 'list':
        return await listAction(context, pathHandle, args);
      case 'find':
        return await findAction(context, pathHandle, args);
      case 'search':
        return await searchAction(context, pathHandle, args);
      case 'stat':
        return await inFolder(pathHandle, (folder, name) => describePath(folder, name, relative));
      default:
        return await inFolder(pathHandle, (folder, name) =>
          withFileSnapshot({ folder, name, signal: context.signal }, (file) =>
            showText(context, { file, ...pathHandle.location }, args),
          ),
        );
    }
  } catch (error) {
    throw fileSystemError(error, relative);
  }
}

/** Runs `task` on the judged entry, through its descriptor or the open folder that contains it. */
async function inFolder(
  pathHandle: PathHandle,
  task: (folder: FileOpener, name: string) => Promise<ToolResult>,
): Promise<ToolResult> {
  const direct = judgedFileOpener(pathHandle);
  if (direct !== undefined) return task(direct, path.basename(pathHandle.location.absolute));
  const folder = await OpenFolder.around(pathHandle);
  return task(folder, path.basename(pathHandle.location.absolute)).finally(() => folder.close());
}

/** What is shown of a file. */
type Content = Pick<FileSnapshot, 'bytes' | 'version'>;

function showText(
  context: Omit<ActionContext, 'signal'>,
  source: { file: Content; relative: string; absolute: string },
  args: ReadArgs,
): ToolResult {
  const { file } = source;
  const decoded = decodeText(file.bytes);
  if ('binary' in decoded) return showMedia(source.relative, file, decoded.mime);
  const page = pageText(
    'text' in decoded ? decoded.text : decoded.lossy,
    { ...args, cap: context.call.cap },
    source.relative,
  );
  context.versions.record(context.call.scope, source.absolute, file.version);
  const lossyNote =
    'lossy' in decoded ? note('not valid UTF-8: invalid bytes are shown as U+FFFD; edit refuses this file') : undefined;
  return textResult(page.text, page.note, lossyNote);
}

function showMedia(relative: string, file: Content, mime: string): ToolResult {
  const facts = `${relative}: ${file.bytes.length} bytes, ${mime}`;
  if (!mime.startsWith('image/'))
    throw toolFailure(
      `${facts}: binary, not shown as text.`,
      `Use a program, such as bash command="file …" or "xxd … | head".`,
    );
  if (file.bytes.length > MAX_IMAGE)
    throw toolFailure(
      `${facts}: images above ${MAX_IMAGE} bytes are not shown.`,
      'Make it smaller with a program in bash.',
    );
  const image = { type: 'image', data: file.bytes.toString('base64'), mimeType: mime };
  return { content: [image, { type: 'text', text: note(`${facts}, version ${file.version}`) }], isError: false };
}

async function describePath(folder: FileOpener, name: string, relative: string): Promise<ToolResult> {
  const handle = await folder.openFile(name);
  const stat = await handle.stat().finally(() => handle.close());
  const kind = stat.isDirectory() ? 'directory' : stat.isFile() ? 'file' : 'other';
  const facts = [`path: ${printableName(relative)}`, `kind: ${kind}`];
  if (stat.isFile()) facts.push(`size: ${stat.size}`);
  facts.push(`mode: ${(stat.mode & 0o7777).toString(8).padStart(4, '0')}`, `modified: ${stat.mtime.toISOString()}`);
  if (stat.isFile()) facts.push(...(await contentFacts(folder, name)));
  return textResult(facts.join('\n'));
}

async function contentFacts(folder: FileOpener, name: string): Promise<readonly string[]> {
  const present = await currentFileVersion(folder, name);
  const version = `version: ${present?.version ?? 'gone'}`;
  const kind = ({ bytes }: FileSnapshot): string => {
    const decoded = decodeText(bytes);
    return 'text' in decoded ? `lines: ${countLines(decoded.text)}` : `type: ${mimeOf(bytes)}`;
  };
  return withFileSnapshot({ folder, name }, (file) => [version, kind(file)]).catch(() => [version]);
}
