/** A facade whose agents run code, for tests: one real server with small tools, and a log of what it was asked. */
import path from 'node:path';
import { type Answer, startFacade, type TestFacade } from '../stories/facade.ts';

const STORY = path.join(import.meta.dirname, '..', 'fixtures', 'story-server.mjs');

/** How a test starts it. */
export interface CodeFacadeOptions {
  readonly folder?: string;
  /** More members of `expose`. */
  readonly expose?: string;
  /** More lines of the configuration. */
  readonly more?: string;
  readonly rules?: string;
  readonly waitMs?: number;
  readonly files?: Readonly<Record<string, string>>;
}

/** Reading and `pair` are allowed, `wipe` and `open` are asked about. */
const RULES = `
  - {id: reads, outcome: allow, when: {verbs: [read]}}
  - {id: pairs, outcome: allow, when: {tools: [stories.pair]}}
  - {id: asks, outcome: ask, message: A person decides., when: {tools: [stories.wipe, stories.open]}}`;

/** Starts a facade with the principals `alice` (runs code) and `boss` (owner). */
export function startCodeFacade({
  folder,
  expose = '',
  more = '',
  rules = RULES,
  waitMs = 0,
  files = {},
}: CodeFacadeOptions = {}): Promise<TestFacade> {
  const yaml = `version: 1
workspace: ./workspace
state: ./state
servers:
  stories:
    command: ${JSON.stringify(process.execPath)}
    args: ${JSON.stringify([STORY])}
    isolation: direct
    semantics: {echo: read, count: read, rows: read, picture: read, fail: read, slow: read, liar: read, pair: write, open: write}
principals:
  - {id: alice, stdio: true, profiles: [work]}
  - {id: boss, stdio: true, owner: true}
profiles:
  work:
    servers: [stories]
    expose: {tools: ["stories.*"], code: true${expose}}
approvals: {waitMs: ${waitMs}}
rules:${rules}
${more}`;
  return startFacade(yaml, { files: { ...files }, ...(folder !== undefined && { folder }) });
}

/** Runs code as `alice`. */
export function runCode(facade: TestFacade, code: string, session = facade.open('alice')): Promise<Answer> {
  return facade.call(session, 'run_code', { code });
}

/** The calls of tools of servers that ran, as `tool` → how often. */
export function callsMade(facade: TestFacade): Readonly<Record<string, number>> {
  const made: Record<string, number> = {};
  for (const { type, executed, server, tool } of facade.records())
    if (type === 'outcome' && executed === 'yes' && server !== 'code') made[`${tool}`] = (made[`${tool}`] ?? 0) + 1;
  return made;
}
