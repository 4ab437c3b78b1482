/**
 * `write` through a backend that stores whole texts. Replaces only files that the caller has read, and checks the size
 * of the stored file.
 */
import path from 'node:path';
import type { ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import { fileSystemError } from '../workspace/action-context.ts';
import { toolFailure, versionOf } from '../workspace/file-text.ts';
import { refuseCutText, writeReport } from '../workspace/write-actions.ts';
import { callMainTool, callMappingStep, type MappedCall, requireSuccess } from './mapped-call.ts';
import {
  backendFileVersion,
  checkVersion,
  type MappedFileFacts,
  type MappedState,
  quotedPathOf,
  readFileFacts,
  readWholeText,
  rememberVersion,
  shownPathOf,
  versionOfFacts,
} from './mapped-file-facts.ts';

/** Runs `write`. The backend has no exclusive create, so another process may create the file after the check. */
export function writeMapped(call: MappedCall, state: MappedState): Promise<ToolResult> {
  const content = String(call.args.content);
  refuseCutText(content, 'content');
  return state.locks.hold(String(call.args.path), async () => {
    const facts = await readFileFacts(call);
    if (facts?.directory) throw fileSystemError({ code: 'EISDIR' }, shownPathOf(call));
    await checkMode(call, state, facts);
    if (!facts) await createParent(call);
    const appends = call.args.mode === 'append' && facts !== undefined;
    const version = appends ? await append(call, facts, content) : await replace(call, content);
    rememberVersion(call, state, version);
    const done = appends ? 'Appended to' : facts ? 'Replaced' : 'Created';
    return writeReport(`${done} ${shownPathOf(call)}`, content, version);
  });
}

/** Stores a whole text, checks its size, and returns the new version. Throws TOOL_FAILED if the size is wrong. */
export async function storeWholeText(call: MappedCall, content: string): Promise<string> {
  await requireSuccess(call, callMappingStep(call, 'store', { path: call.args.path, content }));
  return checkStored(call, content, Buffer.byteLength(content));
}

async function checkMode(call: MappedCall, state: MappedState, facts: MappedFileFacts | undefined): Promise<void> {
  const { mode = 'auto', version } = call.args;
  const shown = quotedPathOf(call);
  if (!facts) {
    if (version !== undefined)
      throw toolFailure(
        `${shown} does not exist, so it has no version. Nothing was changed.`,
        'Omit version to create it.',
      );
    return;
  }
  if (mode === 'create') throw fileSystemError({ code: 'EEXIST' }, shownPathOf(call));
  if (version === undefined && mode !== 'auto') return;
  if (version === undefined && state.versions.lastSeen(call.request.scope, String(call.args.path)) === undefined) {
    throw toolFailure(
      `${shown} exists and you have not read it. Nothing was changed.`,
      `Read it first: read path=${shown}`,
    );
  }
  checkVersion(call, state, await backendFileVersion(call));
}

async function createParent(call: MappedCall): Promise<void> {
  const folder = path.dirname(String(call.args.path));
  if (folder !== call.root) await requireSuccess(call, callMappingStep(call, 'mkdir', { path: folder }));
}

async function replace(call: MappedCall, content: string): Promise<string> {
  await requireSuccess(call, callMainTool(call));
  return checkStored(call, content, Buffer.byteLength(content));
}

/** Appends with the backend's own append if it has one. Otherwise reads the whole text and stores it again. */
async function append(call: MappedCall, facts: MappedFileFacts, content: string): Promise<string> {
  if (call.mapping.steps.has('store')) return storeWholeText(call, (await readWholeText(call)) + content);
  await requireSuccess(call, callMainTool(call));
  return checkStored(call, undefined, facts.size + Buffer.byteLength(content));
}

async function checkStored(call: MappedCall, content: string | undefined, size: number): Promise<string> {
  const after = await readFileFacts(call);
  if (after?.size !== size) {
    throw toolFailure(
      `${quotedPathOf(call)} has ${after?.size ?? 'no'} bytes after the write, not ${size}: the ` +
        'backend stored another text, or another program wrote the file at the same time.',
      'Read the file to see its present content.',
    );
  }
  return call.mapping.steps.has('text') && content !== undefined
    ? versionOf(Buffer.from(content))
    : versionOfFacts(after);
}
