/** Declares `tollgate audit` and its commands, `explain`, `incident` and `stats`, for the admin. */
import { Option } from 'commander';
import { type CommandDefinition, collectValues, readCount } from '../command-definition.ts';

const PLACE = [
  new Option('--folder <folder>', 'read a copy of the log, or all logs in its folders; may be repeated').argParser(
    collectValues,
  ),
];

/** Select records. */
const FILTERS = [
  ...PLACE,
  new Option('--since <time>', 'ISO time, today, yesterday, or 30m, 2h, 7d ago'),
  new Option('--until <time>', 'the same'),
  new Option('--principal <id>', 'only of this principal; * stands for any text'),
  new Option('--server <name>', 'only of this server'),
  new Option('--tool <name>', 'only of this tool: exposed name, tool or server.tool'),
  new Option('--verb <verb>', 'only of this verb: read, write, execute, destructive'),
  new Option('--rule <id>', 'only where this rule fired, also in shadow'),
  new Option('--outcome <outcome>', 'only with this outcome'),
  new Option('--code <code>', 'only with this error code'),
  new Option('--path <path>', 'only about this file, or files in this folder'),
  new Option('--program <name>', 'only commands that start this program'),
  new Option('--host <name>', 'only about this host'),
  new Option('--label <label>', 'only with this label'),
  new Option('--budget <id>', 'only counted or refused by this budget'),
  new Option('--approval <id>', 'only of this approval or grant'),
  new Option('--run <id>', 'only of this run'),
  new Option('--session <id>', 'only of this session'),
  new Option('--parent <id>', 'only calls that this call made'),
  new Option('--replica <name>', 'only of this replica of a fleet; * stands for any text'),
  new Option('--type <type>', 'only of this type, also records that are no calls'),
  new Option('--id <id>', 'only of this call'),
  new Option('--text <words>', 'only with these words or ids; not in recorded arguments'),
];

const ALL = new Option('--all', 'also records that are not calls');

const SEAL = new Option('--seal', 'first sign the records that are not signed yet');

const limit = (count: number): Option =>
  new Option('--limit <number>', 'how many records').argParser(readCount(9_999_999)).default(count);

/** `audit` with its commands. */
export const AUDIT: CommandDefinition = {
  usage: 'audit',
  about: 'read and verify the audit log: list, show, session, tail, stats, export, verify, heads, prove, archive',
  examples: `Examples:
  $ tollgate audit list --outcome deny --since 2h
  $ tollgate audit list --path src/secrets --since yesterday
  $ tollgate audit show 0b6ef0a2-0000-4000-8000-000000000000
  $ tollgate audit export --format csv > calls.csv
  $ tollgate audit archive --before 90d --to /var/archive/tollgate`,
  commands: [
    {
      usage: 'list',
      about: 'show the newest calls, one per line',
      options: [
        ...FILTERS,
        ALL,
        limit(50),
        new Option('--before <cursor>', 'records before those of the list that named it'),
        new Option('--unknown', 'only calls that may have run: their process ended before the outcome was recorded'),
      ],
      load: async () => (await import('./audit-command.ts')).runAuditList,
    },
    {
      usage: 'show <id>',
      about: 'show all records of one call; the id, or its first 8 digits or more',
      options: [...PLACE, new Option('--args', 'also the recorded arguments, see audit.facts')],
      load: async () => (await import('./audit-command.ts')).runAuditShow,
    },
    {
      usage: 'session <id>',
      about: 'show what happened in a session, in order; the beginning of its id is enough',
      options: PLACE,
      load: async () => (await import('./session-command.ts')).runAuditSession,
    },
    {
      usage: 'tail',
      about: 'show the newest calls, then each new one',
      options: [...FILTERS, ALL, limit(10)],
      load: async () => (await import('./audit-command.ts')).runAuditTail,
    },
    {
      usage: 'stats',
      about: 'show counts and times by tool, outcome and principal',
      options: [...FILTERS, ALL],
      load: async () => (await import('./audit-command.ts')).runAuditStats,
    },
    {
      usage: 'export',
      about: 'print all records, oldest first',
      options: [...FILTERS, new Option('--format <format>', 'the format').choices(['jsonl', 'csv']).default('jsonl')],
      load: async () => (await import('./audit-command.ts')).runAuditExport,
    },
    {
      usage: 'verify',
      about: 'prove that no record was changed or removed, and say until when',
      options: [
        ...PLACE,
        new Option('--all', 'show every chain'),
        SEAL,
        new Option('--checkpoint <file>', 'a checkpoint kept elsewhere; may be repeated').argParser(collectValues),
        new Option(
          '--heads [file]',
          'compare with the heads that replicas published: in the shared state, or this file',
        ),
        new Option('--replica <name>', 'with --heads: only this replica'),
        new Option('--public-key <key>', 'the verifier key of a log, or a file with it; may be repeated').argParser(
          collectValues,
        ),
        new Option('--expect-head <hash>', 'a head that must still be there; may be repeated').argParser(collectValues),
        new Option('--archive <folder>', 'verify this archive together with the log; may be repeated').argParser(
          collectValues,
        ),
        new Option('--key <file>', 'the audit.key of the state folder, to verify the archive manifests of a copy'),
      ],
      load: async () => (await import('./audit-proof-command.ts')).runAuditVerify,
    },
    {
      usage: 'heads',
      about: 'show the heads that the replicas of a fleet published; with --json, for `audit verify --heads FILE`',
      load: async () => (await import('./audit-heads-command.ts')).runAuditHeads,
    },
    {
      usage: 'retire [replica]',
      about: 'forget the heads of replicas that have ended, after their logs were verified',
      options: [
        ...PLACE,
        new Option('--lost', 'the log of this replica is lost; that is recorded'),
        new Option('--public-key <key>', 'the verifier key of a log, or a file with it; may be repeated').argParser(
          collectValues,
        ),
      ],
      as: 'the owner who decides',
      load: async () => (await import('./audit-heads-command.ts')).runAuditRetire,
    },
    {
      usage: 'prove <id>',
      about: 'write a proof of the records of one call, which others can check without Tollgate',
      options: [...PLACE, new Option('--out <file>', 'the file to write; default: stdout'), SEAL],
      load: async () => (await import('./audit-proof-command.ts')).runAuditProve,
    },
    {
      usage: 'checkpoint',
      about: 'print the last checkpoint, to keep it elsewhere',
      options: [...PLACE, SEAL],
      load: async () => (await import('./audit-proof-command.ts')).runAuditCheckpoint,
    },
    {
      usage: 'key',
      about: 'print the key that verifies the log, to give it to others',
      load: async () => (await import('./audit-proof-command.ts')).runAuditKey,
    },
    {
      usage: 'archive',
      about: 'move old files of the log to another folder',
      options: [
        new Option('--before <time>', 'ISO time, or 90d ago; newer files stay').makeOptionMandatory(),
        new Option('--to <folder>', 'the folder to move them to').makeOptionMandatory(),
      ],
      load: async () => (await import('./audit-archive-command.ts')).runAuditArchive,
    },
    {
      usage: 'reindex',
      about: 'make the index of the log again from the chain files',
      options: PLACE,
      load: async () => (await import('./session-command.ts')).runAuditReindex,
    },
  ],
};

/** `explain`. */
export const EXPLAIN: CommandDefinition = {
  usage: 'explain <id>',
  about: 'show all that is known of a call: records, arguments, rules, output, server log',
  shared: ['config', 'json', 'opa'],
  load: async () => (await import('./explain-command.ts')).runExplain,
};

/** `incident`. */
export const INCIDENT: CommandDefinition = {
  usage: 'incident',
  about: 'write an archive of what happened, which others can verify without Tollgate',
  shared: ['config', 'json', 'opa'],
  options: [
    new Option('--since <time>', 'ISO time, today, yesterday, or 30m, 2h, 7d ago; optional with --session'),
    new Option('--until <time>', 'the same; default: now'),
    new Option('--principal <id>', 'only calls of this principal; * stands for any text'),
    new Option('--session <id>', 'only this session; the beginning of its id is enough'),
    new Option('--out <file>', 'the new file; default: incident-TIME.tar.gz in the current folder'),
  ],
  examples: `Examples:
  $ tollgate incident --since 2h
  $ tollgate incident --since yesterday --principal 'agent-*'`,
  load: async () => (await import('./incident-command.ts')).runIncident,
};

/** `stats`. */
export const STATS: CommandDefinition = {
  usage: 'stats',
  about: 'show what each session put into the context of the model, and what it would have been without Tollgate',
  as: 'the owner who looks',
  options: [new Option('--session <id>', 'only this session, in detail; the beginning of an id is enough')],
  load: async () => (await import('./stats-command.ts')).runStats,
};
