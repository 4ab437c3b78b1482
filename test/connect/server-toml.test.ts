/** Tests the reading of one server in TOML: the form of its source means what our own words mean, and nothing is taken silently. */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { stringify } from 'yaml';
import { readServerToml } from '../../facade/cli/connect/server-toml.ts';
import { withProject } from '../config/project.ts';
import { verifies } from '../verifies.ts';
import { Place } from './place.ts';

const NOTION = `name = "notion"
description = "Notion workspace: pages, databases, blocks"
label = "internal"
allowed_domains = ["api.notion.com"]

[server]
command = "node"
args = ["/srv/notion/index.js", "a$b"]

[auth]
NOTION_TOKEN = "vault:notion_token"

[sandbox]
memory_limit = "256m"
read_only_fs = true
allow_tmp = true
`;

const problemsOf = (text: string): readonly string[] => {
  const read = readServerToml(text);
  return read.ok ? [] : read.problems;
};

describe('tollgate import FILE.toml' + verifies('PF-01'), () => {
  let place: Place;
  beforeEach(() => {
    place = new Place();
    place.project.write('notion.toml', NOTION);
  });
  afterEach(() => place.project.remove());

  it('writes the file after a preview, says what is next, and takes it back', async () => {
    expect(await place.run(['import', 'notion.toml', '--dry-run'])).toMatchObject({
      code: 0,
      err: expect.stringContaining('+ description: "Notion workspace') as string,
    });
    const { err } = await place.run(['import', 'notion.toml', '--yes']);
    expect(err).toContain('Next:\n  tollgate secret set notion_token\n  tollgate approve notion\n');
    const file = path.join(place.project.folder, 'servers', 'notion.yaml');
    expect(readFileSync(file, 'utf8')).toContain('profiles:\n  - default');
    expect((await place.run(['import', '--undo'])).code).toBe(0);
    expect(existsSync(file)).toBe(false);
  });

  it.each([
    [
      'what is wrong',
      'name = "notion"\n[server]\nargs = [1]',
      /args is not a list of strings; .*; \[server\] has no command/,
    ],
    ['a name that cannot be', NOTION.replace('"notion"', '"No tion"'), /cannot be imported as "No tion"/],
    ['a domain that is none', NOTION.replace('api.notion.com', 'https://x/'), /CONFIG_INVALID/],
  ])('refuses %s', async (_name, text, words) => {
    place.project.write('notion.toml', text);
    expect(await place.run(['import', 'notion.toml', '--yes'])).toMatchObject({
      code: 2,
      err: expect.stringMatching(words) as string,
    });
    expect(existsSync(path.join(place.project.folder, 'servers'))).toBe(false);
  });

  it('refuses a name that is taken, and gives data to scripts', async () => {
    expect(JSON.parse((await place.run(['import', 'notion.toml', '--yes', '--json'])).out)).toMatchObject({
      server: 'notion',
      written: true,
      secrets: ['notion_token'],
    });
    expect((await place.run(['import', 'notion.toml', '--yes'])).err).toContain(
      'there is a server of this name already',
    );
  });
});

describe('a server in TOML' + verifies('PF-01'), () => {
  it('becomes an entry of ours that loads', () => {
    const read = readServerToml(NOTION);
    expect(read).toEqual({
      ok: true,
      name: 'notion',
      secrets: ['notion_token'],
      remarks: [],
      entry: {
        description: 'Notion workspace: pages, databases, blocks',
        command: 'node',
        args: ['/srv/notion/index.js', 'a$$b'],
        env: { NOTION_TOKEN: '${secret:notion_token}' },
        labels: ['internal'],
        sandbox: { network: { allowedDomains: ['api.notion.com'] }, limits: { memoryMb: 256 } },
      },
    });
    withProject((project) => {
      project.write('servers/notion.yaml', stringify(read.ok ? read.entry : {}));
      const server = project.config('version: 1\n').servers.get('notion');
      expect([server?.args[1], server?.sandbox?.limits.memoryMb, server?.env]).toEqual([
        'a$b',
        256,
        { NOTION_TOKEN: '${secret:notion_token}' },
      ]);
    });
  });

  it('may leave out all but its command', () => {
    expect(readServerToml('[server]\ncommand = "x"')).toEqual({
      ok: true,
      entry: { command: 'x' },
      secrets: [],
      remarks: [],
    });
  });

  it.each([
    ['1g', 1024],
    ['512m', 512],
    ['1024k', 1],
    ['300MB', 300],
  ])('reads a memory limit of %s', (limit, memoryMb) => {
    expect(readServerToml(`[server]\ncommand = "x"\n[sandbox]\nmemory_limit = "${limit}"`)).toMatchObject({
      entry: { sandbox: { limits: { memoryMb } } },
    });
  });

  it('says what has no meaning here, and goes on', () => {
    expect(readServerToml('[server]\ncommand = "x"\n[sandbox]\nallow_tmp = false')).toMatchObject({
      ok: true,
      remarks: [expect.stringContaining('every server has its own /tmp')],
    });
  });

  it.each([
    ['no TOML', 'name = \n', /^1:\d+: the line is not valid TOML/],
    ['no command', 'name = "a"', /has no command/],
    [
      'an unknown key',
      '[server]\ncommand = "x"\ncommnd = "y"',
      /unknown key "commnd" in \[server\], .*did you mean "command"/,
    ],
    ['an unknown table', '[server]\ncommand = "x"\n[tools]\na = 1', /unknown key "tools" in the file/],
    [
      'a credential in clear',
      '[server]\ncommand = "x"\n[auth]\nTOKEN = "ntn_in-clear"',
      /\[auth\] "TOKEN" is not a reference/,
    ],
    ['a reference to nothing', '[server]\ncommand = "x"\n[auth]\nTOKEN = "vault:"', /is not a reference/],
    ['a writable system', '[server]\ncommand = "x"\n[sandbox]\nread_only_fs = false', /read_only_fs = false/],
    ['a size that is none', '[server]\ncommand = "x"\n[sandbox]\nmemory_limit = "lots"', /memory_limit is not a size/],
    ['a server that is no table', 'server = "x"', /server is not a table/],
    ['a name that is no text', 'name = 1\n[server]\ncommand = "x"', /name is not a string/],
    [
      'domains that are no list',
      'allowed_domains = "a.example"\n[server]\ncommand = "x"',
      /allowed_domains is not a list/,
    ],
  ])('with %s is refused', (_name, text, words) => {
    expect(problemsOf(text)).toEqual(expect.arrayContaining([expect.stringMatching(words)]));
    expect(problemsOf(text).join('')).not.toContain('in-clear');
  });

  it('never throws', () => {
    fc.assert(fc.property(fc.string(), (text) => typeof readServerToml(text).ok === 'boolean'));
  });
});
