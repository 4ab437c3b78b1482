/** Measures the index of the audit log: how fast it is built, its size, and how long questions take. */
import { closeSync, mkdirSync, mkdtempSync, openSync, rmSync, statSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { type ChainEntry, chainFileName, NO_HASH, sealRecord } from '../../facade/audit/audit-chain.ts';
import { type AuditFilter, readAuditFilter } from '../../facade/audit/index/audit-filter.ts';
import { type AuditReader, openAuditReader } from '../../facade/audit/index/audit-reader.ts';
import type { Part } from './tables.ts';

/** Records of the log. */
const RECORDS = 1_000_000;
const QUICK_RECORDS = 100_000;
/** Records of one file: about 64 MiB, where a process begins the next. */
const FILE_RECORDS = 80_000;
const PAGE = 50;
const CHAIN = '20260101T000000000Z-999999999';

/** What was measured, and its goal. Times are processor time of the one thread that does the work. */
export interface AuditFigures {
  readonly perSecond: number;
  /** Size of the index, as a multiple of that of the log. */
  readonly size: number;
  readonly filteredMs: number;
  readonly textMs: number;
}

const GOALS: readonly (readonly [keyof AuditFigures, string, string])[] = [
  ['perSecond', 'records indexed per second', '≥ 20000'],
  ['size', 'size of the index / of the log', '≤ 1.2'],
  ['filteredMs', 'a filtered page, p95, ms', '≤ 50'],
  ['textMs', 'the first page of full text, p95, ms', '≤ 150'],
];

/** The part of the benchmark about the audit log. */
export const AUDIT_PART: Part = {
  name: 'audit',
  tables: [
    {
      title: 'Audit log of a million records',
      head: ['what', 'wanted', 'measured'],
      rows: GOALS.map(([, what]) => what),
    },
  ],
  measure: ({ quick, say }) => {
    const figures = measureAudit(quick ? QUICK_RECORDS : RECORDS, say);
    return Promise.resolve({
      cells: [GOALS.map(([key, , goal]) => [goal, figures[key].toFixed(key === 'perSecond' ? 0 : 2)])],
    });
  },
};

/** Measures a log of this many records. */
export function measureAudit(records: number, say: (text: string) => void): AuditFigures {
  const state = mkdtempSync(path.join(tmpdir(), 'tollgate-bench-'));
  try {
    const folder = path.join(state, 'audit');
    say(`audit: writing ${records} records`);
    const bytes = writeLog(folder, records);
    say('audit: indexing them');
    const index = path.join(state, 'audit-index.db');
    let reader: AuditReader | undefined;
    const seconds = cpuMs(() => (reader = openAuditReader(folder, index))) / 1000;
    reader?.close();
    const size = ['', '-wal'].reduce(
      (sum, end) => sum + (statSync(index + end, { throwIfNoEntry: false })?.size ?? 0),
      0,
    );
    const asked = openAuditReader(folder, index);
    say('audit: asking questions');
    const filteredMs = p95(FILTERS.flatMap((filter) => pagesMs(asked, filter)));
    const textMs = p95(TEXTS.flatMap((text) => [0, 1, 2].map(() => pageMs(asked, { text }).ms)));
    asked.close();
    return { perSecond: records / seconds, size: size / bytes, filteredMs, textMs };
  } finally {
    rmSync(state, { recursive: true, force: true });
  }
}

/** Filters that find much, little, and nothing. */
const FILTERS: readonly Record<string, string>[] = [
  {},
  { all: '' },
  { principal: 'agent-7' },
  { principal: 'agent-1*' },
  { principal: 'agent-3', tool: 'bash' },
  { outcome: 'deny' },
  { outcome: 'deny', principal: 'agent-2', rule: 'rule-9' },
  { tool: 'workspace.read', since: '2026-01-01T02:00:00Z', until: '2026-01-01T03:00:00Z' },
  { path: 'src/module-7' },
  { path: '*/file-99.ts' },
  { program: 'git', outcome: 'allow', all: '' },
  { session: 'session-17' },
  { type: 'intent', verb: 'execute' },
  { code: 'DENIED', program: 'npm', principal: 'agent-5' },
];
const TEXTS = [
  'read',
  'wor',
  'agent 7',
  'file',
  'fi',
  'r',
  'module 99',
  'git deny',
  'den rule',
  'file-123 mod',
  'nothing',
];

/** Returns the time of the first page and of the two after it. */
function pagesMs(reader: AuditReader, filter: Record<string, string>): number[] {
  const first = pageMs(reader, filter);
  const second = pageMs(reader, filter, first.next);
  return [first.ms, second.ms, pageMs(reader, filter, second.next).ms];
}

function pageMs(reader: AuditReader, texts: Record<string, string>, before?: string): { ms: number; next?: string } {
  const filter: AuditFilter = readAuditFilter(texts);
  let next: string | undefined;
  const ms = cpuMs(() => (next = reader.page(filter, { limit: PAGE, ...(before !== undefined && { before }) }).next));
  return { ms, ...(next !== undefined && { next }) };
}

function cpuMs(work: () => unknown): number {
  const before = process.cpuUsage();
  work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}

function p95(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.ceil(sorted.length * 0.95) - 1] ?? 0;
}

const TOOLS = ['read', 'bash', 'write', 'edit'] as const;
const PROGRAMS = ['git', 'npm', 'ls', 'node', 'make'];

/** Writes the chain of a process, and returns its bytes. Two of three calls are allowed and have two records. */
function writeLog(folder: string, records: number): number {
  mkdirSync(folder, { recursive: true });
  let [seq, prev, bytes, call] = [0, NO_HASH, 0, 0];
  let waiting: ChainEntry[] = [];
  for (let file = 0; seq < records; file += 1) {
    const mark = { chain: CHAIN, pid: 999_999_999, born: 'x.1' };
    waiting.unshift(
      file === 0
        ? { type: 'opened', nonce: 'n', ...mark }
        : { type: 'continued', before: chainFileName(CHAIN, file - 1), ...mark },
    );
    const fd = openSync(path.join(folder, chainFileName(CHAIN, file)), 'w');
    const end = Math.min(records, seq + FILE_RECORDS);
    while (seq < end) {
      const lines: string[] = [];
      while (lines.length < 2000 && seq < end) {
        if (waiting.length === 0) waiting = callRecords((call += 1));
        const ts = new Date(Date.UTC(2026, 0, 1) + call * 17).toISOString();
        const sealed = sealRecord({ entry: waiting.shift() as ChainEntry }, { seq: (seq += 1), ts, prev });
        prev = sealed.hash;
        lines.push(sealed.line);
      }
      bytes += writeSync(fd, lines.join(''));
    }
    closeSync(fd);
  }
  return bytes;
}

function callRecords(call: number): ChainEntry[] {
  const tool = TOOLS[call % 4] ?? 'read';
  const isCommand = tool === 'bash';
  const hex = (call * 2654435761).toString(16).padStart(16, '0').slice(-16);
  const facts = {
    id: `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4000-8000-${String(call).padStart(12, '0')}`,
    principal: { id: `agent-${call % 23}`, role: 'developer', profiles: ['default'], origin: 'desk' },
    session: `session-${Math.floor(call / 500)}`,
    run: `run-${Math.floor(call / 100)}`,
    exposed: tool,
    server: 'workspace',
    tool,
    verb: isCommand ? ('execute' as const) : ('read' as const),
    effectDigest: hex.repeat(4),
    revision: 'c'.repeat(64),
    reasons: [{ id: `rule-${call % 40}`, file: 'rules.yaml', line: call % 300 }],
  };
  const named = {
    facts: isCommand
      ? { programs: [PROGRAMS[call % 5] ?? 'git'] }
      : { paths: [`src/module-${call % 311}/file-${call % 7919}.ts`] },
  };
  if (call % 3 === 0) return [{ type: 'decision', ...facts, ...named, outcome: 'deny', code: 'DENIED', ms: 1 }];
  const sizes = { args: 44, raw: 1200, sent: 1200, spilled: 0 };
  return [
    {
      type: 'intent',
      ...facts,
      ...named,
      outcome: 'allow',
      obligations: { bytes: 30_000, lines: 2000 },
      sizes: { args: 44 },
    },
    { type: 'outcome', ...facts, outcome: 'allow', executed: 'yes', sizes, ms: call % 90, upstreamMs: call % 80 },
  ];
}
