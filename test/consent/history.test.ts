/** Tests random histories of approvals, revocations, changes and restarts: whatever happens, in whatever order, no call reaches a server that is not approved as it runs. */
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { RawTool } from '../../catalogs/tool.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';
import { ACT_OF_BOSS, approveSet, withConsents } from './place.ts';

/** What the server on the disk is now. */
interface Version {
  script: number;
  list: number;
}

interface Model extends Version {
  approved: Version | undefined;
  disabled: boolean;
  calls: number;
}

interface Real {
  readonly folder: string;
  facade: TestFacade;
}

type Step = fc.AsyncCommand<Model, Real>;

const step = (name: string, run: (model: Model, real: Real) => Promise<unknown>): Step => ({ check: () => true, run: async (model, real) => void (await run(model, real)), toString: () => name });

const toolsOf = (list: number): readonly RawTool[] => [{ name: 'same', description: 'Always the same.', inputSchema: { type: 'object' } }, { name: 'told', description: `Version ${list}.`, inputSchema: { type: 'object' } }];

/** A server that writes down what it is whenever it is called. Its list is that of its start. */
function write(folder: string, { script, list }: Version): void {
  writeFileSync(path.join(folder, 'list.json'), JSON.stringify({ list, tools: toolsOf(list) }));
  writeFileSync(path.join(folder, 'server.mjs'), `// ${script}
import { appendFileSync, readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
const folder = process.argv[2];
const { list, tools } = JSON.parse(readFileSync(folder + '/list.json', 'utf8'));
createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  if (method === 'tools/call') appendFileSync(folder + '/ran', JSON.stringify({ tool: params.name, script: ${script}, list }) + '\\n');
  const result = method === 'initialize' ? { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 's', version: '1' } } : method === 'tools/list' ? { tools } : { content: [] };
  process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id, result }) + '\\n');
}).on('close', () => process.exit(0));
`);
}

const ran = (folder: string): readonly { tool: string; script: number; list: number }[] =>
  (existsSync(path.join(folder, 'ran')) ? readFileSync(path.join(folder, 'ran'), 'utf8').trimEnd().split('\n').map((line) => JSON.parse(line) as { tool: string; script: number; list: number }) : []);

const open = (folder: string): Promise<TestFacade> => startFacade(`version: 1
workspace: ./workspace
state: ./state
servers: {one: {command: ${JSON.stringify(process.execPath)}, args: [${folder}/server.mjs, ${folder}], isolation: direct, maxRetries: 100}}
profiles: {default: {servers: [one], expose: {tools: ["one.*"]}}}
rules: [{id: all, outcome: allow, when: {servers: [one]}}]
principals: [{id: me, stdio: true}]
`, { folder, approved: [] });

const call = (tool: string): Step => step(`calls ${tool}`, async (model, real) => {
  const before = ran(real.folder).length;
  const { code } = await real.facade.call(real.facade.open('me'), `one_${tool}`, {});
  model.calls += 1;
  const added = ran(real.folder).slice(before);
  if (code !== '') return expect(added, `refused with ${code}`).toEqual([]);
  expect(added).toHaveLength(1);
  expect(model.disabled, 'disabled').toBe(false);
  expect(added[0]?.script, 'the program is the approved one').toBe(model.approved?.script);
  if (tool === 'told') expect(added[0]?.list, 'the tool is the approved one').toBe(model.approved?.list);
});

const list = step('lists', async (model, real) => {
  const shown = (await real.facade.list(real.facade.open('me'))).filter(({ name }) => name.startsWith('one_'));
  if (model.approved === undefined || model.disabled) expect(shown).toEqual([]);
  for (const { name, description } of shown) if (name === 'one_told') expect(description).toContain(`Version ${model.approved?.list}.`);
});

const approve = step('is approved as it is', async (model, real) => {
  await approveSet(real.facade.assembled.config, 'one', toolsOf(model.list));
  model.approved = { script: model.script, list: model.list };
});

const steps: fc.Arbitrary<Step>[] = [
  fc.constantFrom('same', 'told').map(call),
  fc.constant(list),
  fc.constant(approve),
  fc.constant(step('is revoked', async (model, real) => {
    await withConsents(real.facade.assembled.config, (consents) => consents.revoke('one'));
    model.approved = undefined;
  })),
  fc.boolean().map((enable) => step(enable ? 'is enabled' : 'is disabled', async (model, real) => {
    await withConsents(real.facade.assembled.config, async (consents) => (enable ? consents.enable('one') : consents.disable('one', ACT_OF_BOSS)));
    model.disabled = !enable;
  })),
  fc.constantFrom('script' as const, 'list' as const).map((what) => step(`its ${what} changes`, async (model, real) => {
    model[what] += 1;
    write(real.folder, model);
  })),
  fc.constant(step('the facade restarts', async (_model, real) => {
    await real.facade.close();
    real.facade = await open(real.folder);
  })),
  fc.integer({ min: 1, max: 40 }).map((ms) => step(`${ms} ms pass`, () => sleep(ms))),
];

describe('random histories of consent', () => {
  it('no call reaches a server that is not approved as it runs' + verifies('HA-15', 'CY-03'), async () => {
    let reached = 0;
    await fc.assert(fc.asyncProperty(fc.nat(3), fc.array(fc.oneof({ weight: 3, arbitrary: steps[0]! }, ...steps.slice(1)), { minLength: 12, maxLength: 40 }), async (first, history) => {
      const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-consent-'));
      const model: Model = { script: 1, list: 1, approved: undefined, disabled: false, calls: 0 };
      write(folder, model);
      const real: Real = { folder, facade: await open(folder) };
      try {
        // Most begin approved: the others show that nothing is reached before.
        await fc.asyncModelRun(() => ({ model, real }), first === 0 ? history : [approve, ...history]);
        reached += ran(folder).length;
      } finally {
        await real.facade.close();
        rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
      }
    }), { numRuns: Number(process.env['TOLLGATE_HISTORIES'] ?? 12), endOnFailure: true });
    expect(reached, 'some histories reach it').toBeGreaterThan(2);
  });
});
