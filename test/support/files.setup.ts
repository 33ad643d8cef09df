import { afterAll, vi } from 'vitest';
import { dropAfterTests } from './control-databases.ts';

// Run for each test file, before it.
dropAfterTests();

// The next file of the worker has the same modules.
afterAll(() => {
  vi.restoreAllMocks();
  vi.useRealTimers();
  vi.unstubAllEnvs();
});
