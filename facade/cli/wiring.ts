/** The implementations that facade/main.ts passes to the commands. */
import type {
  AddressProbe,
  FindContainerClient,
  OpenIssuerKeys,
  RegistrySearch,
  SignIns,
} from '../../adapters/port.ts';
import type { Authoring } from '../../policies/authoring/authoring-port.ts';
import type { Examine } from '../attention/doctor-findings.ts';
import type { AssembleFacade, CheckPolicy, ServeOffline } from '../runtime/assembled-facade.ts';
import type { ConsentWiring } from './server-consent/owner-context.ts';

/** What facade/main.ts passes to the commands. */
export interface Wiring extends ConsentWiring {
  readonly assemble: AssembleFacade;
  readonly check: CheckPolicy;
  readonly authoring: Authoring;
  readonly serveOffline: ServeOffline;
  readonly examine: Examine;
  readonly signIns: SignIns;
  readonly issuerKeys: OpenIssuerKeys;
  readonly probe: AddressProbe;
  readonly containerClient: FindContainerClient;
  readonly searchRegistry: RegistrySearch;
}
