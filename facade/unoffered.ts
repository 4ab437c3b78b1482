/** Owns the notice that rules name tools or arguments that a server, once it is listed, does not have; refuses nothing: servers change, and a rule may come before its tool. */
import type { OfferedTool, Policy } from '../policies/port.ts';
import type { ToolEntry } from './tool-entry.ts';

/** Says each line once. `judge` takes what a server lists at present, and one server after the other, for each may have many rules. */
export function createNotices(
  policy: Policy,
  say: (line: string) => void,
): { readonly judge: (server: string, entries: readonly ToolEntry[]) => Promise<void> } {
  const said = new Set<string>();
  let last: Promise<unknown> = Promise.resolve();
  const tell = async (server: string, entries: readonly ToolEntry[]): Promise<void> => {
    const tools = entries.map(
      ({ tool, semantics }): OfferedTool => ({ name: tool.name, inputSchema: tool.inputSchema, semantics }),
    );
    for (const line of (await policy.findUnoffered?.(server, tools)) ?? []) {
      if (!said.has(line)) say(line);
      said.add(line);
    }
  };
  return {
    judge: (server, entries) => {
      // A server that could not be listed offers nothing at present, which says nothing of rules.
      const told = last.then(() => (entries.length === 0 ? undefined : tell(server, entries)));
      last = told.catch(() => undefined);
      return told;
    },
  };
}
