/** Tells public internet addresses from those that lead to this machine, its networks or its cloud. */
import { BlockList, isIPv4, isIPv6 } from 'node:net';

/** IANA special-purpose registry (RFC 6890 and later): ranges that are not globally reachable, and relays into them. */
const INNER_IPV4 =
  '0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 ' +
  '192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4';

/** Within 2000::/3: protocol assignments with Teredo and ORCHID, documentation, 6to4. */
const INNER_IPV6 = '2001::/23 2001:db8::/32 2002::/16 3fff::/20';

const inner = new BlockList();
for (const range of `${INNER_IPV4} ${INNER_IPV6}`.split(' ')) {
  const [net = '', prefix] = range.split('/');
  inner.addSubnet(net, Number(prefix), isIPv4(net) ? 'ipv4' : 'ipv6');
}
// Other ranges: loopback, mapped and NAT64 forms of IPv4, link-local, unique local and multicast.
const unicast = new BlockList();
unicast.addSubnet('2000::', 3, 'ipv6');

/** Returns true for a public unicast address, and false for other addresses and other texts. */
export function isPublicAddress(address: string): boolean {
  if (isIPv4(address)) return !inner.check(address, 'ipv4');
  return isIPv6(address) && unicast.check(address, 'ipv6') && !inner.check(address, 'ipv6');
}
