/** Where the items of a result are, which are cut and cleaned: tools, resources and prompts have different members. */

import { isObject } from '../../adapters/rpc/wire-message.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { ContentItem, ToolResult } from '../../catalogs/tools/tool-definition.ts';

/** One form of results. */
export interface ResultForm {
  readonly key: 'content' | 'contents' | 'messages';
  readonly itemsOf: (result: ToolResult) => readonly ContentItem[];
  /** Returns the result with other items, some of which are new. */
  readonly withItems: (result: ToolResult, items: readonly ContentItem[]) => ToolResult;
  /** Returns a line of Tollgate as an item. */
  readonly note: (line: string) => ContentItem;
}

/** The reader of spills for results that are not those of tools. */
export const RESOURCE_READER = 'resources/read';

/** The result of a tool. */
export const TOOL_FORM: ResultForm = {
  key: 'content',
  itemsOf: ({ content = [] }) => content,
  withItems: (result, content) => ({ ...result, content }),
  note: textNote,
};

/** The messages of a prompt. A new item becomes part of the last message's role. */
export const PROMPT_FORM: ResultForm = {
  key: 'messages',
  itemsOf: (result) => messagesOf(result).map(({ content }) => content),
  withItems: (result, items) => {
    const messages = messagesOf(result);
    const last = messages.at(-1) ?? { role: 'user' };
    return { ...result, messages: items.map((content, at) => ({ ...(messages[at] ?? { role: last.role }), content })) };
  },
  note: textNote,
};

/** Returns the form of the contents of one resource. `uri`: as the client asked for it. */
export function resourceForm(uri: string): ResultForm {
  return {
    key: 'contents',
    itemsOf: ({ contents }) => (Array.isArray(contents) ? (contents as readonly ContentItem[]) : []),
    withItems: (result, contents) => ({ ...result, contents }),
    note: (line) => ({ uri, mimeType: 'text/plain', text: `[tollgate: ${line}]` }) as unknown as ContentItem,
  };
}

interface Message {
  readonly role: string;
  readonly content: ContentItem;
}

function messagesOf({ messages }: ToolResult): readonly Message[] {
  const list = (Array.isArray(messages) ? messages : []) as readonly Partial<Message>[];
  if (list.some(({ content }) => !isObject(content)))
    throw new TollgateError('UPSTREAM_INVALID', { detail: 'A message of the prompt has no content item.' });
  return list as readonly Message[];
}

function textNote(line: string): ContentItem {
  return { type: 'text', text: `[tollgate: ${line}]` };
}
