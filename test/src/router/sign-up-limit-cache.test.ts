import { expect, it } from 'vitest';
import { ServiceError } from '../../../src/errors.ts';
import { SignUpLimitCache } from '../../../src/router/accounts.ts';

const limited = (retryAfterS: number) => new ServiceError('rate_limited', 'too many', { retryAfterS });

function addresses() {
  let ms = 0;
  const refused = new SignUpLimitCache(() => ms);
  const isRefused = (address: string) => {
    try {
      refused.check(address);
      return false;
    } catch (error) {
      return (error as ServiceError).retryAfterS;
    }
  };
  return { refused, isRefused, wait: (passing: number) => (ms += passing) };
}

it('an address that is refused stays so for ten seconds, with the time that is left', () => {
  const { refused, isRefused, wait } = addresses();
  refused.remember('192.0.2.1', limited(3_000));
  expect(isRefused('192.0.2.1')).toBe(3_000);
  wait(4_500);
  expect(isRefused('192.0.2.1')).toBe(2_996);
  expect(isRefused('192.0.2.2')).toBe(false);
  wait(5_500);
  expect(isRefused('192.0.2.1')).toBe(false);
});

it('never for longer than the reported time', () => {
  const { refused, isRefused, wait } = addresses();
  refused.remember('192.0.2.1', limited(2));
  wait(1_999);
  expect(isRefused('192.0.2.1')).toBe(1);
  wait(1);
  expect(isRefused('192.0.2.1')).toBe(false);
});

it('counts as the limit does: an IPv6 network is one', () => {
  const { refused, isRefused } = addresses();
  refused.remember('2001:db8:1:2::1', limited(60));
  expect(isRefused('2001:db8:1:2:ffff::')).toBe(60);
  expect(isRefused('2001:db8:1:3::1')).toBe(false);
});

it('only a limit is remembered', () => {
  const { refused, isRefused } = addresses();
  refused.remember('192.0.2.1', new ServiceError('email_taken', 'taken'));
  refused.remember('192.0.2.1', new Error('lost'));
  expect(isRefused('192.0.2.1')).toBe(false);
});

it('remembers so many at once', () => {
  const { refused, isRefused } = addresses();
  for (let at = 0; at <= 10_000; at += 1) refused.remember(`10.1.${at >> 8}.${at & 255}`, limited(60));
  expect(isRefused('10.1.0.0')).toBe(false);
  expect(isRefused('10.1.0.1')).toBe(60);
});
