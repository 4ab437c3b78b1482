/** The text of a connected server's file, and how a change of it is shown. */
import { stringify } from 'yaml';
import type { ConnectionDraft } from './connection-draft.ts';

/** Returns the file, with comments for the next reader. The same draft gives the same text. */
export function serverFileText({ name, title, entry, package: pkg }: ConnectionDraft): string {
  const origin = pkg === undefined ? '' : ` ${pkg.name} ${pkg.version}.`;
  return `# ${title}.${origin} Written by \`tollgate connect\`; \`tollgate connect --undo ${name}\` removes it.\n${stringify(entry, { lineWidth: 0, flowCollectionPadding: false, collectionStyle: 'block' })}`;
}

/** Returns the change line by line: `+` is added, `-` is removed, two spaces stay. */
export function previewOf(before: string | undefined, after: string): readonly string[] {
  const old = before === undefined ? [] : before.trimEnd().split('\n');
  const fresh = after.trimEnd().split('\n');
  let head = 0;
  while (head < old.length && head < fresh.length && old[head] === fresh[head]) head += 1;
  let tail = 0;
  while (tail < old.length - head && tail < fresh.length - head && old.at(-1 - tail) === fresh.at(-1 - tail)) tail += 1;
  const same = (lines: readonly string[]): readonly string[] => lines.map((line) => `  ${line}`);
  return [
    ...same(old.slice(0, head)),
    ...old.slice(head, old.length - tail).map((line) => `- ${line}`),
    ...fresh.slice(head, fresh.length - tail).map((line) => `+ ${line}`),
    ...same(old.slice(old.length - tail)),
  ];
}
