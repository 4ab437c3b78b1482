/** Serves tenants: a facade and a reloader for each, apart from those of all others. */
import type { Config } from '../../config/config.ts';
import { type InForce, loadInForce } from '../../config/config-in-force.ts';
import { tenantPath } from '../../config/tenant-settings.ts';
import { checkTenant, readTenants } from '../../config/tenants.ts';
import type { AssembledFacade } from '../../runtime/assembled-facade.ts';
import type { Reloader } from '../../runtime/reloader.ts';
import { type CommonOptions, type ReloadingWiring, withReloading } from '../command-facade.ts';
import type { Io } from '../command-io.ts';

/** A running facade, and what reloads it. */
export interface ReloadedFacade {
  readonly assembled: AssembledFacade;
  readonly reloader: Reloader;
  /** The configuration that it started with. */
  readonly inForce: InForce;
}

/** The tenants of one process. */
export class ServedTenants {
  readonly #options: CommonOptions;
  readonly #io: Io;
  readonly #read: ReadonlyMap<string, InForce>;
  readonly #served = new Map<string, ReloadedFacade>();

  /** Reads and checks the tenants that a configuration names. Throws CONFIG_INVALID with the problems of all. */
  constructor(own: Config, options: CommonOptions, io: Io) {
    this.#options = options;
    this.#io = io;
    this.#read = readTenants(own, (file, tenant) => this.#load(file, tenant));
  }

  /** Throws CONFIG_INVALID if the configuration that names the tenants shares something with one of them. */
  check(own: Config): void {
    checkTenant(own, this.#configsBesides(undefined), own);
  }

  /** Runs `work` with a facade for each tenant, and closes them. Throws what a start and `work` throw. */
  within(
    opening: Pick<ReloadingWiring, 'assemble'> & { readonly own: () => Config },
    work: (tenants: ReadonlyMap<string, ReloadedFacade>) => Promise<number>,
  ): Promise<number> {
    const openNext = ([next, ...rest]: readonly (readonly [string, InForce])[]): Promise<number> => {
      if (next === undefined) return work(this.#served);
      const [tenant, inForce] = next;
      const file = opening.own().tenants.get(tenant) ?? inForce.config.file;
      const read = (): InForce => {
        const found = this.#load(file, tenant);
        checkTenant(found.config, [opening.own(), ...this.#configsBesides(tenant)], opening.own());
        return found;
      };
      const { assemble } = opening;
      const wiring = { inForce, read, options: { ...this.#options, config: file }, io: this.#io, assemble };
      return withReloading({ ...wiring, listening: true }, (assembled, reloader) => {
        this.#served.set(tenant, { assembled, reloader, inForce });
        return openNext(rest);
      });
    };
    return openNext([...this.#read]);
  }

  #load(file: string, tenant: string): InForce {
    return loadInForce(file, { env: this.#io.env, home: this.#io.home, isShared: true, tenant });
  }

  /** The configurations in force. */
  #configsBesides(tenant: string | undefined): readonly Config[] {
    return [...this.#read]
      .filter(([name]) => name !== tenant)
      .map(([name, { config }]) => this.#served.get(name)?.assembled.config ?? config);
  }
}

/** Returns the address of a tenant's endpoint. `url`: that of the listener's own. */
export function tenantUrl(url: string, tenant: string): string {
  return new URL(tenantPath(tenant), url).href;
}
