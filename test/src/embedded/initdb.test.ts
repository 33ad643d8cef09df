import { expect, it } from 'vitest';
import { initdbReason } from '../../../src/embedded/binaries.ts';

it.each([
  [
    'a full disk',
    `running bootstrap script ... 2026-01-31 09:30:00.123 UTC [7] FATAL:  could not extend file "base/1/2691": No space left on device
2026-01-31 09:30:00.123 UTC [7] HINT:  Check free disk space.
2026-01-31 09:30:00.123 UTC [7] PANIC:  cannot abort transaction 1, it was already committed
child process exited with exit code 134
`,
    'could not extend file "base/1/2691": No space left on device',
  ],
  ['something of its own', 'initdb: error: invalid locale name "x"\n', 'invalid locale name "x"'],
])('initdb that fails because of %s is told of by what it said first', (_what, stderr, reason) => {
  expect(initdbReason(Object.assign(new Error('Command failed: initdb'), { stderr }))).toBe(reason);
});
