/** Turns the answers of calls into the values that code gets. Images and other media stay here: code gets handles. */
import { isObject } from '../../../adapters/rpc/wire-message.ts';
import { NOTE_PREFIX } from '../../../catalogs/text/text-pages.ts';
import { markExactNumbers } from '../../output/exact-numbers.ts';
import { type CodeLimits, limitEnd, type SandboxAnswer, type SandboxEnd } from './sandbox-program.ts';

/** The most media that one returned value may contain. */
const MOST_MEDIA = 8;
const JSON_TYPE = /^application\/(?:[\w.-]+\+)?json\b/i;

type Members = Readonly<Record<string, unknown>>;

/** A value, and whether code may change it. */
interface Item {
  readonly value: unknown;
  readonly isFrozen?: true;
}

/** The values of one run. */
export class CallValues {
  readonly #limits: CodeLimits;
  /** The JSON texts of content blocks with media, by handle. */
  readonly #media = new Map<string, string>();
  #mediaBytes = 0;

  constructor(limits: CodeLimits) {
    this.#limits = limits;
  }

  /** Returns why the run must end because of its media; undefined if it may continue. */
  get exceeded(): SandboxEnd | undefined {
    const { memoryBytes } = this.#limits;
    if (this.#mediaBytes <= memoryBytes) return undefined;
    return limitEnd(
      `The media of all results need more than ${memoryBytes} bytes, the memory of the program.`,
      'Get fewer images, audio and blobs in one run.',
    );
  }

  /**
   * Returns the JSON text from which guest-prelude.cjs makes the value. `isJson`: texts of the result are JSON. A
   * number that a double cannot hold becomes a string with its digits.
   */
  textOf(seq: number, answer: SandboxAnswer, isJson: boolean): string {
    switch (answer.kind) {
      case 'planned':
        return JSON.stringify({ planned: seq });
      case 'failure':
        return JSON.stringify({ items: [{ value: { error: answer.error, code: answer.code } }], isList: false });
      case 'result': {
        const result = exactValue(answer.text);
        const items: readonly Item[] = isObject(result)
          ? this.#itemsOf(result, isJson)
          : [{ value: { error: 'The result of the call is not valid JSON.', code: 'UPSTREAM_INVALID' } }];
        return JSON.stringify({ items, isList: items.length > 1 });
      }
    }
  }

  /** Returns the content blocks whose handles are in a returned value, or why the run must end. */
  mediaOf(text: string | undefined): readonly string[] | SandboxEnd {
    if (this.#media.size === 0 || text === undefined) return [];
    const found = new Set<string>();
    JSON.parse(text, (key, value: unknown) => {
      if (key === 'handle' && typeof value === 'string' && this.#media.has(value)) found.add(value);
      return value;
    });
    if (found.size > MOST_MEDIA)
      return limitEnd(
        `The returned value contains ${found.size} handles of media; at most ${MOST_MEDIA} can be returned.`,
        'Return fewer, or return the rest in another run.',
      );
    return [...found].map((handle) => this.#media.get(handle) ?? '');
  }

  #itemsOf(result: Members, isJson: boolean): readonly Item[] {
    const meta = isObject(result._meta) ? result._meta : {};
    const content = (Array.isArray(result.content) ? result.content : []).filter(isObject);
    if (result.isError === true) {
      const code = meta['tollgate/code'];
      return [{ value: { error: joinTexts(content), ...(typeof code === 'string' && { code }) } }];
    }
    const cut = isObject(meta['tollgate/cut']) ? meta['tollgate/cut'].parts : undefined;
    if (Array.isArray(cut) && cut.length > 0) return [this.#cutItem(result, content, cut.filter(isObject))];
    if (result.structuredContent !== undefined) return [{ value: result.structuredContent }];
    return content.length === 0 ? [{ value: null }] : content.map((block) => this.#itemOf(block, isJson));
  }

  /** A text that was cut is never given as if it were whole. Members of the value say what the notes of the cut say. */
  #cutItem(result: Members, content: readonly Members[], parts: readonly Members[]): Item {
    const own = content.slice(-parts.length).filter(({ text }) => String(text).startsWith(NOTE_PREFIX)).length;
    const blocks = content.slice(0, content.length - own);
    const { structuredContent } = result;
    const head = structuredContent === undefined ? joinTexts(blocks) : JSON.stringify(structuredContent);
    const others = blocks.filter(({ type }) => type !== 'text').map((block) => this.#itemOf(block, false).value);
    const [first = {}, ...more] = parts.map(({ spill, bytes }) => ({ spill, bytes }));
    return {
      value: { ...first, head, ...(more.length > 0 && { more }), ...(others.length > 0 && { others }) },
    };
  }

  #itemOf(block: Members, isJson: boolean): Item {
    const { type, text, mimeType } = block;
    if (type === 'text' && typeof text === 'string') return { value: isJson ? parsed(text) : text };
    if (type === 'image' || type === 'audio') return this.#handleOf(block, block);
    if (type === 'resource_link') return { value: { uri: block.uri, name: block.name, mimeType } };
    const inside = block.resource;
    if (type !== 'resource' || !isObject(inside)) return { value: block };
    if (typeof inside.blob === 'string') return this.#handleOf(block, inside);
    const isJsonType = JSON_TYPE.test(String(inside.mimeType));
    return { value: typeof inside.text === 'string' && isJsonType ? parsed(inside.text) : (inside.text ?? null) };
  }

  #handleOf(block: Members, { data, blob, mimeType }: Members): Item {
    const handle = `b${this.#media.size + 1}`;
    const base64 = String(data ?? blob);
    const block64 = JSON.stringify(block);
    this.#mediaBytes += block64.length;
    this.#media.set(handle, block64);
    const bytes = Buffer.byteLength(base64, 'base64');
    return { value: { handle, type: block.type, mimeType, bytes }, isFrozen: true };
  }
}

function joinTexts(content: readonly Members[]): string {
  return content.flatMap(({ text }) => (typeof text === 'string' ? [text] : [])).join('\n');
}

/** Returns the value of a JSON text, or the text itself. */
function parsed(text: string): unknown {
  const value = exactValue(text);
  return value === undefined ? text : value;
}

/** Returns the value of a JSON text; undefined if it is none. Numbers that a double cannot hold are strings. */
function exactValue(text: string): unknown {
  try {
    JSON.parse(text);
  } catch {
    return undefined;
  }
  return JSON.parse(markExactNumbers(text, ''));
}
