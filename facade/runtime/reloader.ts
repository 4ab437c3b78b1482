/** Reloads a running facade when its configuration changes. A configuration that does not load changes nothing. */
import path from 'node:path';
import { performance } from 'node:perf_hooks';
import { asTollgateError } from '../../catalogs/errors/error-table.ts';
import { isPathWithin } from '../../catalogs/readers/path-location.ts';
import { appendQuietly } from '../audit/audit-log.ts';
import { acceptedMarker } from '../config/accepted-config.ts';
import { differenceNote, differingFiles, type InForce } from '../config/config-in-force.ts';
import { readText } from '../config/reading/text-files.ts';
import { readYaml } from '../config/reading/yaml-document.ts';
import { resolver } from '../config/work-folders.ts';
import type { AssembledFacade } from './assembled-facade.ts';
import { FileWatch } from './file-watch.ts';

/** What reloading works with. */
export interface ReloaderOptions {
  /** The configuration file, absolute. */
  readonly file: string;
  readonly home: string;
  /** The running configuration; its files are watched from now on. */
  readonly inForce: InForce;
  /** Reads the configuration that is in force now. */
  readonly read: () => InForce;
  /** Whether there is a listening address, which cannot change then. */
  readonly listening: boolean;
  /** Lines for a person. */
  readonly tell: (line: string) => void;
  /** Shows why a configuration does not load, with every problem. */
  readonly report: (thrown: unknown) => void;
}

/** Keeps a facade up to date. */
export class Reloader {
  readonly #options: ReloaderOptions;
  /** Files that are in force as they are on the disk, and the marker of the accepted copy. */
  readonly #watch: FileWatch;
  /** Files whose accepted copy is in force. */
  readonly #acceptedWatch: FileWatch;
  #inForce: InForce;
  /** The last note on files that are not in force. */
  #reported: string | undefined;
  #assembled: AssembledFacade | undefined;
  #last: Promise<void> = Promise.resolve();
  #isQueued = false;
  /** An edit came before there was a facade. */
  #hasMissedEdit = false;
  #closed = false;

  private constructor(options: ReloaderOptions) {
    this.#options = options;
    this.#inForce = options.inForce;
    this.#reported = differenceNote(options.inForce.differing);
    this.#watch = new FileWatch({ onChange: () => void this.now() });
    this.#acceptedWatch = new FileWatch({ onChange: () => this.#noteDifference() });
  }

  /** Opens the watch. Call it before the facade is assembled, so that edits during the start are noticed. */
  static async open(options: ReloaderOptions): Promise<Reloader> {
    const reloader = new Reloader(options);
    await reloader.#watchFiles();
    return reloader;
  }

  /** Starts reloading a facade. */
  start(assembled: AssembledFacade): void {
    this.#assembled = assembled;
    this.#followPolicy(assembled);
    if (this.#hasMissedEdit) void this.now();
  }

  /** Reloads after the running reload. Several waiting requests become one. Never rejects. */
  now(): Promise<void> {
    if (this.#isQueued) return this.#last;
    this.#isQueued = true;
    this.#last = this.#last.then(async () => {
      this.#isQueued = false;
      this.#hasMissedEdit = this.#assembled === undefined;
      if (!this.#closed && this.#assembled !== undefined) await this.#reload(this.#assembled);
    });
    return this.#last;
  }

  /** Waits for a running reload. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#watch.close();
    this.#acceptedWatch.close();
    await this.#last;
  }

  async #reload(assembled: AssembledFacade): Promise<void> {
    const { read, listening, tell, report } = this.#options;
    const began = performance.now();
    try {
      // Watches the files before it reads them, so that no edit is missed.
      await this.#watchFiles();
      let next = this.#inForce;
      const notices = await assembled.reload(() => (next = read()).config, listening);
      this.#inForce = next;
      await this.#watchFiles();
      this.#followPolicy(assembled);
      tell(
        `Reloaded: policy revision ${assembled.deps.policy().revision.slice(0, 12)} is in force, after ` +
          `${Math.round(performance.now() - began)} ms.`,
      );
      notices.forEach(tell);
      this.#noteDifference();
    } catch (thrown) {
      tell(
        'NOT RELOADED. The previous configuration stays in force, revision ' +
          `${assembled.deps.policy().revision.slice(0, 12)}:`,
      );
      report(thrown);
    }
  }

  /** Watches the files of the running configuration, and those that a configuration on the disk names. */
  async #watchFiles(): Promise<void> {
    const { file, home } = this.#options;
    const { config, accepted } = this.#inForce;
    const isAccepted = (name: string): boolean => accepted?.places.some((place) => isPathWithin(name, place)) === true;
    // Named paths only: an update of a mounted folder also replaces the real paths of files that stay the same.
    const live = [...config.reads, ...(isAccepted(config.file) ? [] : mentionedFiles(file, home))].filter(
      (name) => !isAccepted(name),
    );
    await this.#watch.target([acceptedMarker(config.acceptedFolder), ...live]);
    await this.#acceptedWatch.target(accepted?.places ?? []);
  }

  /** Reports once that the files on the disk are not in force. */
  #noteDifference(): void {
    const { config, accepted } = this.#inForce;
    if (this.#closed || accepted === undefined) return;
    const note = differenceNote(differingFiles(accepted, config.folder));
    if (note !== undefined && note !== this.#reported) this.#options.tell(note);
    this.#reported = note;
  }

  /** Listens to a fetched policy: reloads if there is a newer one, and reports if the newer one is refused. */
  #followPolicy(assembled: AssembledFacade): void {
    assembled.deps.policy().follow?.({
      changed: () => void this.now(),
      failed: (thrown) => {
        appendQuietly(assembled.deps.audit, {
          type: 'config',
          event: 'refused',
          outcome: 'error',
          code: asTollgateError(thrown).code,
        });
        this.#options.tell('A newer policy was NOT used. The previous policy stays in force:');
        this.#options.report(thrown);
      },
    });
  }
}

const MAX_BYTES = 1024 * 1024;

/**
 * Returns the configuration file, and the files and folders under `include` and `policies` whose names contain no
 * variable; absolute. Never throws.
 */
export function mentionedFiles(file: string, home: string): readonly string[] {
  const absolute = path.resolve(file);
  const read = readText(absolute, MAX_BYTES);
  const value: unknown = read.ok ? readYaml(path.basename(file), read.text).value : undefined;
  const named = [
    ...listIn(value, 'include'),
    ...listIn(value, 'policies').flatMap((entry) => [
      entry,
      field(entry, 'path'),
      ...listIn(field(entry, 'verify'), 'keys'),
    ]),
  ];
  const plain = named.filter((name): name is string => typeof name === 'string' && name !== '' && !name.includes('$'));
  return [absolute, ...plain.map(resolver(path.dirname(absolute), home))];
}

function field(value: unknown, key: string): unknown {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[key] : undefined;
}

function listIn(value: unknown, key: string): readonly unknown[] {
  const list = field(value, key);
  return Array.isArray(list) ? list : [];
}
