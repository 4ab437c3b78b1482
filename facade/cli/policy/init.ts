/** Owns `policy init`: a folder to begin a policy in; refuses to overwrite anything. */
import { lstatSync, mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { EXIT, type Io } from '../io.ts';
import { commandLine, plural } from '../print.ts';
import type { Wiring } from '../program.ts';

interface InitOptions {
  readonly folder: string;
  readonly rego?: boolean;
  readonly json?: true;
  readonly opa?: string;
}

/** Writes what is not there yet, and says what to do next. */
export async function runPolicyInit(options: InitOptions, io: Io, { authoring }: Pick<Wiring, 'authoring'>): Promise<number> {
  const folder = path.resolve(io.cwd, options.folder);
  const shown = path.relative(io.cwd, folder) || '.';
  const { files, sources } = await authoring.draft({ folder: shown, ...(options.rego === undefined ? {} : { rego: options.rego }), ...(options.opa === undefined ? {} : { opa: options.opa }) });
  const [written, kept]: [string[], string[]] = [[], []];
  for (const [name, text] of files) {
    // Cases for rules of somebody else would fail.
    if (kept.includes(path.join(shown, name.replace(/_suite(?=\.yaml$)/, '')))) continue;
    (writeNew(path.join(folder, name), text) ? written : kept).push(path.join(shown, name));
  }
  const policies = sources.map((source) => path.posix.join(shown, source));
  const next = [['policy', 'check'], ['policy', 'test']].map((words) => commandLine([...io.self, ...words]));
  if (options.json === true) io.stdout(`${JSON.stringify({ written, kept, policies, next })}\n`);
  else io.stderr(report({ written, kept, policies, next, hasRego: sources.length > 1 }));
  return EXIT.ok;
}

/** False when something is there already, a dangling link too: writing through it would create a file elsewhere. */
function writeNew(target: string, text: string): boolean {
  if (lstatSync(target, { throwIfNoEntry: false }) !== undefined) return false;
  mkdirSync(path.dirname(target), { recursive: true });
  writeFileSync(target, text, { flag: 'wx' });
  return true;
}

function report({ written, kept, policies, next, hasRego }: { written: readonly string[]; kept: readonly string[]; policies: readonly string[]; next: readonly string[]; hasRego: boolean }): string {
  return [
    `Wrote ${plural(written.length, 'file')}${written.length === 0 ? '' : `: ${written.join(', ')}`}.\n`,
    kept.length === 0 ? '' : `Left as they are: ${kept.join(', ')}.\n`,
    hasRego ? '' : 'Rules in YAML only. For Rego: install opa, then call this again with --rego.\n',
    `In tollgate.yaml:\n  policies: [${policies.join(', ')}]\n`,
    `Next:\n${next.map((command) => `  ${command}\n`).join('')}`,
  ].join('');
}
