/**
 * Helpers for tests of connecting: a project whose programs can be isolated, a fake npm, and a search for a value in
 * every file.
 */
import { chmodSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { useHelpers } from '../../catalogs/programs/helper-programs.ts';
import type { KnownServer } from '../../catalogs/servers/known-server.ts';
import type { Io } from '../../facade/cli/command-io.ts';
import { type Answer, cli } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { giveAway } from '../servers/system.ts';

/** A project with a workspace of another user, and rules that let reads run and writes ask. */
export class Place {
  readonly project = new Project();
  readonly bin = path.join(this.project.root, 'bin');
  readonly file = this.project.file;

  constructor() {
    mkdirSync(path.join(this.project.folder, 'work'));
    mkdirSync(this.bin);
    this.project.write(
      'tollgate.yaml',
      `# kept as it is
version: 1
workspace: work
state: ../../state
programs: {npm: ${path.join(this.bin, 'npm')}}
rules:
  - {id: reads, outcome: allow, when: {verbs: [read]}}
  - {id: writes, outcome: ask, when: {verbs: [write, destructive]}}
`,
    );
    giveAway(path.join(this.project.folder, 'work'));
    // The sandbox can only contain paths below folders that other users may enter.
    chmodSync(this.project.root, 0o755);
  }

  get state(): string {
    return path.join(this.project.root, 'state');
  }

  get env(): Record<string, string> {
    return { PATH: `${this.bin}:${process.env.PATH ?? ''}`, HOME: process.env.HOME ?? '' };
  }

  /**
   * Replaces npm with a script that writes the lock file and the program of a known server, and its own arguments.
   * `integrity` replaces the true digest.
   */
  fakeNpm(
    known: KnownServer,
    {
      integrity = known.package?.integrity,
      program = '',
    }: { readonly integrity?: string | undefined; readonly program?: string } = {},
  ): void {
    const { name = '', version = '', bin = '' } = known.package ?? {};
    const view = JSON.stringify({ name, version, 'dist.integrity': integrity, bin });
    const lock = JSON.stringify({ packages: { [`node_modules/${name}`]: { version, integrity } } });
    this.npm(
      `case "$1 $2" in
"view ${name}"*) echo '${view}'; exit ;;
view*) exit ;;
esac
mkdir -p "$(dirname node_modules/${name}/${bin})"
cat > node_modules/${name}/${bin} <<'PROGRAM'
${program}
PROGRAM
printf '%s' '${lock}' > package-lock.json`,
    );
  }

  npm(script: string): void {
    const file = path.join(this.bin, 'npm');
    useHelpers({ programs: { npm: file }, writable: [] });
    writeFileSync(file, `#!/bin/sh\n{ pwd; echo "$@"; env; } >> '${this.calls}'\n${script}\n`);
    chmodSync(file, 0o755);
  }

  /** Returns folder, arguments and environment of the calls of the fake npm. */
  get calls(): string {
    return path.join(this.project.root, 'npm-calls');
  }

  run(argv: readonly string[], more: Partial<Io> = {}): Promise<Answer> {
    return cli(this.project, argv, { env: this.env, ...more });
  }
}

/** Returns the text of every file below a folder, by its path. */
export function filesIn(folder: string): ReadonlyMap<string, string> {
  const entries = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .map((name) => path.join(folder, name))
    .filter((file) => statSync(file, { throwIfNoEntry: false })?.isFile() === true);
  return new Map(entries.map((file) => [file, readFileSync(file, 'latin1')]));
}

/** Returns the files that contain a value. */
export function holders(folder: string, value: string): readonly string[] {
  return [...filesIn(folder)].filter(([, text]) => text.includes(value)).map(([file]) => path.relative(folder, file));
}
