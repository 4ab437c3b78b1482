/** Finds sets of Rego that nothing reads and that are called nearly like one that counts: a deny that would be lost without a word. */
import { packagePath, type Rule } from './ast.ts';
import { type Problem, suggest } from './problems.ts';
import { EXPOSE, isSetRule, type ParsedFile, SETS } from './rego.ts';

/** A problem for each such set in a package of policy. A helper that a rule uses may have any name. */
export function findMisspelledSets(files: readonly ParsedFile[]): readonly Problem[] {
  const known: readonly string[] = [...SETS, EXPOSE];
  let words: ReadonlySet<string> | undefined;
  return files.flatMap((file) =>
    (packagePath(file.module)[0] === 'policy' ? (file.module.rules ?? []) : []).flatMap((rule) => {
      const name = String(rule.head.ref[0]?.value);
      const hint = isSetRule(rule) && rule.head.args === undefined && !known.includes(name) ? suggest(name, known) : '';
      if (hint === '') return [];
      words ??= new Set(files.flatMap(({ module }) => (module.rules ?? []).flatMap((one) => [...wordsIn(one)])));
      return words.has(name)
        ? []
        : [
            {
              file: file.shown,
              line: rule.head.location.row,
              column: rule.head.location.col,
              message: `nothing reads the set \`${name}\`, so it decides nothing.${hint}`,
            },
          ];
    }),
  );
}

/** Every name and text that a rule uses, but for its own name. */
function* wordsIn({ head, body, else: other }: Rule): Generator<string> {
  for (const part of [head.key, head.value, head.args, body]) yield* wordsOf(part);
  if (other !== undefined) yield* wordsIn(other);
}

function* wordsOf(part: unknown): Generator<string> {
  if (typeof part !== 'object' || part === null) return;
  const { type, value } = part as { readonly type?: unknown; readonly value?: unknown };
  if (type === 'var' || type === 'string') yield String(value);
  for (const child of Object.values(part)) yield* wordsOf(child);
}
