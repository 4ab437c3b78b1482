/**
 * Tests the files under servers/: they mean the same as entries of tollgate.yaml, and have problems at their places.
 */
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ServerConfig } from '../../facade/config/config.ts';
import { mergeProfiles } from '../../facade/config/profiles.ts';
import { controlRule } from '../../facade/runtime/policy-parts.ts';
import { verifies } from '../verifies.ts';
import { Project } from './project.ts';

const HEAD = 'version: 1\nworkspace: ./work\n';
const ENTRY = {
  description: 'Notes',
  command: 'node',
  args: ['notes.js', '${stateFolder}/x'],
  env: { NOTES_TOKEN: '${secret:notes}' },
  labels: ['internal'],
  sandbox: { network: { allowedDomains: ['notes.example.org'] }, limits: { memoryMb: 512 } },
  semantics: { 'get_*': 'read' },
};

let project: Project;

beforeEach(() => {
  project = new Project();
  mkdirSync(path.join(project.folder, 'work'));
});
afterEach(() => project.remove());

const plain = (server: ServerConfig | undefined): unknown => ({ ...server, source: '' });
const places = (yaml = HEAD): readonly string[] =>
  project.load(yaml).problems.map(({ file, line, column, message }) => `${file}:${line}:${column} ${message}`);

describe('a file under servers/', () => {
  it('means the same as an entry of tollgate.yaml, and is the source of the server' + verifies('PF-01'), () => {
    const inside = project.config(`${HEAD}servers: {notes: ${JSON.stringify(ENTRY)}}\n`).servers.get('notes');
    project.write('servers/notes.yaml', JSON.stringify({ name: 'notes', ...ENTRY }));
    const beside = project.config(HEAD).servers.get('notes');
    expect(plain(beside)).toEqual(plain(inside));
    expect([inside?.source, beside?.source]).toEqual(['tollgate.yaml', 'servers/notes.yaml']);
    expect(beside?.args[1]).toBe(path.join(project.config(HEAD).state, 'x'));
  });

  it('reports problems with its own file, line and column' + verifies('PF-01'), () => {
    project.write(
      'servers/notes.yaml',
      '# Notes\ncommand: node\nargz: [x]\nsandbox:\n  network:\n    allowedDomains: ["https://a.example.org/"]\n',
    );
    expect(places()).toEqual([
      expect.stringMatching(/^servers\/notes\.yaml:3:1 unknown key "argz" in servers\.notes: .*did you mean "args"\?$/),
      expect.stringMatching(/^servers\/notes\.yaml:6:22 servers\.notes\.sandbox\.network\.allowedDomains\[0\] is /),
    ]);
  });

  it.each([
    ['a syntax error', 'command: [\n', /^servers\/notes\.yaml:\d+:\d+ a closing/],
    ['nothing', '', /^servers\/notes\.yaml:1:1 the file contains no server/],
    ['a list', '- command: node\n', /^servers\/notes\.yaml:1:1 the file contains no server/],
    [
      'another name',
      'name: other\ncommand: node\n',
      /^servers\/notes\.yaml:1:7 the name of the server is "notes", after its file/,
    ],
    [
      'a secret on the command line',
      'command: node\nargs: ["${secret:notes}"]\n',
      /^servers\/notes\.yaml:2:8 \$\{secret:…\} outside env and headers of a server/,
    ],
    ['an approval', 'command: node\napproved: true\n', /^servers\/notes\.yaml:2:1 .*`tollgate approve notes`/],
    [
      'a profile that does not exist',
      'command: node\nprofiles: [default, ops]\n',
      /^servers\/notes\.yaml:2:21 profile "ops" is not under profiles/,
    ],
  ])('is refused with %s', (_name, text, message) => {
    project.write('servers/notes.yaml', text);
    expect(places()).toEqual([expect.stringMatching(message)]);
  });

  it('is refused if tollgate.yaml or another file defines the same server', () => {
    project.write('servers/notes.yaml', 'command: node\n');
    expect(places(`${HEAD}servers: {notes: {command: node}}\n`)).toEqual([
      expect.stringMatching(/^servers\/notes\.yaml:1:1 server "notes" is defined elsewhere too/),
    ]);
    project.write('servers/notes.yml', 'command: node\n');
    expect(places()).toEqual([
      expect.stringMatching(/^servers\/notes\.yml:1:1 server "notes" is defined elsewhere too/),
    ]);
  });

  it('is refused with an illegal name', () => {
    project.write('servers/My Notes.yaml', 'command: node\n');
    expect(places()).toEqual([
      expect.stringMatching(/^servers\/My Notes\.yaml:1:1 server "My Notes": a server name is lower-case/),
    ]);
  });

  it('does not hide a section of the wrong type', () => {
    project.write('servers/notes.yaml', 'command: node\n');
    expect(places(`${HEAD}servers: [a]\n`)).toEqual([expect.stringMatching(/^tollgate\.yaml:3:10 servers is a list/)]);
  });

  it('is a control file, like the folder servers/, even if that does not exist' + verifies('PF-01'), () => {
    const config = project.config('version: 1\n');
    expect(config.controlFiles).toContain(path.join(project.folder, 'servers'));
    expect(JSON.stringify(controlRule(config).value.rules)).toContain('"servers/**"');
  });

  it('is not read in TOML; a warning names the import command until it was imported' + verifies('PF-01'), () => {
    project.write('servers/notion.toml', 'command = "node"\n');
    const { servers, warnings } = project.config(HEAD);
    expect([servers.size, warnings]).toEqual([
      0,
      [
        {
          file: 'servers/notion.toml',
          line: 1,
          column: 1,
          message: expect.stringContaining('tollgate import servers/notion.toml'),
        },
      ],
    ]);
    project.write('servers/notion.yaml', 'command: node\n');
    expect(project.config(HEAD).warnings).toEqual([]);
  });

  it('is not any other file, or a file in the place of the folder', () => {
    project.write('servers/README.md', '#');
    project.write('servers/.hidden.yaml', '[');
    project.write('servers/deep/x.yaml', '[');
    expect(project.config(HEAD).servers.size).toBe(0);
  });
});

describe('the profiles of a server', () => {
  const shown = (yaml: string, ...names: string[]): unknown => {
    const { servers, expose } = mergeProfiles(project.config(yaml), names);
    return [servers, expose.map(({ tool }) => tool)];
  };

  it('show all of its tools without another setting', () => {
    project.write('servers/notes.yaml', 'command: node\nprofiles: [default]\n');
    expect(shown(HEAD)).toEqual([['notes'], ['notes.*']]);
    expect(shown(HEAD, 'harbor')).toEqual([[], []]);
  });

  it('are added to the servers of the profile, and respect its list of tools', () => {
    project.write('servers/notes.yaml', 'command: node\nprofiles: [default, ops]\n');
    const yaml = `${HEAD}servers: {a: {command: node}}
expose: {tools: [notes.search]}
profiles: {default: {servers: [a]}, ops: {servers: [a], expose: {tools: ["a.*"]}}}
`;
    expect(shown(yaml, 'default')).toEqual([['a', 'notes'], ['notes.search']]);
    expect(shown(yaml, 'ops')).toEqual([
      ['a', 'notes'],
      ['a.*', 'notes.*'],
    ]);
  });

  it('must not show the tools of a server that serves their primitives', () => {
    const yaml = `${HEAD}servers: {files: {command: node, mapping: server-filesystem, profiles: [default]}}
expose: {primitives: files}
`;
    expect(places(yaml)).toEqual([
      expect.stringMatching(/^tollgate\.yaml:3:\d+ server "files" serves the primitives of profile "default"/),
    ]);
  });
});
