/** Owns what user Rego must look like before it is built: folded sets in packages of their own; refuses names of the library and sets that are none. */
import { runOpa, type Opa } from './opa.ts';
import type { Problem } from './problems.ts';

const SETS = ['deny', 'ask', 'allow'] as const;
type SetName = (typeof SETS)[number];

/** What the library needs to know of user Rego beyond its evaluation. */
export interface RegoFacts {
  /** Packages `policy.<name>`, with the number of the source that each file of them came from. */
  readonly packages: readonly { readonly name: string; readonly source: number }[];
  /** Which sets are defined anywhere: a list verdict must then stay open. */
  readonly sets: Readonly<Record<SetName, boolean>>;
  /** Where the reason with this id is written. */
  readonly places: Readonly<Record<string, { readonly file: string; readonly line: number }>>;
}

/** A source file in its staging folder: `staged` relative to it, `shown` for messages. */
export interface StagedFile {
  readonly staged: string;
  readonly shown: string;
  readonly source: number;
}

interface Term {
  readonly type: string;
  readonly value: unknown;
}

interface Head {
  readonly key?: Term;
  readonly value?: Term;
  readonly args?: readonly unknown[];
  readonly ref: readonly Term[];
  readonly location: { readonly row: number; readonly col: number };
}

interface Module {
  readonly package: { readonly path: readonly Term[] };
  readonly rules?: readonly { readonly head: Head }[];
}

/** Parses each file and gathers facts and problems. Files that do not parse are left to `opa check`, which says more. */
export async function inspectRego(opa: Opa, folder: string, files: readonly StagedFile[]): Promise<{ facts: RegoFacts; problems: readonly Problem[] }> {
  const inspector = new Inspector();
  for (const file of files) {
    const { code, stdout } = await runOpa(opa, ['parse', ...opa.flags, '-f', 'json', '--json-include', 'locations,-comments', file.staged], folder);
    if (code === 0) inspector.add(JSON.parse(stdout) as Module, file);
  }
  const { packages, sets, places, problems } = inspector;
  return { facts: { packages, sets, places: Object.fromEntries(places) }, problems };
}

class Inspector {
  readonly packages: { name: string; source: number }[] = [];
  readonly sets = { deny: false, ask: false, allow: false };
  readonly places = new Map<string, { file: string; line: number }>();
  readonly problems: Problem[] = [];

  add(module: Module, { shown: file, source }: StagedFile): void {
    const [root, name, ...deeper] = module.package.path.slice(1).map((term) => String(term.value));
    const refuse = (row: number, column: number, message: string): void => void this.problems.push({ file, line: row, column, message });
    if (root === 'tollgate' || root === 'config' || (root === 'policy' && name === undefined)) {
      refuse(1, 1, `the package ${[root, name, ...deeper].filter(Boolean).join('.')} is Tollgate's own; write \`package policy.<name>\``);
      return;
    }
    const folded = root === 'policy' && name !== undefined && deeper.length === 0;
    if (folded) this.packages.push({ name, source });
    for (const { head } of module.rules ?? []) {
      const set = SETS.find((known) => head.ref[0]?.value === known);
      if (set === undefined || (head.args !== undefined && !folded)) continue;
      const { row, col } = head.location;
      const partial = head.ref.length === 1 && head.key !== undefined && head.value === undefined;
      if (!folded) refuse(row, col, `\`${set}\` counts only in a package policy.<name>; move it there, or name it otherwise`);
      else if (!partial) refuse(row, col, `\`${set}\` must be a set: write \`${set} contains {"id": "…", "message": "…"} if { … }\``);
      else this.#note(set, head, file);
    }
  }

  #note(set: SetName, head: Head, file: string): void {
    this.sets[set] = true;
    const pairs = head.key?.type === 'object' ? (head.key.value as readonly (readonly [Term, Term])[]) : [];
    const id = pairs.find(([key]) => key.value === 'id')?.[1];
    if (id?.type === 'string') this.places.set(String(id.value), { file, line: head.location.row });
  }
}
