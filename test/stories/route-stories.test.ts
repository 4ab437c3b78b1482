/**
 * Runs the stories of test/stories/routes/: one primitive over the workspace and real servers, by path and by label.
 */

import { linkSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { joinText } from '../../adapters/rpc/wire-message.ts';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';
import type { TestFacade } from './facade.ts';
import { routedConfig, startRouted } from './routed-facade.ts';

interface Want {
  readonly server?: string;
  readonly code?: string;
  readonly contains?: string;
  readonly lacks?: string | readonly string[];
  readonly isError?: boolean;
}

interface Story {
  readonly name: string;
  readonly verifies: readonly string[];
  readonly steps: readonly {
    readonly tool: string;
    readonly args: Readonly<Record<string, unknown>>;
    readonly want: Want;
  }[];
}

const here = import.meta.dirname;
const stories = parse(readFileSync(path.join(here, 'routes', 'calls.yaml'), 'utf8')) as readonly Story[];
const LINES = Array.from({ length: 60 }, (_, line) => `line ${line}`).join('\n');
const FILES = {
  'docs/a.md': 'note\n',
  'docs/big.md': LINES,
  'docs/private/p.md': 'private-note\n',
  'src/a.ts': 'code\n',
  'src/big.ts': LINES,
  'src/private/p.ts': 'private code\n',
  'closed/c': 'closed-content\n',
  'closed/h': 'closed-content\n',
  'keys/k': 'key of a door\n',
  'other/o': 'other\n',
};

const CONFIG = routedConfig({
  waitMs: 0,
  write: '[{paths: ["docs/**"], server: notes}, {paths: ["src/**"], server: workspace}]',
  rules: `  - {id: here, outcome: allow, when: {servers: [workspace, vaulted]}}
  - {id: notes-read, outcome: allow, when: {servers: [notes], verbs: [read]}, obligations: {caps: {lines: 20}}}
  - {id: notes-private, outcome: deny, message: Closed., when: {servers: [notes], paths: ["docs/private/**"]}}
`,
});

/** Adds other names of files to a workspace. */
function link(root: string): void {
  symlinkSync('../docs', path.join(root, 'src', 'to-docs'));
  symlinkSync('../closed/c', path.join(root, 'src', 'to-closed'));
  symlinkSync('../src/a.ts', path.join(root, 'docs', 'to-src'));
  linkSync(path.join(root, 'closed', 'h'), path.join(root, 'src', 'hard'));
  linkSync(path.join(root, 'closed', 'h'), path.join(root, 'docs', 'hard'));
}

let facade: TestFacade;
let root: string;

beforeAll(async () => {
  ({ facade, root } = await startRouted(CONFIG, FILES, link));
}, 60_000);
afterAll(async () => {
  await facade.close();
  rmSync(facade.folder, { recursive: true, force: true });
});

describe('one primitive with several servers', () => {
  for (const story of stories) {
    inFull(
      story.name + verifies(...story.verifies),
      async () => {
        const session = facade.open('agent');
        for (const { tool, args, want } of story.steps) {
          const told = JSON.stringify(args);
          const answer = await facade.call(session, tool, JSON.parse(told.replaceAll('$ROOT', root)));
          expect(answer.code, `${told}: ${answer.text}`).toBe(want.code ?? (want.isError === true ? answer.code : ''));
          if (want.isError === true) expect(answer.result?.isError ?? answer.error !== undefined, told).toBe(true);
          if (want.server !== undefined)
            expect(answer.result?._meta?.['tollgate/provenance'], told).toMatchObject({ server: want.server });
          expect(answer.text, told).toContain(want.contains ?? '');
          for (const part of [want.lacks ?? []].flat()) expect(answer.text, told).not.toContain(part);
        }
      },
      60_000,
    );
  }

  inFull(
    'is one tool of a list, with the ids of all its servers, and tells its owner so' + verifies('ST-116', 'ST-117'),
    async () => {
      const session = facade.open('agent');
      const tools = await facade.list(session);
      expect(tools.map(({ name }) => name)).toEqual(['read', 'write']);
      const reply = await facade.assembled.gateway.listToolsWithIds(session, session.closed);
      const [read] = (
        JSON.parse(reply.kind === 'result' ? joinText(reply.text) : '') as {
          tools: { server: string; ids: string[] }[];
        }
      ).tools;
      expect(read?.server).toBe('workspace');
      expect(read?.ids).toEqual(
        expect.arrayContaining(['workspace.read', 'notes.read_text_file', 'vaulted.read_text_file']),
      );
      expect(read?.ids.join()).not.toContain('closed');
    },
  );

  it(
    'records the server that was called, and only in the audit why a server is hidden' + verifies('ST-117'),
    async () => {
      const session = facade.open('agent');
      await facade.call(session, 'read', { path: 'docs/a.md' });
      await facade.call(session, 'read', { path: 'closed/c' });
      const own = facade.records().filter((record) => record.session === session.id);
      expect(own.filter(({ type }) => type === 'intent')).toMatchObject([
        { server: 'notes', tool: 'read_text_file', exposed: 'read' },
      ]);
      expect(own.filter(({ code }) => code === 'NOT_SUPPORTED')).toMatchObject([{ reasons: [{ id: 'default-deny' }] }]);
    },
  );
});
