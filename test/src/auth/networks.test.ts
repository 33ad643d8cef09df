import { describe, expect, test } from 'vitest';
import { inNetworks, normalNetwork, parseAddress } from '../../../src/auth/tokens.ts';

describe('a network', () => {
  test.each([
    ['10.1.2.3', '10.1.2.3/32'],
    ['10.1.2.3/8', '10.0.0.0/8'],
    ['0.0.0.0/0', '0.0.0.0/0'],
    ['2001:DB8::1', '2001:db8::1/128'],
    ['2001:db8:1::/32', '2001:db8::/32'],
    ['::ffff:10.1.2.3', '10.1.2.3/32'],
    ['::ffff:10.1.2.3/104', '10.0.0.0/8'],
  ])('%s is %s', (text, network) => {
    expect(normalNetwork(text)).toBe(network);
    expect(normalNetwork(network)).toBe(network);
  });

  test.each([
    '',
    'localhost',
    '10.0.0.0/33',
    '10.0.0',
    '10.0.0.0/',
    '10.0.0.0/8/8',
    '::1/129',
    'fe80::1%eth0',
    ' 10.0.0.1',
    '010.0.0.1',
    '/tmp',
  ])('%j is none', (text) => expect(normalNetwork(text)).toBeUndefined());

  test('has the addresses in it, however they are written, and no others', () => {
    const isInside = inNetworks(['10.0.0.0/8', '2001:db8::/32']);
    const inside = (text: string) => {
      const address = parseAddress(text);
      return address !== undefined && isInside(address);
    };
    expect(['10.255.0.1', '::ffff:10.0.0.1', '2001:db8:ffff::1'].map(inside)).toEqual([true, true, true]);
    expect(['11.0.0.1', '2001:db9::', '', '/run/socket', 'unknown'].map(inside)).toEqual(Array(5).fill(false));
  });
});
