/** The table test/telemetry/conventions.yaml, which is written from the semantic conventions. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { parse } from 'yaml';

/** Whether an attribute must, or should, be there; and when a request has it. */
type Wanted = readonly [
  level: 'required' | 'conditional' | 'recommended',
  when: 'always' | 'failure' | 'tool' | 'prompt' | 'resource' | 'rpc-error' | 'http',
];

/** Attributes by their name. */
export type WantedAttributes = Readonly<Record<string, Wanted>>;

interface Conventions {
  readonly spans: Readonly<Record<'server' | 'client', WantedAttributes>>;
  readonly metrics: Readonly<
    Record<`mcp.${'server' | 'client'}.${'operation' | 'session'}.duration`, WantedAttributes>
  >;
  readonly faultsOfCallers: readonly string[];
  readonly tollgate: Readonly<Record<string, readonly string[]>>;
  readonly buckets: readonly number[];
}

/** The table. */
export const CONVENTIONS = parse(
  readFileSync(path.join(import.meta.dirname, 'conventions.yaml'), 'utf8'),
) as Conventions;
