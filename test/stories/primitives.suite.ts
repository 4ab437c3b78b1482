/** Runs the stories of the primitives, the same on every backend. A story without a wanted result is an error. */
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { partOf } from '../harness/slices.ts';
import { type BackendName, type Opened, openBackend } from '../mapped/third-party-servers.ts';
import { verifies } from '../verifies.ts';

/** The wanted result of a step. `text` is the first content item. `contains` and `matches` check all items. */
interface Want {
  readonly text?: string;
  readonly contains?: string | readonly string[];
  readonly excludes?: string;
  readonly matches?: string;
  readonly isError?: boolean;
  /** The code of the thrown error. */
  readonly code?: string;
  /** The call is refused with NOT_SUPPORTED. The reason must contain this text. */
  readonly notSupported?: string;
  /** The files after the step. A file with null must not exist. */
  readonly files?: Readonly<Record<string, string | null>>;
}

/** One call, or a change of files by another program. */
interface Step {
  readonly primitive?: string;
  readonly args?: Readonly<Record<string, unknown>>;
  readonly change?: Readonly<Record<string, string>>;
  readonly want?: Want;
  /** The wanted results of backends that behave differently. */
  readonly backends?: Readonly<Partial<Record<BackendName, Want>>>;
}

interface Story extends Step {
  readonly name: string;
  readonly verifies?: readonly string[];
  readonly files?: Readonly<Record<string, string>>;
  readonly steps?: readonly Step[];
  /** The backends that run the story. Default: all. */
  readonly runs?: readonly BackendName[];
}

interface Reply {
  readonly items: readonly string[];
  readonly isError: boolean;
  readonly code?: string;
}

const FOLDER = path.join(path.dirname(fileURLToPath(import.meta.url)), 'primitives');

/** Loads all stories, in order of their files. */
export function loadStories(): readonly Story[] {
  return readdirSync(FOLDER)
    .sort()
    .flatMap((file) => parse(readFileSync(path.join(FOLDER, file), 'utf8')) as readonly Story[]);
}

/**
 * Returns the stories that a backend runs: by default all on the workspace, and on another backend those that it alone
 * runs, those with results of its own, and some of the rest.
 */
function storiesFor(name: BackendName): readonly Story[] {
  const all = loadStories().filter(({ runs }) => runs?.includes(name) ?? true);
  const isOwn = (story: Story): boolean =>
    !(story.runs?.includes('workspace') ?? true) ||
    [story, ...(story.steps ?? [])].some(({ backends }) => backends?.[name] !== undefined);
  const rest = partOf(
    all.filter((story) => !isOwn(story)),
    name === 'workspace' ? all.length : 12,
  );
  return all.filter((story) => isOwn(story) || rest.includes(story));
}

/** Declares the stories for one backend. They share one process. */
export function primitivesSuite(name: BackendName): void {
  describe(`primitives on ${name}`, () => {
    let opened: Opened;
    beforeAll(async () => {
      opened = await openBackend(name);
    });
    afterAll(() => opened.close());

    for (const story of storiesFor(name)) {
      it(story.name + (story.verifies ? verifies(...story.verifies) : ''), async () => {
        for (const entry of readdirSync(opened.root)) rmSync(path.join(opened.root, entry), { recursive: true });
        place(opened.root, story.files ?? {});
        for (const step of story.steps ?? [story]) await play(opened, { step, name, scope: story.name });
        await opened.backend.endScope?.(story.name);
      }, 60_000);
    }
  });
}

function place(root: string, files: Readonly<Record<string, string>>): void {
  for (const [file, content] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(root, file)), { recursive: true });
    writeFileSync(path.join(root, file), content);
  }
}

async function play(
  opened: Opened,
  options: { readonly step: Step; readonly name: BackendName; readonly scope: string },
): Promise<void> {
  const { step, name, scope } = options;
  if (step.change) return place(opened.root, step.change);
  const want = { ...(step.backends?.[name] ?? step.want) };
  if (!step.primitive || Object.keys(want).length === 0)
    throw new Error('a step of this story has no call or no wanted result');
  check(await call(opened, { tool: step.primitive, args: step.args ?? {}, scope }), want);
  for (const [file, content] of Object.entries(want.files ?? {}))
    expect(contentOf(path.join(opened.root, file)), file).toBe(content);
}

async function call(
  opened: Opened,
  request: { readonly tool: string; readonly args: Readonly<Record<string, unknown>>; readonly scope: string },
): Promise<Reply> {
  const { tool, args, scope } = request;
  const doc = { text: JSON.stringify(args), value: args, exact: true };
  try {
    const { value } = await opened.backend.call({
      tool,
      args: doc,
      scope,
      signal: new AbortController().signal,
      timeoutMs: 60_000,
      hardTimeoutMs: 60_000,
    });
    return {
      items: (value.content ?? []).map((item) => item.text ?? `(${item.type})`),
      isError: value.isError === true,
    };
  } catch (error) {
    if (!(error instanceof TollgateError)) throw error;
    return { items: [error.message, error.next], isError: true, code: error.code };
  }
}

function check(reply: Reply, want: Want): void {
  const all = reply.items.join('\n');
  if (want.notSupported !== undefined) {
    expect(reply.code, all).toBe('NOT_SUPPORTED');
    expect(all).toContain(want.notSupported);
    return;
  }
  expect(reply.code, all).toBe(want.code);
  expect(reply.isError, all).toBe(want.isError ?? want.code !== undefined);
  if (want.text !== undefined) expect(reply.items[0]).toBe(want.text);
  for (const part of [want.contains ?? []].flat()) expect(all).toContain(part);
  if (want.excludes !== undefined) expect(all).not.toContain(want.excludes);
  if (want.matches !== undefined) expect(all).toMatch(new RegExp(want.matches));
}

function contentOf(file: string): string | null {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return null;
  }
}
