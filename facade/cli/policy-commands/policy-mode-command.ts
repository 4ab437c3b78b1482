/** Runs `policy mode`: shows the mode of each source, counts what rules in trial would have decided, or sets a mode. */
import { readFileSync, realpathSync } from 'node:fs';
import path from 'node:path';
import { parse } from 'yaml';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { MODE_NAMES, type Mode, type ModeFor } from '../../../policies/port.ts';
import { openAuditReader } from '../../audit/index/audit-reader.ts';
import type { Config, PolicySource } from '../../config/config.ts';
import { replaceFile } from '../../config/reading/file-replacement.ts';
import { type CommonOptions, readConfig } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { configFile } from '../config-file.ts';
import { plural, printable, table } from '../print.ts';
import { setMode } from './policy-mode-edit.ts';

interface ModeOptions extends CommonOptions {
  readonly source?: string;
  readonly mode?: string;
  readonly days: number;
}

/** A rule in warn or shadow, and how often it would have decided. */
interface TrialCount {
  readonly id: string;
  readonly mode: string;
  readonly would: string;
  times: number;
  last: string;
}

const DAY_MS = 86_400_000;

/** Shows the modes, or sets one. Throws CONFIG_INVALID, USAGE. */
export async function runMode(options: ModeOptions, io: Io): Promise<number> {
  const config = readConfig(options, io);
  if (options.source === undefined) return show(config, options, io);
  const index = indexOf(config, options.source);
  if (options.mode === undefined)
    return show({ ...config, policies: config.policies.slice(index, index + 1) }, options, io);
  if (!Object.hasOwn(MODE_NAMES, options.mode))
    throw new TollgateError('USAGE', {
      detail: `${printable(options.mode)} is not a mode.`,
      next: `Write one of ${Object.keys(MODE_NAMES).join(', ')}.`,
    });
  return change(config, { index, mode: MODE_NAMES[options.mode as keyof typeof MODE_NAMES] }, { options, io });
}

function show(config: Config, { days, json }: ModeOptions, io: Io): number {
  const sources = config.policies.map((source) => ({
    source: nameOf(source, config),
    mode: source.mode,
    modes: source.modes ?? [],
  }));
  const counts = countTrials(config, new Date(Date.now() - days * DAY_MS).toISOString());
  if (json === true) {
    io.stdout(`${JSON.stringify({ sources, days, fired: counts })}\n`);
    return EXIT.ok;
  }
  if (sources.length > 0) {
    const rows = sources.map(({ source, mode, modes }) => [source, mode, modes.map(exceptionText).join('; ')]);
    io.stdout(table(io, ['SOURCE', 'MODE', 'FOR SOME CALLERS'], rows));
  }
  if (config.rules.length > 0)
    io.stderr(`${plural(config.rules.length, 'rule')} in tollgate.yaml itself: each rule names its own mode.\n`);
  const period = `in the last ${plural(days, 'day')}`;
  if (counts.length === 0) io.stderr(`No rule in warn or shadow has fired ${period}.\n`);
  else {
    const rows = counts.map(({ id, mode, would, times, last }) => [
      id,
      mode,
      would,
      String(times),
      last.slice(0, 19).replace('T', ' '),
    ]);
    io.stdout(
      `\nFired in warn or shadow ${period}\n${table(io, ['RULE', 'MODE', 'WOULD', 'TIMES', 'LAST (UTC)'], rows)}`,
    );
  }
  return EXIT.ok;
}

function change(
  config: Config,
  { index, mode }: { readonly index: number; readonly mode: Mode },
  { options, io }: { readonly options: ModeOptions; readonly io: Io },
): number {
  const source = config.policies[index] as PolicySource;
  const name = nameOf(source, config);
  const file = realpathSync(configFile(options.config, io));
  const before = readFileSync(file, 'utf8');
  const after = source.mode === mode ? before : setMode(before, index, mode);
  if (after !== before) replaceFile(file, after);
  const lines = changedLines(before, after).map((changed) => ({ file: path.basename(file), ...changed }));
  if (options.json === true) io.stdout(`${JSON.stringify({ source: name, mode, was: source.mode, lines })}\n`);
  else io.stdout(lines.map(({ file: shown, line, text }) => `${shown}:${line}: ${printable(text)}\n`).join(''));
  io.stderr(
    lines.length === 0
      ? `${printable(name)} is already in ${mode}.\n`
      : `${printable(name)}: ${source.mode} → ${mode}. A running Tollgate applies it without a restart.\n`,
  );
  const own = rulesWithModes(source, mode);
  if (own.length > 0)
    io.stderr(`These rules have a \`mode\` of their own, which wins: ${printable(own.join(', '))}.\n`);
  if (source.modes !== undefined && source.modes.length > 0)
    io.stderr(`Its modes for some callers stay: ${printable(source.modes.map(exceptionText).join('; '))}.\n`);
  return EXIT.ok;
}

/** Returns the ids of the rules of a YAML source that name another mode, which counts instead of that of the source. */
function rulesWithModes({ kind, path: file }: PolicySource, mode: Mode): readonly string[] {
  if (kind !== 'yaml') return [];
  const { rules = [] } = (parse(readFileSync(file, 'utf8')) ?? {}) as {
    readonly rules?: readonly { readonly id: string; readonly mode?: string }[];
  };
  return rules.flatMap((rule) => (rule.mode === undefined || rule.mode === mode ? [] : [rule.id]));
}

function changedLines(before: string, after: string): readonly { readonly line: number; readonly text: string }[] {
  const old = new Set(before.split('\n'));
  return after.split('\n').flatMap((text, at) => (old.has(text) ? [] : [{ line: at + 1, text: text.trim() }]));
}

/** Finds a source by its path or address as messages name it, or by the last part of it if only one source has that. */
function indexOf({ policies, ...config }: Config, wanted: string): number {
  const names = policies.map((source) => nameOf(source, config));
  const exact = names.indexOf(path.normalize(wanted));
  if (exact !== -1) return exact;
  const found = names.flatMap((name, at) => (name === wanted || path.basename(name) === wanted ? [at] : []));
  const [first] = found;
  if (first !== undefined && found.length === 1) return first;
  throw new TollgateError('USAGE', {
    detail: `${printable(wanted)} ${found.length > 1 ? 'names several sources' : 'is not a source of the policy'}.`,
    next: names.length === 0 ? 'tollgate.yaml names no policies.' : `Name one of: ${names.map(printable).join(', ')}.`,
  });
}

function nameOf({ path: at, server }: PolicySource, { folder }: Pick<Config, 'folder'>): string {
  return server === undefined ? path.relative(folder, at) || '.' : at;
}

function exceptionText({ profile, origin, mode }: ModeFor): string {
  return [
    ...(profile === undefined ? [] : [`profile ${profile}`]),
    ...(origin === undefined ? [] : [`origin ${origin}`]),
    mode,
  ].join(' ');
}

/** Counts the rules under `shadow` in the records of ended calls and refusals, the most frequent first. */
function countTrials(config: Config, since: string): readonly TrialCount[] {
  const counts = new Map<string, TrialCount>();
  const reader = openAuditReader(config.audit.folder, ':memory:');
  try {
    for (const { record } of reader.all({ since, callsOnly: true })) {
      const { shadow, ts } = record as { readonly shadow?: unknown; readonly ts?: unknown };
      for (const { id, mode, would } of Array.isArray(shadow) ? (shadow as readonly TrialCount[]) : []) {
        const key = JSON.stringify([id, mode, would]);
        const count = counts.get(key) ?? {
          id: String(id),
          mode: String(mode),
          would: String(would),
          times: 0,
          last: '',
        };
        count.times += 1;
        count.last = String(ts);
        counts.set(key, count);
      }
    }
  } finally {
    reader.close();
  }
  return [...counts.values()].sort((a, b) => b.times - a.times);
}
