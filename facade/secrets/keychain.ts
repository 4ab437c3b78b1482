/** Owns the keychain of the operating system, through an optional package that is loaded late; refuses stores that forget at a restart. */

/** Passwords by service and account. Methods reject when the keychain is locked or not there. */
export interface Keychain {
  get(service: string, account: string): Promise<string | undefined>;
  set(service: string, account: string, password: string): Promise<void>;
  remove(service: string, account: string): Promise<void>;
}

/** The service under which Tollgate keeps the keys of its vaults. */
export const KEYCHAIN_SERVICE = 'tollgate';

/** On Linux the package would take the kernel's key ring otherwise, which is empty after a restart. */
const OPTIONS = { linux: { store: 'secret-service' } } as const;

/**
 * The keychain, or undefined where there is none: the package is missing, or no desktop keeps secrets. It is probed by
 * reading, so that nothing is written before somebody asks for it.
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
    // Absent, locked or failing: callers fall back, or say that it is not there.
    return undefined;
  }
}
