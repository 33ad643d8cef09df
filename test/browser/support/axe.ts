import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Page } from 'playwright-core';

const SOURCE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** WCAG 2.2 AA, and what axe's authors count as good practice. */
const TAGS = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
const SERIOUS: ReadonlySet<string> = new Set(['serious', 'critical']);
/** A color between two others may be too pale; axe would take it for the color of the page. A transition that is replaced is canceled. */
const TRANSITIONS_ENDED = `Promise.allSettled(document.getAnimations().filter((animation) => animation instanceof CSSTransition).map(({ finished }) => finished))`;

interface Found {
  readonly id: string;
  readonly impact: string;
  readonly nodes: readonly { readonly target: readonly string[]; readonly failureSummary: string }[];
}

/**
 * What axe finds serious on the page, once no color is in transition. It runs in a world of its own: the page's policy stays as strict as
 * it is, and its scripts see nothing of it.
 */
export async function seriousFindings(page: Page): Promise<readonly string[]> {
  const devTools = await page.context().newCDPSession(page);
  try {
    const { frameTree } = await devTools.send('Page.getFrameTree');
    const { executionContextId: contextId } = await devTools.send('Page.createIsolatedWorld', { frameId: frameTree.frame.id });
    await devTools.send('Runtime.evaluate', { expression: SOURCE, contextId });
    const { result, exceptionDetails } = await devTools.send('Runtime.evaluate', {
      expression: `${TRANSITIONS_ENDED}.then(() => axe.run(document, { runOnly: ${JSON.stringify(TAGS)}, resultTypes: ['violations'] })).then(({ violations }) =>
        violations.map(({ id, impact, nodes }) => ({ id, impact, nodes: nodes.map(({ target, failureSummary }) => ({ target, failureSummary })) })))`,
      contextId,
      awaitPromise: true,
      returnByValue: true,
    });
    if (exceptionDetails !== undefined) throw new Error(`axe failed: ${exceptionDetails.exception?.description ?? exceptionDetails.text}`);
    return (result.value as readonly Found[]).filter(({ impact }) => SERIOUS.has(impact)).flatMap(linesOf);
  } finally {
    await devTools.detach();
  }
}

function linesOf({ id, nodes }: Found): readonly string[] {
  return nodes.map(({ target, failureSummary }) => `${id} ${target.join(' ')}: ${failureSummary.replace(/\s+/g, ' ')}`);
}
