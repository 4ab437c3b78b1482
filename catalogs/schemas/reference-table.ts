/**
 * Resolves a `$ref` inside its own document. A reference that leaves the document is refused, and nothing is fetched.
 */
import { isJsonObject } from './json-schema.ts';

/** A node of the document; `dangling` if there is nothing; `external` if the reference leaves the document. */
export type RefTarget = { readonly node: unknown; readonly name: string } | 'dangling' | 'external';

/**
 * Resolves the references of one document: JSON pointers (to anywhere, not only `$defs`), anchors and embedded `$id`s.
 */
export class RefTable {
  readonly #root: unknown;
  readonly #anchors = new Map<string, unknown>();
  readonly #ids = new Map<string, unknown>();

  constructor(root: unknown) {
    this.#root = root;
    this.#index(root);
  }

  resolve(ref: string): RefTarget {
    const hash = ref.indexOf('#');
    const document = hash < 0 ? ref : ref.slice(0, hash);
    const fragment = hash < 0 ? '' : ref.slice(hash + 1);
    const base = document === '' ? this.#root : this.#ids.get(document);
    if (base === undefined) return 'external';
    if (fragment === '') return { node: base, name: document === '' ? '#' : document };
    if (!fragment.startsWith('/')) {
      const node = this.#anchors.get(fragment);
      return node === undefined ? 'dangling' : { node, name: fragment };
    }
    return follow(base, fragment);
  }

  #index(root: unknown): void {
    const stack: unknown[] = [root];
    for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
      if (typeof node !== 'object' || node === null) continue;
      stack.push(...Object.values(node));
      if (!isJsonObject(node)) continue;
      for (const key of ['$id', 'id']) {
        const id = node[key];
        // `id` is also a common property name. Only a string next to other keywords names a document.
        if (typeof id !== 'string') continue;
        if (id.startsWith('#')) this.#anchors.set(id.slice(1), node);
        else this.#ids.set(id.replace(/#$/, ''), node);
      }
      for (const key of ['$anchor', '$dynamicAnchor']) {
        const anchor = node[key];
        if (typeof anchor === 'string') this.#anchors.set(anchor, node);
      }
    }
  }
}

function follow(base: unknown, pointer: string): RefTarget {
  let node = base;
  let name = '#';
  for (const step of pointer.slice(1).split('/')) {
    name = decodeStep(step);
    if (typeof node !== 'object' || node === null || !Object.hasOwn(node, name)) return 'dangling';
    node = (node as Record<string, unknown>)[name];
  }
  return isJsonObject(node) || typeof node === 'boolean' ? { node, name } : 'dangling';
}

function decodeStep(step: string): string {
  let decoded = step;
  try {
    decoded = decodeURIComponent(step);
  } catch {
    // A lone percent sign is taken literally, because a wrong escape is no reason to lose the tool.
  }
  return decoded.replaceAll('~1', '/').replaceAll('~0', '~');
}
