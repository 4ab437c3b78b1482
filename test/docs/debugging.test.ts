/** Follows docs/debugging.md after a crash and a refusal, and compares its tables with what the program has. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ERRORS } from '../../catalogs/errors/error-table.ts';
import { type Answer, cli } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { scriptedServer } from '../consent/scripted-server.ts';
import { startFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';
import { ROOT, readPage } from './markdown.ts';

const PAGE = 'docs/debugging.md';
let project: Project;
beforeEach(() => {
  project = new Project();
});
afterEach(() => project.remove());

const run = async (...line: readonly string[]): Promise<string> => {
  // A command that the page does not name would help no reader.
  expect(readPage(PAGE)).toContain(`tollgate ${line.slice(0, line[0] === 'try' ? 1 : 2).join(' ')}`);
  const answer: Answer = await cli(project, line);
  return answer.out + answer.err;
};

describe('the debugging guide' + verifies('HA-34', 'FH-53'), () => {
  it('names each state of a server, and only error codes that exist', () => {
    const port = readFileSync(path.join(ROOT, 'adapters', 'port.ts'), 'utf8');
    const states = [...(/export type HealthState = ([^;]+);/.exec(port)?.[1] ?? '').matchAll(/'([^']+)'/g)];
    expect(states.length).toBeGreaterThan(5);
    const rows = readPage(PAGE).matchAll(/^\| `([a-z ]+)` \| /gm);
    const named = new Set([...rows].map(([, state]) => state));
    expect(states.map(([, state]) => state).filter((state) => !named.has(state))).toEqual([]);
    const codes = [...readPage(PAGE).matchAll(/`([A-Z]{3,}(?:_[A-Z]+)*)`/g)].map(([, code = '']) => code);
    expect(codes.length).toBeGreaterThan(0);
    expect(codes.filter((code) => !Object.hasOwn(ERRORS, code) && !['NAME', 'PRINCIPAL', 'ID'].includes(code))).toEqual(
      [],
    );
  });

  it('leads from a crash to its cause, and from a refusal to its rule', async () => {
    const answers = { 'tools/list': { tools: [{ name: 'find', inputSchema: { type: 'object' } }] } };
    const onRequest = `if (method === 'tools/call')
      return process.stderr.write('cannot open the database\\n', () => process.exit(4));`;
    project.write('server.mjs', scriptedServer(answers, { onRequest }));
    const yaml = `version: 1
workspace: ./workspace
state: ./state
servers:
  notes: {command: node, args: [server.mjs], isolation: direct, semantics: {find: read}}
profiles: {default: {servers: [notes]}}
expose: {tools: ["notes.*"]}
rules:
  - {id: finds, outcome: allow, when: {tools: [notes.find]}}
  - {id: no-env, outcome: deny, when: {paths: [.env]}}
  - {id: reads, outcome: allow, when: {tools: [workspace.read]}}
`;
    const facade = await startFacade(yaml, { folder: project.folder });
    const session = facade.open('local');
    expect((await facade.call(session, 'notes_find', {})).code).toBe('TOOL_CRASHED');
    expect((await facade.call(session, 'read', { path: '.env' })).code).toBe('DENIED');
    await facade.close();

    const failed = await run('audit', 'list', '--since', '1h', '--outcome', 'error');
    expect(failed).toMatch(/notes_find .*TOOL_CRASHED/);
    const [id = ''] = /[0-9a-f]{8}-[0-9a-f]{4}/.exec(failed) ?? [];
    expect(await run('audit', 'show', id)).toMatch(/executed +unknown/);
    expect(await run('servers', '--log', 'notes')).toContain('cannot open the database');
    expect(await run('audit', 'list', '--type', 'server', '--server', 'notes')).toContain('crashed');
    expect(await run('servers', 'info', 'notes')).toContain('server.mjs');
    expect(await run('audit', 'list', '--since', '1h', '--outcome', 'deny')).toContain('no-env');
    expect(await run('try', 'read', '{"path": ".env"}')).toContain('no-env');
    expect(await run('policy', 'why', 'read', '{"path": ".env"}')).toContain('no-env');
  });
});
