/** Owns `write` on backends that only store whole texts; refuses to replace what the caller has not seen, and checks what was stored. */
import { countLines } from '../../catalogs/paging.ts';
import type { ToolResult } from '../../catalogs/tool.ts';
import { explain } from '../internal/desk.ts';
import { answer, failed, versionOf } from '../internal/text.ts';
import { refuseCutText } from '../internal/write.ts';
import {
  checkVersion,
  type Desk,
  type Facts,
  factsOf,
  pathOf,
  presentVersion,
  remember,
  versionOfFacts,
  wholeText,
} from './facts.ts';
import { askMain, failure, parent, shown, step, type Work } from './work.ts';

/** Carries out `write`. The backend has no exclusive create: between look and store another process may still come first. */
export function write(work: Work, desk: Desk): Promise<ToolResult> {
  const content = String(work.args.content);
  refuseCutText(content, 'content');
  return desk.locks.hold(String(work.args.path), async () => {
    const facts = await factsOf(work);
    if (facts?.directory) throw explain({ code: 'EISDIR' }, pathOf(work));
    await checkMode(work, desk, facts);
    if (!facts) await makeParent(work);
    const appends = work.args.mode === 'append' && facts !== undefined;
    const version = appends ? await append(work, facts, content) : await replace(work, content);
    remember(work, desk, version);
    const done = appends ? 'Appended to' : facts ? 'Replaced' : 'Created';
    return answer(
      `${done} ${pathOf(work)}: ${Buffer.byteLength(content)} bytes, ${countLines(content)} lines. Version ${version}.`,
    );
  });
}

/** Stores a whole text and checks its size; gives the new version. Throws TOOL_FAILED when the backend stored something else. */
export async function storeText(work: Work, content: string): Promise<string> {
  const answered = await step(work, 'store', { path: work.args.path, content });
  if (answered.failed) throw failure(work, answered);
  return checkStored(work, content, Buffer.byteLength(content));
}

async function checkMode(work: Work, desk: Desk, facts: Facts | undefined): Promise<void> {
  const { mode = 'auto', version } = work.args;
  const path = JSON.stringify(pathOf(work));
  if (!facts) {
    if (version !== undefined)
      throw failed(
        `${path} does not exist, so it has no version. Nothing was changed.`,
        'Leave version out to create it.',
      );
    return;
  }
  if (mode === 'create') throw explain({ code: 'EEXIST' }, pathOf(work));
  if (version === undefined && mode !== 'auto') return;
  if (version === undefined && desk.versions.seen(work.call.scope, String(work.args.path)) === undefined) {
    throw failed(`${path} exists and you have not read it. Nothing was changed.`, `Read it first: read path=${path}`);
  }
  checkVersion(work, desk, await presentVersion(work));
}

async function makeParent(work: Work): Promise<void> {
  const path = String(work.args.path);
  if (parent(shown(work, path)) === '.') return;
  const made = await step(work, 'mkdir', { path: path.slice(0, path.lastIndexOf('/')) });
  if (made.failed) throw failure(work, made);
}

async function replace(work: Work, content: string): Promise<string> {
  const answered = await askMain(work);
  if (answered.failed) throw failure(work, answered);
  return checkStored(work, content, Buffer.byteLength(content));
}

/** By the backend's own append where it has one; else the whole text is read and stored again. */
async function append(work: Work, facts: Facts, content: string): Promise<string> {
  if (work.mapping.steps.has('store')) return storeText(work, (await wholeText(work)) + content);
  const answered = await askMain(work);
  if (answered.failed) throw failure(work, answered);
  return checkStored(work, undefined, facts.size + Buffer.byteLength(content));
}

async function checkStored(work: Work, content: string | undefined, size: number): Promise<string> {
  const after = await factsOf(work);
  if (after?.size !== size) {
    throw failed(
      `${JSON.stringify(pathOf(work))} has ${after?.size ?? 'no'} bytes after the write, not ${size}: the backend stored something else, or someone wrote at the same time.`,
      'Read the file to see what stands there.',
    );
  }
  return work.mapping.steps.has('text') && content !== undefined
    ? versionOf(Buffer.from(content))
    : versionOfFacts(after);
}
