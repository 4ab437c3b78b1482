/** Caches opa's answers to cases, for the policy that was tested last. */

import { randomUUID } from 'node:crypto';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { isJsonObject } from '../../../catalogs/schemas/json-schema.ts';
import { hashLibrary } from '../../engine/policy-library.ts';
import { sha256Hex } from '../../rego/bundles/bundle-format.ts';
import type { Opa } from '../../rego/opa-program.ts';
import type { OpaQuery } from './opa-runner.ts';

const FILE = 'opa-answers.json';

/**
 * Answers of one policy and one version of opa. Not for policies with Rego, because opa must measure their coverage.
 */
export class OpaAnswerCache {
  readonly #file: string;
  readonly #policy: string;
  readonly #known: ReadonlyMap<string, unknown>;

  private constructor(file: string, policy: string, known: ReadonlyMap<string, unknown>) {
    this.#file = file;
    this.#policy = policy;
    this.#known = known;
  }

  /** Reads the cache. It is empty if it cannot be read. `folder` need not exist; `data` is the text of all data. */
  static async read(
    folder: string,
    { opa, data }: { readonly opa: Opa; readonly data: string },
  ): Promise<OpaAnswerCache> {
    const file = path.join(folder, FILE);
    const policy = sha256Hex(JSON.stringify([opa.version, hashLibrary(), data]));
    const stored = await readFile(file, 'utf8')
      .then((text) => JSON.parse(text) as unknown)
      .catch(() => undefined);
    const { policy: of, answers } = isJsonObject(stored) ? stored : {};
    const known = of === policy && isJsonObject(answers) ? Object.entries(answers) : [];
    return new OpaAnswerCache(file, policy, new Map(known));
  }

  /** Returns all answers: calls `ask` for the unknown ones, and stores all of them. Failures of opa are not stored. */
  async answer(
    queries: readonly OpaQuery[],
    ask: (unknown: readonly OpaQuery[]) => Promise<readonly unknown[]>,
  ): Promise<readonly unknown[]> {
    const keys = queries.map((query) => sha256Hex(JSON.stringify([query.list, query.input, query.time])));
    const missing = queries.filter((_, number) => !this.#known.has(keys[number] ?? ''));
    if (missing.length === 0) return keys.map((key) => this.#known.get(key));
    const added = (await ask(missing)).values();
    const answers = keys.map((key) => (this.#known.has(key) ? this.#known.get(key) : added.next().value));
    await this.#store(
      keys.flatMap((key, number) => (typeof answers[number] === 'object' ? [[key, answers[number]]] : [])),
    );
    return answers;
  }

  /**
   * Writes only into an existing state folder, which a test run does not create. If it cannot write, the next run asks
   * again.
   */
  async #store(entries: readonly (readonly unknown[])[]): Promise<void> {
    const temporary = `${this.#file}.${randomUUID()}`;
    try {
      await mkdir(path.dirname(this.#file), { mode: 0o700 }).catch(() => undefined);
      const text = JSON.stringify({ policy: this.#policy, answers: Object.fromEntries(entries) as unknown });
      await writeFile(temporary, text, { mode: 0o600 });
      await rename(temporary, this.#file);
    } catch {
      return;
    }
  }
}
