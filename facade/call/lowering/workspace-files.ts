/** Resolves the paths of calls to descriptors, and to every name that a rule may use for the same file. */
import { CallPathHandles, type PathHandle } from '../../../catalogs/readers/path-handles.ts';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';
import type { Awaitable } from '../../../catalogs/text/awaitable.ts';
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
  resolve(source: EffectSource): Awaitable<ResolvedPaths> {
    const pathHandles = new CallPathHandles([this.workspace]);
    try {
      const effect = effectOf(source, this.workspace, (text) => pathHandles.of(text).location);
      // A file with one name may still be a control file at another mount. This matters for changes only.
      const handles = pathHandles
        .all()
        .filter(({ stat }) => stat?.isFile() === true && (effect.verb !== 'read' || stat.nlink > 1n));
      return handles.length === 0 ? { effect, pathHandles } : this.#withEveryName(effect, pathHandles, handles);
    } catch (thrown) {
      pathHandles.close();
      throw thrown;
    }
  }

  /** Adds a path fact for every other name of each file: a rule about one name protects the file under all of them. */
  async #withEveryName(
    effect: Effect,
    pathHandles: CallPathHandles,
    handles: readonly PathHandle[],
  ): Promise<ResolvedPaths> {
    try {
      const added: PathFact[] = [];
      for (const handle of handles) {
        const names = [...new Set([...this.#links.knownNames(handle), ...(await this.#links.namesOf(handle))])];
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

  #rulePath(name: string): Pick<PathFact, 'path' | 'inside'> {
    const inside = isPathWithin(name, this.workspace);
    return rulePathOf({ absolute: name, relative: name.slice(this.workspace.length + 1), inside });
  }
}
