/** Owns what a server last said of its tools, and how that differs from the time before; refuses to keep a list that failed. */
import { isDeepStrictEqual } from 'node:util';
import { asTollgateError } from '../../catalogs/errors/error-table.ts';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import type { ToolListChanges, ToolListEvent } from './server-events.ts';

/** One list for all who ask, read once. */
export class ToolCache {
  private readonly tell: (news: ToolListEvent) => void;
  private current: Promise<readonly RawTool[]> | undefined;
  private last: readonly RawTool[] | undefined;
  /** The list, once it has been read. */
  known: readonly RawTool[] | undefined;

  constructor(tell: (news: ToolListEvent) => void) {
    this.tell = tell;
  }

  /** The list, or undefined when it must be read. */
  get list(): Promise<readonly RawTool[]> | undefined {
    return this.current;
  }

  /** Takes a reading as the list from now on, until it fails or is forgotten. */
  keep(reading: Promise<readonly RawTool[]>): Promise<readonly RawTool[]> {
    this.forget();
    this.current = reading;
    reading.then(
      (tools) => {
        if (this.current === reading) this.known = tools;
        this.compare(tools);
      },
      (thrown: unknown) => {
        if (this.current === reading) this.current = undefined;
        this.tell({ event: 'tools.failed', code: asTollgateError(thrown).code });
      },
    );
    return reading;
  }

  forget(): void {
    this.current = undefined;
    this.known = undefined;
  }

  private compare(tools: readonly RawTool[]): void {
    const before = this.last;
    this.last = tools;
    this.tell(
      before === undefined
        ? { event: 'tools.discovered', tools: tools.map(({ name }) => name) }
        : { event: 'tools.refreshed', ...compareTools(before, tools) },
    );
  }
}

/** By name; of several tools with one name the last counts, as everywhere. */
function compareTools(before: readonly RawTool[], after: readonly RawTool[]): ToolListChanges {
  const old = new Map(before.map((tool) => [tool.name, tool]));
  const young = new Map(after.map((tool) => [tool.name, tool]));
  const common = [...young].filter(([name]) => old.has(name));
  const changed = common.filter(([name, tool]) => !isDeepStrictEqual(tool, old.get(name))).map(([name]) => name);
  return {
    added: [...young.keys()].filter((name) => !old.has(name)),
    removed: [...old.keys()].filter((name) => !young.has(name)),
    changed,
    unchanged: common.length - changed.length,
  };
}
