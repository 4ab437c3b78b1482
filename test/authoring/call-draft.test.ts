/** Tests facade/call/lowering/draft-call.ts: a drafted call has the same facts as the real call. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type DraftContext, draftCall, draftTools } from '../../facade/call/lowering/draft-call.ts';
import { serveOfflineOnDemand } from '../../facade/main.ts';
import { cli, dataOf, server } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';

const CONFIG = `servers:
  files: {command: x, isolation: direct, mapping: desktop-commander}
  story: ${server(['story-server.mjs'], 'semantics: {get_*: {verb: read, paths: [file]}, put: write}')}
profiles:
  default: {servers: [story], expose: {tools: [{tool: story.put, name: store, pins: {mode: safe}}, story.*]}}
  far: {servers: [files], expose: {primitives: {read: files, bash: files}}}
`;

let project: Project;
let world: DraftContext;
beforeAll(async () => {
  project = new Project();
  project.write('src/a.ts', '');
  const config = project.config(CONFIG);
  world = { config, served: await serveOfflineOnDemand(config) };
});
afterAll(() => project.remove());

const NEAR = { profiles: ['default'] };
const FAR = { profiles: ['far'] };

describe('a primitive', () => {
  it.each([
    ['read', { path: 'src/../src/a.ts' }],
    ['read', { file_path: 'src/a.ts' }],
    ['read', { action: 'search', path: '.', pattern: 'x' }],
    ['write', { path: '/etc/x', content: 'x' }],
    ['bash', { command: 'git push && ls', cwd: 'src' }],
    ['bash', { action: 'list' }],
  ] as const)('%s %j has the effect that `try` shows', async (tool, args) => {
    project.write('plain.yaml', 'rules: [{id: all, outcome: allow, when: {}}]\n');
    const { out } = await cli(project, ['try', tool, JSON.stringify(args), '--json', '--config', 'plain.yaml']);
    expect(draftCall(world, NEAR, { tool, args }).effect).toEqual(dataOf<{ effect: unknown }>(out).effect);
  });

  it('is lowered to a tool of its backend by the mapping', () => {
    expect(draftCall(world, FAR, { tool: 'read', args: { path: 'src/a.ts' } }).effect).toMatchObject({
      server: 'files',
      tool: 'read_file',
      verb: 'read',
      paths: [{ path: 'src/a.ts', inside: true }],
    });
    expect(draftTools(world, FAR, 'read').map(({ tool }) => tool)).toContain('list_directory');
    expect(draftCall(world, FAR, { tool: 'workspace.read', args: { path: 'a' } }).effect.server).toBe('workspace');
  });

  it.each([
    ['an unknown argument', NEAR, { tool: 'read', args: { paht: 'a' } }, 'ARGS_INVALID'],
    ['an action without its argument', NEAR, { tool: 'bash', args: {} }, 'ARGS_INVALID'],
    [
      'a primitive that the profile does not have',
      FAR,
      { tool: 'write', args: { path: 'a', content: 'b' } },
      'UNKNOWN_TOOL',
    ],
    [
      'what the backend cannot do',
      FAR,
      { tool: 'read', args: { action: 'find', path: '.', pattern: '*', hidden: true, limit: -1 } },
      undefined,
    ],
  ] as const)('with %s is refused as the call would be', (_name, principal, call, code) => {
    const draft = (): unknown => draftCall(world, principal, call);
    if (code === undefined) expect(draft).not.toThrow();
    else expect(draft).toThrowError(expect.objectContaining({ code }) as Error);
  });
});

describe('a tool', () => {
  it.each([
    ['story.put', 'put', { mode: 'safe', x: 1 }],
    ['store', 'put', { mode: 'safe', x: 1 }],
    ['story_other', 'other', { mode: 'fast', Mode: 'fast', x: 1 }],
  ] as const)('%s is named in each way that it has, with its pins', (tool, real, args) => {
    const { effect, argsText } = draftCall(world, NEAR, { tool, args: { mode: 'fast', Mode: 'fast', x: 1 } });
    expect([effect.server, effect.tool, JSON.parse(argsText)]).toEqual(['story', real, args]);
  });

  it('has the semantics of the configuration, also in lists', () => {
    expect(draftCall(world, NEAR, { tool: 'story.get_it', args: { file: 'src/a.ts' } }).effect).toMatchObject({
      verb: 'read',
      paths: [{ path: 'src/a.ts', inside: true }],
    });
    expect(draftTools(world, NEAR, 'story.get_it')).toMatchObject([{ server: 'story', tool: 'get_it', verb: 'read' }]);
  });

  it.each(['', 'nothing', 'stroy.put', 'workspace.put', '.put', 'story'])('%j is refused', (tool) => {
    expect(() => draftCall(world, NEAR, { tool, args: {} })).toThrowError(
      expect.objectContaining({ code: 'UNKNOWN_TOOL' }) as Error,
    );
  });

  it('of an unknown profile is refused', () => {
    expect(() => draftTools(world, { profiles: ['nope'] }, 'read')).toThrowError(
      expect.objectContaining({ code: 'CONFIG_INVALID' }) as Error,
    );
  });
});
