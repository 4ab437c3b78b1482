/** Owns `write` on backends that only store whole texts; refuses to replace what the caller has not seen, and checks what was stored. */
import { countLines } from '../../../catalogs/text/text-pages.ts';
import type { ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import { fileSystemError } from '../workspace/action-context.ts';
import { textResult, toolFailure, versionOf } from '../workspace/file-text.ts';
import { refuseCutText } from '../workspace/write-actions.ts';
import {
  backendFailure,
  callMainTool,
  callMappingStep,
  type MappedCall,
  parentFolder,
  workspacePath,
} from './mapped-call.ts';
import {
  backendFileVersion,
  checkVersion,
  type MappedFileFacts,
  type MappedState,
  readFileFacts,
  readWholeText,
  rememberVersion,
  shownPathOf,
  versionOfFacts,
} from './mapped-file-facts.ts';

/** Carries out `write`. The backend has no exclusive create: between look and store another process may still come first. */
export function writeMapped(work: MappedCall, desk: MappedState): Promise<ToolResult> {
  const content = String(work.args.content);
  refuseCutText(content, 'content');
  return desk.locks.hold(String(work.args.path), async () => {
    const facts = await readFileFacts(work);
    if (facts?.directory) throw fileSystemError({ code: 'EISDIR' }, shownPathOf(work));
    await checkMode(work, desk, facts);
    if (!facts) await makeParent(work);
    const appends = work.args.mode === 'append' && facts !== undefined;
    const version = appends ? await append(work, facts, content) : await replace(work, content);
    rememberVersion(work, desk, version);
    const done = appends ? 'Appended to' : facts ? 'Replaced' : 'Created';
    return textResult(
      `${done} ${shownPathOf(work)}: ${Buffer.byteLength(content)} bytes, ${countLines(content)} lines. Version ${version}.`,
    );
  });
}

/** Stores a whole text and checks its size; gives the new version. Throws TOOL_FAILED when the backend stored something else. */
export async function storeWholeText(work: MappedCall, content: string): Promise<string> {
  const answered = await callMappingStep(work, 'store', { path: work.args.path, content });
  if (answered.failed) throw backendFailure(work, answered);
  return checkStored(work, content, Buffer.byteLength(content));
}

async function checkMode(work: MappedCall, desk: MappedState, facts: MappedFileFacts | undefined): Promise<void> {
  const { mode = 'auto', version } = work.args;
  const path = JSON.stringify(shownPathOf(work));
  if (!facts) {
    if (version !== undefined)
      throw toolFailure(
        `${path} does not exist, so it has no version. Nothing was changed.`,
        'Leave version out to create it.',
      );
    return;
  }
  if (mode === 'create') throw fileSystemError({ code: 'EEXIST' }, shownPathOf(work));
  if (version === undefined && mode !== 'auto') return;
  if (version === undefined && desk.versions.seen(work.call.scope, String(work.args.path)) === undefined) {
    throw toolFailure(
      `${path} exists and you have not read it. Nothing was changed.`,
      `Read it first: read path=${path}`,
    );
  }
  checkVersion(work, desk, await backendFileVersion(work));
}

async function makeParent(work: MappedCall): Promise<void> {
  const path = String(work.args.path);
  if (parentFolder(workspacePath(work, path)) === '.') return;
  const made = await callMappingStep(work, 'mkdir', { path: path.slice(0, path.lastIndexOf('/')) });
  if (made.failed) throw backendFailure(work, made);
}

async function replace(work: MappedCall, content: string): Promise<string> {
  const answered = await callMainTool(work);
  if (answered.failed) throw backendFailure(work, answered);
  return checkStored(work, content, Buffer.byteLength(content));
}

/** By the backend's own append where it has one; else the whole text is read and stored again. */
async function append(work: MappedCall, facts: MappedFileFacts, content: string): Promise<string> {
  if (work.mapping.steps.has('store')) return storeWholeText(work, (await readWholeText(work)) + content);
  const answered = await callMainTool(work);
  if (answered.failed) throw backendFailure(work, answered);
  return checkStored(work, undefined, facts.size + Buffer.byteLength(content));
}

async function checkStored(work: MappedCall, content: string | undefined, size: number): Promise<string> {
  const after = await readFileFacts(work);
  if (after?.size !== size) {
    throw toolFailure(
      `${JSON.stringify(shownPathOf(work))} has ${after?.size ?? 'no'} bytes after the write, not ${size}: the backend stored something else, or someone wrote at the same time.`,
      'Read the file to see what stands there.',
    );
  }
  return work.mapping.steps.has('text') && content !== undefined
    ? versionOf(Buffer.from(content))
    : versionOfFacts(after);
}
