/** The exposed tool that reads spills for a principal whose profiles have no `read`. It reads nothing else. */
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';

/** Its name. No other tool is shown under this name; `tollgate tools` says so. */
export const READ_SPILL = 'read_spill';

/** Its definition. `path` accepts only a spill handle. */
export const SPILL_TOOL: RawTool = {
  name: READ_SPILL,
  description: 'Reads the rest of an earlier result that was cut. Use the path and offset that its last line names.',
  inputSchema: {
    type: 'object',
    properties: {
      path: { type: 'string', description: 'The spill:// handle.', pattern: '^spill://[0-9a-f]{32}$' },
      action: {
        type: 'string',
        description: 'file (default): a page of text; search: the lines that contain pattern.',
        enum: ['file', 'search'],
      },
      offset: { type: 'integer', description: 'First line, counted from 1. Negative: counted from the end.' },
      limit: { type: 'integer', description: 'The most lines or matches.' },
      pattern: { type: 'string', description: 'search: plain text to search for.' },
      ignore_case: { type: 'boolean', description: 'search: ignore case. Default false.' },
    },
    required: ['path'],
    additionalProperties: false,
  },
  annotations: { readOnlyHint: true },
};
