/** Creates a home folder with clients' files, runs commands in it, and takes snapshots of all files to compare. */
import { createHash } from 'node:crypto';
import { existsSync, lstatSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import type { Io } from '../../facade/cli/command-io.ts';
import type { ClientId } from '../../facade/clients/client-formats.ts';
import { type Answer, cli } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { acceptNow } from '../stories/accept-configuration.ts';
import { ENVIRONMENT, SAMPLES } from './samples.ts';

const PLAIN = '# mine\nversion: 1\n\nlimits: {servers: 40} # enough\n';
const INSTALLERS = path.join(import.meta.dirname, 'fake-installers.mjs');
/** A tollgate.yaml with installers that need no registry. */
export const WITH_INSTALLERS = `${PLAIN}programs: {npm: ${INSTALLERS}, python3: ${INSTALLERS}}\n`;

/** A project with a plain tollgate.yaml. */
export class Home {
  readonly project = new Project();
  readonly env: Record<string, string> = { ...ENVIRONMENT };

  constructor(clients: readonly ClientId[] = [], yaml = PLAIN) {
    this.project.write('tollgate.yaml', yaml);
    // An agent could change the file, so only an accepted one may name the installers.
    if (yaml === WITH_INSTALLERS) acceptNow(this.project.file, { env: this.env, home: this.project.home });
    for (const client of clients) this.write(SAMPLES[client].file, SAMPLES[client].text);
  }

  /** Paths are relative to the home; `project/` is the project. */
  file(name: string): string {
    return path.join(this.project.home, name);
  }

  write(name: string, text: string): string {
    return this.project.write(this.file(name), text);
  }

  read(name: string): string {
    return readFileSync(this.file(name), 'utf8');
  }

  exists(name: string): boolean {
    return existsSync(this.file(name));
  }

  run(words: readonly string[], more: Partial<Io> = {}): Promise<Answer> {
    return cli(this.project, words, { env: this.env, ...more });
  }

  /** Returns hashes of all files by name, without those of the state. */
  snapshot(): Readonly<Record<string, string>> {
    const names = readdirSync(this.project.home, { recursive: true, encoding: 'utf8' })
      .filter((name) => !name.startsWith('.local') && lstatSync(this.file(name)).isFile())
      .sort();
    return Object.fromEntries(
      names.map((name) => [
        name,
        createHash('sha256')
          .update(readFileSync(this.file(name)))
          .digest('hex'),
      ]),
    );
  }

  /** Returns everything in the state folder as one text. */
  state(): string {
    const folder = this.file('.local');
    if (!existsSync(folder)) return '';
    return readdirSync(folder, { recursive: true, encoding: 'utf8' })
      .map((name) => path.join(folder, name))
      .filter((name) => lstatSync(name).isFile() && !name.includes('backups'))
      .map((name) => readFileSync(name, 'latin1'))
      .join('\n');
  }

  remove(): void {
    this.project.remove();
  }
}

/** Runs `work` in a home that is removed afterwards. */
export async function atHome<T>(
  clients: readonly ClientId[],
  work: (home: Home) => Promise<T>,
  yaml?: string,
): Promise<T> {
  const home = new Home(clients, yaml);
  try {
    return await work(home);
  } finally {
    home.remove();
  }
}
