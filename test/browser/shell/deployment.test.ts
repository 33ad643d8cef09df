import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CERTIFICATE, CERTIFICATE_KEY } from '../../support/certificate.ts';
import { makeScratch, type Scratch } from '../../support/scratch.ts';
import { PLACEMENTS, startTestService } from '../../support/service.ts';
import { enterKey, goTo, originOf, useConsole } from '../support/console.ts';
import { write } from '../support/editor.ts';
import { type Gateway, openGateway } from '../support/gateway.ts';
import { SCREEN_NAMES } from '../support/screens.ts';

const scene = useConsole();
let scratch: Scratch;
beforeAll(async () => {
  scratch = await makeScratch();
  await writeFile(join(scratch.path, 'cert.pem'), CERTIFICATE);
  await writeFile(join(scratch.path, 'key.pem'), CERTIFICATE_KEY);
});
afterAll(() => scratch.remove());

describe.each(PLACEMENTS)('with a %s for each organization', (placement) => {
  it.each(['off', 'on'])('the console works with TLS %s', async (tls) => {
    const files = { POSTERN_TLS_CERT: join(scratch.path, 'cert.pem'), POSTERN_TLS_KEY: join(scratch.path, 'key.pem') };
    const service = await startTestService({ POSTERN_PLACEMENT: placement, ...(tls === 'on' ? files : {}) });
    try {
      const origin = tls === 'on' ? originOf(service).replace('http:', 'https:') : originOf(service);
      const page = await scene.open({ origin });
      await enterKey(page, await signUp(page));
      await goTo(page, 'connect', 'Connect');
      expect(await page.getByRole('definition').allInnerTexts()).toContain(tls === 'on' ? 'offered' : 'off');
      await useEverything(page);
    } finally {
      await service.close();
    }
  });
});

describe('behind a proxy', () => {
  let gateway: Gateway;
  beforeAll(async () => {
    gateway = await openGateway(originOf(scene.service), '/db');
  });
  afterAll(() => gateway.close());

  it('below a path, all that it asks for is below that path', async () => {
    const page = await scene.open({ origin: gateway.origin });
    const paths: string[] = [];
    page.on('request', (request) => paths.push(new URL(request.url()).pathname));
    await enterKey(page, await signUp(page));
    await goTo(page, 'connect', 'Connect');
    await page.getByText(`${gateway.origin}/api`, { exact: true }).waitFor();
    await useEverything(page);
    expect(paths.filter((path) => !path.startsWith('/db/'))).toEqual([]);
    await page.goto(`${gateway.origin}/console/`);
    await page.getByLabel('API key').waitFor();
    expect(page.url()).toBe(`${gateway.origin}/console`);
  });
});

async function signUp(page: Page): Promise<string> {
  const reply = await page.request.post(new URL('api/auth/signup', page.url()).href, {
    data: { orgName: 'Acme', email: `${crypto.randomUUID()}@acme.test` },
  });
  return (await reply.json()).apiKey;
}

/** Writes something, and looks at every screen. */
async function useEverything(page: Page): Promise<void> {
  await goTo(page, 'migrations/new', 'New migration');
  await page.getByLabel('Name').fill('orders');
  await write(page, 'SQL', 'create table orders (id int primary key);');
  await page.getByRole('button', { name: 'Apply …' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Apply' }).click();
  await page.getByText('“orders” is applied').waitFor();
  for (const [path, title] of SCREEN_NAMES) {
    await goTo(page, path, title);
    expect([path, await page.locator('.notice.bad').allInnerTexts()]).toEqual([path, []]);
  }
}
