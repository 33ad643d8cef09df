import type { GridColumn } from '../../../../parts/grid/grid-source.ts';

/** A column as the API describes it. */
export interface Field {
  readonly name: string;
  readonly dataType: string;
}

export function columnsOf(fields: readonly Field[]): readonly GridColumn[] {
  return fields.map(({ name, dataType }) => ({ name, type: dataType }));
}
