/** The internal server of the owner's own prompts: those of `prompts` in tollgate.yaml under its name. */
import type { ServerAdapter, ServerLists } from '../../adapters/port.ts';
import { createInProcessServer } from '../../adapters/primitives/workspace/in-process-server.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { PROMPTS } from '../../catalogs/servers/shipped-servers.ts';
import type { RawPrompt } from '../../catalogs/tools/definition-schema.ts';
import type { ToolResult } from '../../catalogs/tools/tool-definition.ts';
import type { Config } from '../config/config.ts';
import type { WrittenPrompt } from '../config/written-config.ts';
import { fillTemplate, marksOf, type PromptArguments } from '../operations/prompt-template.ts';

const PREFIX = `${PROMPTS}.`;

/** Returns the server. `current` returns the configuration in force. */
export function createPromptsServer(current: () => Pick<Config, 'prompts'>): ServerAdapter {
  const refuse = (): never => {
    throw new TollgateError('UNKNOWN_TOOL');
  };
  const own = (): readonly (readonly [string, WrittenPrompt])[] =>
    [...current().prompts].flatMap(([id, prompt]) =>
      id.startsWith(PREFIX) ? [[id.slice(PREFIX.length), prompt] as const] : [],
    );
  const list = async (kind: keyof ServerLists): Promise<readonly unknown[]> =>
    kind === 'prompts' ? own().map(([name, prompt]) => definitionOf(name, prompt)) : [];
  return {
    ...createInProcessServer({ name: PROMPTS, tools: [], answer: refuse }),
    list: list as NonNullable<ServerAdapter['list']>,
    call: async ({ args }) => {
      const { name, arguments: given = {} } = args.value as { name?: string; arguments?: PromptArguments };
      const prompt = own().find(([known]) => known === name)?.[1];
      if (prompt === undefined) throw new TollgateError('UNKNOWN_PROMPT');
      const value = { messages: fillTemplate(prompt.template, given) } as unknown as ToolResult;
      return { text: JSON.stringify(value), value, exact: true };
    },
  };
}

/** Without written arguments, each mark of the template is a required one. */
function definitionOf(name: string, { template, description, arguments: written }: WrittenPrompt): RawPrompt {
  const declared = written ?? marksOf(template).map((mark) => ({ name: mark }));
  return {
    name,
    ...(description !== undefined && { description }),
    arguments: declared.map((one) => ({ required: true, ...one })),
  };
}
