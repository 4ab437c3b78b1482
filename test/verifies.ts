/** Cites requirements in test titles; test/requirements.test.ts compares the citations with the list. */

/** Cites rows of test/requirements.yaml: `it('caps connections' + verifies('HA-05'), …)`. Throws on an id of the wrong form. */
export function verifies(...ids: readonly string[]): string {
  for (const id of ids) {
    if (!/^(HA|PF|HE|CY|HB|DC|BY|TR|ST|FP|PR|FH|CM|AD|FL)-[A-Z]?\d{2,3}$/.test(id))
      throw new Error(`not a requirement id: ${id}`);
  }
  return ` [${ids.join(', ')}]`;
}
