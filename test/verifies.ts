/** Owns the citation of requirements by tests: the id stands in the test's name, and test/requirements.test.ts compares both ways. */

/** Cites rows of test/requirements.yaml: `it('caps connections' + verifies('HA-05'), …)`. Throws on an id of the wrong form. */
export function verifies(...ids: readonly string[]): string {
  for (const id of ids) {
    if (!/^(HA|PF|HE|CY|HB|DC|BY|TR|ST)-\d{2,3}$/.test(id)) throw new Error(`not a requirement id: ${id}`);
  }
  return ` [${ids.join(', ')}]`;
}
