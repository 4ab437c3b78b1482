/**
 * A server with a process, or connection, of its own for each session. So a request of the server to the client belongs
 * to one session, and what one session tells the server stays there. One more process serves the lists.
 */
import type { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { ToolResult } from '../../catalogs/tools/tool-definition.ts';
import type { LogLevel, UpstreamCall } from '../port.ts';
import type { JsonDoc } from '../rpc/wire-message.ts';
import { type ServerParts, UpstreamServer } from './upstream-server.ts';

/** The processes of all sessions, as one server. */
export class SessionProcesses extends UpstreamServer {
  private readonly parts: ServerParts;
  private readonly processes = new Map<string, UpstreamServer>();
  /** Why no process may run. */
  private refusal: TollgateError | undefined;

  constructor(parts: ServerParts) {
    super(parts);
    this.parts = parts;
  }

  override call(call: UpstreamCall): Promise<JsonDoc<ToolResult>> {
    return this.processOf(call.scope).call(call);
  }

  override setLogLevel(scope: string, level: LogLevel): void {
    this.processOf(scope).setLogLevel(scope, level);
  }

  override async endScope(scope: string): Promise<void> {
    const process = this.processes.get(scope);
    this.processes.delete(scope);
    await Promise.all([process?.stop(), super.endScope(scope)]);
  }

  override async stop(): Promise<void> {
    await Promise.all([super.stop(), ...[...this.processes.values()].map((process) => process.stop())]);
  }

  override killNow(): void {
    super.killNow();
    for (const process of this.processes.values()) process.killNow();
  }

  override halt(refusal: TollgateError): void {
    this.refusal = refusal;
    super.halt(refusal);
    for (const process of this.processes.values()) process.halt(refusal);
  }

  override lift(): void {
    this.refusal = undefined;
    super.lift();
    for (const process of this.processes.values()) process.lift();
  }

  override async renew(how: 'list' | 'process'): Promise<void> {
    await super.renew(how);
    if (how === 'process') await Promise.all([...this.processes.values()].map((process) => process.stop()));
    if (how === 'process') this.processes.clear();
  }

  /** Made at the first call of a session. */
  private processOf(scope: string): UpstreamServer {
    const known = this.processes.get(scope);
    if (known !== undefined) return known;
    const process = new UpstreamServer({ ...this.parts, scope });
    if (this.refusal !== undefined) process.halt(this.refusal);
    this.processes.set(scope, process);
    return process;
  }
}
