import { me } from '../../../session/me.ts';
import type { OpenTable } from '../browse/open-table.ts';
import { isWritable } from '../sql/table-column.ts';
import { CsvError } from './csv.ts';
import { FileParts, type Part, type PartLimits } from './file-parts.ts';
import { BATCH_ROWS, type ImportPlan, type Target } from './run-import.ts';

/** What is known of a file before anything of it is imported. */
export interface Preview {
  readonly file: File;
  readonly isHeaderless: boolean;
  /** What the fields are called. */
  readonly names: readonly string[];
  /** The place of the column that each field goes into; undefined: it is left out. */
  readonly places: readonly (number | undefined)[];
  readonly first: Part;
  readonly parts: FileParts;
}

/** Well below what the server takes: a character may have three bytes. @see http/README.md, Limits */
const PART_CHARACTERS = 4_000_000;
const PART_VALUES = 500_000;
const TIMEOUT_MS = 30_000;

function limits(): PartLimits {
  return { characters: PART_CHARACTERS, values: PART_VALUES, records: BATCH_ROWS * (me.peek()?.limits.maxStatements ?? 1) };
}

/** @throws CsvError */
export async function readPreview(file: File, { columns }: OpenTable, isHeaderless: boolean): Promise<Preview> {
  const parts = await FileParts.open(file, limits());
  const header = isHeaderless ? undefined : await parts.takeFirst();
  const first = await parts.next();
  const model = header ?? first.records[0];
  if (model === undefined || first.records.length === 0) throw new CsvError(1, 'the file has no rows');
  const names = model.fields.map((field, index) => (isHeaderless ? `field ${index + 1}` : (field ?? '')));
  const writable = columns.map((column, place) => (isWritable(column) ? place : undefined));
  const places = isHeaderless
    ? names.map((_, index) => writable.filter((place) => place !== undefined)[index])
    : names.map((name) => writable.find((place) => place !== undefined && isNamed(columns[place]?.name, name)));
  return { file, isHeaderless, names, places, first, parts };
}

function isNamed(column: string | undefined, name: string): boolean {
  return column?.toLowerCase() === name.trim().toLowerCase();
}

export function planOf(preview: Preview, open: OpenTable, timeoutMs = TIMEOUT_MS): ImportPlan {
  return { table: open.table, targets: targetsOf(preview, open), fieldCount: preview.names.length, timeoutMs };
}

/** The columns that fields go into. */
export function targetsOf({ places }: Preview, { columns }: OpenTable): readonly Target[] {
  return places.flatMap((place, field) => {
    const column = place === undefined ? undefined : columns[place];
    return column === undefined ? [] : [{ field, column }];
  });
}
