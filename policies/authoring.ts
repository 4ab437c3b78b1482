/** Owns the port to what authors of policies use beside a running facade: check, test, build, format, explain; decides no call. */

/** Every tool loads its own code when it is called, so that a running facade never pays for it. See policies/authoring/. */
export interface Authoring {
}
