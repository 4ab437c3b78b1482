/** Resolves the paths of calls: each to descriptors, and to every name by which a rule may know the object. */
import { CallPathHandles, type PathHandle } from '../../../catalogs/readers/path-handles.ts';
import { isBeneath } from '../../../catalogs/readers/path-location.ts';
import type { Effect, PathFact } from '../../../policies/port.ts';
import type { Config } from '../../config/config.ts';
import { type EffectSource, effectOf, rulePathOf } from './call-effect.ts';
import { HardLinks } from './hard-links.ts';

/** A call's effect, and the descriptors that its paths were judged by. */
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
   * The effect of a call, over the real paths of descriptors that the caller closes. Throws DENIED for a path that
   * keeps changing.
   */
  resolve(doing: EffectSource): ResolvedPaths | Promise<ResolvedPaths> {
    const held = new CallPathHandles([this.workspace]);
    try {
      const effect = effectOf(doing, this.workspace, (text) => held.of(text).location);
      return held.isEmpty ? { effect, pathHandles: held } : this.#resolved(effect, held);
    } catch (thrown) {
      held.close();
      throw thrown;
    }
  }

  async #resolved(effect: Effect, held: CallPathHandles): Promise<ResolvedPaths> {
    try {
      return { effect: await this.#withEveryName(effect, held), pathHandles: held };
    } catch (thrown) {
      held.close();
      throw thrown;
    }
  }

  /** A file is protected under all of its names: each is a fact of its own beside the name that was given. */
  async #withEveryName(effect: Effect, held: CallPathHandles): Promise<Effect> {
    const more: PathFact[] = [];
    for (const one of held.all()) {
      const names = await this.#otherNames(one, effect.verb);
      if (names.length === 0) continue;
      const facts = effect.paths.filter(({ path }) => path === rulePathOf(one.location).path);
      for (const { argument } of facts) more.push(...names.map((name) => ({ argument, ...this.#placeOf(name) })));
    }
    return more.length === 0 ? effect : { ...effect, paths: [...effect.paths, ...more] };
  }

  async #otherNames(held: PathHandle, verb: Effect['verb']): Promise<readonly string[]> {
    const isLinked = held.stat !== undefined && held.stat.nlink > 1n;
    if (!isLinked && verb === 'read') return [];
    return [...new Set([...this.#links.knownNames(held), ...(await this.#links.namesOf(held))])];
  }

  #placeOf(name: string): Pick<PathFact, 'path' | 'inside'> {
    const inside = isBeneath(this.workspace, name);
    return rulePathOf({ absolute: name, relative: name.slice(this.workspace.length + 1), inside });
  }
}
