import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

let service: TestService;
let organization: TestOrganization;
beforeAll(async () => {
  service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '2' });
  organization = await service.signUp();
});
afterAll(() => service.close());

/** More than the wire door keeps of a statement. */
const long = (sql: string) => `${sql}${' '.repeat(1_200_000)}`;

describe('statements that are too large to be prepared again elsewhere', () => {
  it('work without a name, also as the first of a session', async () => {
    const client = await service.connect(organization);
    for (const value of [1, 2]) expect((await client.query(long('SELECT $1::int4 AS a'), [value])).rows).toEqual([{ a: value }]);
    expect((await client.query('SELECT $1::int4 AS a', [3])).rows).toEqual([{ a: 3 }]);
    await expect(client.query(long('SELECT $1::int4 AS'), [1])).rejects.toMatchObject({ code: '42601' });
    expect((await client.query(long('SELECT $1::int4 AS a'), [4])).rows).toEqual([{ a: 4 }]);
    await client.end();
  });

  it('keep their names to themselves', async () => {
    const [one, other] = [await service.connect(organization), await service.connect(organization)];
    for (let round = 0; round < 2; round++) {
      expect((await one.query({ name: 'same', text: long('SELECT 1 AS a') })).rows).toEqual([{ a: 1 }]);
      expect((await other.query({ name: 'same', text: long('SELECT 2 AS a') })).rows).toEqual([{ a: 2 }]);
    }
    await one.end();
    const next = await service.connect(organization);
    expect((await next.query({ name: 'same', text: 'SELECT 3 AS a' })).rows).toEqual([{ a: 3 }]);
    await next.end();
    await other.end();
  });

  it('find their tables, and can be refused', async () => {
    const client = await service.connect(organization);
    await client.query(long('CREATE TABLE public.large (a int4)'));
    await client.query(long('INSERT INTO public.large VALUES (1)'));
    for (const name of ['named', '']) {
      const query = { name, text: long('SELECT a FROM public.large WHERE a = $1'), values: [1] };
      expect((await client.query(query)).rows).toEqual([{ a: 1 }]);
      await expect(client.query({ ...query, name: '', text: long('SELECT a FROM public.missing') })).rejects.toMatchObject({
        code: '42P01',
        message: 'relation "public.missing" does not exist',
      });
    }
    await client.end();
  });
});
