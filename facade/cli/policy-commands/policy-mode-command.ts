/** Owns `policy mode`: which sources count how much, how often those that do not count would have, and the change of a mode. */
import { readFileSync, realpathSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { MODE_NAMES, type Mode, type ModeFor } from '../../../policies/port.ts';
import { openAuditReader } from '../../audit/audit-reader.ts';
import type { Config, PolicySource } from '../../config/config.ts';
import { replaceFile } from '../../config/reading/file-replacement.ts';
import { type CommonOptions, readConfig } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { plural, printable, table } from '../print.ts';
import { setMode } from './policy-mode-edit.ts';

interface ModeOptions extends CommonOptions {
  readonly source?: string;
  readonly mode?: string;
  readonly days: number;
}

/** A rule that does not count, and how often it would have. */
interface Beside {
  readonly id: string;
  readonly mode: string;
  readonly would: string;
  times: number;
  last: string;
}

const DAY_MS = 86_400_000;

/** Shows modes, or sets one. Throws CONFIG_INVALID, USAGE. */
export async function runMode(options: ModeOptions, io: Io): Promise<number> {
  const config = readConfig(options, io);
  if (options.source === undefined) return show(config, options, io);
  const index = indexOf(config, options.source);
  if (options.mode === undefined)
    return show({ ...config, policies: config.policies.slice(index, index + 1) }, options, io);
  if (!Object.hasOwn(MODE_NAMES, options.mode))
    throw new TollgateError('USAGE', {
      detail: `${printable(options.mode)} is no mode.`,
      next: `Write one of ${Object.keys(MODE_NAMES).join(', ')}.`,
    });
  return change(config, { index, mode: MODE_NAMES[options.mode as keyof typeof MODE_NAMES] }, { options, io });
}

function show(config: Config, options: ModeOptions, io: Io): number {
  const sources = config.policies.map((source) => ({
    source: nameOf(source, config),
    mode: source.mode,
    modes: source.modes ?? [],
  }));
  const beside = countBeside(config, new Date(Date.now() - options.days * DAY_MS).toISOString());
  if (options.json === true) {
    io.stdout(`${JSON.stringify({ sources, days: options.days, beside })}\n`);
    return EXIT.ok;
  }
  if (sources.length > 0)
    io.stdout(
      table(
        io,
        ['SOURCE', 'MODE', 'FOR SOME CALLERS'],
        sources.map(({ source, mode, modes }) => [source, mode, modes.map(forWhom).join('; ')]),
      ),
    );
  if (config.rules.length > 0)
    io.stderr(`${plural(config.rules.length, 'rule')} in tollgate.yaml itself: their mode stands with each.\n`);
  if (beside.length > 0)
    io.stdout(
      `\nFired in warn or shadow in the last ${plural(options.days, 'day')}\n${table(
        io,
        ['RULE', 'MODE', 'WOULD', 'TIMES', 'LAST (UTC)'],
        beside.map(({ id, mode, would, times, last }) => [
          id,
          mode,
          would,
          String(times),
          last.slice(0, 19).replace('T', ' '),
        ]),
      )}`,
    );
  else io.stderr(`No rule in warn or shadow has fired in the last ${plural(options.days, 'day')}.\n`);
  return EXIT.ok;
}

function change(
  config: Config,
  to: { readonly index: number; readonly mode: Mode },
  { options, io }: { readonly options: ModeOptions; readonly io: Io },
): number {
  const source = config.policies[to.index] as PolicySource;
  const name = nameOf(source, config);
  const file = realpathSync(path.resolve(io.cwd, options.config));
  const before = readFileSync(file, 'utf8');
  const after = source.mode === to.mode ? before : setMode(before, to.index, to.mode);
  if (after !== before) replaceFile(file, after);
  const lines = changedLines(before, after).map(({ line, text }) => ({ file: path.basename(file), line, text }));
  if (options.json === true) io.stdout(`${JSON.stringify({ source: name, mode: to.mode, was: source.mode, lines })}\n`);
  else io.stdout(lines.map(({ file: shown, line, text }) => `${shown}:${line}: ${printable(text)}\n`).join(''));
  io.stderr(
    lines.length === 0
      ? `${printable(name)} is in ${to.mode} already.\n`
      : `${printable(name)}: ${source.mode} → ${to.mode}. A Tollgate that runs takes it up by itself.\n`,
  );
  if ((source.modes ?? []).length > 0)
    io.stderr(`Its modes for some callers stay: ${printable((source.modes ?? []).map(forWhom).join('; '))}.\n`);
  return EXIT.ok;
}

function changedLines(before: string, after: string): readonly { readonly line: number; readonly text: string }[] {
  const old = new Set(before.split('\n'));
  return after.split('\n').flatMap((text, at) => (old.has(text) ? [] : [{ line: at + 1, text: text.trim() }]));
}

/** By its path or address as messages name it, or by the last part of it where that is clear. */
function indexOf({ policies, ...config }: Config, wanted: string): number {
  const names = policies.map((source) => nameOf(source, config));
  const exact = names.indexOf(path.normalize(wanted));
  const ends = names.flatMap((name, at) => (name === wanted || path.basename(name) === wanted ? [at] : []));
  const [found] = exact !== -1 ? [exact] : ends.length === 1 ? ends : [];
  if (found !== undefined) return found;
  throw new TollgateError('USAGE', {
    detail: `${printable(wanted)} ${ends.length > 1 ? 'names several sources' : 'is no source of policy'}.`,
    next: names.length === 0 ? 'tollgate.yaml names no policies.' : `Name one of: ${names.map(printable).join(', ')}.`,
  });
}

function nameOf({ path: at, server }: PolicySource, { folder }: Pick<Config, 'folder'>): string {
  return server === undefined ? path.relative(folder, at) || '.' : at;
}

function forWhom({ profile, origin, mode }: ModeFor): string {
  return [
    ...(profile === undefined ? [] : [`profile ${profile}`]),
    ...(origin === undefined ? [] : [`origin ${origin}`]),
    mode,
  ].join(' ');
}

/** Counts what records of ended calls and refusals say under `shadow`, most frequent first. */
function countBeside(config: Config, since: string): readonly Beside[] {
  const found = new Map<string, Beside>();
  const reader = openAuditReader(config.audit.folder, ':memory:');
  try {
    for (const { record } of reader.all({ since, callsOnly: true })) {
      const { shadow, ts } = record as { readonly shadow?: unknown; readonly ts?: unknown };
      for (const { id, mode, would } of Array.isArray(shadow) ? (shadow as readonly Beside[]) : []) {
        const key = JSON.stringify([id, mode, would]);
        const one = found.get(key) ?? { id: String(id), mode: String(mode), would: String(would), times: 0, last: '' };
        one.times += 1;
        one.last = String(ts);
        found.set(key, one);
      }
    }
  } finally {
    reader.close();
  }
  return [...found.values()].sort((a, b) => b.times - a.times);
}
