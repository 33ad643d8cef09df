import type { Page } from 'playwright-core';

/** What a page holds after a garbage collection, in bytes: JavaScript's objects, array buffers, and the browser's own objects. */
export async function heapOf(page: Page): Promise<number> {
  const devTools = await page.context().newCDPSession(page);
  try {
    await devTools.send('HeapProfiler.collectGarbage');
    const { usedSize, embedderHeapUsedSize, backingStorageSize } = await devTools.send('Runtime.getHeapUsage');
    return usedSize + embedderHeapUsedSize + backingStorageSize;
  } finally {
    await devTools.detach();
  }
}
