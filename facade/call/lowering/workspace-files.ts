/** Resolves the paths of calls to descriptors, and to every name that a rule may use for the same file. */
import { CallPathHandles, type PathHandle } from '../../../catalogs/readers/path-handles.ts';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';
import type { Effect, PathFact } from '../../../policies/port.ts';
import type { Config } from '../../config/config.ts';
import { type EffectSource, effectOf, rulePathOf } from './call-effect.ts';
import { HardLinks } from './hard-links.ts';

/** A call's effect, and the descriptors that its paths were resolved to. */
export interface ResolvedPaths {
  readonly effect: Effect;
  readonly pathHandles: CallPathHandles;
}

/** The files of one configuration. */
export class WorkspaceFiles {
  readonly workspace: string;
  readonly #links: HardLinks;

  constructor({
    workspace,
    controlFiles,
    otherWorkspaces: { read, write },
  }: Pick<Config, 'workspace' | 'controlFiles' | 'otherWorkspaces'>) {
    this.workspace = workspace;
    this.#links = new HardLinks([workspace, ...read, ...write], controlFiles);
  }

  /**
   * Returns the effect of a call with real paths. The caller closes the descriptors. Throws DENIED for a path that
   * keeps changing.
   */
  resolve(source: EffectSource): ResolvedPaths | Promise<ResolvedPaths> {
    const handles = new CallPathHandles([this.workspace]);
    try {
      const effect = effectOf(source, this.workspace, (text) => handles.of(text).location);
      return handles.isEmpty ? { effect, pathHandles: handles } : this.#withEveryName(effect, handles);
    } catch (thrown) {
      handles.close();
      throw thrown;
    }
  }

  /** Adds a path fact for every other name of each file: a rule about one name protects the file under all of them. */
  async #withEveryName(effect: Effect, pathHandles: CallPathHandles): Promise<ResolvedPaths> {
    try {
      const added: PathFact[] = [];
      for (const handle of pathHandles.all()) {
        const names = await this.#otherNames(handle, effect.verb);
        const { path: given } = rulePathOf(handle.location);
        const facts = effect.paths.filter(({ path }) => path === given);
        for (const { argument } of facts) added.push(...names.map((name) => ({ argument, ...this.#rulePath(name) })));
      }
      return { effect: added.length === 0 ? effect : { ...effect, paths: [...effect.paths, ...added] }, pathHandles };
    } catch (thrown) {
      pathHandles.close();
      throw thrown;
    }
  }

  async #otherNames(handle: PathHandle, verb: Effect['verb']): Promise<readonly string[]> {
    const isLinked = handle.stat !== undefined && handle.stat.nlink > 1n;
    if (!isLinked && verb === 'read') return [];
    return [...new Set([...this.#links.knownNames(handle), ...(await this.#links.namesOf(handle))])];
  }

  #rulePath(name: string): Pick<PathFact, 'path' | 'inside'> {
    const inside = isPathWithin(name, this.workspace);
    return rulePathOf({ absolute: name, relative: name.slice(this.workspace.length + 1), inside });
  }
}
