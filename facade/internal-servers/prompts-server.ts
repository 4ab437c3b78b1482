/** The internal server of the owner's own prompts: those of `prompts` in tollgate.yaml under its name. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { PROMPTS } from '../../catalogs/servers/shipped-servers.ts';
import type { RawPrompt } from '../../catalogs/tools/definition-schema.ts';
import type { ToolResult } from '../../catalogs/tools/tool-definition.ts';
import type { Config } from '../config/config.ts';
import type { WrittenPrompt } from '../config/written-config.ts';
import { fillTemplate, marksOf, type PromptArguments } from '../operations/prompt-template.ts';

/** The prompts, and the messages of one of them. `get` throws UNKNOWN_PROMPT. */
interface OwnPrompts {
  readonly list: () => readonly RawPrompt[];
  readonly get: (params: { readonly name?: unknown; readonly arguments?: unknown }) => ToolResult;
}

const PREFIX = `${PROMPTS}.`;

/** Returns the owner's prompts. `current` returns the configuration in force. */
export function createOwnPrompts(current: () => Pick<Config, 'prompts'>): OwnPrompts {
  const own = (): readonly (readonly [string, WrittenPrompt])[] =>
    [...current().prompts].flatMap(([id, prompt]) =>
      id.startsWith(PREFIX) ? [[id.slice(PREFIX.length), prompt] as const] : [],
    );
  return {
    list: () => own().map(([name, prompt]) => definitionOf(name, prompt)),
    get: ({ name, arguments: given }) => {
      const prompt = own().find(([known]) => known === name)?.[1];
      if (prompt === undefined) throw new TollgateError('UNKNOWN_PROMPT');
      return { messages: fillTemplate(prompt.template, (given ?? {}) as PromptArguments) };
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
