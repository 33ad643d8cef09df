import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import { startTestService, type TestOrganization, type TestService } from '../../support/service.ts';
import { watch } from './watch.ts';

/** What a page is opened with. */
export interface View {
  /** Where the service is reached; absent: directly. */
  readonly origin?: string;
  readonly width?: number;
  readonly height?: number;
  readonly theme?: 'light' | 'dark';
}

/** A service and a browser for a test file. Each page has a profile of its own, which ends with the test. */
export interface Console {
  readonly service: TestService;
  /** The page before anybody has signed in. */
  open(view?: View): Promise<Page>;
  /** The page of a new organization, which has signed in with its first key. */
  openSignedIn(view?: View & { readonly organization?: TestOrganization; readonly staysSignedIn?: boolean }): Promise<SignedIn>;
  /**
   * Lets the rest of the test go on although the browser says this. Chromium writes a line to the console for each response with an error
   * status, which no page can prevent.
   */
  allow(message: RegExp): void;
  /** What has been found fault with in this test so far, whether it is allowed or not. */
  complaints(): readonly string[];
}

export interface SignedIn {
  readonly page: Page;
  readonly organization: TestOrganization;
}

/** As Debian installs it. */
const CHROMIUM = '/usr/bin/chromium';
/** A busy machine may take ten times as long as an idle one. */
const STEP_TIMEOUT_MS = 60_000;
const OPTIONS = ['--no-sandbox', '--disable-dev-shm-usage'];

/**
 * Registers the hooks of a test file. A test fails when one of its pages writes anything to the console, throws, breaks the policy, or
 * sends a request to another origin.
 */
export function useConsole(variables: Readonly<Record<string, string>> = {}): Console {
  let service: TestService | undefined;
  let browser: Browser | undefined;
  let contexts: BrowserContext[] = [];
  let complaints: string[] = [];
  let allowed: RegExp[] = [];
  beforeAll(async () => {
    service = await startTestService(variables);
    browser = await chromium.launch({ executablePath: CHROMIUM, args: OPTIONS });
  });
  afterEach(async () => {
    const unexpected = complaints.filter((complaint) => !allowed.some((pattern) => pattern.test(complaint)));
    const opened = contexts;
    [contexts, complaints, allowed] = [[], [], []];
    for (const context of opened) await context.close();
    expect(unexpected).toEqual([]);
  });
  afterAll(async () => {
    await browser?.close();
    await service?.close();
  });
  const running = () => {
    if (service === undefined || browser === undefined) throw new Error('the console runs only while a test does');
    return { service, browser };
  };
  const open = async ({ origin, width = 1_280, height = 800, theme = 'light' }: View = {}) => {
    const { service, browser } = running();
    const at = origin ?? originOf(service);
    const context = await browser.newContext({
      viewport: { width, height },
      colorScheme: theme,
      ignoreHTTPSErrors: true,
      permissions: ['clipboard-read', 'clipboard-write'],
    });
    contexts.push(context);
    context.setDefaultTimeout(STEP_TIMEOUT_MS);
    await watch(context, new URL(at).origin, complaints);
    const page = await context.newPage();
    await page.goto(`${at}/console`);
    return page;
  };
  return {
    get service() {
      return running().service;
    },
    open,
    async openSignedIn({ organization: known, staysSignedIn = false, ...view } = {}) {
      const organization = known ?? (await running().service.signUp());
      const page = await open(view);
      await enterKey(page, organization.apiKey, staysSignedIn);
      return { page, organization };
    },
    allow: (message) => allowed.push(message),
    complaints: () => complaints,
  };
}

export function originOf({ service }: TestService): string {
  return `http://127.0.0.1:${service.httpPort}`;
}

export async function enterKey(page: Page, apiKey: string, staysSignedIn = false): Promise<void> {
  await page.getByLabel('API key').fill(apiKey);
  if (staysSignedIn) await page.getByLabel('Stay signed in in this tab').check();
  await page.getByRole('button', { name: 'Enter' }).click();
  await page.locator('#main').waitFor();
}

/** Shows a screen, as its address does, and waits until it has loaded what it shows. */
export async function goTo(page: Page, path: string, title?: string): Promise<void> {
  await page.evaluate((hash) => {
    location.hash = hash;
  }, `#/${path}`);
  await page.getByRole('heading', { level: 1, ...(title === undefined ? {} : { name: title, exact: true }) }).waitFor();
  await settle(page);
}

/** Waits until nothing is being loaded. */
export async function settle(page: Page): Promise<void> {
  await page.waitForLoadState('networkidle');
  await page.waitForFunction(() => document.querySelector('.loading, [aria-busy=true]') === null);
}
