/**
 * Reads the interpreter's report: finds the entries that are causes, and the branch of a union that the caller meant.
 */

import type { OutputUnit } from '@cfworker/json-schema';
import { orList } from '../projection/constraint-words.ts';
import { stringsOf } from '../schemas/json-schema.ts';
import { wordSet } from '../text/word-set.ts';
import { describeValue, type Fault, type FaultContext, faultAt, faultOf, unionTypes } from './validation-faults.ts';
import { nodeAt, positionOf, valueAt } from './value-position.ts';

/** Keywords whose entries only say that something below them failed. */
const STRUCTURAL = wordSet(`
  $ref allOf if properties patternProperties additionalProperties unevaluatedProperties prefixItems items
  additionalItems unevaluatedItems dependentSchemas
`);
const MAX_UNITS = 400;
const MAX_FAULTS = 50;

/** Returns the faults in a report, each once, at most 50. */
export function readReport(units: readonly OutputUnit[], context: FaultContext): readonly Fault[] {
  const known = new Set<string>();
  return causes(units.slice(0, MAX_UNITS), context)
    .filter(({ path, message }) => {
      const key = `${path}\0${message}`;
      const isNew = !known.has(key);
      known.add(key);
      return isNew;
    })
    .slice(0, MAX_FAULTS);
}

function causes(units: readonly OutputUnit[], context: FaultContext): readonly Fault[] {
  const found: Fault[] = [];
  let rest = units;
  for (let [unit] = rest; unit !== undefined; [unit] = rest) {
    const head = unit;
    rest = rest.slice(1);
    if (head.keyword === 'anyOf' || head.keyword === 'oneOf' || head.keyword === 'propertyNames') {
      const inner = rest.filter((other) => isBelow(other, head));
      rest = rest.filter((other) => !isBelow(other, head));
      found.push(...(head.keyword === 'propertyNames' ? faultOf(head, context) : unionFaults(head, inner, context)));
    } else if (!STRUCTURAL.has(head.keyword)) found.push(...faultOf(head, context));
  }
  return found;
}

function isBelow(unit: OutputUnit, union: OutputUnit): boolean {
  return (
    unit.keywordLocation.startsWith(`${union.keywordLocation}/`) &&
    (unit.instanceLocation === union.instanceLocation || unit.instanceLocation.startsWith(`${union.instanceLocation}/`))
  );
}

/**
 * Returns the faults of the branch that fits best. A branch with the right type comes first, then one with the right
 * discriminator, then the one with the fewest faults.
 */
function unionFaults(union: OutputUnit, inner: readonly OutputUnit[], context: FaultContext): readonly Fault[] {
  const node = nodeAt(context.root, union.keywordLocation) ?? {};
  const at = positionOf(context.value, union.instanceLocation);
  const list = node[union.keyword];
  const count = Array.isArray(list) ? list.length : 0;
  const branches = Array.from({ length: count }, (_, index) =>
    inner.filter((unit) => unit.keywordLocation.startsWith(`${union.keywordLocation}/${index}/`)),
  );
  if (union.keyword === 'oneOf' && branches.filter((units) => units.length === 0).length > 1)
    return [faultAt(at, 'fits more than one variant: give only the names of one')];
  const leaves = branches.map((units) => units.filter((unit) => !STRUCTURAL.has(unit.keyword)));
  if (
    leaves.every(
      (units) =>
        units.length > 0 &&
        units.every((unit) => unit.keyword === 'required' && unit.instanceLocation === union.instanceLocation),
    )
  ) {
    const names = leaves.map((units) =>
      stringsOf(nodeAt(context.root, units[0]?.keywordLocation ?? '')?.required).join(' and '),
    );
    return [faultAt(at, `needs ${orList([...new Set(names)])}`)];
  }
  const ranked = leaves
    .map((units, index) => ({ index, rank: rank(units, union) }))
    .sort((left, right) => left.rank - right.rank);
  const [best] = ranked;
  if (best === undefined || best.rank >= 10_000)
    return [
      faultAt(at, `expected ${unionTypes(context.root, node)}, got ${describeValue(valueAt(context.value, at))}`),
    ];
  return causes(branches[best.index] ?? [], context);
}

function rank(units: readonly OutputUnit[], union: OutputUnit): number {
  const here = (unit: OutputUnit): boolean => unit.instanceLocation === union.instanceLocation;
  if (units.some((unit) => here(unit) && ['type', 'const', 'enum', 'not'].includes(unit.keyword))) return 10_000;
  const wrongVariant = units.some((unit) => !here(unit) && (unit.keyword === 'const' || unit.keyword === 'enum'));
  return (wrongVariant ? 1_000 : 0) + units.length;
}
