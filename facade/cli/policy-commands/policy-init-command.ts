/** Runs `policy init`: writes a first policy folder, and names it in tollgate.yaml. It overwrites nothing. */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { addTo } from '../../config/reading/config-edit.ts';
import { replaceFile } from '../../config/reading/file-replacement.ts';
import { realPath } from '../../config/reading/text-files.ts';
import { readYaml } from '../../config/reading/yaml-document.ts';
import { workspaceFault } from '../../config/work-folders.ts';
import { EXIT, type Io } from '../command-io.ts';
import { configFile, DEFAULT_CONFIG } from '../config-file.ts';
import { projectFile } from '../configuration/init-file.ts';
import { writeAsked } from '../output-file.ts';
import { commandLine, plural } from '../print.ts';
import type { Wiring } from '../wiring.ts';

interface InitOptions {
  readonly config: string;
  /** Default `policies`. */
  readonly folder?: string;
  readonly rego?: boolean;
  readonly json?: true;
  readonly opa?: string;
}

/**
 * What was done with tollgate.yaml: it was written, the new sources were added to it, it had them already, or it was
 * left for the user to edit.
 */
type ConfigEdit = 'written' | 'added' | 'there' | 'left';

/**
 * Writes the missing files, and prints what to do next. Throws USAGE for a place where nothing can be written, and for
 * a folder that cannot be a project.
 */
export async function runPolicyInit(
  options: InitOptions,
  io: Io,
  { authoring }: Pick<Wiring, 'authoring'>,
): Promise<number> {
  const file = configFile(options.config, io);
  const folder =
    options.folder === undefined ? path.join(path.dirname(file), 'policies') : path.resolve(io.cwd, options.folder);
  const shown = path.relative(io.cwd, folder) || '.';
  refuseFolder(file, io);
  const { rego, opa } = options;
  const { files, sources } = await authoring.draft({
    folder: shown,
    ...(rego !== undefined && { rego }),
    ...(opa !== undefined && { opa }),
  });
  const [written, kept]: [string[], string[]] = [[], []];
  for (const [name, text] of files) {
    // The cases of a suite would fail with rules that the user wrote.
    if (kept.includes(path.join(shown, name.replace(/_suite(?=\.yaml$)/, '')))) continue;
    const named = path.join(shown, name);
    const isWritten = writeAsked({ file: path.join(folder, name), shown: named, content: text, isNew: true });
    (isWritten ? written : kept).push(named);
  }
  const policies = sources.map((source) => path.posix.join(path.relative(path.dirname(file), folder), source));
  const edit = nameIn(file, options.config, policies);
  if (edit === 'written') written.push(options.config);
  const more = options.config === DEFAULT_CONFIG ? [] : ['--config', options.config];
  const check = ['policy', 'check'];
  const commands =
    edit === 'left' ? [[...check, ...sources.map((source) => path.join(shown, source))]] : [check, ['policy', 'test']];
  const next = commands.map((words) => commandLine([...io.self, ...words, ...more]));
  if (options.json === true) io.stdout(`${JSON.stringify({ written, kept, policies, config: edit, next })}\n`);
  else io.stderr(report({ written, kept, policies, edit, config: options.config, next, hasRego: sources.length > 1 }));
  return EXIT.ok;
}

/** Applies the checks of `tollgate init` if there is no tollgate.yaml yet. */
function refuseFolder(file: string, { home }: Pick<Io, 'home'>): void {
  if (existsSync(file)) return;
  const folder = path.dirname(file);
  const fault = existsSync(folder) ? workspaceFault(realPath(folder), home) : 'there is no such folder';
  if (fault !== undefined)
    throw new TollgateError('USAGE', {
      detail: `This folder cannot be a project: ${fault}.`,
      next: 'Change to the folder of your project and call tollgate policy init again.',
    });
}

/**
 * Adds the new sources only to a configuration without rules, which denies everything. Next to existing rules they
 * could allow more, so the user must add them.
 */
function nameIn(file: string, shown: string, policies: readonly string[]): ConfigEdit {
  if (writeAsked({ file, shown, content: projectFile({ policies }), isNew: true })) return 'written';
  const text = readFileSync(file, 'utf8');
  const { value, problems } = readYaml(path.basename(file), text);
  const { policies: named, rules } = (value ?? {}) as { readonly policies?: unknown; readonly rules?: unknown };
  const known = (Array.isArray(named) ? (named as readonly unknown[]) : []).map((entry) =>
    typeof entry === 'string' ? entry : (entry as { path?: unknown } | null)?.path,
  );
  const isNamed = (policy: string): boolean =>
    known.some((one) => typeof one === 'string' && path.normalize(one) === path.normalize(policy));
  if (policies.every(isNamed)) return 'there';
  if (problems.length > 0 || known.length > 0 || (Array.isArray(rules) && rules.length > 0)) return 'left';
  replaceFile(file, addTo(text, [{ path: ['policies'], items: policies }]));
  return 'added';
}

interface Report {
  readonly written: readonly string[];
  readonly kept: readonly string[];
  readonly policies: readonly string[];
  readonly edit: ConfigEdit;
  readonly config: string;
  readonly next: readonly string[];
  readonly hasRego: boolean;
}

function report({ written, kept, policies, edit, config, next, hasRego }: Report): string {
  const list = `policies: [${policies.join(', ')}]`;
  const edits: Readonly<Record<ConfigEdit, string>> = {
    written: '',
    there: '',
    added: `Added to ${config}:\n  ${list}\n`,
    left: `${config} names rules already. To use the new ones too:\n  ${list}\n`,
  };
  return [
    `Wrote ${plural(written.length, 'file')}${written.length === 0 ? '.' : ':'}\n`,
    ...written.map((name) => `  ${name}\n`),
    kept.length === 0 ? '' : `Not changed: ${kept.join(', ')}.\n`,
    hasRego ? '' : 'Rules in YAML only. For Rego: install opa, then call this again with --rego.\n',
    edits[edit],
    `Next:\n${next.map((command) => `  ${command}\n`).join('')}`,
  ].join('');
}
