/** Caches a server's tool list, and reports how it differs from the previous one. A failed list is not cached. */
import { isDeepStrictEqual } from 'node:util';
import { asTollgateError } from '../../catalogs/errors/error-table.ts';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import type { ToolListChanges, ToolListEvent } from './server-events.ts';

/** One list for all callers, read once. */
export class ToolCache {
  private readonly report: (event: ToolListEvent) => void;
  private current: Promise<readonly RawTool[]> | undefined;
  private last: readonly RawTool[] | undefined;
  /** The list, once it has been read. */
  known: readonly RawTool[] | undefined;

  constructor(report: (event: ToolListEvent) => void) {
    this.report = report;
  }

  /** The list, or undefined if it must be read. */
  get list(): Promise<readonly RawTool[]> | undefined {
    return this.current;
  }

  /** Keeps the list that is being read, until the read fails or `forget` is called. */
  keep(reading: Promise<readonly RawTool[]>): Promise<readonly RawTool[]> {
    this.forget();
    this.current = reading;
    reading.then(
      (tools) => {
        if (this.current === reading) this.known = tools;
        const before = this.last;
        this.last = tools;
        this.report(
          before === undefined
            ? { event: 'tools.discovered', tools: tools.map(({ name }) => name) }
            : { event: 'tools.refreshed', ...compareTools(before, tools) },
        );
      },
      (thrown: unknown) => {
        if (this.current === reading) this.current = undefined;
        this.report({ event: 'tools.failed', code: asTollgateError(thrown).code });
      },
    );
    return reading;
  }

  forget(): void {
    this.current = undefined;
    this.known = undefined;
  }
}

/** Compares by name. Of several tools with one name the last counts, as everywhere. */
function compareTools(before: readonly RawTool[], after: readonly RawTool[]): ToolListChanges {
  const oldTools = new Map(before.map((tool) => [tool.name, tool]));
  const newTools = new Map(after.map((tool) => [tool.name, tool]));
  const common = [...newTools].filter(([name]) => oldTools.has(name));
  const changed = common.filter(([name, tool]) => !isDeepStrictEqual(tool, oldTools.get(name))).map(([name]) => name);
  return {
    added: [...newTools.keys()].filter((name) => !oldTools.has(name)),
    removed: [...oldTools.keys()].filter((name) => !newTools.has(name)),
    changed,
    unchanged: common.length - changed.length,
  };
}
