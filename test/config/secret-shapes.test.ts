/** Tests which parts of an address count as keys. */
import { describe, expect, it } from 'vitest';
import { maskAddress } from '../../facade/config/servers/secret-shapes.ts';
import { verifies } from '../verifies.ts';

const KEY = '9f8e7d6c5b4a39281706f5e4d3c2b1a0';

describe('maskAddress' + verifies('HA-24'), () => {
  it.each([
    [`https://u.example/mcp?api_key=x`, 'https://u.example/mcp?api_key=*'],
    [`https://u.example/mcp?v=2&key=x#token=y`, 'https://u.example/mcp?v=2&key=*#token=*'],
    [`https://u.example/mcp?api%5Fkey=x&a%20b=sk-abc`, 'https://u.example/mcp?api%5Fkey=*&a%20b=*'],
    [`https://u.example/s/${KEY}/mcp`, 'https://u.example/s/*/mcp'],
    [`https://u.example/s/NTg5YzQ2OGUtYWFhYS1iYmJi==/mcp`, 'https://u.example/s/*/mcp'],
    ['https://u.example/9f8e7d6c-0000-4000-8000-123456789abc/sse', 'https://u.example/*/sse'],
    ['https://u.example/mcp;jsessionid=1?x=eyJhbGciOi.J9', 'https://u.example/mcp;jsessionid=1?x=*'],
    ['https://me:pw@u.example:8443/mcp', 'https://*@u.example:8443/mcp'],
    [`https://u.example//${KEY}`, 'https://u.example//*'],
  ])('masks a key in %s', (address, shown) => {
    expect(maskAddress(address, () => '*')).toBe(shown);
  });

  it.each([
    'https://mcp.notion.com/mcp',
    'https://api.example.com/v1/projects/my-project-2/mcp?version=2025-06-18&read_only=true',
    'http://127.0.0.1:8765/',
    'https://u.example/mcp?api_key=${secret:NAME}',
    'https://a-rather-long-name-of-a-host-0123456789.example/x',
    'https://u.example/a-long-name-of-words-and-more-words',
    'no address at all',
    '',
  ])('masks nothing in %s', (address) => {
    expect(maskAddress(address, () => '*')).toBe(address);
  });
});
