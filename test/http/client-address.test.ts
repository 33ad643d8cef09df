import { describe, expect, it } from 'vitest';
import { clientAddresses } from '../../http/headers.ts';

describe('without trusted proxies', () => {
  const client = clientAddresses([]);

  it('is the address of the socket, whatever X-Forwarded-For says', () => {
    expect(client('203.0.113.7', '198.51.100.1')).toBe('203.0.113.7');
  });

  it('is written as IPv4 when it is IPv4 inside IPv6', () => {
    expect(client('::ffff:203.0.113.7', undefined)).toBe('203.0.113.7');
  });
});

describe('behind trusted proxies', () => {
  const client = clientAddresses(['10.0.0.0/8', '2001:db8::/32', '192.0.2.1']);

  it.each([
    ['the last hop that a trusted proxy saw', '10.0.0.1', '198.51.100.1', '198.51.100.1'],
    ['not what the client itself claimed', '10.0.0.1', '1.2.3.4, 198.51.100.1', '198.51.100.1'],
    ['past several trusted proxies', '10.0.0.1', '198.51.100.1, 2001:db8::5, 10.9.9.9', '198.51.100.1'],
    ['a trusted address when all are', '10.0.0.1', '10.0.0.3, 10.0.0.2', '10.0.0.3'],
    ['the socket when it is not trusted', '203.0.113.7', '198.51.100.1', '203.0.113.7'],
    ['a single address may be trusted', '192.0.2.1', '198.51.100.1', '198.51.100.1'],
    ['the proxy where its word is no address', '10.0.0.1', 'unknown', '10.0.0.1'],
    ['the proxy where its word is empty', '10.0.0.1', '', '10.0.0.1'],
    ['with the port cut off', '10.0.0.1', '198.51.100.1:4711', '198.51.100.1'],
    ['IPv6 in brackets', '10.0.0.1', '[2001:4860::8888]:443', '2001:4860::8888'],
    ['the proxy seen through an IPv6 socket', '::ffff:10.0.0.1', '198.51.100.1', '198.51.100.1'],
  ])('%s', (_name, socket, forwardedFor, expected) => {
    expect(client(socket, forwardedFor)).toBe(expected);
  });
});
