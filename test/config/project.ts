/** Temporary projects for tests of the configuration: a home folder with a project that can be loaded. */
import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Config } from '../../facade/config/config.ts';
import type { Problem } from '../../facade/config/config-problems.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { approveAll } from '../consent/approve-servers.ts';

export type Env = Readonly<Record<string, string | undefined>>;

/** The result of a load: a configuration, or problems. */
export interface Loaded {
  readonly config?: Config;
  readonly problems: readonly Problem[];
  readonly error?: TollgateError;
}

export class Project {
  readonly root = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-config-')));
  readonly home = path.join(this.root, 'home');
  readonly folder = path.join(this.home, 'project');
  readonly file = path.join(this.folder, 'tollgate.yaml');

  constructor() {
    mkdirSync(this.folder, { recursive: true });
  }

  /** Writes a file; `~/` is the home of the project. */
  write(name: string, text: string): string {
    const file = name.startsWith('~/') ? path.join(this.home, name.slice(2)) : path.resolve(this.folder, name);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, text);
    return file;
  }

  load(yaml: string, env: Env = {}): Loaded {
    this.write('tollgate.yaml', yaml);
    try {
      return { config: loadConfig(this.file, { env, home: this.home }), problems: [] };
    } catch (thrown) {
      if (!(thrown instanceof TollgateError)) throw thrown;
      return { problems: (thrown.data.problems ?? []) as readonly Problem[], error: thrown };
    }
  }

  /** Returns the configuration. Throws an error with all problems if it does not load. */
  config(yaml: string, env: Env = {}): Config {
    const { config, problems } = this.load(yaml, env);
    if (config === undefined) throw new Error(JSON.stringify(problems, null, 1));
    return config;
  }

  /** Approves servers of the present configuration; default: all of tollgate.yaml. */
  async approve({
    file = this.file,
    names,
    env = {},
  }: {
    readonly file?: string;
    readonly names?: readonly string[];
    readonly env?: Env;
  } = {}): Promise<void> {
    await approveAll(loadConfig(path.resolve(this.folder, file), { env, home: this.home }), names);
  }

  remove(): void {
    rmSync(this.root, { recursive: true, force: true });
  }
}

/** Runs `work` with a project, and removes the project afterwards. */
export function withProject<T>(work: (project: Project) => T): T {
  const project = new Project();
  try {
    return work(project);
  } finally {
    project.remove();
  }
}
