/**
 * Checks members of `expose` in Rego: against the schema of `expose.tools` in tollgate.yaml, and that they read the
 * caller only.
 */

import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { loadSchemaProfile } from '../../catalogs/profiles/schema-profile.ts';
import { isJsonObject } from '../../catalogs/schemas/json-schema.ts';
import { definedFields } from '../../catalogs/text/collections.ts';
import type { PolicyParts } from '../engine/compiled-parts.ts';
import type { Exposure, RequestedExposure } from '../port.ts';
import { withInternalTools } from '../rules/offered-tools.ts';
import { type PolicyProblem, suggest } from '../rules/policy-problems.ts';
import { schemaCheck } from '../rules/rule-schema.ts';
import type { ReadAnalysis } from './read-analysis.ts';
import type { ExposeFacts, RegoExposeRule } from './rego-facts.ts';
import { isKnownValue, UNKNOWN_VALUE, valueOfTerm } from './set-members.ts';

const findShapeFaults = schemaCheck(new URL('../schemas/exposure.json', import.meta.url));
const PRIMITIVES = ['read', 'write', 'edit', 'bash', 'read_spill'];
/** Keys whose values may be unknown until the rule is evaluated. Any other key is a fault. */
const KEYS = ['tool', 'name', 'description', 'risk', 'schemaProfile', 'pins'];
/** `server.tool`. */
const TOOL = /^[a-z][a-z0-9-]*\.[^\s]+$/;
/**
 * Only these characters may stand next to `*`; others could have a meaning in the pattern that lib/exposure.rego makes.
 */
const PATTERN = /^[a-z][a-z0-9-]*\.[A-Za-z0-9_*-]+$/;

/** Why a member shows nothing, by the reason that lib/exposure.rego gives. */
const REFUSED: Readonly<Record<string, string>> = {
  reserved: 'its name belongs to a primitive; choose another name',
  doubled: 'another member gives this tool the same name with other settings; remove one of them, or choose two names',
  beyond:
    'tollgate.yaml does not show this tool to this principal; name it under expose.tools of a profile of the principal',
  contradicts:
    'its pins contradict those of the tool under expose.tools of tollgate.yaml; write the same ' +
    'value, or remove the argument',
  several: 'several entries under expose.tools of tollgate.yaml have other pins; write all pins of one of them',
};

/** Returns the number of a rule of `expose`, as the library writes it. */
export function exposeRuleNumber(at: number): string {
  return `e${at}`;
}

/** Returns the faults of `expose` rules that can be found without evaluating them. */
export function findExposeFaults(exposes: readonly RegoExposeRule[], analysis: ReadAnalysis): readonly PolicyProblem[] {
  return exposes.flatMap(({ file, rule }) => {
    const { row: line, col: column } = rule.head.location;
    const problem = (message: string): PolicyProblem => ({ file: file.shown, line, column, message });
    const reads = analysis.readsCallerOnly(rule, file.module)
      ? []
      : [problem('`expose` is decided before there is a call; read only `input.principal` and data of the policy')];
    const member = rule.head.key === undefined ? UNKNOWN_VALUE : valueOfTerm(rule.head.key);
    return [
      ...(member === UNKNOWN_VALUE
        ? []
        : faultsOf(literalPart(member)).map((fault) => problem(`a member of \`expose\` cannot be used: ${fault}`))),
      ...reads,
    ];
  });
}

/** Returns the literal part of a member. A valid tool stands for one that is computed when the rule is evaluated. */
function literalPart(member: unknown): unknown {
  if (!isJsonObject(member)) return member;
  const known = Object.entries(member).filter(
    ([key, value]) => !KEYS.includes(key) || isKnownValue(value) || (key === 'pins' && value !== UNKNOWN_VALUE),
  );
  return { ...('tool' in member ? { tool: 'a.b' } : {}), ...Object.fromEntries(known) };
}

/** Returns what the check of names needs to know about a rule. */
export function exposeFacts({ file, rule, package: name }: RegoExposeRule): ExposeFacts {
  const { row: line, col: column } = rule.head.location;
  const member = rule.head.key === undefined ? UNKNOWN_VALUE : valueOfTerm(rule.head.key);
  const { tool, pins } = isJsonObject(member) ? member : {};
  return {
    package: name,
    file: file.shown,
    line,
    column,
    ...(typeof tool === 'string' ? { tool } : {}),
    ...(typeof pins === 'object' && pins !== null ? { pins: Object.keys(pins) } : {}),
  };
}

function faultsOf(member: unknown): readonly string[] {
  if (!isJsonObject(member)) return ['write {"tool": "server.tool", "name": "…"}.'];
  const faults = findShapeFaults(member);
  if (faults.length > 0)
    return faults.map(({ path, message }) => [path.join('.'), message].filter((part) => part !== '').join(': '));
  const { tool, name, schemaProfile } = member as unknown as Exposure & { readonly tool: string };
  return [
    ...toolFaults(tool, name),
    ...(name !== undefined && PRIMITIVES.includes(name)
      ? [`name "${name}" belongs to a primitive; choose another name.`]
      : []),
    ...profileFaults(schemaProfile),
  ];
}

function toolFaults(tool: string, name: string | undefined): readonly string[] {
  if (!TOOL.test(tool)) return [`"${tool.slice(0, 60)}" does not name a tool of one server; write server.tool.`];
  if (!tool.includes('*')) return [];
  if (!PATTERN.test(tool))
    return [
      `"${tool.slice(0, 60)}" is not a pattern; only the tool part may contain *, with letters, digits, _ and -.`,
    ];
  return name === undefined
    ? []
    : [`name "${name}" is given to the pattern "${tool.slice(0, 60)}", so several tools would have it; name one tool.`];
}

function profileFaults(name: string | undefined): readonly string[] {
  try {
    loadSchemaProfile(name);
    return [];
  } catch (thrown) {
    return [thrown instanceof TollgateError ? `${thrown.message} ${thrown.next}` : String(thrown)];
  }
}

/** Returns a problem for each server that is not configured, and for each tool that its server is known not to have. */
export function findUnknownExposed(
  exposes: readonly ExposeFacts[],
  { settings, offered = new Map() }: Pick<PolicyParts, 'settings' | 'offered'>,
): readonly PolicyProblem[] {
  const servers = [...settings.servers.map(({ name }) => name), ...withInternalTools().keys()];
  return exposes.flatMap(({ file, line, column, tool }): readonly PolicyProblem[] => {
    const [server, name] = /^([^.]+)\.(.+)$/.exec(tool ?? '')?.slice(1) ?? [];
    if (server === undefined || name === undefined) return [];
    const problem = (message: string): PolicyProblem => ({ file, line, column, message });
    if (!servers.includes(server))
      return [
        problem(
          'there is no server ' +
            `"${server}".${suggest(server, servers) || ` Known names: ${servers.slice(0, 12).join(', ')}.`}`,
        ),
      ];
    const known = withInternalTools(offered).get(server) ?? 'any';
    if (known === 'any' || name.includes('*') || known.some((one) => one.name === name)) return [];
    const names = known.map((one) => one.name);
    return [problem(`${server} has no tool "${name}", so nothing is shown.${suggest(name, names)}`)];
  });
}

/** A member as the library returns it. */
interface Entry {
  readonly file?: string;
  readonly line?: number;
  readonly package: string;
  readonly member: unknown;
  readonly why?: string;
}

/**
 * Reads all members that the library returns. Throws POLICY_FAILED, with key and place, for the first one that is
 * invalid.
 */
export function readExposed(exposed: readonly unknown[], unshown: readonly unknown[]): readonly RequestedExposure[] {
  const whys = new Map(
    (unshown as readonly Entry[]).map((entry) => [keyOf(entry), REFUSED[entry.why ?? ''] ?? 'it cannot be shown']),
  );
  return (exposed as readonly Entry[]).map((entry) => {
    const [fault] = faultsOf(entry.member).filter((text) => !text.includes('belongs to a primitive'));
    if (fault !== undefined)
      throw new TollgateError('POLICY_FAILED', {
        detail: `${placeOf(entry)}: a member of \`expose\` cannot be used: ${fault}`,
        next: 'Tell the owner of the policy. `tollgate policy check` finds such members.',
      });
    const { tool, pins = {} } = entry.member as { readonly tool: string; readonly pins?: object };
    const refused = whys.get(keyOf(entry));
    return { tool, pins: Object.keys(pins), place: placeOf(entry), ...definedFields({ refused }) };
  });
}

function placeOf({ file, line = 1, package: name }: Entry): string {
  return file === undefined ? `package policy.${name}` : `${file}:${line}`;
}

function keyOf({ package: name, line, member }: Entry): string {
  return JSON.stringify([name, line, member]);
}
