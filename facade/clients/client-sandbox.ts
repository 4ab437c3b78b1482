/** Reads what VS Code's own sandbox allows and denies a server. Unknown keys are reported. */
import type { Node } from 'jsonc-parser';
import { fieldsOf } from '../config/reading/jsonc.ts';
import type { WrittenSandbox } from '../config/written-config.ts';

/** As tollgate.yaml writes it, too. */
export type ClientSandbox = Pick<WrittenSandbox, 'filesystem' | 'network'>;

/** What was read, and the keys that were not. */
export interface ReadSandbox {
  readonly sandbox?: ClientSandbox;
  readonly unread: readonly string[];
}

const KNOWN: Readonly<Record<'filesystem' | 'network', readonly string[]>> = {
  filesystem: ['allowRead', 'allowWrite', 'denyRead', 'denyWrite'],
  network: ['allowedDomains', 'deniedDomains'],
};

/** Reads the `sandbox` of a server that has its `sandboxEnabled`; `list` reads a list of texts. Never throws. */
export function readSandbox(
  fields: ReadonlyMap<string, Node>,
  list: (node: Node, key: string) => readonly string[],
): ReadSandbox {
  const node = fields.get('sandbox');
  if (node === undefined) return { unread: [] };
  if (fields.get('sandboxEnabled')?.value !== true) return { unread: ['sandbox (the client has it switched off)'] };
  if (node.type !== 'object') return { unread: ['sandbox'] };
  const parts = [...fieldsOf(node).fields].map(([part, inner]) => [part, readPart(part, inner, list)] as const);
  const kept = parts.flatMap(([part, { lists }]) => (Object.keys(lists).length === 0 ? [] : [[part, lists]]));
  return {
    ...(kept.length > 0 && { sandbox: Object.fromEntries(kept) as ClientSandbox }),
    unread: parts.flatMap(([, { unread }]) => unread),
  };
}

function readPart(
  part: string,
  node: Node,
  list: (node: Node, key: string) => readonly string[],
): { readonly lists: Readonly<Record<string, readonly string[]>>; readonly unread: readonly string[] } {
  const known = Object.hasOwn(KNOWN, part) ? KNOWN[part as keyof typeof KNOWN] : [];
  if (known.length === 0 || node.type !== 'object') return { lists: {}, unread: [`sandbox.${part}`] };
  const { fields } = fieldsOf(node);
  const lists = [...fields]
    .filter(([key]) => known.includes(key))
    .map(([key, value]) => [key, list(value, key)] as const)
    .filter(([, items]) => items.length > 0);
  return {
    lists: Object.fromEntries(lists),
    unread: [...fields.keys()].filter((key) => !known.includes(key)).map((key) => `sandbox.${part}.${key}`),
  };
}

/** Returns the keys of a sandbox that were read, for a person. */
export function sandboxKeys({ filesystem = {}, network = {} }: ClientSandbox): readonly string[] {
  return [...Object.keys(filesystem), ...Object.keys(network)];
}
