/** Collects the places of tollgate.yaml that name tools or arguments, to check them when the definitions are known. */
import type { ToolMention } from '../config.ts';
import type { ConfigPath, Located, Path } from '../config-problems.ts';
import type { WrittenBudget, WrittenConfig, WrittenExpose, WrittenServer } from '../written-config.ts';
import { splitToolId } from './server-names.ts';

/** Returns all places, in the order of the file. `located` knows the place of each value. */
export function collectMentions(written: WrittenConfig, located: Located): readonly ToolMention[] {
  const collector = new Collector(located);
  for (const [name, server] of Object.entries(written.servers ?? {})) collector.server(name, server);
  const inheriting = Object.entries(written.profiles ?? {}).some(([, { expose }]) => expose === undefined);
  if (inheriting || Object.keys(written.profiles ?? {}).length === 0) collector.expose(written.expose, ['expose']);
  collector.budgets(written.budgets, ['budgets']);
  for (const [profile, { expose, budgets }] of Object.entries(written.profiles ?? {})) {
    collector.expose(expose, ['profiles', profile, 'expose'], profile);
    collector.budgets(budgets, ['profiles', profile, 'budgets'], profile);
  }
  return collector.mentions.sort(
    (a, b) => Number(a.file > b.file) - Number(a.file < b.file) || a.line - b.line || a.column - b.column,
  );
}

class Collector {
  readonly mentions: ToolMention[] = [];
  readonly #located: Located;

  constructor(located: Located) {
    this.#located = located;
  }

  server(server: string, { tools, semantics = {} }: WrittenServer): void {
    for (const key of ['deny', 'allow'] as const)
      tools?.[key]?.forEach((tool, index) =>
        this.#add({ server, tool, key, arguments: [] }, ['servers', server, 'tools', key, index]),
      );
    for (const [tool, meaning] of Object.entries(semantics)) {
      const path = ['servers', server, 'semantics', tool];
      const { paths = [], urls = [], command, byArgument } = typeof meaning === 'string' ? {} : meaning;
      const named = [
        ...paths.map((name, at) => [name, ['paths', at]] as const),
        ...urls.map((name, at) => [name, ['urls', at]] as const),
        ...(command === undefined ? [] : [[command, ['command']] as const]),
        ...(byArgument === undefined ? [] : [[byArgument.argument, ['byArgument', 'argument']] as const]),
      ];
      this.#add(
        {
          server,
          tool,
          key: 'semantics',
          arguments: named.map(([name, at]) => ({ name, ...this.#at([...path, ...at], 'value') })),
        },
        path,
        'key',
      );
    }
  }

  expose(expose: WrittenExpose | undefined, path: Path, profile?: string): void {
    expose?.tools?.forEach((entry, index) => {
      const at = [...path, 'tools', index];
      const { tool: id, pins = {} } = typeof entry === 'string' ? { tool: entry } : entry;
      const target = splitToolId(id);
      if (target === undefined) return;
      const named = Object.entries(pins).map(([name, value]) => ({
        name,
        value,
        ...this.#at([...at, 'pins', name], 'key'),
      }));
      this.#add(
        {
          ...target,
          key: named.length > 0 ? 'pins' : 'expose',
          arguments: named,
          ...(profile !== undefined && { profile }),
        },
        typeof entry === 'string' ? at : [...at, 'tool'],
      );
    });
  }

  budgets(budgets: readonly WrittenBudget[] | undefined, path: Path, profile?: string): void {
    budgets?.forEach(({ when: { server, tool } = {} }, index) => {
      const target =
        splitToolId(tool ?? '') ??
        (server === undefined || tool === undefined || tool.includes('.') ? undefined : { server, tool });
      if (target !== undefined)
        this.#add({ ...target, key: 'budgets', arguments: [], ...(profile !== undefined && { profile }) }, [
          ...path,
          index,
          'when',
          'tool',
        ]);
    });
  }

  #add(mention: Omit<ToolMention, 'file' | 'line' | 'column'>, path: Path, part: 'key' | 'value' = 'value'): void {
    this.mentions.push({ ...mention, ...this.#at(path, part) });
  }

  #at(path: Path, part: 'key' | 'value'): ConfigPath & { readonly file: string } {
    return { file: this.#located.fileOf?.(path) ?? this.#located.file, ...this.#located.placeOf(path, part) };
  }
}
