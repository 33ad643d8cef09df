import type { BrowserContext, Page } from 'playwright-core';

/**
 * Writes down everything that no page of the console may do.
 * @param origin the only one that may be asked for anything
 */
export async function watch(context: BrowserContext, origin: string, complaints: string[]): Promise<void> {
  await context.addInitScript(() => {
    addEventListener('securitypolicyviolation', ({ violatedDirective, blockedURI, sourceFile, lineNumber, sample }) => {
      console.error(`policy: ${violatedDirective} ${blockedURI} ${sample} at ${sourceFile}:${lineNumber}`);
    });
  });
  context.on('page', (page) => watchPage(page, complaints));
  context.on('request', (request) => {
    const url = new URL(request.url());
    const isOwn = url.origin === origin || url.protocol === 'data:' || url.protocol === 'blob:';
    if (!isOwn) complaints.push(`request to another origin: ${url}`);
  });
}

function watchPage(page: Page, complaints: string[]): void {
  page.on('console', (message) => complaints.push(`${message.type()}: ${message.text()} (${message.location().url})`));
  page.on('pageerror', (error) => complaints.push(`thrown: ${error.stack ?? error.message}`));
  page.on('crash', () => complaints.push('the page has crashed'));
}
