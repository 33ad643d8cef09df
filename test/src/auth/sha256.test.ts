import { createHmac } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { hmacSha256, sha256 } from '../../../src/auth/scram.ts';

it('SHA-256 is what FIPS 180-4 says of "abc"', () => {
  expect(sha256(Buffer.from('abc')).toString('hex')).toBe('ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad');
});

/** RFC 4231. */
describe('HMAC-SHA-256', () => {
  it.each([
    [Buffer.alloc(20, 0x0b), Buffer.from('Hi There'), 'b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7'],
    [Buffer.from('Jefe'), Buffer.from('what do ya want for nothing?'), '5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843'],
    [Buffer.alloc(20, 0xaa), Buffer.alloc(50, 0xdd), '773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe'],
    [
      Buffer.alloc(131, 0xaa),
      Buffer.from('Test Using Larger Than Block-Size Key - Hash Key First'),
      '60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54',
    ],
  ])('is as its examples have it', (key, data, expected) => {
    expect(hmacSha256(key, data).toString('hex')).toBe(expected);
  });

  it.each([0, 63, 64, 4_096, 4_097, 100_000])('of %i bytes is what Node says it is', (bytes) => {
    const [key, data] = [Buffer.alloc(32, 0x5a), Buffer.alloc(bytes, 'postern')];
    expect(hmacSha256(key, data)).toEqual(createHmac('sha256', key).update(data).digest());
  });
});
