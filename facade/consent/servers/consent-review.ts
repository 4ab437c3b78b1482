/**
 * What a person sees before approving a server: what would run, its tools, and every difference from the last approval.
 */
import type { InvalidDefinition, ServerProbeResult } from '../../../adapters/port.ts';
import type { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { type AuditFinding, auditTool, auditValue } from '../../../catalogs/lint/definition-audit.ts';
import { loadMapping } from '../../../catalogs/primitives/primitive-mapping.ts';
import { canonicalJson } from '../../../catalogs/tools/definition-pin.ts';
import type { RawTool, Semantics } from '../../../catalogs/tools/tool-definition.ts';
import type { ServerConfig } from '../../config/config.ts';
import { imageRemarks } from '../../config/servers/sandbox-settings.ts';
import { remarksOf } from '../../config/servers/server-definition-rules.ts';
import { createSemantics } from '../../exposure/served-server.ts';
import type { Consents } from './server-consents.ts';
import { changedRefusal } from './server-refusals.ts';
import { type ReviewedChange, reviewedChanges } from './start-changes.ts';
import { type StartFacts, startDifferences, startHash } from './start-facts.ts';
import { type ToolSet, toolSetHash } from './tool-set.ts';

/** The first thing to approve: what would run. */
export interface StartReview {
  readonly facts: StartFacts;
  readonly hash: string;
  /** Who approved exactly this. Absent: no one. */
  readonly approved?: { readonly by: string; readonly at: string };
  /** The fields that differ from the last approval. */
  readonly changed: readonly string[];
  /** The same for a person, by names and with values. */
  readonly changes: readonly ReviewedChange[];
  /** The risks of this start. */
  readonly remarks: readonly string[];
  /** Folders of the owner. The screen shows variables that are paths in them. Default: none. */
  readonly folders?: readonly string[];
}

/** One changed field of a definition: its removed lines and its added lines. */
export interface FieldChange {
  readonly field: string;
  readonly old: readonly string[];
  readonly new: readonly string[];
}

/** One tool as a person reviews it. */
export interface ReviewedTool {
  readonly tool: RawTool;
  readonly semantics: Semantics;
  readonly audit: AuditFinding;
  /** Compared with the last approval. Absent: there was none. */
  readonly state?: 'same' | 'changed' | 'new';
  readonly changes: readonly FieldChange[];
}

/** The second thing to approve: everything that the server tells a model. */
export interface ToolReview {
  readonly set: ToolSet;
  readonly hash: string;
  readonly version: string;
  readonly tools: readonly ReviewedTool[];
  /** Approved tools that the server no longer lists. */
  readonly removed: readonly string[];
  /** The findings of the audit in instructions, prompts and templates, and their differences from the last approval. */
  readonly texts: readonly {
    readonly name: string;
    readonly text: string;
    readonly audit: AuditFinding;
    readonly change?: FieldChange;
  }[];
  /** Tools that are left out, because their definitions violate the protocol. */
  readonly unfit: readonly InvalidDefinition[];
}

/** Returns what the server would run now, compared with the last approval. Throws STATE_FAILED. */
export async function reviewStart(server: ServerConfig, consents: Consents): Promise<StartReview> {
  const facts = await consents.factsOf(server);
  const hash = startHash(facts);
  const { consent } = consents.statusOf(server.name);
  return {
    facts,
    hash,
    remarks: [...remarksOf(server).map(({ message }) => message), ...imageRemarks(server), ...unboundIn(facts)],
    changed: consent === undefined ? [] : startDifferences(consent.facts, facts),
    changes: consent === undefined ? [] : reviewedChanges(consent.facts, facts),
    ...(consent?.hash === hash && { approved: { by: consent.by, at: consent.at } }),
  };
}

/** Returns the refusal of a start that differs from the one that was shown. */
export async function refuseOther(
  server: ServerConfig,
  { facts, hash }: StartReview,
  consents: Consents,
): Promise<TollgateError | undefined> {
  const now = await consents.factsOf(server);
  return startHash(now) === hash ? undefined : changedRefusal(server.name, startDifferences(facts, now));
}

/** Returns a remark for each file or program that the hash does not cover. */
function unboundIn({
  unbound,
  gone,
  exposed,
  data = [],
  scripts = [],
  secretPrograms = {},
}: StartFacts): readonly string[] {
  const remarks: string[] = [];
  if (exposed !== undefined)
    remarks.push(`it does not start while ${exposed}: move it to a folder of its own, best outside of the workspace`);
  if (gone !== undefined)
    remarks.push(
      `${JSON.stringify(gone)} does not exist, so it cannot start: ` +
        'install its package again, or correct args in its entry',
    );
  if (unbound !== undefined)
    remarks.push(
      `what ${JSON.stringify(unbound)} runs is not bound to this approval: ` +
        'no file above contains it, and it may differ at each start',
    );
  for (const file of data) remarks.push(`${JSON.stringify(file)} is data that it writes: what is in it is not bound`);
  for (const { path, large } of scripts)
    if (large === true) remarks.push(`${JSON.stringify(path)} is very large: it is bound by its size and times`);
  for (const [name, files] of Object.entries(secretPrograms))
    if (files.unbound !== undefined)
      remarks.push(`what ${JSON.stringify(files.unbound)} runs for secret ${name} is not bound to this approval`);
  return remarks;
}

/**
 * Returns the result of a probe, compared with the set that was approved before. `others`: tool → server, for the
 * tools of other servers.
 */
export function reviewTools(
  server: ServerConfig,
  probed: ServerProbeResult,
  { before, others }: { readonly before: ToolSet | undefined; readonly others: ReadonlyMap<string, string> },
): ToolReview {
  const { tools, prompts, templates, instructions, info, unfit = [] } = probed;
  const set: ToolSet = {
    tools,
    prompts,
    ...(templates !== undefined && { templates }),
    ...(instructions !== undefined && { instructions }),
    hints: server.trustHints,
  };
  const semanticsOf = createSemantics(
    server,
    server.mapping === undefined ? new Map() : loadMapping(server.mapping).tools,
  );
  const names = { own: new Set(tools.map(({ name }) => name)), others };
  const old = new Map(before?.tools.map((tool) => [tool.name, tool]));
  const reviewed = tools.map((tool): ReviewedTool => {
    const known = old.get(tool.name);
    const changes = known === undefined ? [] : fieldChanges(known, tool);
    const state = known === undefined ? 'new' : changes.length > 0 ? 'changed' : 'same';
    return {
      tool,
      semantics: semanticsOf(tool.name, tool.annotations),
      audit: auditTool(tool, names),
      changes,
      ...(before !== undefined && { state }),
    };
  });
  const said = [
    ...(instructions === undefined
      ? []
      : [['instructions', instructions, before?.instructions, instructions] as const]),
    ...prompts.map(
      (prompt) =>
        [
          `prompt ${prompt.name}`,
          JSON.stringify(prompt),
          textOf(before?.prompts.find(({ name }) => name === prompt.name)),
          prompt,
        ] as const,
    ),
    ...(templates ?? []).map(
      (template) =>
        [
          `template ${template.uriTemplate}`,
          JSON.stringify(template),
          textOf(before?.templates?.find(({ uriTemplate }) => uriTemplate === template.uriTemplate)),
          template,
        ] as const,
    ),
  ];
  // Shown as raw text: in JSON, characters that control a terminal would seem to be plain letters.
  const texts = said.map(([name, text, previous, value]) => {
    const change =
      before === undefined || previous === text ? undefined : { field: name, ...lineChange(previous ?? '', text) };
    return { name, text, audit: auditValue(value, name, names), ...(change !== undefined && { change }) };
  });
  return {
    set,
    hash: toolSetHash(server.name, set),
    version: info.version,
    tools: reviewed,
    removed: [...old.keys()].filter((name) => !names.own.has(name)),
    texts,
    unfit,
  };
}

/** Returns the fields of a definition that differ, with their lines. */
function fieldChanges(before: RawTool, after: RawTool): readonly FieldChange[] {
  const fields = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return fields
    .filter((field) => textOf(before[field], true) !== textOf(after[field], true))
    .map((field) => ({ field, ...lineChange(textOf(before[field]) ?? '', textOf(after[field]) ?? '') }));
}

/**
 * Returns a text as it is, and another value as JSON with one member per line. `canonical`: independent of the order of
 * keys, for comparisons.
 */
function textOf(value: unknown, canonical = false): string | undefined {
  if (value === undefined) return undefined;
  if (canonical) return canonicalJson(value);
  return typeof value === 'string' ? value : JSON.stringify(value, null, 2);
}

/** Returns the lines between the common first lines and the common last lines. */
function lineChange(before: string, after: string): Omit<FieldChange, 'field'> {
  const [old, young] = [before.split('\n'), after.split('\n')];
  let head = 0;
  while (head < old.length && head < young.length && old[head] === young[head]) head += 1;
  let tail = 0;
  while (
    tail < old.length - head &&
    tail < young.length - head &&
    old[old.length - 1 - tail] === young[young.length - 1 - tail]
  )
    tail += 1;
  return { old: old.slice(head, old.length - tail), new: young.slice(head, young.length - tail) };
}
