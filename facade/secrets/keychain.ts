/**
 * The keychain of the operating system, through an optional package. A store that does not survive a restart is not
 * used.
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
 * Returns the keychain; undefined if the package is missing or no desktop stores secrets. It only reads, so that
 * nothing is written before a user asks for it.
 */
export async function openKeychain(env: Readonly<Record<string, string | undefined>>): Promise<Keychain | undefined> {
  // Without a session bus there is no keychain, and the package could wait for one.
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
    // It is missing or locked. Callers use another source, or report it.
    return undefined;
  }
}
