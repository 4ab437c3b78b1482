/** Tests that docs/servers.md says what the code does: its events, lifetimes and states. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { SERVER_LIFETIMES } from '../../adapters/supervisor/server-settings.ts';
import { codeIn, rowsOf, sectionOf } from '../docs/markdown.ts';

const PAGE = 'docs/servers.md';
const source = (file: string): string => readFileSync(path.join(import.meta.dirname, '..', '..', file), 'utf8');
/** Returns the code words in the first cells of a section's table. */
const named = (heading: string): readonly string[] =>
  rowsOf(sectionOf(PAGE, heading)).flatMap(([cell]) => codeIn(cell ?? ''));

describe(PAGE, () => {
  it('has every event, and no other', () => {
    const events = [
      ...source('adapters/supervisor/server-events.ts').matchAll(/event: ((?:'[a-z.]+'(?: \| )?)+)/g),
    ].flatMap(([, words]) => [...(words ?? '').matchAll(/'([a-z.]+)'/g)].map(([, word]) => word));
    const thrown = [
      'cli/serving/kill-command.ts',
      'cli/connect/connect-command.ts',
      'cli/knowledge-commands/knowledge-access.ts',
      'serve/host/event-feed.ts',
      'runtime/servers/server-records.ts',
      'runtime/servers/server-refresh.ts',
      'serve/host/server-registration.ts',
    ]
      .flatMap((name) => [...source(`facade/${name}`).matchAll(/event: ((?:'[a-z.]+'(?: \| )?)+)/g)])
      .flatMap(([, words]) => [...(words ?? '').matchAll(/'([a-z.]+)'/g)].map(([, word]) => word));
    expect([...named('## Events')].filter((word) => word !== 'id').sort()).toEqual(
      [...new Set([...events, ...thrown])].sort(),
    );
  });

  it('has every lifetime and every state', () => {
    expect(named('## How long a server stays').filter((word) => word !== 'lifetime')).toEqual([...SERVER_LIFETIMES]);
    const states = /HealthState = ([^;]+);/.exec(source('adapters/port.ts'))?.[1]?.match(/[a-z][a-z ]*[a-z]/g) ?? [];
    expect([...named('## States')].sort()).toEqual([...states].sort());
  });
});
