import { vi } from 'vitest';
import { setKey } from '../../../http/console/api/client.ts';
import type { SchemaTable } from '../../../http/console/api/database-schema.ts';
import { loadSchema } from '../../../http/console/api/load-schema.ts';
import { type Browse, rowIdentityOf, tableColumn } from '../../../http/console/screens/tables/sql.ts';
import type { EditableTable } from '../../../http/console/screens/tables/staged-changes.ts';
import type { TestOrganization, TestService } from '../../support/service.ts';

/** Lets the console's calls go to a service, with an organization's key. */
export function callAs({ httpUrl }: TestService, { apiKey }: TestOrganization): void {
  vi.stubGlobal('document', { visibilityState: 'visible', addEventListener() {}, baseURI: `${httpUrl}/` });
  setKey(apiKey);
}

export async function tableNamed(name: string, schema = 'public'): Promise<SchemaTable> {
  const { tables } = await loadSchema();
  const table = tables.find((one) => one.schema === schema && one.name === name);
  if (table === undefined) throw new Error(`there is no ${name}`);
  return table;
}

export function browseOf(table: SchemaTable, more: Partial<Browse> = {}): Browse {
  return { table, columns: table.columns.map(tableColumn), identity: rowIdentityOf(table), sort: undefined, filters: [], ...more };
}

export function editable(table: SchemaTable): EditableTable {
  const { columns, identity } = browseOf(table);
  if (identity.kind !== 'key') throw new Error(`${table.name} has no key`);
  return { table, columns, key: identity.columns.map((name) => columns.findIndex((column) => column.name === name)) };
}
