/** Checks TypeScript sources with the compiler of the project, as an agent's editor would. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { functionNamesOf, moduleNameOf } from '../../facade/code/declarations/function-names.ts';
import { type DeclaredTool, moduleDeclaration } from '../../facade/code/declarations/module-declaration.ts';

const TSC = path.join(import.meta.dirname, '../../node_modules/.bin/tsc');
const OPTIONS = '--strict --noEmit --lib es2023 --module esnext --moduleResolution bundler --pretty false'.split(' ');

/** An error of the compiler: the file, the line from 1, and the message. */
export interface TypeError {
  readonly file: string;
  readonly line: number;
  readonly message: string;
}

/** Returns the errors of the files, by name and text, compiled as one program. Throws if the compiler fails otherwise. */
export function typeErrors(files: Readonly<Record<string, string>>): readonly TypeError[] {
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-types-'));
  try {
    for (const [name, text] of Object.entries(files)) writeFileSync(path.join(folder, name), text);
    const run = spawnSync(TSC, [...OPTIONS, ...Object.keys(files)], {
      cwd: folder,
      encoding: 'utf8',
      maxBuffer: 64 * 1024 * 1024,
    });
    const lines = run.stdout.split('\n').filter((line) => line !== '' && !line.startsWith(' '));
    const errors = lines.map((line) => {
      const found = /^(?<file>[^(]+)\((?<line>\d+),\d+\): error (?<message>.*)$/.exec(line)?.groups;
      if (found === undefined) throw new Error(`tsc: ${line}`);
      return { file: found.file ?? '', line: Number(found.line), message: found.message ?? '' };
    });
    if ((run.status === 0) !== (errors.length === 0)) throw new Error(`tsc: status ${run.status}: ${run.stderr}`);
    return errors;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Returns the declaration of a server's module. */
export function declare(server: string, tools: readonly DeclaredTool[]): Promise<string> {
  const names = functionNamesOf(tools.map(({ name }) => name));
  const functions = tools.map((tool) => ({ ...tool, functionName: names.get(tool.name) ?? '' }));
  return moduleDeclaration({ name: moduleNameOf(server), tools: functions });
}
