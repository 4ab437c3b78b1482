/** Owns `policy init`: a folder to begin a policy in, and a tollgate.yaml that names it where there is none; refuses to overwrite anything, and to open a policy that works. */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { addTo } from '../../config/reading/config-edit.ts';
import { replaceFile } from '../../config/reading/file-replacement.ts';
import { realPath } from '../../config/reading/text-files.ts';
import { readYaml } from '../../config/reading/yaml-document.ts';
import { workspaceFault } from '../../config/work-folders.ts';
import { EXIT, type Io } from '../command-io.ts';
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

/** What tollgate.yaml is to the new folder: made for it, made to name it, or left to a person, with the words to write. */
type Named = 'written' | 'added' | 'there' | 'left';

/** Writes what is not there yet, and says what to do next. Throws USAGE for a place where nothing can be written, and for a folder that cannot be a project. */
export async function runPolicyInit(
  options: InitOptions,
  io: Io,
  { authoring }: Pick<Wiring, 'authoring'>,
): Promise<number> {
  const folder = path.resolve(io.cwd, options.folder ?? 'policies');
  const file = path.resolve(io.cwd, options.config);
  const shown = path.relative(io.cwd, folder) || '.';
  refuseFolder(file, io);
  const { files, sources } = await authoring.draft({
    folder: shown,
    ...(options.rego === undefined ? {} : { rego: options.rego }),
    ...(options.opa === undefined ? {} : { opa: options.opa }),
  });
  const [written, kept]: [string[], string[]] = [[], []];
  for (const [name, text] of files) {
    // Cases for rules of somebody else would fail.
    if (kept.includes(path.join(shown, name.replace(/_suite(?=\.yaml$)/, '')))) continue;
    (writeAsked({ file: path.join(folder, name), shown: path.join(shown, name), content: text, isNew: true })
      ? written
      : kept
    ).push(path.join(shown, name));
  }
  const policies = sources.map((source) => path.posix.join(path.relative(path.dirname(file), folder), source));
  const named = nameIn(file, options.config, policies);
  if (named === 'written') written.push(options.config);
  const more = options.config === 'tollgate.yaml' ? [] : ['--config', options.config];
  const commands =
    named === 'left'
      ? [['policy', 'check', ...sources.map((source) => path.join(shown, source))]]
      : [
          ['policy', 'check'],
          ['policy', 'test'],
        ];
  const next = commands.map((words) => commandLine([...io.self, ...words, ...more]));
  if (options.json === true) io.stdout(`${JSON.stringify({ written, kept, policies, config: named, next })}\n`);
  else io.stderr(report({ written, kept, policies, named, config: options.config, next, hasRego: sources.length > 1 }));
  return EXIT.ok;
}

/** As `tollgate init`, where a tollgate.yaml is to be made. */
function refuseFolder(file: string, { home }: Pick<Io, 'home'>): void {
  if (existsSync(file)) return;
  const fault = existsSync(path.dirname(file))
    ? workspaceFault(realPath(path.dirname(file)), home)
    : 'there is no such folder';
  if (fault !== undefined)
    throw new TollgateError('USAGE', {
      detail: `This folder cannot be a project: ${fault}.`,
      next: 'Change to the folder of your project and call tollgate policy init again.',
    });
}

/**
 * A configuration without any rule denies everything, so that naming new ones is what is meant. Where there are rules, more that allow would open
 * what works: a person names them.
 */
function nameIn(file: string, shown: string, policies: readonly string[]): Named {
  if (writeAsked({ file, shown, content: projectFile({ policies }), isNew: true })) return 'written';
  const text = readFileSync(file, 'utf8');
  const { value, problems } = readYaml(path.basename(file), text);
  const { policies: there, rules } = (value ?? {}) as { readonly policies?: unknown; readonly rules?: unknown };
  const known = Array.isArray(there)
    ? (there as readonly unknown[]).map((entry) =>
        typeof entry === 'string' ? entry : (entry as { path?: unknown } | null)?.path,
      )
    : [];
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
  readonly named: Named;
  readonly config: string;
  readonly next: readonly string[];
  readonly hasRego: boolean;
}

function report({ written, kept, policies, named, config, next, hasRego }: Report): string {
  const list = `policies: [${policies.join(', ')}]`;
  const names: Readonly<Record<Named, string>> = {
    written: '',
    there: '',
    added: `Added to ${config}:\n  ${list}\n`,
    left: `${config} names rules already. To use the new ones too:\n  ${list}\n`,
  };
  return [
    `Wrote ${plural(written.length, 'file')}${written.length === 0 ? '' : `: ${written.join(', ')}`}.\n`,
    kept.length === 0 ? '' : `Left as they are: ${kept.join(', ')}.\n`,
    hasRego ? '' : 'Rules in YAML only. For Rego: install opa, then call this again with --rego.\n',
    names[named],
    `Next:\n${next.map((command) => `  ${command}\n`).join('')}`,
  ].join('');
}
