/** Changes the mode of one source in the text of tollgate.yaml. Every other byte stays, comments included. */
import { isDeepStrictEqual } from 'node:util';
import { isMap, isScalar, isSeq, type Pair, parseDocument, type Scalar, type YAMLMap } from 'yaml';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Mode } from '../../../policies/port.ts';

interface Edit {
  readonly from: number;
  readonly to: number;
  readonly text: string;
}

/** Returns the text with `policies[index].mode` set. Throws USAGE for an entry that it cannot change safely. */
export function setMode(text: string, index: number, mode: Mode): string {
  const policies = parseDocument(text).get('policies', true);
  const entry = isSeq(policies) ? policies.items[index] : undefined;
  const edit = isScalar(entry) ? intoMap(entry, text, mode) : isMap(entry) ? withinMap(entry, text, mode) : undefined;
  if (edit === undefined) throw unclear();
  const changed = text.slice(0, edit.from) + edit.text + text.slice(edit.to);
  if (!isDeepStrictEqual(valueOf(changed), expected(valueOf(text), index, mode))) throw unclear();
  return changed;
}

/** `- rules.yaml` becomes `- {path: rules.yaml, mode: warn}`. */
function intoMap(entry: Scalar, text: string, mode: Mode): Edit | undefined {
  if (entry.range == null) return undefined;
  const [from, to] = entry.range;
  const written = text.slice(from, to);
  // A plain scalar of a list may contain characters that end a scalar in braces.
  const path = entry.type === 'PLAIN' && /[,[\]{}#]|: /.test(written) ? JSON.stringify(entry.value) : written;
  return { from, to, text: `{path: ${path}, mode: ${mode}}` };
}

function withinMap(map: YAMLMap, text: string, mode: Mode): Edit | undefined {
  const pairs = map.items as Pair<Scalar, Scalar>[];
  const range = pairs.find(({ key }) => key.value === 'mode')?.value?.range;
  if (range != null) return { from: range[0], to: range[1], text: mode };
  const place = pairs.find(({ key }) => key.value === 'path' || key.value === 'url');
  if (place?.key.range == null || place.value?.range == null) return undefined;
  const after = place.value.range[1];
  if (map.flow === true) return { from: after, to: after, text: `, mode: ${mode}` };
  const lineEnd = text.indexOf('\n', after);
  const at = lineEnd === -1 ? text.length : lineEnd;
  const column = place.key.range[0] - (text.lastIndexOf('\n', place.key.range[0]) + 1);
  return { from: at, to: at, text: `\n${' '.repeat(column)}mode: ${mode}` };
}

function valueOf(text: string): unknown {
  return parseDocument(text).toJS();
}

function expected(value: unknown, index: number, mode: Mode): unknown {
  const { policies = [], ...rest } = value as { policies?: readonly (string | object)[] };
  return {
    ...rest,
    policies: policies.map((entry, at) =>
      at !== index ? entry : typeof entry === 'string' ? { path: entry, mode } : { ...entry, mode },
    ),
  };
}

function unclear(): TollgateError {
  return new TollgateError('USAGE', {
    detail:
      'The mode cannot be set, because the entry under `policies` is neither a path nor a map with `path` or `url`.',
    next: 'Write the mode into tollgate.yaml by hand.',
  });
}
