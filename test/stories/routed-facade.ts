/**
 * A facade whose `read` is served by the workspace and by real file servers, for the stories of routes and the attacks
 * on them.
 */
import { mkdirSync, mkdtempSync, realpathSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { startFacade, type TestFacade } from './facade.ts';

const PROGRAM = path.join(
  import.meta.dirname,
  '..',
  'servers',
  'node_modules',
  '@modelcontextprotocol',
  'server-filesystem',
  'dist',
  'index.js',
);

const server = (labels: string): string =>
  `{command: ${process.execPath}, args: [${PROGRAM}, "\${workspaceFolder}"], mapping: server-filesystem,
    isolation: direct, connectTimeoutMs: 60000, labels: [${labels}]}`;

/**
 * Returns a configuration with three servers and the routes of `read`. `waitMs`: how long a call waits for a person.
 * `write`: the routes of `write`.
 */
export function routedConfig({
  waitMs,
  rules,
  write = '',
}: {
  readonly waitMs: number;
  readonly rules: string;
  readonly write?: string;
}): string {
  return `version: 1
workspace: ./workspace
state: ./state
approvals: {waitMs: ${waitMs}}
servers:
  notes: ${server('internal')}
  vaulted: ${server('secret')}
  closed: ${server('secret')}
principals: [{id: agent, profiles: [routed], stdio: true}]
profiles:
  routed:
    expose:
      primitives:
        read:
          - {paths: ["docs/**"], server: notes}
          - {paths: ["closed/**"], server: closed}
          - {paths: ["keys/**"], server: vaulted}
          - {labels: [secret], server: vaulted}
          - workspace
${write === '' ? '' : `        write: ${write}\n`}rules:
${rules}`;
}

/**
 * Starts it with these files in the workspace. `prepare` adds links and other files. The caller closes it and removes
 * its folder.
 */
export async function startRouted(
  config: string,
  files: Readonly<Record<string, string>>,
  prepare: (root: string, folder: string) => void,
): Promise<{ readonly facade: TestFacade; readonly root: string }> {
  const folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-routes-')));
  const root = path.join(folder, 'workspace');
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(root, name)), { recursive: true });
    writeFileSync(path.join(root, name), text);
  }
  prepare(root, folder);
  return { facade: await startFacade(config, { folder }), root };
}
