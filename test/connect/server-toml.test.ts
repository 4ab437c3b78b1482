/** Tests that a server in a TOML file becomes the same server here, and that no key of it is ignored silently. */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parse, stringify } from 'yaml';
import { readServerToml } from '../../facade/cli/connect/server-toml.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
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

const REFUSED = parse(readFileSync(path.join(import.meta.dirname, 'refused-toml.yaml'), 'utf8')) as readonly {
  readonly name: string;
  readonly toml: string;
  readonly says: string;
}[];

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

  it('keeps what each tool does, so that reads run and other tools stay destructive' + verifies('PF-19'), async () => {
    const semantics = '[semantics]\nsearch = "read"\n[semantics."save_*"]\nverb = "write"\npaths = ["file"]\n';
    place.project.write('notion.toml', NOTION + semantics);
    await place.run(['import', 'notion.toml', '--yes']);
    const { servers } = loadConfig(place.file, { env: {}, home: place.project.home });
    expect(servers.get('notion')?.semantics).toMatchObject([
      { pattern: 'search', semantics: { verb: 'read' } },
      { pattern: 'save_*', semantics: { verb: 'write', paths: ['file'] } },
    ]);
  });

  it('shows a preview, writes the file, prints the next commands, and undoes it', async () => {
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
      'several mistakes',
      'name = "notion"\n[server]\nargs = [1]',
      /args is not a list of strings; .*; \[server\] has no command/,
    ],
    ['a name that is not allowed', NOTION.replace('"notion"', '"No tion"'), /cannot be imported as "No tion"/],
    ['a domain that is not valid', NOTION.replace('api.notion.com', 'https://x/'), /CONFIG_INVALID/],
  ])('refuses %s', async (_name, text, words) => {
    place.project.write('notion.toml', text);
    expect(await place.run(['import', 'notion.toml', '--yes'])).toMatchObject({
      code: 2,
      err: expect.stringMatching(words) as string,
    });
    expect(existsSync(path.join(place.project.folder, 'servers'))).toBe(false);
  });

  it('refuses a name that is taken, and prints JSON for scripts', async () => {
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

describe('a server in a TOML file' + verifies('PF-01'), () => {
  it('becomes an entry that loads', () => {
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

  it('needs only a command', () => {
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
  ])('may have a memory limit of %s', (limit, memoryMb) => {
    expect(readServerToml(`[server]\ncommand = "x"\n[sandbox]\nmemory_limit = "${limit}"`)).toMatchObject({
      entry: { sandbox: { limits: { memoryMb } } },
    });
  });

  it('may contain keys that have no meaning here, which it reports', () => {
    expect(readServerToml('[server]\ncommand = "x"\n[sandbox]\nallow_tmp = false')).toMatchObject({
      ok: true,
      remarks: [expect.stringContaining('every server has its own /tmp')],
    });
  });

  it.each(REFUSED)('is refused with $name', ({ toml, says }) => {
    expect(problemsOf(toml)).toEqual(expect.arrayContaining([expect.stringMatching(says)]));
    expect(problemsOf(toml).join('')).not.toContain('in-clear');
  });

  it('never makes the reader throw', () => {
    fc.assert(fc.property(fc.string(), (text) => typeof readServerToml(text).ok === 'boolean'));
  });
});
