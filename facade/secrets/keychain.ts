/**
 * The keychain of the operating system, through an optional package that is loaded when it is needed. A store that is
 * empty after a restart is not used.
 */

/** Passwords by service and account. Methods reject if the keychain is locked or missing. */
export interface Keychain {
  get(service: string, account: string): Promise<string | undefined>;
  set(service: string, account: string, password: string): Promise<void>;
  remove(service: string, account: string): Promise<void>;
}

/** The service name of vault keys. */
export const KEYCHAIN_SERVICE = 'tollgate';

/** On Linux, the package would otherwise use the kernel's key ring, which is empty after a restart. */
const OPTIONS = { linux: { store: 'secret-service' } } as const;

/**
 * Returns the keychain, or undefined if there is none: the package is missing, or no desktop stores secrets. It is
 * probed by reading, so that nothing is written before a user asks for it.
 */
export async function openKeychain(env: Readonly<Record<string, string | undefined>>): Promise<Keychain | undefined> {
  // Without a session bus nothing answers, and the package may wait for it.
  if (process.platform === 'linux' && env.DBUS_SESSION_BUS_ADDRESS === undefined) return undefined;
  try {
    const { AsyncEntry } = await import('@napi-rs/keyring');
    const entry = (service: string, account: string): InstanceType<typeof AsyncEntry> =>
      new AsyncEntry(service, account, OPTIONS);
    await entry(KEYCHAIN_SERVICE, 'probe').getPassword();
    return {
      get: async (service, account) => (await entry(service, account).getPassword()) ?? undefined,
      set: async (service, account, password) => entry(service, account).setPassword(password),
      remove: async (service, account) => void (await entry(service, account).deletePassword()),
    };
  } catch {
    // Missing, locked or failing: callers use something else, or report it.
    return undefined;
  }
}
