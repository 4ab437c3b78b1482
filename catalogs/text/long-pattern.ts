/** Regular expressions that are too long for one line. */

/**
 * Returns a template tag that compiles a regular expression with these flags. Line breaks, and the indentation after
 * them, are not part of the expression. Parts in `${…}` are source text of regular expressions.
 */
export function longPattern(flags = ''): (text: TemplateStringsArray, ...parts: readonly string[]) => RegExp {
  return (text, ...parts) => new RegExp(String.raw(text, ...parts).replace(/\n\s*/g, ''), flags);
}
