/** Owns what opa has said of cases before: kept for one policy, the last that was tested; refuses whatever was said of another. */
import { createHash, randomUUID } from 'node:crypto';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { hashLibrary } from '../../engine/policy-library.ts';
import type { Opa } from '../../rego/opa-program.ts';
import type { OpaQuery } from './opa-runner.ts';

const FILE = 'opa-answers.json';

/** Answers by question, of one policy under one opa. Only of policies without Rego: what a case covers of Rego, opa says when it runs. */
export class OpaAnswerCache {
  readonly #file: string;
  readonly #policy: string;
  readonly #known: ReadonlyMap<string, unknown>;

  private constructor(file: string, policy: string, known: ReadonlyMap<string, unknown>) {
    this.#file = file;
    this.#policy = policy;
    this.#known = known;
  }

  /** Nothing is known where nothing can be read. `folder` need not exist, `data` is the text of all data. */
  static async read(
    folder: string,
    { opa, data }: { readonly opa: Opa; readonly data: string },
  ): Promise<OpaAnswerCache> {
    const file = path.join(folder, FILE);
    const policy = digest(JSON.stringify([opa.version, hashLibrary(), data]));
    const kept = await readFile(file, 'utf8')
      .then((text) => JSON.parse(text) as unknown)
      .catch(() => undefined);
    const { policy: of, answers } = (typeof kept === 'object' && kept !== null ? kept : {}) as {
      readonly policy?: unknown;
      readonly answers?: unknown;
    };
    const isOurs = of === policy && typeof answers === 'object' && answers !== null;
    return new OpaAnswerCache(file, policy, new Map(isOurs ? Object.entries(answers) : []));
  }

  /** Asks for what is not known, and keeps all of it for the next time. What stopped opa is asked anew each time. */
  async answer(
    questions: readonly OpaQuery[],
    ask: (unknown: readonly OpaQuery[]) => Promise<readonly unknown[]>,
  ): Promise<readonly unknown[]> {
    const keys = questions.map((question) => digest(JSON.stringify([question.list, question.input, question.time])));
    const missing = questions.filter((_, number) => !this.#known.has(keys[number] ?? ''));
    if (missing.length === 0) return keys.map((key) => this.#known.get(key));
    const asked = (await ask(missing)).values();
    const answers = keys.map((key) => (this.#known.has(key) ? this.#known.get(key) : asked.next().value));
    await this.#keep(
      keys.flatMap((key, number) => (typeof answers[number] === 'object' ? [[key, answers[number]]] : [])),
    );
    return answers;
  }

  /** In a state folder that is there; a test makes none. Where nothing can be written everything is asked again: slower, and just as true. */
  async #keep(entries: readonly (readonly unknown[])[]): Promise<void> {
    const own = `${this.#file}.${randomUUID()}`;
    try {
      await mkdir(path.dirname(this.#file), { mode: 0o700 }).catch(() => undefined);
      await writeFile(own, JSON.stringify({ policy: this.#policy, answers: Object.fromEntries(entries) as unknown }), {
        mode: 0o600,
      });
      await rename(own, this.#file);
    } catch {
      return;
    }
  }
}

function digest(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
