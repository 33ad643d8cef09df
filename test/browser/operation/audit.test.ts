import pg from 'pg';
import { expect, inject, it } from 'vitest';
import { newControlDatabase } from '../../support/control-databases.ts';
import type { TestOrganization } from '../../support/service.ts';
import { goTo, useConsole } from '../support/console.ts';
import { pressCopy } from '../support/copy-button.ts';
import { write } from '../support/editor.ts';

const controlDatabase = newControlDatabase();
const CHANGED_SEQ = 3;
const scene = useConsole({ POSTERN_CONTROL_DATABASE: controlDatabase });

it('what was done in the page is found, and the chain is unbroken', async () => {
  const { page } = await scene.openSignedIn();
  await goTo(page, 'migrations/new', 'New migration');
  await page.getByLabel('Name').fill('orders');
  await write(page, 'SQL', 'create table orders (id int primary key)');
  await page.getByRole('button', { name: 'Apply …' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Apply' }).click();
  await page.getByText('“orders” is applied').waitFor();
  await goTo(page, 'audit', 'Audit');
  const log = page.getByRole('region', { name: 'Audit log' });
  await log.getByText('create table orders (id int primary key)').first().waitFor();
  const actions = await log.locator('td[data-title=Action]').allInnerTexts();
  for (const action of ['auth.signup', 'keys.create', 'migrations.apply']) expect(actions.join('\n')).toContain(action);

  await page.getByRole('button', { name: 'Verify' }).click();
  const notice = page.locator('.notice.good');
  await notice.getByText(/^All \d+ entries are as they were written/).waitFor();
  await pressCopy(page, notice.getByRole('button', { name: 'Copy for a note' }));
  expect(await page.evaluate(() => navigator.clipboard.readText())).toMatch(/^\S+ \w+ #\d+ [0-9a-f]{64}$/);
});

it('an entry that was changed in the control database is named, in red', async () => {
  const { page, organization } = await scene.openSignedIn();
  for (let n = 0; n < 5; n += 1) await scene.service.query(organization, `select ${n}`);
  await scene.service.service.router.catalog.audit.flush();
  const seq = await changeAnEntry(organization);
  await goTo(page, 'audit', 'Audit');
  await page.getByRole('button', { name: 'Verify' }).click();
  const notice = page.getByRole('alert').filter({ hasText: 'The log was changed' });
  await notice.waitFor();
  expect(await notice.innerText()).toMatch(new RegExp(`^The log was changed: entry #${seq} `));
  expect(await notice.evaluate((element) => element.classList.contains('bad'))).toBe(true);
});

/** As somebody with access to the server might: the second entry tells of another action. @returns its number */
async function changeAnEntry({ id }: TestOrganization): Promise<number> {
  const url = new URL(inject('clusterUrl'));
  url.pathname = `/${controlDatabase}`;
  const operator = new pg.Client({ connectionString: url.href });
  await operator.connect();
  try {
    const select = 'SELECT seq, entries FROM postern.audit_blocks WHERE organization_id = $1 AND seq >= $2 ORDER BY seq LIMIT 1';
    const { rows } = await operator.query(select, [id, CHANGED_SEQ]);
    const [{ seq, entries }] = rows;
    const lines = String(entries).split('\n');
    const index = lines.findIndex((line) => JSON.parse(line)[1] === CHANGED_SEQ);
    lines[index] = JSON.stringify(JSON.parse(lines[index] ?? '').with(4, 'health'));
    const update = 'UPDATE postern.audit_blocks SET entries = $3 WHERE organization_id = $1 AND seq = $2';
    await operator.query(update, [id, seq, lines.join('\n')]);
  } finally {
    await operator.end();
  }
  return CHANGED_SEQ;
}
