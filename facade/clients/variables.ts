/** Owns how clients write variables, both ways: theirs as ours, ours as theirs; refuses to let a text of a file gain a meaning that it had not there. */
import type { Interpolation } from './formats.ts';

/** The text with the client's variables written as ours. What is no variable there stays as it is. */
export function asOurs(text: string, interpolation: Interpolation | undefined): string {
  if (interpolation === 'dollar') return text.replace(/\$([A-Za-z_]\w*)/g, '${$1}');
  if (interpolation === 'braces') return text.replace(/\{env:([A-Za-z_]\w*)\}/g, '${env:$1}');
  return text;
}

/** A variable of the environment as the client fills it in; undefined where it fills in nothing. */
export function asTheirs(variable: string, interpolation: Interpolation): string | undefined {
  const written: Readonly<Record<Interpolation, string | undefined>> = {
    none: undefined,
    shell: `\${${variable}}`,
    dollar: `\${${variable}}`,
    vscode: `\${env:${variable}}`,
    braces: `{env:${variable}}`,
  };
  return written[interpolation];
}
