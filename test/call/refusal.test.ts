/**
 * Tests facade/call/refusal.ts, facade/call/identify.ts, facade/call/decide.ts and facade/runtime/metrics/metrics.ts:
 * how calls are refused, identified, decided and counted.
 */
import { describe, expect, it, onTestFinished } from 'vitest';
import { UpstreamError } from '../../adapters/port.ts';
import { ERRORS, type ErrorCode, TollgateError } from '../../catalogs/errors/error-table.ts';
import type { ToolResult } from '../../catalogs/tools/tool-definition.ts';
import { allowedCall, type DecisionRequest, decide, type JudgedCall } from '../../facade/call/decide.ts';
import { identify, openSession } from '../../facade/call/identify.ts';
import { WorkspaceFiles } from '../../facade/call/lowering/workspace-files.ts';
import type { EndedCall } from '../../facade/call/record.ts';
import { refusalReply } from '../../facade/call/refusal.ts';
import type { ArgsShape } from '../../facade/call/validate.ts';
import { operationOf } from '../../facade/operations/operation-table.ts';
import { Redactor } from '../../facade/output/redactor.ts';
import { ContextAccounts } from '../../facade/runtime/metrics/context-accounts.ts';
import { Metrics } from '../../facade/runtime/metrics/metrics.ts';
import { CallTally } from '../../facade/serve/host/call-statistics.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import type { CallDecision, Policy, Principal } from '../../policies/port.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';

const redactor = new Redactor();
const principal: Principal = { id: 'ann', role: 'r', groups: [], profiles: ['default'], origin: 'cli' };

describe('the reply to a refusal', () => {
  it.each(Object.keys(ERRORS) as ErrorCode[])('for %s is as the error table says', (code) => {
    const reply = refusalReply(new TollgateError(code), { id: 'd1', redactor });
    const row = ERRORS[code];
    if (row.wire === 'result') {
      const result = JSON.parse((reply as { text: string }).text) as ToolResult;
      expect(result).toMatchObject({ isError: true, _meta: { 'tollgate/code': code, 'tollgate/decision': 'd1' } });
      expect(result.content?.[0]?.text?.split('\n')).toEqual([row.what, row.next]);
    } else {
      expect(reply).toMatchObject({
        kind: 'error',
        error: { code: 'rpc' in row ? row.rpc : -32603, data: { code, decision: 'd1' } },
      });
    }
  });

  it('uses error numbers outside the range of the specification, or with its meaning', () => {
    const standard = new Set([-32700, -32600, -32601, -32602, -32603]);
    // MCP 2026-07-28, basic, error codes.
    const defined = { HEADER_MISMATCH: -32020, CLIENT_CAPABILITY: -32021, WIRE_REVISION: -32022 };
    expect(ERRORS).toMatchObject(Object.fromEntries(Object.entries(defined).map(([code, rpc]) => [code, { rpc }])));
    for (const [code, row] of Object.entries(ERRORS))
      if (!Object.hasOwn(defined, code) && 'rpc' in row && row.rpc !== undefined)
        expect(standard.has(row.rpc) || (row.rpc <= -32000 && row.rpc >= -32019)).toBe(true);
  });

  it('reveals nothing of an unexpected error', () => {
    const reply = refusalReply(new Error('secret /etc/passwd path'), { id: 'd2', redactor });
    expect(JSON.stringify(reply)).not.toContain('passwd');
    expect(reply).toMatchObject({ error: { code: -32603, data: { code: 'INTERNAL', decision: 'd2' } } });
  });

  it("contains a server's error unchanged, without registered secrets", () => {
    const own = new Redactor();
    own.register('secret-value');
    const replyTo = (text: string): unknown => {
      const error = { ...(JSON.parse(text) as { code: number; message: string }), text };
      return refusalReply(new UpstreamError(error), { id: 'x', redactor: own });
    };
    const text = '{ "code":-31999, "message":"n\\u006f", "data":{"a":[1.0]}, "more":1}';
    expect(replyTo(text)).toEqual({
      kind: 'error',
      error: { code: -31999, message: 'no', data: { a: [1] }, text },
      upstream: 'x',
    });
    expect(replyTo('{"code":1,"message":"key \\u0073ecret-value","data":12345678901234567890}')).toMatchObject({
      error: { message: 'key [redacted]', text: '{"code":1,"message":"key [redacted]","data":12345678901234567890}' },
    });
  });
});

describe('identify', () => {
  const request = (meta?: Record<string, unknown>) => ({
    name: 't',
    args: { text: '{}', value: {}, exact: true },
    signal: new AbortController().signal,
    ...(meta === undefined ? {} : { meta }),
  });

  it('takes the run from the host, bound to the principal, or else the session', () => {
    const session = openSession(principal, 'stdio');
    expect(identify(session, request(), { id: 'd', startedAt: 1 }).run).toBe(session.id);
    expect(identify(session, request({ 'tollgate/run': 'task-7' }), { id: 'd', startedAt: 1 }).run).toBe('ann/task-7');
  });

  it.each([7, '', 'a b', 'x'.repeat(129), '../x'])('refuses %j as a run', (run) => {
    expect(() =>
      identify(openSession(principal, 'stdio'), request({ 'tollgate/run': run }), { id: 'd', startedAt: 1 }),
    ).toThrow(expect.objectContaining({ code: 'IDENTITY' }));
  });

  it('takes no role, profile or origin from what a client says', () => {
    const caller = identify(
      openSession(principal, 'http'),
      request({ role: 'admin', principal: 'root', origin: 'x' }),
      { id: 'd', startedAt: 1 },
    );
    expect(caller.principal).toBe(principal);
  });

  it('refuses a session that has ended', () => {
    const session = openSession(principal, 'http');
    session.end.abort();
    expect(() => identify(session, request(), { id: 'd', startedAt: 1 })).toThrow(/has ended/);
  });
});

describe('decide', () => {
  const decision = (outcome: string, pins: Record<string, unknown> = {}): CallDecision => ({
    outcome: outcome as CallDecision['outcome'],
    reasons: [{ id: 'r1', message: 'because', file: '/home/ann/rules.yaml', line: 3 }],
    shadow: [],
    obligations: { caps: {}, pins, budgets: [], labels: [] },
  });
  const session = openSession(principal, 'stdio');
  const caller = { decision: 'a1', session, principal, run: session.id, startedAt: 0 };
  const args: ArgsShape = {
    schema: {},
    validator: { check: () => [] } as unknown as ArgsShape['validator'],
    lift: (given) => ({ args: given, changed: false }),
    pins: {},
    maxBytes: 1000,
  };
  const exposed = {
    name: 's_t',
    server: { name: 's', labels: [] },
    pin: 'p',
    args,
  } as unknown as DecisionRequest['exposed'];
  /** Judges an ask for which no person is available, and returns what answered it. */
  const ask = async (
    made: CallDecision | (() => CallDecision),
    {
      args = {},
      grant,
      obtain,
    }: { args?: Record<string, unknown>; grant?: string; obtain?: () => Promise<string | undefined> } = {},
  ): Promise<string | undefined> => {
    const policy = { revision: 'r', call: typeof made === 'function' ? made : () => made } as unknown as Policy;
    const bound = { doc: { text: JSON.stringify(args), value: args, exact: true }, notes: [] };
    const deps = {
      refresh: () => undefined,
      files: new WorkspaceFiles({ workspace: '/', controlFiles: [], otherWorkspaces: { read: [], write: [] } }),
      preconditions: { judge: () => ({ budgets: [], ...(grant !== undefined && { grant }) }) },
      labels: { of: () => [] },
      plans: { of: () => 'none' },
      now: () => 1,
      approvals: { obtain: obtain ?? (() => Promise.reject(new TollgateError('APPROVAL_REQUIRED'))) },
    } as unknown as Parameters<typeof decide>[0];
    const request = { name: 's_t', args: bound.doc, signal: session.closed };
    return allowedCall(
      await decide(deps, { operation: operationOf('tools/call'), policy, caller, exposed, bound, request }),
    ).consent;
  };

  it('continues only with a literal allow' + verifies('CY-16'), async () => {
    await expect(ask(decision('allow'))).resolves.toBeUndefined();
    for (const other of ['deny', 'ask', 'ALLOW', 'yes', ''])
      await expect(ask(decision(other))).rejects.toThrow(TollgateError);
  });

  it('lets a grant answer an ask, and nothing else', async () => {
    await expect(ask(decision('ask'), { grant: 'g1' })).resolves.toBe('g1');
    for (const other of ['deny', 'ASK', 'yes', ''])
      await expect(ask(decision(other), { grant: 'g1' })).rejects.toMatchObject({ code: 'DENIED' });
  });

  it('decides a call that has waited again, with the decision of that moment', async () => {
    const answers = [decision('ask'), decision('deny')];
    const obtain = async (): Promise<undefined> => undefined;
    await expect(ask(() => answers.shift() ?? decision('allow'), { obtain })).rejects.toMatchObject({ code: 'DENIED' });
    answers.push(decision('ask'), decision('ask'));
    await expect(ask(() => answers.shift() ?? decision('allow'), { obtain })).resolves.toBeUndefined();
    const given: (string | undefined)[] = [undefined, 'a1'];
    await expect(ask(decision('ask'), { obtain: async () => given.shift() })).resolves.toBe('a1');
  });

  it('names the rule and its message, and no file of the owner', async () => {
    const thrown = (await ask(decision('deny')).catch((error: unknown) => error)) as TollgateError;
    expect(thrown.message).toBe('Refused by rule r1: because');
    expect(JSON.stringify(thrown.data)).not.toContain('rules.yaml');
  });

  it('says what the caller can do instead, if the policy says it', async () => {
    const denied = decision('deny');
    const advised = {
      ...denied,
      reasons: denied.reasons.map((reason) => ({ ...reason, remediation: 'Push to a branch.' })),
    };
    await expect(ask(advised)).rejects.toMatchObject({ code: 'DENIED', next: 'Push to a branch.' });
  });

  it('adds the pinned arguments of rules once, and refuses if other values would be sent', async () => {
    await expect(ask(decision('allow', { repo: ['a'] }), { args: { repo: ['a'] } })).resolves.toBeUndefined();
    await expect(ask(decision('allow', { repo: ['a'] }), { args: { repo: ['b'] } })).resolves.toBeUndefined();
    const changing = ['allow', 'ask'].map((outcome) => {
      let asked = 0;
      return () => decision(outcome, { repo: [(asked += 1)] });
    });
    for (const policy of changing)
      await expect(ask(policy, { grant: 'g1' })).rejects.toMatchObject({ code: 'POLICY_FAILED' });
  });
});

describe('Metrics', () => {
  it('counts by tool, origin and outcome, without names that a client could invent' + verifies('HB-06'), () => {
    const state = openState(temporaryFolder());
    onTestFinished(() => void state.close());
    const metrics = new Metrics(new CallTally(state), { audit: 0, state: 0, heads: 0 }, new ContextAccounts(state));
    const start = {
      id: 'd',
      principal,
      session: 's',
      requestedName: 'made-up',
      kind: 'tool' as const,
      argBytes: 0,
      startedAt: 0,
      revision: 'r',
    };
    const sent = (upstreamMs: number): EndedCall => ({
      start,
      kind: 'sent',
      exposed: { name: 'read' } as NonNullable<EndedCall['exposed']>,
      factsText: '{}',
      judged: { lowered: { effect: { server: 'web', tool: 'read' } } } as unknown as JudgedCall,
      forwarded: { executed: 'yes', upstreamMs },
    });
    metrics.onEnd({ start, kind: 'refused', error: new TollgateError('UNKNOWN_TOOL') }, 0);
    metrics.onEnd(sent(20), 3000);
    metrics.onEnd(sent(900_000), 900_500);
    for (const change of [1, 1, -1] as const) metrics.onWaiting(change);
    const text = metrics.text({
      health: { 'a"b': { state: 'healthy', restarts: 2 } },
      unsettled: 3,
      sessions: { stdio: 1, http: 2 },
      gate: { waiting: 4, waitingBytes: 65536, shed: 5 },
      running: 5,
      spills: { files: 1, bytes: 7 },
    });
    expect(text).toContain('\ntollgate_calls_in_flight 4\n');
    expect(text).toContain('tollgate_calls_total{tool="unknown",origin="cli",outcome="UNKNOWN_TOOL"} 1');
    expect(text).toContain('tollgate_calls_total{tool="read",origin="cli",outcome="ok"} 2');
    const labels = 'mcp_method_name="tools/call",gen_ai_tool_name="read",gen_ai_prompt_name="",error_type=""';
    const client = `mcp_client_operation_duration_seconds_bucket{${labels},tollgate_server="web"`;
    expect(text).toContain(`${client},le="0.05"} 1`);
    expect(text).toContain(`${client},le="+Inf"} 2`);
    expect(text).toContain(`mcp_server_operation_duration_seconds_bucket{${labels},le="5"} 1`);
    expect(text).toContain(`mcp_server_operation_duration_seconds_sum{${labels}} 903.500000`);
    expect(text).toContain('tollgate_server_state{server="a\\"b",state="healthy"} 1');
    expect(text).toContain('tollgate_server_restarts_total{server="a\\"b"} 2');
    expect(text).toContain('tollgate_budget_unsettled 3');
    expect(text).toContain('tollgate_approvals_waiting 1');
    for (const line of [
      'tollgate_calls_waiting 4',
      'tollgate_calls_waiting_bytes 65536',
      'tollgate_calls_shed_total 5',
    ])
      expect(text).toContain(line);
    expect(text).not.toContain('made-up');
  });
});
