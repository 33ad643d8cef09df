import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { elementsOf, membersOf } from '../../../http/console/api/raw-json.ts';
import { ReceivedRows } from '../../../http/console/grid/source.ts';
import { csvOf, jsonOf } from '../../../http/console/screens/sql/download.ts';
import { PLACEMENTS, startTestService, type TestOrganization, type TestService } from '../../support/service.ts';

const VALUES = `SELECT i AS id, 9007199254740993 + i AS big, CASE WHEN i % 3 = 0 THEN NULL WHEN i % 3 = 1 THEN '' ELSE E'a,"b"\\r\\n<img>' END AS "no,te",
  'NaN'::numeric AS nan, timestamptz '2025-01-31 09:30:00.120000Z' + i * interval '1 microsecond' AS at, '\\x00ff'::bytea AS bytes,
  ARRAY['x', NULL, 'NULL', '', 'a,b'] AS list, '{"a":  1, "a": 2}'::json AS doc, i % 2 = 0 AS even, ARRAY[true, NULL] AS flags, 1 AS id
  FROM generate_series(1, 2500) i ORDER BY 1`;

async function textOf(parts: AsyncIterable<Uint8Array>): Promise<string> {
  const all: Uint8Array[] = [];
  for await (const part of parts) all.push(part);
  return Buffer.concat(all).toString();
}

describe.each(PLACEMENTS)('in the %s placement', (placement) => {
  let service: TestService;
  let organization: TestOrganization;
  let rows: ReceivedRows;
  const query = async (accept: string) => {
    const response = await fetch(`${service.httpUrl}/api/query`, {
      method: 'POST',
      headers: { authorization: `Bearer ${organization.apiKey}`, 'content-type': 'application/json', accept },
      body: JSON.stringify({ sql: VALUES, rowMode: 'array' }),
    });
    return response.text();
  };

  beforeAll(async () => {
    service = await startTestService({ POSTERN_PLACEMENT: placement });
    organization = await service.signUp();
    const text = await query('application/json');
    const members = membersOf(text);
    const fields = JSON.parse(text.slice(...(members.get('fields') ?? [0, 0]))) as { readonly name: string; readonly dataType: string }[];
    rows = new ReceivedRows(fields.map(({ name, dataType }) => ({ name, type: dataType })));
    rows.append(elementsOf(text, members.get('rows')?.[0]));
  });
  afterAll(() => service.close());

  it('the CSV of the rows that are shown is what COPY writes', async () => {
    expect(rows.rowCount).toBe(2_500);
    expect(await textOf(csvOf(rows))).toBe(await query('text/csv'));
  });

  it('the JSON has every value as it was sent, and both columns of one name', async () => {
    const text = await textOf(jsonOf(rows));
    const [first, second] = JSON.parse(text);
    expect(first).toMatchObject({ id: 1, big: '9007199254740994', 'no,te': '', id_2: 1, list: ['x', null, 'NULL', '', 'a,b'] });
    expect(second['no,te']).toBe('a,"b"\r\n<img>');
    expect(text).toContain('{"a":  1, "a": 2}');
  });
});
