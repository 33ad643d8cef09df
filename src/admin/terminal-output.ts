import type { Organization } from '../catalog/organization.ts';

const HEADINGS = ['ID', 'STATUS', 'CLUSTER', 'PLACEMENT', 'CREATED', 'NAME', 'E-MAIL'];

export function organizationTable(organizations: readonly Organization[]): string {
  const rows = organizations.map(({ id, status, placement, createdAt, name, email }) => [
    id,
    status,
    placement.cluster,
    placement.kind,
    createdAt.toISOString(),
    name,
    email,
  ]);
  return table(HEADINGS, rows);
}

export function table(headings: readonly string[], cells: readonly (readonly string[])[]): string {
  const rows = cells.map((row) => row.map(printable));
  const widths = headings.map((heading, column) => Math.max(heading.length, ...rows.map((row) => row[column]?.length ?? 0)));
  const line = (row: readonly string[]) =>
    row
      .map((text, column) => text.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd();
  return [headings, ...rows].map(line).join('\n');
}

/** Organizations choose their names, so control characters in them must not reach the terminal. */
export function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, '\ufffd');
}
