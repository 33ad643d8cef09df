import type { Locator, Page } from 'playwright-core';

/** Presses the button, and waits until it has said for its moment that the text is copied. */
export async function pressCopy(page: Page, button: Locator): Promise<void> {
  // The page looks for it itself: on a busy machine it may be over before anybody else asks.
  const said = page.evaluate(
    () =>
      new Promise<void>((resolve) => {
        const observer = new MutationObserver(() => {
          const labels = [...document.querySelectorAll('button')].map(({ textContent }) => textContent);
          if (!labels.includes('Copied')) return;
          observer.disconnect();
          resolve();
        });
        observer.observe(document, { subtree: true, childList: true, characterData: true });
      }),
  );
  await button.click();
  await said;
}
